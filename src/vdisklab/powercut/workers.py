"""Processes that judge states in parallel, each with its own ledger, directory and QEMU.

A worker may end with an exception or be killed. Then everything in its ledger is removed, and a new
worker replaces it for the next recording.
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

from vdisklab import errors
from vdisklab.host import command, mounts, syscalls
from vdisklab.host.ledger import leftovers, open_ledger
from vdisklab.host.waiting import longer_deadlines, patience, seconds_without_cpu
from vdisklab.powercut import nbd, rebuild, recovery
from vdisklab.powercut.crash_states import CrashState, FutureVersionError, JudgedState
from vdisklab.powercut.examiner import Examiner, open_examiner
from vdisklab.powercut.recordings import Recording, open_recording
from vdisklab.storage.site import open_site
from vdisklab.storage.stack import UNDO
from vdisklab.value import Value

STATE_SECONDS = 300.0
"""Deadline for a sign of life while a state is judged, without the time that the judge waits for a
CPU."""

_START_SECONDS = 60.0
_END_SECONDS = 30.0
_CHUNK = 24
_LONGER = 3.0
"""Factor of all deadlines when a state is judged again."""


_TIMEOUTS = (errors.CommandTimeoutError, errors.GuestTimeoutError, errors.SilentGuestError)


class UnansweredError(errors.PowercutError):
    """A state was not judged in time, so its question has no verdict."""

    def __init__(self, cut: CrashState, reason: str) -> None:
        super().__init__(
            f"state {cut} was not judged in time, so there is no verdict: {reason}",
            hint="the machine may be too busy: the same command asks again; if it is idle, "
            "look at dmesg",
        )


class HangError(errors.DirtyHostError):
    """The kernel hangs on a state, so no further state can be judged before a reboot."""

    def __init__(self, cut: CrashState) -> None:
        super().__init__(
            f"the kernel hangs on state {cut} of the disk: the process that judges it cannot be "
            "ended",
            hint="look at dmesg, and reboot; then the same command continues",
        )


class JudgingJob(Value):
    """A cut to judge; `write_after`: QEMU writes to the image after the recovery."""

    cut: CrashState
    write_after: bool = False


class _Ready(Value):
    """A worker's message: it has started (`run_id` names its ledger), or is ready for jobs."""

    run_id: str


class _Closed(Value):
    """A worker's message: it has closed its recording."""


class _Failed(Value):
    """A worker's message: the exception that ends it."""

    error: errors.VdisklabError


class _Done(Value):
    """A worker's message: the result of a job, with its index."""

    index: int
    judged: JudgedState


class _Again(Value):
    """A worker's message: a state timed out and is judged again, with longer deadlines."""


_Message = _Ready | _Closed | _Failed | _Done | _Again


