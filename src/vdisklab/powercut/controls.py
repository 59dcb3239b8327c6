"""Is the judge right? Broken disks that must be found out, and an honest one that must not be.

Run before every campaign: without them no verdict is given.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from vdisklab.errors import PowercutError
from vdisklab.guest.qemu.blockdev import Disk
from vdisklab.guest.qemu.storagedaemon import start_storage_daemon
from vdisklab.host.seccomp import forgetful_syncs
from vdisklab.path.disk_path import parse_path
from vdisklab.powercut.clients.blocklayer import NbdDisk, nbd_disk
from vdisklab.powercut.cutting.cuts import Wanted
from vdisklab.powercut.recording.diskserver import Lies
from vdisklab.powercut.recording.record import Load
from vdisklab.powercut.recording.recording import Access, Asked
from vdisklab.powercut.recording.trace import ClientKind
from vdisklab.powercut.session import Examined, Lab
from vdisklab.progress import Progress, Step

_FORGOTTEN_OF = 50
_SECTORS_PER_WRITE = 8


class ControlError(PowercutError):
    """A control went wrong: the judge's verdicts on this machine are not to be trusted."""


@dataclass(frozen=True, slots=True)
class Control:
    """One known case: what to record, and whether promises must be found broken."""

    name: str
    asked: Asked
    must_lose: bool
    forgets_syncs: bool = False
    states: int = 60


@dataclass(frozen=True, slots=True)
class ControlResult:
    """What a control gave."""

    name: str
    must_lose: bool
    states: int
    losses: int
    note: str = ""

    @property
    def passed(self) -> bool:
        """The judge said what is known to be true."""
        return (self.losses > 0) == self.must_lose and self.states > 0


def _asked(path: str, load: Load, lies: Lies | None = None) -> Asked:
    return Asked(parse_path(path), load, lies=lies or Lies())


_FLUSHING = Load(ClientKind.FLUSHES, max_sectors=_SECTORS_PER_WRITE)
_LONG = Load(ClientKind.FLUSHES, writes=240, max_sectors=_SECTORS_PER_WRITE)
_THIN = "ext4/raw:preallocation=off"

CONTROLS: Sequence[Control] = (
    Control(
        "a disk that drops 10 % of its flushes",
        _asked(f"{_THIN}/none", _FLUSHING, Lies(dropped_flushes=0.1)),
        must_lose=True,
    ),
    Control(
        f"a QEMU that forgets 1 fdatasync in {_FORGOTTEN_OF}",
        _asked(f"{_THIN}/writeback", _LONG),
        must_lose=True,
        forgets_syncs=True,
        states=160,  # every epoch's end must be among them
    ),
    Control("cache mode unsafe", _asked(f"{_THIN}/unsafe", _FLUSHING), must_lose=True),
    Control(
        "ext4 without barriers",
        _asked("ext4:barrier=off/raw:preallocation=off/none", _FLUSHING),
        must_lose=True,
    ),
    Control(
        "an honest disk, writethrough, a flushing client",
        _asked(f"{_THIN}/writethrough", _FLUSHING),
        must_lose=False,
    ),
)


def run_controls(
    lab: Lab, progress: Progress, controls: Sequence[Control] = CONTROLS
) -> Iterator[ControlResult]:
    """Each control's result as it comes. Raises ControlError at the first that went wrong."""
    for control in controls:
        progress(Step(f"control: {control.name}"))
        result = _run(lab, control)
        yield result
        if not result.passed:
            wanted = "must lose and did not" if control.must_lose else "must not lose and did"
            raise ControlError(
                f"the control `{control.name}` {wanted} "
                f"({result.losses} of {result.states} states)",
                hint="no verdict can be given on this machine; please report this",
            )


def _run(lab: Lab, control: Control) -> ControlResult:
    if not control.forgets_syncs:
        return _result(control, _examine(lab, control))
    with forgetful_syncs(_FORGOTTEN_OF) as lie:

        @contextmanager
        def access(disk: Disk) -> Iterator[NbdDisk]:
            with (
                start_storage_daemon(
                    lab.site.ledger, lab.site.directory,
                    f"{lab.daemon.address}-forgetful", before=lie.before,
                ) as daemon,
                nbd_disk(daemon, disk) as opened,
            ):  # fmt: skip
                yield opened

        examined = _examine(lab, control, access)
    return _result(control, examined, f"{lie.dropped} of {lie.asked} syncs were dropped")


def _examine(lab: Lab, control: Control, access: Access | None = None) -> Examined:
    if access is None:
        recording = lab.record(control.asked)
    else:
        recording = lab.record_through(control.asked, access)
    wanted = Wanted(states=control.states, exhaustive_up_to=4)
    try:
        return lab.examine(recording, wanted, afterlives=0)
    finally:
        recording.forget()


def _result(control: Control, examined: Examined, note: str = "") -> ControlResult:
    verdict = examined.verdict
    losses = sum(count for outcome, count in verdict.outcomes.items() if outcome.is_loss)
    return ControlResult(control.name, control.must_lose, verdict.states, losses, note)
