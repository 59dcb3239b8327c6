"""A power-cut session: memory, block layer and workers, to make and judge recordings.

`replayed` rebuilds a single state of a kept recording, and leaves it mounted.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from vdisklab.errors import HostError, PowercutError, VdisklabError
from vdisklab.guest.qemu.block_nodes import Disk
from vdisklab.guest.qemu.daemons import StorageDaemon
from vdisklab.host import command, facts, mounts, syscalls
from vdisklab.host.ledger import Ledger
from vdisklab.path.durability import FailureModel
from vdisklab.path.power_cut_words import ClientKind, DriverSetting
from vdisklab.plan.accelerator import Accelerator
from vdisklab.powercut import crash_states, nbd, rebuild, resets
from vdisklab.powercut.client import ClientDisk, Load
from vdisklab.powercut.client_guests import Guests
from vdisklab.powercut.examiner import open_examiner
from vdisklab.powercut.postgresql import event_windows
from vdisklab.powercut.recordings import Access, Recording, RunSpec, make_recording, open_recording
from vdisklab.powercut.workers import STATE_SECONDS, JudgingJob, WorkerPool, open_pool
from vdisklab.results.power_cut import ReplayedState
from vdisklab.storage import write_log
from vdisklab.storage.filesystem import tmpfs
from vdisklab.storage.site import Site, open_site
from vdisklab.units import GIB, format_bytes
from vdisklab.value import Value, replace

_MEMORY_BYTES, _LEAST_MEMORY = 8 * GIB, 1 * GIB
_REPLAY_MEMORY = 2 * GIB
_ROOM_PER_RECORDING = GIB // 2
_RECORDING = "another recording"
_MEMORY_PER_WORKER = GIB // 4
_MOST_REPEATS = 3
"""Maximum number of repetitions because another mount namespace held a mount."""

_Found = TypeVar("_Found")


class Examination(Value):
    """A recording, and the verdict on its states."""

    recording: Recording
    verdict: crash_states.RunVerdict


@dataclass(slots=True)
class PowerCutSession:
    """A directory in memory, a block layer to record on, and workers that judge.

    `guests` is set while clients in real guests are needed. `boot_sectors_under` is the accelerator
    of boot sectors. It is KVM only if requested, because trying KVM would take longer than they do.
    """

    site: Site
    block_layer: nbd.RestartingDaemon
    pool: WorkerPool
    guests: Guests | None = None
    boot_sectors_under: Accelerator = Accelerator.TCG
    _recordings: int = field(default=0)

    @property
    def daemon(self) -> StorageDaemon:
        """The storage daemon, restarted if it has ended."""
        return self.block_layer.running()

    def over_nbd(self, disk: Disk) -> AbstractContextManager[ClientDisk]:
        """A disk served by QEMU's block layer, without a guest."""
        return nbd.nbd_disk(self.daemon, disk)

    def over_resettable_nbd(self, disk: Disk) -> AbstractContextManager[resets.ResettableDisk]:
        """A disk like that of `over_nbd`, for a client whose connection breaks off."""
        return resets.resettable_nbd(self.daemon, disk)

    def resettable_guest(
        self, load: Load, driver: DriverSetting = DriverSetting.AS_FOUND
    ) -> resets.ResettableAccess:
        """Such disks in a guest that is really reset. `guests` must be set."""
        guests = self.guests
        assert guests is not None  # noqa: S101 - opened for questions that need a guest
        return lambda disk: guests.open_resettable(disk, load, driver)

    def record(self, spec: RunSpec, access: Access | None = None) -> Recording:
        """Records one run, over NBD unless `access` is given; the caller removes the recording.

        Raises MemoryFullError.
        """
        rebuild.require_memory(self.site.directory, _ROOM_PER_RECORDING, _RECORDING)
        self._recordings += 1
        directory = self.site.directory / f"run{self._recordings}"
        with rebuild.reporting_full_memory(_RECORDING):
            return make_recording(self.site, spec, access or self.over_nbd, directory, self.daemon)

    def examine(
        self,
        recording: Recording,
        sampling: crash_states.Sampling,
        model: FailureModel = FailureModel.POWER,
        *,
        post_recovery_states: int,
    ) -> Examination:
        """Judges a recording's states; `post_recovery_states` of them with post-recovery writes.

        Raises UnansweredError or HangError if one was not judged in time.
        """
        selection = select_states(recording, sampling, model)
        jobs = make_jobs(selection.cuts, post_recovery_states)
        verdict = crash_states.RunVerdict(
            tuple(self.pool.judge(recording, jobs)), model, possible=selection.possible,
            exhaustive=selection.exhaustive, acknowledged=recording.trace.acknowledged,
        )  # fmt: skip
        return Examination(recording, verdict)

    def examine_resets(
        self,
        spec: RunSpec,
        most: int | None,
        resettable: resets.ResettableAccess | None = None,
        *,
        past_qemu: bool = False,
    ) -> Examination:
        """Records a run whose guest is reset at most `most` times, and judges each reset.

        It runs over NBD unless `resettable` is given. The caller removes the recording. The verdict
        is exhaustive if the guest was reset after every single answer.
        """
        load, states = spec.load, list[crash_states.JudgedState]()
        flushes = load.writes // load.flush_every if load.kind is ClientKind.FLUSHES else 0
        every = -(-(load.writes + flushes) // (most or sys.maxsize))

        def access(disk: Disk) -> AbstractContextManager[ClientDisk]:
            way = resettable or self.over_resettable_nbd
            return resets.reset_disk(way, disk, states, every=every, past_qemu=past_qemu)

        recording = self.record(spec, access)
        verdict = crash_states.RunVerdict(
            states, FailureModel.GUEST_RESET, possible=load.writes + flushes,
            exhaustive=every == load.depth == 1, acknowledged=recording.trace.acknowledged,
        )  # fmt: skip
        return Examination(recording, verdict)


def repeated_while_held(attempt: Callable[[], _Found]) -> tuple[_Found, int]:
    """The result, and the number of attempts that failed because a mount was held elsewhere.

    A mount that another namespace holds does not disturb the next attempt, which uses new mounts.
    Raises the last permitted attempt's error.
    """
    for repeats in range(_MOST_REPEATS):
        try:
            return attempt(), repeats
        except VdisklabError as error:
            if not mounts.is_held_elsewhere(error):
                raise
    return attempt(), _MOST_REPEATS


def select_states(
    recording: Recording, sampling: crash_states.Sampling, model: FailureModel = FailureModel.POWER
) -> crash_states.Selection:
    """The states of a recording to judge under a model."""
    entries = write_log.read_log(recording.log).entries
    trace, around = recording.trace, event_windows(recording.trace)
    if not model.disk_reorders:
        return crash_states.select_prefixes(
            entries, trace.begin, trace.end, sampling, torn=model.tears, around=around
        )
    epochs = crash_states.epochs_between(entries, trace.begin, trace.end, trace.stops)
    return crash_states.select_states_of_epochs(epochs, entries, sampling, around)


def make_jobs(
    cuts: Sequence[crash_states.CrashState], post_recovery_states: int
) -> list[JudgingJob]:
    """A job for each cut; `post_recovery_states` of them, evenly spread, with post-recovery
    writes."""
    every = max(1, len(cuts) // post_recovery_states) if post_recovery_states else 0
    return [JudgingJob(cut, bool(every) and number % every == 0) for number, cut in enumerate(cuts)]


@contextmanager
def open_session(
    host: command.Host,
    ledger: Ledger,
    directory: Path,
    *,
    workers: int | None = None,
    state_seconds: float = STATE_SECONDS,
) -> Iterator[PowerCutSession]:
    """A session in a new directory in memory below `directory`. Needs root.

    `workers` defaults to one for each CPU, as far as memory allows; a state that takes longer than
    `state_seconds` is given up, without a verdict. Raises HostError when memory, rights or programs
    are missing.
    """
    if (lacking := facts.missing_right()) is not None:
        right, way = lacking
        raise HostError(f"mounting the states needs {right}", hint=way)
    size = _memory_bytes()
    with ExitStack() as stack:
        outer = stack.enter_context(open_site(host, ledger, directory))
        memory = stack.enter_context(tmpfs(outer, "memory", size))
        site = stack.enter_context(open_site(host, ledger, memory.path))
        block_layer = stack.enter_context(
            nbd.restarting_daemon(ledger, site.directory, f"vdisklab-{ledger.run_id}")
        )
        block_layer.running()  # a missing QEMU is reported before the first control
        count = workers if workers is not None else os.cpu_count() or 1
        count = min(count, size // _MEMORY_PER_WORKER)
        pool = stack.enter_context(open_pool(memory.path, count, seconds=state_seconds))
        yield PowerCutSession(site, block_layer, pool)


def _memory_bytes() -> int:
    available = facts.available_memory()
    size = min(_MEMORY_BYTES, available // 2)
    if size < _LEAST_MEMORY:
        raise HostError(
            f"states are built in memory, and only {format_bytes(available)} are free",
            hint="free 2 GiB of memory",
        )
    return size


def split_case(case: str) -> tuple[str, crash_states.CrashState]:
    """The verdict's id and the cut of a case such as `3f2a9c01/12-3f`. Raises PowercutError."""
    name, slash, cut = case.partition("/")
    if not slash or not name.isalnum():
        raise PowercutError(
            f"{case!r} is not a case",
            hint="copy it from the column `case`: 3f2a9c01/12-3f, or 3f2a9c01/@61",
        )
    return name, crash_states.parse_crash_state(cut)


@contextmanager
def replayed(
    host: command.Host, ledger: Ledger, directory: Path, recordings: Path, case: str
) -> Iterator[ReplayedState]:
    """Rebuilds and judges the state of a case, and keeps it mounted while the context is open.

    `recordings` holds the recordings of losses. Raises PowercutError for an unknown case.
    """
    name, cut = split_case(case)
    recording = open_recording(recordings / name)
    with (
        open_site(host, ledger, directory) as outer,
        tmpfs(outer, "memory", _REPLAY_MEMORY) as memory,
        open_site(host, ledger, memory.path) as site,
        nbd.restarting_daemon(ledger, site.directory, f"vdisklab-{ledger.run_id}") as daemon,
        open_examiner(site, recording, daemon) as examiner,
    ):
        judged, trace = examiner.judge(cut), recording.trace
        state = examiner.rebuilder.build(examiner.epoch(cut), cut)
        device = syscalls.attach_loop(state)  # the examiner has recorded it in the ledger
        replayed_state = ReplayedState(
            trace.path,
            trace.client.phrase,
            trace.client.expects,
            judged.outcome,
            judged.detail,
            device,
        )
        if examiner.recovery.recover(device) is not None:
            yield replayed_state
            return
        try:
            mountpoint = examiner.recovery.files()
            with suppress(OSError):  # then it stays readable
                examiner.recovery.allow_writes()
            yield replace(replayed_state, mountpoint=mountpoint, image=mountpoint / trace.image)
        finally:
            examiner.recovery.release()