def _work(pipe: Connection, memory: Path, sharers: int) -> None:
    """The worker's process. It ends when the parent closes the pipe or has ended."""
    for number in errors.INTERRUPTS:  # the parent handles them and closes the pipe
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, errors.INTERRUPTS)
    syscalls.keep_freed_memory()
    failure: errors.VdisklabError
    try:
        with ExitStack() as stack:
            ledger = stack.enter_context(open_ledger())
            stack.enter_context(rebuild.reporting_full_memory("another state of the disk"))
            site = stack.enter_context(open_site(command.LocalHost(), ledger, memory))
            daemon = stack.enter_context(
                nbd.restarting_daemon(ledger, site.directory, f"vdisklab-{ledger.run_id}")
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
    except errors.VdisklabError as error:
        failure = _transferable(error)
    except (
        OSError
    ) as error:  # an error of a system call on this host; errors of a state are verdicts
        place = f" ({error.filename})" if error.filename else ""
        failure = errors.PowercutError(
            f"a state could not be built: {error.strerror}{place}",
            hint="look at dmesg, then run `vdisklab clean`",
        )
    with suppress(OSError):  # the parent is gone
        pipe.send(_Failed(failure))


def _transferable(error: errors.VdisklabError) -> errors.VdisklabError:
    """The error as a type that can be pickled; FutureVersionError adds its own hint."""
    if mounts.is_held_elsewhere(error):
        return mounts.HeldElsewhereError(error.message, hint=error.hint)
    if isinstance(error, FutureVersionError):
        return FutureVersionError(error.message)
    for kind in (errors.DirtyHostError, errors.MemoryFullError):
        if isinstance(error, kind):
            return kind(error.message, hint=error.hint)
    return errors.PowercutError(error.message, hint=error.hint)


def _judge_all(pipe: Connection, examiner: Examiner, ready: _Ready) -> None:
    """Judges chunks of jobs until None arrives."""
    while (chunk := pipe.recv()) is not None:
        for index, job in chunk:
            pipe.send(_Done(index, _judge_in_time(pipe, examiner, job)))
        pipe.send(ready)


def _judge_in_time(pipe: Connection, examiner: Examiner, job: JudgingJob) -> JudgedState:
    """Judges a state, a second time with longer deadlines if a program did not answer in time."""
    try:
        return examiner.judge(job.cut, write_after=job.write_after)
    except _TIMEOUTS:
        pipe.send(_Again())
    try:
        with longer_deadlines(_LONGER):
            return examiner.judge(job.cut, write_after=job.write_after)
    except _TIMEOUTS as error:
        raise UnansweredError(job.cut, str(error)) from error


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
    chunk: list[tuple[int, JudgingJob]] = field(default_factory=list)
    heard: float = 0.0
    waited: float = 0.0
    again: bool = False
    hangs: bool = False

    def feed(self, jobs: list[tuple[int, JudgingJob]]) -> bool:
        """Sends the next jobs, taken from the end of the list; False if none is left."""
        if not jobs:
            return False
        self.chunk = [jobs.pop() for _ in range(min(_CHUNK, len(jobs)))]
        self.heard = time.monotonic()
        self.waited = seconds_without_cpu(self.process.pid or 0)
        self.send(self.chunk)
        return True

    def is_overdue(self, seconds: float) -> bool:
        """True if the worker has been silent for longer; time waiting for a CPU does not count."""
        silent = time.monotonic() - self.heard
        if silent <= seconds:
            return False
        return silent - (seconds_without_cpu(self.process.pid or 0) - self.waited) > seconds

    def send(self, message: object) -> None:
        """Raises PowercutError if the worker has ended."""
        try:
            self.pipe.send(message)
        except OSError as error:
            raise errors.PowercutError("a judging process ended unexpectedly") from error

    def receive(self) -> _Message:
        """The next message. Raises the worker's exception, or PowercutError if it has ended."""
        try:
            message: _Message = self.pipe.recv()
        except (EOFError, OSError) as error:
            raise errors.PowercutError(
                "a judging process ended unexpectedly",
                hint="check in dmesg whether memory ran out; the same command continues",
            ) from error
        if isinstance(message, _Failed):
            raise message.error
        return message

    def await_ready(self) -> None:
        """Waits until the worker is ready, and stores the name of its ledger."""
        if not self.pipe.poll(_START_SECONDS * patience()):
            raise errors.PowercutError(
                f"a judging process was not ready within {_START_SECONDS:.0f} s"
            )
        message = self.receive()
        if isinstance(message, _Ready):
            self.run_id = message.run_id

    def give_up(self, seconds: float) -> UnansweredError | HangError:
        """Kills it; the reason why its state has no verdict."""
        self.hangs = True
        _, job = self.chunk[0]
        self.process.kill()
        self.process.join(_END_SECONDS * patience())
        if self.process.is_alive():
            return HangError(job.cut)
        return UnansweredError(job.cut, f"mounting or reading it took more than {seconds:.0f} s")

    def close_recording(self, seconds: float) -> bool:
        """Waits until the worker has closed its recording; False if it hangs or has ended."""
        deadline = time.monotonic() + seconds
        while not self.hangs and time.monotonic() < deadline:
            try:
                if self.pipe.poll(0.2) and isinstance(self.pipe.recv(), _Closed):
                    self.chunk = []
                    return True
            except (EOFError, OSError):
                return False
        return False


@dataclass(slots=True)
class WorkerPool:
    """Workers that are ready to judge; `seconds` is the deadline for each state."""

    memory: Path
    count: int
    seconds: float = STATE_SECONDS
    _workers: list[_Worker] = field(default_factory=list)

    def start(self) -> None:
        """Starts the missing workers."""
        context = multiprocessing.get_context("spawn")
        new = []
        for _ in range(self.count - len(self._workers)):
            near, far = context.Pipe()
            arguments = (far, self.memory, self.count)
            process = context.Process(target=_work, args=arguments, daemon=False)
            with _blocked(
                errors.INTERRUPTS
            ):  # the worker inherits this until it ignores the signals itself
                process.start()
            far.close()
            new.append(_Worker(process, near))
        self._workers += new
        for worker in new:
            worker.await_ready()

    def processes(self) -> list[int]:
        """The workers' process ids."""
        return [worker.process.pid or 0 for worker in self._workers]

    def judge(self, recording: Recording, jobs: Sequence[JudgingJob]) -> Iterator[JudgedState]:
        """The judged states, in the order of the jobs.

        Raises FutureVersionError and DirtyHostError from a worker, PowercutError if one ended, and
        UnansweredError or HangError for a state without an answer, which is no verdict.
        """
        self.start()
        alone = recording.trace.filesystem in recovery.ALONE
        used = self._workers[:1] if alone else list(self._workers)
        try:
            for worker in used:
                worker.send(recording.directory)
            for worker in used:
                worker.await_ready()
            yield from self._collect(used, list(enumerate(jobs)))
        finally:
            self._release(used)

    def _collect(
        self, workers: Sequence[_Worker], jobs: list[tuple[int, JudgingJob]]
    ) -> Iterator[JudgedState]:
        jobs.reverse()  # workers take them from the end
        early: dict[int, JudgedState] = {}
        following = 0
        seconds = self.seconds * patience()
        idle, busy = list(workers), list[_Worker]()
        while True:
            if not any(worker.again for worker in busy):  # such a state is judged alone
                busy += [worker for worker in idle if worker.feed(jobs)]
                idle = []
            if not busy:
                return
            ready = wait([worker.pipe for worker in busy], seconds / 10)
            for worker in [worker for worker in busy if worker.pipe in ready]:
                message = worker.receive()
                worker.heard = time.monotonic()
                worker.again = isinstance(message, _Again)
                if isinstance(message, _Done):
                    early[message.index] = message.judged
                    worker.chunk.pop(0)
                elif isinstance(message, _Ready):
                    busy.remove(worker)
                    idle.append(worker)
            while following in early:
                yield early.pop(following)
                following += 1
            for worker in busy:
                if worker.is_overdue(seconds):
                    raise worker.give_up(seconds)

    def _release(self, used: Sequence[_Worker]) -> None:
        """Makes the workers close their recording, and ends those that do not.

        The things that an ended worker created are removed, or stay in its ledger for `clean`.
        """
        for worker in used:
            with suppress(errors.PowercutError):
                worker.send(None)
        gone = [worker for worker in used if not worker.close_recording(self.seconds * patience())]
        for worker in gone:
            self._workers.remove(worker)
            worker.pipe.close()
            worker.process.join(0 if worker.hangs else _END_SECONDS * patience())
            worker.process.kill()
            worker.process.join(1)
            _take_down(worker.run_id)

    def end(self) -> None:
        """Ends all workers; each removes the things that it created."""
        for worker in self._workers:
            worker.pipe.close()
        for worker in self._workers:
            worker.process.join(_END_SECONDS * patience())
            if worker.process.is_alive():
                worker.process.kill()


def _take_down(run_id: str) -> None:
    """Removes a dead worker's leftovers, newest first, up to the first that cannot be removed."""
    host = command.LocalHost()
    with leftovers() as ledgers:
        for ledger in ledgers:
            if not run_id or ledger.path.stem != run_id:
                continue
            for entry in ledger.entries:
                try:
                    UNDO[entry.kind](host, entry)
                except (errors.HostError, errors.DirtyHostError, OSError):
                    return
                ledger.strike(entry)
            ledger.path.unlink()


@contextmanager
def open_pool(memory: Path, count: int, *, seconds: float = STATE_SECONDS) -> Iterator[WorkerPool]:
    """`count` workers with their directories in `memory`; they end with the context."""
    pool = WorkerPool(memory, count, seconds)
    try:
        pool.start()
        yield pool
    finally:
        pool.end()
