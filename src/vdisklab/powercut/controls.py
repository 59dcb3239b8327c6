"""Controls: broken disks that must lose data, and an intact one that must not.

Those of the requested failure models run before every campaign; if one fails, no path is judged.
"""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial

from vdisklab.errors import PowercutError, VdisklabError
from vdisklab.guest.qemu.block_nodes import Disk
from vdisklab.guest.qemu.daemons import start_storage_daemon
from vdisklab.host.syscalls import forgetful_syncs
from vdisklab.host.waiting import patience
from vdisklab.operations.operation import DiskOperation
from vdisklab.operations.registry import OPERATIONS
from vdisklab.path.disk_path import parse_path
from vdisklab.path.durability import FailureModel
from vdisklab.path.power_cut_words import AccessKind, ClientKind, DriverSetting
from vdisklab.powercut import crash_states, nbd, postgresql, recordings
from vdisklab.powercut.client import DEFAULT_WRITES, Load
from vdisklab.powercut.session import PowerCutSession, repeated_while_held
from vdisklab.progress import Progress, Step
from vdisklab.results.power_cut import ControlResult
from vdisklab.storage.disk_server import HONEST, Lies
from vdisklab.value import Value, replace

_DROPPED_OF = 50
_SECTORS_PER_WRITE = 8
_KILL_SECONDS = 30.0


_THIN = "ext4/raw:preallocation=off"
_THIN_QCOW2 = "ext4/qcow2:preallocation=off"


class ControlError(PowercutError):
    """A control failed: verdicts on this machine cannot be trusted."""


class Control(Value):
    """A run with a known result."""

    name: str
    spec: recordings.RunSpec
    must_lose: bool
    """True if acknowledged writes must be lost."""
    drops_syncs: bool = False
    """QEMU's fdatasync is intercepted."""
    killed: bool = False
    """SIGKILL ends QEMU after the last write."""
    past_qemu: bool = False
    """After a reset of the guest the image's file is read, not QEMU's disk."""
    forgets_switch: bool = False
    """After an operation, the image or size is read that the guest knew before it."""
    in_guest: bool = False
    """The client runs in a guest."""
    states: int = 60
    model: FailureModel = FailureModel.POWER


def _spec(path: str, lies: Lies = HONEST, writes: int = DEFAULT_WRITES) -> recordings.RunSpec:
    load = Load(ClientKind.FLUSHES, writes=writes, max_sectors=_SECTORS_PER_WRITE)
    return recordings.RunSpec(parse_path(path), load, lies=lies)


def _unflushed(path: str, *, host_survives: bool = False) -> recordings.RunSpec:
    load = Load(ClientKind.NEVER, writes=40, max_sectors=_SECTORS_PER_WRITE)
    return recordings.RunSpec(parse_path(path), load, host_survives=host_survives)


def _crashes(model: FailureModel, name: str) -> tuple[Control, Control]:
    return (
        Control(
            f"{name}, cache mode none, a client that never flushes",
            _unflushed("ext4/raw/none"),
            must_lose=False,
            model=model,
        ),
        Control(
            f"{name}, cache mode writeback, a client that never flushes",
            _unflushed("ext4/raw/writeback"),
            must_lose=True,
            model=model,
        ),
    )


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
    *_crashes(FailureModel.PLP, "power-loss protection"),
    *_crashes(FailureModel.HOST_CRASH, "a crash of the host"),
    Control(
        "QEMU killed by SIGKILL, a raw image, a client that never flushes",
        _unflushed("ext4/raw/writeback", host_survives=True),
        must_lose=False,
        killed=True,
        model=FailureModel.QEMU_KILLED,
    ),
    Control(
        "QEMU killed by SIGKILL, a thin qcow2 image, a client that never flushes",
        _unflushed(f"{_THIN_QCOW2}/writeback", host_survives=True),
        must_lose=True,
        killed=True,
        model=FailureModel.QEMU_KILLED,
    ),
    Control(
        "the guest reset, a thin qcow2 image, a client that never flushes",
        _unflushed(f"{_THIN_QCOW2}/writeback", host_survives=True),
        must_lose=False,
        model=FailureModel.GUEST_RESET,
    ),
    Control(
        "the same, read from the image file without what QEMU holds in memory",
        _unflushed(f"{_THIN_QCOW2}/writeback", host_survives=True),
        must_lose=True,
        past_qemu=True,
        model=FailureModel.GUEST_RESET,
    ),
)


