"""Processes that judge states side by side, each with a ledger, a directory and a QEMU of its own.

What a worker raises ends it, and what kills it ends it too: another takes its place for the next
recording, after all that the dead one had made was taken down by its ledger.
"""

from __future__ import annotations

import multiprocessing
import signal
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any

from vdisklab.errors import DirtyHostError, HostError, PowercutError, VdisklabError
from vdisklab.host.command import LocalHost
from vdisklab.host.interrupts import INTERRUPTS
from vdisklab.host.ledger import leftovers, open_ledger
from vdisklab.powercut.cutting.cuts import Cut
from vdisklab.powercut.cutting.memory import MemoryFullError, told_when_full
from vdisklab.powercut.judging.daemonkeeper import keep_daemon
from vdisklab.powercut.judging.examine import Examiner, open_examiner
from vdisklab.powercut.judging.judge import FutureVersionError
from vdisklab.powercut.judging.recovery import ALONE
from vdisklab.powercut.judging.verdict import Judged, Outcome
from vdisklab.powercut.recording.recording import Recording, open_recording
from vdisklab.storage.site import open_site
from vdisklab.storage.undo import UNDO

STATE_SECONDS = 60.0
"""How long one state may take, mount included, before the kernel is said to hang on it."""

_START_SECONDS = 60.0
_END_SECONDS = 30.0
_CHUNK = 24


class HangError(DirtyHostError):
    """The kernel hangs on a state, so nothing more can be judged before a reboot."""


@dataclass(frozen=True, slots=True)
class Job:
    """A cut to judge; `lives_on`: QEMU goes on with the image afterwards."""

    cut: Cut
    lives_on: bool = False


@dataclass(frozen=True, slots=True)
class _Ready:
    """The worker is there (`run_id` names its ledger), has opened a recording, or wants more."""

    run_id: str


@dataclass(frozen=True, slots=True)
class _Closed:
    """The worker has closed its recording."""


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


def _work(pipe: Connection, memory: Path, sharers: int) -> None:
    """A worker's life: sends results, ends when the other side closes the pipe or is gone."""
    for number in INTERRUPTS:  # they are our parent's; it closes the pipe
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, INTERRUPTS)
    failed: _Failed | None = None
    try:
        with ExitStack() as stack:
            ledger = stack.enter_context(open_ledger())
            stack.enter_context(told_when_full("another state of the disk"))
            site = stack.enter_context(open_site(LocalHost(), ledger, memory))
            daemon = stack.enter_context(
                keep_daemon(ledger, site.directory, f"vdisklab-{ledger.run_id}")
            )
            ready = _Ready(ledger.run_id)
            pipe.send(ready)
            while True:
                recording = open_recording(pipe.recv())
                with open_examiner(site, recording, daemon, sharers=sharers) as examiner:
                    pipe.send(ready)
                    _judge_all(pipe, examiner, ready)
                pipe.send(_Closed())
    except (EOFError, BrokenPipeError, ConnectionResetError):
        return
    except VdisklabError as error:
        failed = _Failed(type(error).__name__, error.message, error.hint)
    except OSError as error:  # of a system call on this host; a state's own are verdicts
        where = f" ({error.filename})" if error.filename else ""
        said = f"a state could not be built: {error.strerror}{where}"
        failed = _Failed("OSError", said, "look at dmesg, then run `vdisklab clean`")
    with suppress(OSError):  # nobody listens any more
        pipe.send(failed)


def _judge_all(pipe: Connection, examiner: Examiner, ready: _Ready) -> None:
    """Judges chunks of jobs until None comes."""
    while (chunk := pipe.recv()) is not None:
        for place, job in chunk:
            pipe.send(_Done(place, examiner.judge(job.cut, lives_on=job.lives_on)))
        pipe.send(ready)


@contextmanager
def _blocked(numbers: Collection[signal.Signals]) -> Iterator[None]:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    try:
        signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@dataclass(slots=True)
class _Worker:
    process: SpawnProcess
    pipe: Connection
    run_id: str = ""
    chunk: list[tuple[int, Job]] = field(default_factory=list)
    heard: float = 0.0
    hangs: bool = False


