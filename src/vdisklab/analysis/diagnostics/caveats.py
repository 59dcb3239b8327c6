"""Caveats: why numbers do not measure this machine. Every answer states them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated

from vdisklab.analysis.diagnostics.diagnostic import Diagnostic
from vdisklab.results.model import Origin, RanUnder, RunOutline

EMULATION = (
    "under emulation (TCG): good for comparing host-side choices, not for the speed of a KVM guest"
)
IN_LAB = "in the lab, a host in a virtual machine: proof that a stack works, not a measure of speed"
IN_EMULATED_HOST = (
    "under KVM in an emulated host: proof that code works under KVM, not a measure of speed"
)


@dataclass(frozen=True, slots=True)
class Emulated(Diagnostic):
    """The guests ran under TCG."""

    def __str__(self) -> str:
        return f"Measured {EMULATION}. `vdisklab doctor` shows what KVM needs here."


@dataclass(frozen=True, slots=True)
class InEmulatedHost(Diagnostic):
    """The guests ran under KVM in a host that is emulated itself, such as the lab."""

    def __str__(self) -> str:
        return f"Measured {IN_EMULATED_HOST}. Measure on the machine that the numbers are for."


@dataclass(frozen=True, slots=True)
class InLab(Diagnostic):
    """Measured in the lab: a host in a virtual machine, on temporary disks."""

    def __str__(self) -> str:
        return f"Measured {IN_LAB}. Measure on the machine that the numbers are for."


@dataclass(frozen=True, slots=True)
class Caveats:
    """Why numbers are not a measure of this machine."""

    ran_under: Annotated[
        RanUnder | None,
        "what ran the guests; `tcg` is good for comparing host-side choices, and `kvm in an "
        "emulated host` proves that code works: neither is the speed of a KVM guest. Null without "
        "a guest",
    ] = None
    lab: Annotated[
        bool, "true when a run was made by `vdisklab lab run`: proof that a stack works, no speed"
    ] = False

    @property
    def emulated(self) -> bool:
        """True if a guest ran without KVM."""
        return self.ran_under is RanUnder.TCG

    @property
    def under_emulated_kvm(self) -> bool:
        """True if a guest ran under KVM in an emulated host."""
        return self.ran_under is RanUnder.EMULATED_HOST

    @property
    def warning(self) -> str | None:
        """The warning to show with every number; None if no caveat applies."""
        if self.under_emulated_kvm:
            return IN_EMULATED_HOST
        if self.lab:
            return IN_LAB
        return EMULATION if self.emulated else None

    @property
    def notes(self) -> tuple[str, ...]:
        """The warning as a sentence among notes; empty if no caveat applies."""
        return () if self.warning is None else (f"Measured {self.warning}.",)

    @property
    def findings(self) -> tuple[Diagnostic, ...]:
        """The most serious caveat: numbers from an emulated host cannot even be compared."""
        if self.under_emulated_kvm:
            return (InEmulatedHost(),)
        if self.lab:
            return (InLab(),)
        return (Emulated(),) if self.emulated else ()


_MOST_SERIOUS_FIRST = (RanUnder.EMULATED_HOST, RanUnder.TCG, RanUnder.KVM)


def caveats_of(runs: Iterable[RunOutline]) -> Caveats:
    """The caveats that hold for any of these runs."""
    ran_under, origins = set[RanUnder | None](), set[Origin]()
    for run in runs:
        ran_under.add(run.ran_under)
        origins.add(run.origin)
    worst = next((kind for kind in _MOST_SERIOUS_FIRST if kind in ran_under), None)
    return Caveats(worst, Origin.LAB in origins)