def _operation_controls(operation: DiskOperation) -> Iterator[Control]:
    """A sound disk during an operation, and a judge that looks at the image before it."""
    judging = operation.kind.judging
    if judging is None:
        raise TypeError(f"no power cut is judged in the middle of a {operation}")
    spec = replace(_spec(judging.control, writes=24), during=operation)
    yield Control(f"a {operation}, a flushing client", spec, must_lose=False, states=40)
    wrong = "only the old size" if operation.kind.doubles else "the image before it"
    yield Control(
        f"a {operation}, and {wrong} is read",
        spec,
        must_lose=True,
        states=40,
        forgets_switch=True,
    )


GUEST_CONTROLS: Sequence[Control] = (
    Control(
        "a real guest reset by system_reset, a thin qcow2 image, a client that never flushes",
        _unflushed(f"{_THIN_QCOW2}/writeback", host_survives=True),
        must_lose=False,
        in_guest=True,
        states=2,
        model=FailureModel.GUEST_RESET,
    ),
    Control(
        "the same guest, read from the image file without what QEMU holds in memory",
        _unflushed(f"{_THIN_QCOW2}/writeback", host_survives=True),
        must_lose=True,
        past_qemu=True,
        in_guest=True,
        states=1,
        model=FailureModel.GUEST_RESET,
    ),
)
"""Further controls, if a question's client is in a guest."""


def _postgresql(path: str, *, synced: bool = True) -> recordings.RunSpec:
    load = Load(ClientKind.POSTGRESQL, writes=24, synced=synced)
    return recordings.RunSpec(
        parse_path(path), load, AccessKind.GUEST, postgresql.disk_size(load.writes)
    )


POSTGRESQL_CONTROLS: Sequence[Control] = tuple(
    Control(f"PostgreSQL, {name}", spec, must_lose=lost, in_guest=True, states=states)
    for name, spec, lost, states in (
        ("fsync=off", _postgresql(f"{_THIN}/none", synced=False), True, 8),
        ("cache mode unsafe", _postgresql(f"{_THIN}/unsafe"), True, 8),
        ("fsync=on, cache mode none", _postgresql(f"{_THIN}/none"), False, 32),
    )
)
"""Further controls, if the client is PostgreSQL: its judge must see a loss, and no loss."""


def _files(path: str, *, synced: bool = True) -> recordings.RunSpec:
    load = Load(ClientKind.FILES, writes=24, synced=synced)
    return recordings.RunSpec(parse_path(path), load, AccessKind.GUEST)


FILES_CONTROLS: Sequence[Control] = tuple(
    Control(f"file operations, {name}", spec, must_lose=lost, in_guest=True, states=states)
    for name, spec, lost, states in (
        ("without their fsyncs", _files(f"{_THIN}/none", synced=False), True, 40),
        ("cache mode unsafe", _files(f"{_THIN}/unsafe"), True, 40),
        ("cache mode none", _files(f"{_THIN}/none"), False, 60),
    )
)
"""Further controls, if the client runs file operations: its judge must see a loss, and no loss."""


