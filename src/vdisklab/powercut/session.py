"""Everything that a campaign of power cuts stands on, and one examination from end to end."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from vdisklab.errors import HostError
from vdisklab.guest.qemu.blockdev import Disk
from vdisklab.guest.qemu.storagedaemon import StorageDaemon
from vdisklab.host.command import Host
from vdisklab.host.ledger import Ledger
from vdisklab.host.memory import available_memory
from vdisklab.powercut.clients.blocklayer import nbd_disk
from vdisklab.powercut.clients.guests import Guests
from vdisklab.powercut.cutting.cuts import Cut, Selection, Wanted, epochs_between, select_cuts
from vdisklab.powercut.cutting.memory import require_memory, told_when_full
from vdisklab.powercut.judging.daemonkeeper import DaemonKeeper, keep_daemon
from vdisklab.powercut.judging.verdict import Judged, Verdict, summarise
from vdisklab.powercut.judging.workers import STATE_SECONDS, HangError, Job, Pool, open_pool
from vdisklab.powercut.recording.log import read_log
from vdisklab.powercut.recording.record import PromisingDisk
from vdisklab.powercut.recording.recording import Access, Asked, Recording, make_recording
from vdisklab.storage.filesystem import tmpfs
from vdisklab.storage.site import Site, open_site
from vdisklab.units import GIB, format_bytes

AFTERLIVES = 20
"""States of each recording with which QEMU goes on."""

_MEMORY_BYTES, _LEAST_MEMORY = 8 * GIB, 1 * GIB
_ROOM_PER_RECORDING = GIB // 2
_RECORDING = "another recording"
_MEMORY_PER_WORKER = GIB // 4


@dataclass(slots=True)
class Lab:
    """A directory in memory, a block layer to record on, and workers that judge.

    `guests` are there for clients in real guests, when such are asked for.
    """

    site: Site
    keeper: DaemonKeeper
    pool: Pool
    guests: Guests | None = None
    _recordings: int = field(default=0)

    @property
    def daemon(self) -> StorageDaemon:
        """QEMU's block layer, started anew if it has ended."""
        return self.keeper.daemon()

    def record(self, asked: Asked) -> Recording:
        """One recorded run over NBD; the caller removes it with `forget`."""
        return self.record_through(asked, self.over_nbd)

    def over_nbd(self, disk: Disk) -> AbstractContextManager[PromisingDisk]:
        """A disk through QEMU's block layer alone."""
        return nbd_disk(self.daemon, disk)

    def record_through(self, asked: Asked, access: Access) -> Recording:
        """One recorded run through any access to the disk. Raises MemoryFullError without room."""
        require_memory(self.site.directory, _ROOM_PER_RECORDING, _RECORDING)
        self._recordings += 1
        with told_when_full(_RECORDING):
            return make_recording(
                self.site, asked, access, self.site.directory / f"run{self._recordings}"
            )

    def examine(self, recording: Recording, wanted: Wanted, *, afterlives: int) -> Examined:
        """Judges a recording's states; see `Examined`."""
        selection = choose(recording, wanted)
        jobs = jobs_for(selection.cuts, afterlives)
        judged: list[Judged] = []
        hang: HangError | None = None
        try:
            for each in self.pool.judge(recording, jobs):
                judged.append(each)
        except HangError as error:
            hang = error
        verdict = summarise(
            judged,
            possible=selection.possible,
            exhaustive=selection.exhaustive and hang is None,
            promises=recording.trace.promises,
        )
        return Examined(recording, tuple(judged), verdict, hang)


@dataclass(frozen=True, slots=True)
class Examined:
    """A recording, each state that was judged, and the verdict over them.

    `hang` says that the kernel hangs on a state, the last one judged: nothing more can be judged
    on this host.
    """

    recording: Recording
    judged: tuple[Judged, ...]
    verdict: Verdict
    hang: HangError | None = None


def choose(recording: Recording, wanted: Wanted) -> Selection:
    """The cuts of a recording to judge."""
    entries = read_log(recording.log).entries
    trace = recording.trace
    return select_cuts(epochs_between(entries, trace.begin, trace.end), entries, wanted)


def jobs_for(cuts: Sequence[Cut], afterlives: int) -> list[Job]:
    """The cuts, so many of them, evenly spread, with an afterlife."""
    every = max(1, len(cuts) // afterlives) if afterlives else 0
    return [Job(cut, bool(every) and number % every == 0) for number, cut in enumerate(cuts)]


@contextmanager
def open_lab(
    host: Host,
    ledger: Ledger,
    directory: Path,
    *,
    workers: int | None = None,
    state_seconds: float = STATE_SECONDS,
) -> Iterator[Lab]:
    """A lab below `directory`; everything in it is in memory. Needs root.

    `workers`: one for each CPU when None, as far as memory goes; a state on which one takes longer
    than `state_seconds` is said to hang. Raises HostError where memory, rights or programs lack.
    """
    if os.geteuid() != 0:
        raise HostError("it takes root to mount the states", hint="run vdisklab as root")
    with ExitStack() as stack:
        outer = stack.enter_context(open_site(host, ledger, directory))
        size = _memory_bytes()
        memory = stack.enter_context(tmpfs(outer, "memory", size))
        site = stack.enter_context(open_site(host, ledger, memory.path))
        keeper = stack.enter_context(
            keep_daemon(ledger, site.directory, f"vdisklab-{ledger.run_id}")
        )
        keeper.daemon()  # at once: whether QEMU is there is to be known before the first control
        count = workers if workers is not None else os.cpu_count() or 1
        count = min(count, size // _MEMORY_PER_WORKER)
        pool = stack.enter_context(open_pool(memory.path, count, seconds=state_seconds))
        yield Lab(site, keeper, pool)


def _memory_bytes() -> int:
    available = available_memory()
    size = min(_MEMORY_BYTES, available // 2)
    if size < _LEAST_MEMORY:
        raise HostError(
            f"states are built in memory, and {format_bytes(available)} are free",
            hint="free 2 GiB of memory",
        )
    return size
