"""Controls: broken disks that must lose data, and an intact one that must not.

They run before every campaign; if one fails, no path is judged.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from vdisklab.errors import PowercutError
from vdisklab.guest.qemu.block_nodes import Disk
from vdisklab.guest.qemu.storage_daemon import start_storage_daemon
from vdisklab.host.seccomp import forgetful_syncs
from vdisklab.path.disk_path import parse_path
from vdisklab.powercut.clients.nbd import NbdDisk, nbd_disk
from vdisklab.powercut.cutting.cuts import Sampling
from vdisklab.powercut.recording.disk_server import HONEST, Lies
from vdisklab.powercut.recording.promises import DEFAULT_WRITES, Load
from vdisklab.powercut.recording.recordings import Access, RunSpec
from vdisklab.powercut.recording.trace import ClientKind
from vdisklab.powercut.session import PowerCutSession
from vdisklab.progress import Progress, Step
from vdisklab.results.power_cut import ControlResult

_DROPPED_OF = 50
_SECTORS_PER_WRITE = 8


class ControlError(PowercutError):
    """A control failed: verdicts on this machine cannot be trusted."""


@dataclass(frozen=True, slots=True)
class Control:
    """A run with a known result: `must_lose` says if promises must be broken."""

    name: str
    spec: RunSpec
    must_lose: bool
    drops_syncs: bool = False
    states: int = 60


def _spec(path: str, lies: Lies = HONEST, writes: int = DEFAULT_WRITES) -> RunSpec:
    load = Load(ClientKind.FLUSHES, writes=writes, max_sectors=_SECTORS_PER_WRITE)
    return RunSpec(parse_path(path), load, lies=lies)


_THIN = "ext4/raw:preallocation=off"

CONTROLS: Sequence[Control] = (
    Control(
        "a disk that drops 10 % of its flushes",
        _spec(f"{_THIN}/none", Lies(dropped_flushes=0.1)),
        must_lose=True,
    ),
    Control(
        f"a QEMU that forgets 1 fdatasync in {_DROPPED_OF}",
        _spec(f"{_THIN}/writeback", writes=240),
        must_lose=True,
        drops_syncs=True,
        states=160,  # the end of every epoch must be among these states
    ),
    Control("cache mode unsafe", _spec(f"{_THIN}/unsafe"), must_lose=True),
    Control(
        "ext4 without barriers",
        _spec("ext4:barrier=off/raw:preallocation=off/none"),
        must_lose=True,
    ),
    Control(
        "a disk that keeps flushed data, writethrough, a flushing client",
        _spec(f"{_THIN}/writethrough"),
        must_lose=False,
    ),
)


def run_controls(
    session: PowerCutSession, progress: Progress, controls: Sequence[Control] = CONTROLS
) -> Iterator[ControlResult]:
    """Yields each control's result. Raises ControlError at the first failure."""
    for control in controls:
        progress(Step(f"control: {control.name}"))
        result = _run(session, control)
        yield result
        if not result.passed:
            failure = (
                "should have lost data but did not"
                if control.must_lose
                else "should not have lost data but did"
            )
            raise ControlError(
                f"the control `{control.name}` {failure} "
                f"({result.losses} of {result.states} states)",
                hint="no path can be judged on this machine; please report this",
            )


def _run(session: PowerCutSession, control: Control) -> ControlResult:
    if not control.drops_syncs:
        return _examine(session, control)
    with forgetful_syncs(_DROPPED_OF) as dropped:

        @contextmanager
        def access(disk: Disk) -> Iterator[NbdDisk]:
            with (
                start_storage_daemon(
                    session.site.ledger, session.site.directory,
                    f"{session.daemon.address}-forgetful", before=dropped.before,
                ) as daemon,
                nbd_disk(daemon, disk) as opened,
            ):  # fmt: skip
                yield opened

        result = _examine(session, control, access)
    note = f"{dropped.dropped} of {dropped.calls} syncs were dropped"
    return ControlResult(result.name, result.must_lose, result.states, result.losses, note)


def _examine(
    session: PowerCutSession, control: Control, access: Access | None = None
) -> ControlResult:
    recording = session.record(control.spec, access)
    sampling = Sampling(states=control.states, exhaustive_up_to=4)
    try:
        verdict = session.examine(recording, sampling, post_recovery_states=0).verdict
    finally:
        recording.remove()
    return ControlResult(control.name, control.must_lose, verdict.states, verdict.losses)