@dataclass(slots=True)
class Pool:
    """Workers that are ready to judge; `seconds` are given to each state."""

    memory: Path
    count: int
    seconds: float = STATE_SECONDS
    _workers: list[_Worker] = field(default_factory=list)

    def start(self) -> None:
        """Starts as many workers as are wanting."""
        context = multiprocessing.get_context("spawn")
        new = []
        for _ in range(self.count - len(self._workers)):
            near, far = context.Pipe()
            arguments = (far, self.memory, self.count)
            process = context.Process(target=_work, args=arguments, daemon=False)
            with _blocked(INTERRUPTS):  # inherited: heard by a worker only when it can ignore them
                process.start()
            far.close()
            new.append(_Worker(process, near))
        self._workers += new
        for worker in new:
            worker.run_id = _expect_ready(worker)

    def processes(self) -> list[int]:
        """The numbers of the workers' processes."""
        return [worker.process.pid or 0 for worker in self._workers]

    def judge(self, recording: Recording, jobs: Sequence[Job]) -> Iterator[Judged]:
        """The results, in the order of the jobs.

        Raises FutureVersionError and DirtyHostError as a worker does, PowercutError when one
        ended. A state on which the kernel hangs becomes a verdict, the last one before a HangError.
        """
        self.start()
        alone = recording.trace.filesystem in ALONE
        used = self._workers[:1] if alone else list(self._workers)
        try:
            for worker in used:
                _send(worker, recording.directory)
            for worker in used:
                _expect_ready(worker)
            yield from self._collect(used, list(enumerate(jobs)))
        finally:
            self._release(used)

    def _collect(self, workers: Sequence[_Worker], todo: list[tuple[int, Job]]) -> Iterator[Judged]:
        todo.reverse()  # chunks are taken from the end
        early: dict[int, Judged] = {}
        following = 0
        busy = [worker for worker in workers if _feed(worker, todo)]
        while busy:
            ready = wait([worker.pipe for worker in busy], self.seconds / 10)
            for worker in [each for each in busy if each.pipe in ready]:
                message = _receive(worker)
                worker.heard = time.monotonic()
                if isinstance(message, _Done):
                    early[message.place] = message.judged
                    worker.chunk.pop(0)
                elif not _feed(worker, todo):
                    busy.remove(worker)
            while following in early:
                yield early.pop(following)
                following += 1
            stuck = [each for each in busy if time.monotonic() - each.heard > self.seconds]
            if stuck:
                yield from (judged for _, judged in sorted(early.items()))
                yield from self._hanging(stuck)

    def _hanging(self, stuck: Sequence[_Worker]) -> Iterator[Judged]:
        """The verdict on the states that nobody answered for, then the end of the campaign."""
        for worker in stuck:
            worker.hangs = True
            _, job = worker.chunk[0]
            detail = f"the kernel did not finish mounting or reading it within {self.seconds:.0f} s"
            yield Judged(str(job.cut), Outcome.UNMOUNTABLE, detail)
        raise HangError(
            "the kernel hangs on a state of the disk; nothing more can be judged",
            hint="look at dmesg, then run `vdisklab clean`",
        )

    def _release(self, used: Sequence[_Worker]) -> None:
        """Has the workers close their recording; those that do not are gone afterwards.

        What a dead worker leaves is taken down by its ledger, or stays there for `clean`.
        """
        for worker in used:
            with suppress(PowercutError):
                _send(worker, None)
        gone = [worker for worker in used if not self._closes(worker)]
        for worker in gone:
            self._workers.remove(worker)
            worker.pipe.close()
            worker.process.join(0 if worker.hangs else _END_SECONDS)
            worker.process.kill()
            worker.process.join(1)
            _take_down(worker.run_id)

    def _closes(self, worker: _Worker) -> bool:
        deadline = time.monotonic() + self.seconds
        while not worker.hangs and time.monotonic() < deadline:
            try:
                if worker.pipe.poll(0.2) and isinstance(worker.pipe.recv(), _Closed):
                    worker.chunk = []
                    return True
            except (EOFError, OSError):
                return False
        return False

    def end(self) -> None:
        """Ends all workers. They take down what they made."""
        for worker in self._workers:
            worker.pipe.close()
        for worker in self._workers:
            worker.process.join(_END_SECONDS)
            if worker.process.is_alive():
                worker.process.kill()


def _take_down(run_id: str) -> None:
    """Removes what a dead worker left, newest first, as `clean` would; what stays is said there."""
    if not run_id:
        return
    host = LocalHost()
    with leftovers() as found:
        for leftover in found:
            if leftover.path.stem != run_id:
                continue
            for entry in leftover.entries:
                try:
                    UNDO[entry.kind](host, entry)
                except (HostError, DirtyHostError, OSError):
                    return
                leftover.strike(entry)
            leftover.path.unlink()


def _feed(worker: _Worker, todo: list[tuple[int, Job]]) -> bool:
    """Gives a worker its next jobs; False when there are none."""
    if not todo:
        return False
    worker.chunk = [todo.pop() for _ in range(min(_CHUNK, len(todo)))]
    worker.heard = time.monotonic()
    _send(worker, worker.chunk)
    return True


def _send(worker: _Worker, message: object) -> None:
    try:
        worker.pipe.send(message)
    except OSError as error:
        raise PowercutError("a judging process ended unexpectedly") from error


def _receive(worker: _Worker) -> Any:  # noqa: ANN401 - one of the messages above
    try:
        message = worker.pipe.recv()
    except (EOFError, OSError) as error:
        raise PowercutError(
            "a judging process ended unexpectedly",
            hint="look at dmesg whether memory ran out; the same command continues",
        ) from error
    if isinstance(message, _Failed):
        kinds: dict[str, type[VdisklabError]] = {
            "DirtyHostError": DirtyHostError,
            "FutureVersionError": FutureVersionError,
            "MemoryFullError": MemoryFullError,
        }
        raise kinds.get(message.kind, PowercutError)(message.message, hint=message.hint)
    return message


def _expect_ready(worker: _Worker) -> str:
    """Waits for a worker to be ready and returns the name of its ledger."""
    if not worker.pipe.poll(_START_SECONDS):
        raise PowercutError(f"a judging process was not ready within {_START_SECONDS:.0f} s")
    message = _receive(worker)
    return str(message.run_id)


@contextmanager
def open_pool(memory: Path, count: int, *, seconds: float = STATE_SECONDS) -> Iterator[Pool]:
    """`count` workers with their directories in `memory`, until the block ends."""
    pool = Pool(memory, count, seconds)
    try:
        pool.start()
        yield pool
    finally:
        pool.end()
