"""Caveats: why numbers do not measure this machine. Every answer states them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

from vdisklab.analysis.diagnostics.diagnostic import Diagnostic
from vdisklab.documents import RARE
from vdisklab.plan.accelerator import Accelerator
from vdisklab.results.model import Campaign, Origin, RanUnder, RunOutline
from vdisklab.value import HIDDEN, Value

_EMULATED = "good for comparing host-side choices, not for the speed of a KVM guest"
EMULATION = f"under emulation (TCG): {_EMULATED}"
ASK_DOCTOR = "`vdisklab doctor` says what KVM needs."
"""The way to KVM where nothing is known of the host that measured."""
IN_LAB = "in the lab, a host in a virtual machine: proof that a stack works, not a measure of speed"
UNDER_EMULATED_KVM = (
    "under KVM in an emulated host: proof that code works under KVM, not a measure of speed"
)


def emulation_of(guest_arch: str) -> str:
    """The warning for guests of another architecture than the host's."""
    return f"in guests of {guest_arch}, under emulation (TCG): {_EMULATED}"


class Emulated(Diagnostic):
    """The guests ran under TCG. `guest_arch` is theirs, if it is not the host's."""

    guest_arch: str | None = None
    kvm: Annotated[str, HIDDEN] = ASK_DOCTOR

    def __str__(self) -> str:
        if self.guest_arch is not None:
            return f"Measured {emulation_of(self.guest_arch)}. {_on_a_host_of(self.guest_arch)}"
        return f"Measured {EMULATION}. {self.kvm}"


def _on_a_host_of(guest_arch: str) -> str:
    return f"KVM runs them on hosts of {guest_arch} only."


class InEmulatedHost(Diagnostic):
    """The guests ran under KVM in a host that is emulated itself, such as the lab."""

    def __str__(self) -> str:
        return f"Measured {UNDER_EMULATED_KVM}. Measure on the machine that the numbers are for."


class InLab(Diagnostic):
    """Measured in the lab: a host in a virtual machine, on temporary disks."""

    def __str__(self) -> str:
        return f"Measured {IN_LAB}. Measure on the machine that the numbers are for."


LEAST_HOSTS = 3
"""From so many hosts on, they are ranked together (`analysis/fleet/host_ranks.py`)."""


