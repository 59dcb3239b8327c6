"""Workers that end, and states without an answer in time, which have no verdict."""

from __future__ import annotations

import itertools
import os
import pickle
import threading
from collections.abc import Callable
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, cast

import pytest

from vdisklab.errors import DirtyHostError, PowercutError, VdisklabError
from vdisklab.host.command import LocalHost
from vdisklab.host.mounts import HeldElsewhereError, is_held_elsewhere
from vdisklab.host.waiting import patience
from vdisklab.path.power_cut_words import StateOutcome
from vdisklab.powercut import workers
from vdisklab.powercut.crash_states import CrashState, JudgedState
from vdisklab.powercut.workers import (
    HangError,
    JudgingJob,
    UnansweredError,
    WorkerPool,
    _Again,
    _Closed,
    _Done,
    _Ready,
    _transferable,
    _Worker,
)


class Process:
    """A process that ends when it is killed, unless the kernel hangs in it."""

    pid = os.getpid()

    def __init__(self, *, hangs: bool = False) -> None:
        self.hangs = hangs

    def join(self, seconds: float) -> None:
        """Does not wait."""

    def kill(self) -> None:
        """Does nothing: whether it ends is known."""

    def is_alive(self) -> bool:
        """True if the kernel hangs in it."""
        return self.hangs


class Recording:
    """A recording with nothing in it."""

    directory = Path("/nonexistent")

    class trace:  # noqa: N801 - stands for an attribute
        filesystem = "ext4"


def worker(*judge_questions: object, ends: bool = False, hangs: bool = False) -> _Worker:
    near, far = Pipe()
    for judge_question in judge_questions:
        far.send(judge_question)
    if ends:
        far.close()
    made = _Worker(cast("Any", Process(hangs=hangs)), near)
    made.run_id = ""
    held.append(far)
    return made


held: list[Any] = []
READY = _Ready("")
JOBS = [JudgingJob(CrashState(0, bits)) for bits in range(3)]


def judged(number: int) -> JudgedState:
    return JudgedState(str(JOBS[number].cut), StateOutcome.KEPT)


def take(pool: WorkerPool, found: list[JudgedState]) -> None:
    """Keeps what came before an exception."""
    for each in pool.judge(cast("Any", Recording()), JOBS):
        found.append(each)


@pytest.mark.parametrize(
    ("hangs", "kind", "said"),
    [
        (False, UnansweredError, "state 0-2 was not judged in time, so there is no verdict"),
        (True, HangError, "the kernel hangs on state 0-2"),
    ],
)
def test_a_state_without_an_answer_is_no_verdict(
    hangs: bool, kind: type[VdisklabError], said: str
) -> None:
    """The campaign ends only if the worker cannot be ended."""
    stuck = worker(READY, _Done(0, judged(0)), _Done(1, judged(1)), hangs=hangs)
    pool = WorkerPool(Path(), 1, 0.3, [stuck])
    found: list[JudgedState] = []
    with pytest.raises(kind, match=said) as failed:
        take(pool, found)
    assert failed.value.hint
    assert {each.outcome for each in found} <= {StateOutcome.KEPT}
    assert pool._workers == []


def test_time_without_a_cpu_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    waited = 0.0
    monkeypatch.setattr(workers, "seconds_without_cpu", lambda _pid: waited)
    starved = worker()
    starved.feed([(0, JOBS[0])])
    starved.heard -= 400
    assert starved.is_overdue(300)
    waited = 150.0
    assert not starved.is_overdue(300)


class Judge:
    """An examiner whose states take as long as a program."""

    def __init__(self, judge: Callable[[], None]) -> None:
        self._judge = judge

    def judge(self, cut: CrashState, *, write_after: bool) -> JudgedState:
        """Judges a state; `write_after` does not matter."""
        del write_after
        self._judge()
        return JudgedState(str(cut), StateOutcome.KEPT)


@pytest.mark.parametrize(("times", "answers"), [(1, True), (9, False)])
def test_a_state_is_judged_again_with_longer_deadlines(
    times: int, answers: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    lengths = itertools.chain(["600"] * times, itertools.repeat("0"))
    monkeypatch.setattr(workers, "_LONGER", 100.0 if answers else 2.0)
    patient = Judge(lambda: void(LocalHost().run("sleep", next(lengths), timeout=0.5)))
    near, far = Pipe()
    before = patience()
    if answers:
        found = workers._judge_in_time(near, cast("Any", patient), JOBS[1])
        assert found.outcome is StateOutcome.KEPT
    else:
        with pytest.raises(UnansweredError, match=r"state 0-1 .*`sleep 600` gave no answer"):
            workers._judge_in_time(near, cast("Any", patient), JOBS[1])
    assert isinstance(far.recv(), _Again)
    assert patience() == before


def void(_answer: object) -> None:
    """Drops a value."""


def test_while_a_state_is_judged_again_no_other_worker_gets_any() -> None:
    """It is judged alone, with the machine to itself."""
    busy = [worker(), worker()]
    slow, quick = held[-2:]
    jobs = [JudgingJob(CrashState(0, bits)) for bits in range(60)]
    found: list[JudgedState] = []
    collecting = threading.Thread(
        target=lambda: found.extend(
            WorkerPool(Path(), 2, 600.0)._collect(busy, list(enumerate(jobs)))
        )
    )
    collecting.start()
    first, second = slow.recv(), quick.recv()
    slow.send(_Again())
    done(quick, second)
    assert not quick.poll(0.5)
    done(slow, first)
    rest = quick.recv()
    done(quick, rest)
    collecting.join()
    assert [len(first), len(second), len(rest)] == [24, 24, 12]
    assert [each.cut for each in found] == [str(job.cut) for job in jobs]


def done(end: Connection, chunk: list[tuple[int, JudgingJob]]) -> None:
    """Answers like a worker that has judged a chunk."""
    for index, job in chunk:
        end.send(_Done(index, JudgedState(str(job.cut), StateOutcome.KEPT)))
    end.send(READY)


def test_a_worker_that_ends_fails_one_recording_and_is_replaced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pool = WorkerPool(Path(), 1, 5.0, [worker(READY, _Done(0, judged(0)), ends=True)])
    with pytest.raises(PowercutError, match="ended unexpectedly"):
        list(pool.judge(cast("Any", Recording()), JOBS))
    assert pool._workers == []
    fresh = worker(READY, *(_Done(each, judged(each)) for each in range(3)), READY, _Closed())
    monkeypatch.setattr(WorkerPool, "start", lambda self: self._workers.append(fresh))
    assert len(list(pool.judge(cast("Any", Recording()), JOBS))) == 3
    assert pool._workers == [fresh]


def test_the_parent_hears_that_another_namespace_was_the_reason() -> None:
    """Also when the worker then could not remove its loop device."""
    left = DirtyHostError("the loop device cannot be detached")
    left.__context__ = HeldElsewhereError("still mounted, by sleep (1)")
    heard = pickle.loads(pickle.dumps(_transferable(left)))  # noqa: S301 - our own
    assert is_held_elsewhere(heard)
    assert heard.message == left.message
