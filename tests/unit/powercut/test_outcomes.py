"""Promises against what is there: each way to break one is told from the others."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from tests.unit.powercut.test_client import TRACE
from vdisklab.path.durability import FailureModel
from vdisklab.path.power_cut_words import StateOutcome
from vdisklab.powercut.client import Write
from vdisklab.powercut.crash_states import (
    Expectation,
    FutureVersionError,
    JudgedState,
    RunVerdict,
    judge_sectors,
)
from vdisklab.powercut.questions import _as_float
from vdisklab.powercut.sectors import NoVersion
from vdisklab.units import SECTOR
from vdisklab.value import replace

# Sectors 0 to 3 written twice, 2 to 5 in between; oldest at 12, 16 and never.
WRITES = (Write(2, 0, 4, 10, 11, 12), Write(3, 2, 4, 12, 15, 16), Write(4, 0, 2, 16, 18))
EXPECTATION = Expectation(replace(TRACE, writes=WRITES, filled=False))


@pytest.mark.parametrize(
    ("position", "oldest", "newest"),
    [
        (9, [0, 0, 0, 0, 0, 0], [0, 0, 0, 0, 0, 0]),
        (11, [0, 0, 0, 0, 0, 0], [2, 2, 2, 2, 0, 0]),
        (12, [2, 2, 2, 2, 0, 0], [2, 2, 3, 3, 3, 3]),
        (20, [2, 2, 3, 3, 3, 3], [4, 4, 3, 3, 3, 3]),
    ],
)
def test_what_is_due_grows_with_the_log(
    position: int, oldest: list[int], newest: list[int]
) -> None:
    due = EXPECTATION.due_at(position)
    assert EXPECTATION.sectors.tolist() == [0, 1, 2, 3, 4, 5]
    assert due.oldest.tolist() == oldest
    assert due.newest.tolist() == newest


def test_a_filled_image_must_hold_its_filling() -> None:
    filled = Expectation(replace(TRACE, writes=WRITES, filled=True))
    assert filled.due_at(9).oldest.tolist() == [1] * 6
    grown = Expectation(replace(TRACE, writes=WRITES, filled=True, image_size=4 * SECTOR))
    assert grown.due_at(9).oldest.tolist() == [1, 1, 1, 1, 0, 0], "not the part that was added"


@pytest.mark.parametrize(
    ("found", "outcome", "sector"),
    [
        ([2, 2, 3, 3, 3, 3], StateOutcome.KEPT, 0),
        # an unacknowledged write may be there, even in part
        (
            [4, 2, 3, 3, 3, 3],
            StateOutcome.KEPT,
            0,
        ),
        ([2, 2, 3, 2, 3, 3], StateOutcome.LOST, 3),
        ([2, 2, 3, 3, 3, NoVersion.EMPTY], StateOutcome.LOST, 5),
        ([2, NoVersion.TORN, 3, 2, 3, 3], StateOutcome.TORN, 1),
        ([0, NoVersion.TORN, NoVersion.GARBAGE, 2, 3, 3], StateOutcome.GARBAGE, 2),
    ],
)
def test_each_fault_is_named(found: list[int], outcome: StateOutcome, sector: int) -> None:
    judged, detail = judge_sectors(EXPECTATION.sectors, np.array(found), EXPECTATION.due_at(20))
    assert judged is outcome
    assert (f"sector {sector} must hold version" in detail) is outcome.is_loss


def test_a_version_from_the_future_is_our_bug() -> None:
    with pytest.raises(FutureVersionError, match="sector 0 holds version 4, which had not"):
        judge_sectors(EXPECTATION.sectors, np.array([4, 2, 3, 3, 3, 3]), EXPECTATION.due_at(15))


def test_verdicts_claim_no_more_than_was_seen() -> None:
    kept, lost = (
        JudgedState("0-0", StateOutcome.KEPT),
        JudgedState("1-0", StateOutcome.LOST, "gone"),
    )
    whole = RunVerdict([kept] * 8, possible=8, exhaustive=True, acknowledged=4)
    assert whole.survives is True
    assert whole.loss_bound is None
    assert "no power cut loses acknowledged writes: all 8 states" in whole.claim
    sample = RunVerdict([kept] * 300, possible=10**20, exhaustive=False, acknowledged=4)
    assert sample.loss_bound == pytest.approx(0.01)
    assert "none of 300 power cuts of 100000000000000000000" in sample.claim
    assert "1.00 %" in sample.claim
    broken = RunVerdict([kept, lost, kept, lost], possible=4, exhaustive=True, acknowledged=4)
    assert broken.survives is False
    assert broken.counterexample == lost
    assert "2 of 4 power cuts lose acknowledged writes" in broken.claim
    killed = RunVerdict(
        [lost], FailureModel.QEMU_KILLED, possible=1, exhaustive=True, acknowledged=1
    )
    assert "1 of 1 kills of QEMU lose acknowledged writes" in killed.claim
    nothing = RunVerdict([kept], possible=1, exhaustive=True, acknowledged=0)
    assert nothing.survives is None
    assert "no write was acknowledged as durable" in nothing.claim


def test_more_states_than_a_float_counts_to() -> None:
    assert _as_float(2**1022) == float(2**1022)
    assert _as_float(2**1100) == sys.float_info.max
