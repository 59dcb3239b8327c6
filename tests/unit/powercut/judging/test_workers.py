"""Workers that end, and states on which the kernel hangs, without a kernel that does."""

from __future__ import annotations

import pickle
from multiprocessing import Pipe
from pathlib import Path
from typing import Any, cast

import pytest

from vdisklab.errors import DirtyHostError, PowercutError
from vdisklab.host.mounts import HeldElsewhereError, is_held_elsewhere
from vdisklab.powercut.cutting.cuts import Cut
from vdisklab.powercut.judging.outcomes import JudgedState
from vdisklab.powercut.judging.workers import (
    HangError,
    JudgingJob,
    WorkerPool,
    _Closed,
    _Done,
    _Ready,
    _transferable,
    _Worker,
)
from vdisklab.powercut.vocabulary import StateOutcome


class Process:
    """A process that does as it is told."""

    def join(self, seconds: float) -> None:
        """It is gone."""

    def kill(self) -> None:
        """It is gone."""


class Recording:
    """A recording with nothing in it."""

    directory = Path("/nonexistent")

    class trace:  # noqa: N801 - stands for an attribute
        filesystem = "ext4"


def worker(*judge_questions: object, ends: bool = False) -> _Worker:
    near, far = Pipe()
    for judge_question in judge_questions:
        far.send(judge_question)
    if ends:
        far.close()
    made = _Worker(cast("Any", Process()), near)
    made.run_id = ""
    held.append(far)
    return made


held: list[Any] = []
READY = _Ready("")
JOBS = [JudgingJob(Cut(0, bits)) for bits in range(3)]


def judged(number: int) -> JudgedState:
    return JudgedState(str(JOBS[number].cut), StateOutcome.KEPT)


def take(pool: WorkerPool, found: list[JudgedState]) -> None:
    """Keeps what came before an exception."""
    for each in pool.judge(cast("Any", Recording()), JOBS):
        found.append(each)


def test_a_state_on_which_the_kernel_hangs_is_a_verdict_and_the_last() -> None:
    stuck = worker(READY, _Done(0, judged(0)), _Done(1, judged(1)))
    pool = WorkerPool(Path(), 1, 0.3, [stuck])
    found: list[JudgedState] = []
    with pytest.raises(HangError, match="the kernel hangs"):
        take(pool, found)
    assert [each.outcome for each in found] == [
        StateOutcome.KEPT,
        StateOutcome.KEPT,
        StateOutcome.UNMOUNTABLE,
    ]
    assert found[-1].cut == str(JOBS[2].cut)
    assert "did not finish" in found[-1].detail
    assert pool._workers == []


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