class Caveats(Value):
    """Why numbers are not a measure of this machine, or not of all machines in the database."""

    accelerator: Annotated[
        Accelerator | None,
        "what ran the guests; `tcg` is good for comparing host-side choices, not for the speed of "
        "a KVM guest. Null without a guest",
    ] = None
    emulated: Annotated[bool, "true under TCG, and in a host that is emulated itself"] = False
    lab: Annotated[
        bool, "true when a run was made by `vdisklab lab run`: proof that a stack works, no speed"
    ] = False
    emulated_host: Annotated[
        bool, "true when KVM ran in a host that is emulated itself: proof that code works, no speed"
    ] = False

    guest_arch: Annotated[
        str | None, "the guests' architecture, if it is not the host's: then QEMU emulated them"
    ] = None
    only_of: Annotated[
        str | None,
        "the host of the numbers, if the database has others and none was named",
        RARE,
    ] = None
    of_hosts: Annotated[int | None, HIDDEN] = None
    """How many hosts the database has then."""
    measured_now: Annotated[str | None, HIDDEN] = None
    """Who measures the campaign at this moment, and how much is stored, as a clause."""
    kvm: Annotated[str, HIDDEN] = ASK_DOCTOR
    """The way to KVM on the host that measured, in a sentence."""

    @property
    def warning(self) -> str | None:
        """The warning to show with every number; None if no caveat applies."""
        if self.emulated_host:
            return UNDER_EMULATED_KVM
        if self.lab:
            return IN_LAB
        if self.accelerator is not Accelerator.TCG:
            return None
        return EMULATION if self.guest_arch is None else emulation_of(self.guest_arch)

    @property
    def remedies(self) -> tuple[str, ...]:
        """What to do for numbers of all hosts, and of a KVM guest's speed, in sentences; empty if
        these are."""
        now = self.measured_now
        running = None if now is None else f"{now[0].upper()}{now[1:]}."
        return tuple(filter(None, (running, self._all_hosts, self._remedy)))

    @property
    def _all_hosts(self) -> str | None:
        """`These numbers are of kvm8 only, one of 9 hosts in this database …`."""
        if self.only_of is None or self.of_hosts is None:
            return None
        of = f"These numbers are of {self.only_of} only, one of {self.of_hosts} hosts"
        if self.of_hosts < LEAST_HOSTS:
            return f"{of} in this database. `vdisklab runs` lists the campaigns of the other one."
        return f"{of} in this database. `vdisklab recommend --hosts all` answers for all of them."

    def scoped(self, sentence: str) -> str:
        """A first sentence that says of which host it is: `On kvm8 only, one of 9 hosts: take …`;
        unchanged if it is of all hosts, or of the one that was named."""
        if self.only_of is None or self.of_hosts is None:
            return sentence
        return (
            f"On {self.only_of} only, one of {self.of_hosts} hosts: "
            f"{sentence[0].lower()}{sentence[1:]}"
        )

    @property
    def notes(self) -> tuple[str, ...]:
        """The warnings among notes, and what to do about them; empty if no caveat applies."""
        measured = None if self.warning is None else f"Measured {self.warning}."
        said = " ".join(filter(None, (measured, self._remedy)))
        return tuple(filter(None, (self._all_hosts, said)))

    @property
    def _remedy(self) -> str | None:
        """The way to KVM, or another host for guests that this one cannot run."""
        if self.warning == EMULATION:
            return self.kvm
        is_foreign = self.guest_arch is not None and self.warning == emulation_of(self.guest_arch)
        return _on_a_host_of(self.guest_arch) if is_foreign and self.guest_arch else None

    @property
    def with_remedy(self) -> tuple[str, ...]:
        """The warning and what to do about it, for an answer's first lines."""
        said = () if self.warning is None else (f"Measured {self.warning}.",)
        joined = " ".join((*said, *self.remedies))
        return (joined,) if joined else ()

    @property
    def briefly(self) -> str | None:
        """`Measured under emulation (TCG)`, for each of many numbers; None if no caveat applies."""
        return None if self.warning is None else f"Measured {self.warning.partition(':')[0]}"

    @property
    def findings(self) -> tuple[Diagnostic, ...]:
        """The most serious caveat: numbers from an emulated host cannot even be compared."""
        if self.emulated_host:
            return (InEmulatedHost(),)
        if self.lab:
            return (InLab(),)
        is_emulation = self.accelerator is Accelerator.TCG
        return (Emulated(self.guest_arch, self.kvm),) if is_emulation else ()


def caveats_of(
    runs: Iterable[RunOutline], campaigns: Iterable[Campaign] = (), guest_arch: str | None = None
) -> Caveats:
    """The caveats that hold for any of these runs, which are of `campaigns`.

    `guest_arch` is the architecture of a guest that its host could not run, if no campaign says it.
    """
    guest_arch = next((row.guest_arch for row in campaigns if row.guest_arch), guest_arch)
    ran_under, lab = set[RanUnder](), False
    for run in runs:
        if run.ran_under is not None:
            ran_under.add(run.ran_under)
        lab = lab or run.origin is Origin.LAB
    if not ran_under:
        return Caveats(lab=lab)
    worst = max(ran_under, key=lambda under: (under.emulated, under.accelerator == Accelerator.TCG))
    accelerator = Accelerator(worst.accelerator)
    emulated = worst.emulated or accelerator is Accelerator.TCG
    return Caveats(accelerator, emulated, lab, worst.emulated, guest_arch)