def controls_of(
    models: Collection[FailureModel],
    operations: Collection[DiskOperation] = (),
    *,
    in_guest: bool = False,
    clients: Collection[ClientKind] = (),
) -> Sequence[Control]:
    """The controls of these failure models, operations and clients, and of clients `in_guest`."""
    of_databases = POSTGRESQL_CONTROLS if ClientKind.POSTGRESQL in clients else ()
    of_files = FILES_CONTROLS if ClientKind.FILES in clients else ()
    of_resets = GUEST_CONTROLS if in_guest and FailureModel.GUEST_RESET in models else ()
    return [
        *(control for control in CONTROLS if control.model in models),
        *of_resets,
        *of_databases,
        *of_files,
        *(
            control
            for operation in sorted(set(operations), key=_row)
            for control in _operation_controls(operation)
        ),
    ]


def _row(operation: DiskOperation) -> int:
    return OPERATIONS.index(operation.kind)


def run_controls(
    session: PowerCutSession, progress: Progress, controls: Sequence[Control]
) -> Iterator[ControlResult]:
    """Yields each control's result. Raises ControlError at the first failure."""
    for control in controls:
        progress(Step(f"control: {control.name}"))
        result, held = repeated_while_held(partial(_run, session, control))
        if held:
            again = f"asked again {held} times: another mount namespace held one of our mounts"
            result = replace(result, note="; ".join(filter(None, (result.note, again))))
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
    note = ""
    if control.model.spares_qemu:
        verdict = _reset(session, control)
    elif control.drops_syncs:
        with forgetful_syncs(_DROPPED_OF) as dropped:
            verdict = _examine(session, control, partial(_own_disk, session, dropped.before))
        note = f"{dropped.dropped} of {dropped.calls} syncs were dropped"
    else:
        verdict = _examine(session, control, _access(session, control))
    return ControlResult(control.name, control.must_lose, verdict.states, verdict.losses, note)


def _access(session: PowerCutSession, control: Control) -> recordings.Access | None:
    guests, load = session.guests, control.spec.load
    if control.in_guest and guests is not None:
        return lambda disk: guests.open(disk, load, DriverSetting.AS_FOUND)
    return partial(_killed_disk, session) if control.killed else None


def _reset(session: PowerCutSession, control: Control) -> crash_states.RunVerdict:
    resettable = session.resettable_guest(control.spec.load) if control.in_guest else None
    examination = session.examine_resets(
        control.spec, control.states, resettable, past_qemu=control.past_qemu
    )
    examination.recording.remove()
    return examination.verdict


def _examine(
    session: PowerCutSession, control: Control, access: recordings.Access | None
) -> crash_states.RunVerdict:
    recording = session.record(control.spec, access)
    if control.forgets_switch:
        recording = recordings.without_switch(recording)
    sampling = crash_states.Sampling(states=control.states, exhaustive_up_to=4)
    try:
        return session.examine(recording, sampling, control.model, post_recovery_states=0).verdict
    finally:
        recording.remove()


@contextmanager
def _own_disk(
    session: PowerCutSession, before: Callable[[], None], disk: Disk
) -> Iterator[nbd.NbdDisk]:
    """The disk of a daemon of its own, in whose process `before` runs first."""
    site, name = session.site, f"{session.daemon.address}-forgetful"
    with (
        start_storage_daemon(site.ledger, site.directory, name, before=before) as daemon,
        nbd.nbd_disk(daemon, disk) as opened,
    ):
        yield opened


@contextmanager
def _killed_disk(session: PowerCutSession, disk: Disk) -> Iterator[nbd.NbdDisk]:
    """The disk of a daemon that is killed after the run's last answer, with its image open."""
    name = f"{session.daemon.address}-killed"
    process: subprocess.Popen[bytes] | None = None
    try:
        with (
            start_storage_daemon(session.site.ledger, session.site.directory, name) as daemon,
            nbd.nbd_disk(daemon, disk) as opened,
        ):
            yield opened
            process = daemon.process
            process.kill()
            with suppress(subprocess.TimeoutExpired):
                process.wait(_KILL_SECONDS * patience())
    except VdisklabError:  # nothing can be closed at a daemon that is gone
        if process is None:
            raise
    if process.returncode != -signal.SIGKILL:
        raise PowercutError("the control's storage daemon was not ended by SIGKILL")
