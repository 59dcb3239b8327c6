"""Processes that judge states side by side, each with a bench, a ledger and a QEMU of its own."""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any

from vdisklab.errors import DirtyHostError, PowercutError, VdisklabError
from vdisklab.guest.storagedaemon import start_storage_daemon
from vdisklab.host.command import LocalHost
from vdisklab.host.ledger import open_ledger
from vdisklab.plan.path import Layer
from vdisklab.plan.segments import LayerKind
from vdisklab.powercut.cuts import Cut
from vdisklab.powercut.examine import Examiner, open_examiner
from vdisklab.powercut.judge import FutureVersionError
from vdisklab.powercut.recording import Recording, open_recording
from vdisklab.powercut.verdict import Judged, Outcome
from vdisklab.storage.filesystem import filesystem
from vdisklab.storage.loop import loop_device
from vdisklab.storage.site import Site, open_site
from vdisklab.units import GIB

STATE_SECONDS = 60.0
"""How long one state may take, mount included, before the kernel is said to hang on it."""

_START_SECONDS = 60.0
_END_SECONDS = 30.0
_BENCH_BYTES = 4 * GIB
_CHUNK = 24


@dataclass(frozen=True, slots=True)
class Job:
    """A cut to judge; `lives_on`: QEMU goes on with the image afterwards."""

    cut: Cut
    lives_on: bool = False


@dataclass(frozen=True, slots=True)
class _Ready:
    """The worker has built what it needs, or opened the recording."""


@dataclass(frozen=True, slots=True)
class _Failed:
    """An exception, in parts that survive the way between processes."""

    kind: str
    message: str
    hint: str | None


@dataclass(frozen=True, slots=True)
class _Done:
    """One job's result, by its place among the jobs."""

    place: int
    judged: Judged


@contextmanager
def open_bench(site: Site) -> Iterator[Path]:
    """A directory on XFS, where files can be cloned, in the site's memory."""
    with (
        loop_device(site, "bench", _BENCH_BYTES, allocate=False) as device,
        filesystem(site, device, Layer(LayerKind.XFS), "bench.mnt", _BENCH_BYTES) as target,
    ):
        yield target.path


def _work(pipe: Connection, memory: Path) -> None:
    """A worker's life: sends results, ends when the other side closes the pipe or is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is our parent's; it closes the pipe
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        with ExitStack() as stack:
            ledger = stack.enter_context(open_ledger())
            site = stack.enter_context(open_site(LocalHost(), ledger, memory))
            bench = stack.enter_context(open_bench(site))
            name = f"vdisklab-{ledger.run_id}"
            daemon = stack.enter_context(start_storage_daemon(ledger, site.directory, name))
            pipe.send(_Ready())
            while True:
                recording = open_recording(pipe.recv())
                with open_examiner(site, bench, recording, daemon) as examiner:
                    pipe.send(_Ready())
                    _judge_all(pipe, examiner)
    except EOFError:
        return
    except VdisklabError as error:
        pipe.send(_Failed(type(error).__name__, error.message, error.hint))
    except OSError as error:  # of a system call on this host; a state's own are verdicts
        said = f"a state could not be built: {error.strerror} ({error.filename})"
        pipe.send(_Failed("OSError", said, "look at dmesg, then run `vdisklab clean`"))


def _judge_all(pipe: Connection, examiner: Examiner) -> None:
    """Judges chunks of jobs until None comes."""
    while (chunk := pipe.recv()) is not None:
        for place, job in chunk:
            pipe.send(_Done(place, examiner.judge(job.cut, lives_on=job.lives_on)))
        pipe.send(_Ready())


@dataclass(slots=True)
class _Worker:
    process: SpawnProcess
    pipe: Connection
    chunk: list[tuple[int, Job]]


class Pool:
    """Workers that are ready to judge."""

    def __init__(self, workers: Sequence[_Worker]) -> None:
        self._workers = tuple(workers)

    def judge(self, recording: Recording, jobs: Sequence[Job]) -> Iterator[Judged]:
        """The results, in the order of the jobs.

        Raises FutureVersionError and DirtyHostError as a worker does. A state on which the kernel
        hangs becomes a verdict, the last one before a DirtyHostError.
        """
        # btrfs knows a file system by its identity, which all states share.
        used = self._workers[:1] if recording.trace.filesystem == "btrfs" else self._workers
        for worker in used:
            worker.pipe.send(recording.directory)
        for worker in used:
            _expect_ready(worker)
        yield from self._collect(used, list(enumerate(jobs)))
        for worker in used:
            worker.pipe.send(None)

    def _collect(self, workers: Sequence[_Worker], todo: list[tuple[int, Job]]) -> Iterator[Judged]:
        todo.reverse()  # chunks are taken from the end
        early: dict[int, Judged] = {}
        following = 0
        busy = [worker for worker in workers if _feed(worker, todo)]
        while busy:
            ready = wait([worker.pipe for worker in busy], STATE_SECONDS)
            if not ready:
                yield from _hanging(busy)
            for worker in [each for each in busy if each.pipe in ready]:
                message = _receive(worker)
                if isinstance(message, _Done):
                    early[message.place] = message.judged
                    worker.chunk.pop(0)
                elif not _feed(worker, todo):
                    busy.remove(worker)
            while following in early:
                yield early.pop(following)
                following += 1


def _feed(worker: _Worker, todo: list[tuple[int, Job]]) -> bool:
    """Gives a worker its next jobs; False when there are none."""
    if not todo:
        return False
    worker.chunk = [todo.pop() for _ in range(min(_CHUNK, len(todo)))]
    worker.pipe.send(worker.chunk)
    return True


def _hanging(busy: Sequence[_Worker]) -> Iterator[Judged]:
    """The verdict on the states that nobody answered for, then the end of the campaign."""
    for worker in busy:
        _, job = worker.chunk[0]
        detail = f"the kernel did not finish mounting or reading it within {STATE_SECONDS:.0f} s"
        yield Judged(str(job.cut), Outcome.UNMOUNTABLE, detail)
        worker.process.kill()
    raise DirtyHostError(
        "the kernel hangs on a state of the disk; nothing more can be judged",
        hint="look at dmesg, then run `vdisklab clean`",
    )


def _receive(worker: _Worker) -> Any:  # noqa: ANN401 - one of the messages above
    try:
        message = worker.pipe.recv()
    except EOFError as error:
        raise PowercutError("a judging process ended unexpectedly") from error
    if isinstance(message, _Failed):
        kinds: dict[str, type[VdisklabError]] = {
            "DirtyHostError": DirtyHostError,
            "FutureVersionError": FutureVersionError,
        }
        raise kinds.get(message.kind, PowercutError)(message.message, hint=message.hint)
    return message


def _expect_ready(worker: _Worker) -> None:
    if not worker.pipe.poll(_START_SECONDS):
        raise PowercutError(f"a judging process was not ready within {_START_SECONDS:.0f} s")
    _receive(worker)


@contextmanager
def open_pool(memory: Path, count: int) -> Iterator[Pool]:
    """`count` workers with their benches in `memory`, until the block ends."""
    context = multiprocessing.get_context("spawn")
    workers: list[_Worker] = []
    try:
        for _ in range(count):
            near, far = context.Pipe()
            process = context.Process(target=_work, args=(far, memory), daemon=False)
            process.start()
            far.close()
            workers.append(_Worker(process, near, []))
        for worker in workers:
            _expect_ready(worker)
        yield Pool(workers)
    finally:
        for worker in workers:
            worker.pipe.close()
        for worker in workers:
            worker.process.join(_END_SECONDS)
            if worker.process.is_alive():
                worker.process.kill()
