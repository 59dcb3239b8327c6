"""Runs that missed a gate are shown, and not ranked."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import pytest

from tests.unit.analysis.made import campaign_runs
from tests.unit.stored import stored
from vdisklab.analysis.diagnostics.ranked import GateMissed
from vdisklab.analysis.rank_intervals import Unranked
from vdisklab.answers.analysis import Analysis
from vdisklab.answers.rank import RankAnswer, rank_cells
from vdisklab.answers.recommend import recommend
from vdisklab.answers.table import answer_table
from vdisklab.results.model import Check, Run
from vdisklab.value import replace
from vdisklab.workload.program import Gate

IOPS = "randread-4k-q1/read/iops"


def gated(gate: Gate, rounds: int, measurement: str = "randread-4k-q1") -> Iterator[Run]:
    """The made-up campaign; the fastest path has the gate in its first `rounds` rounds."""
    met = replace(gate, met=True)
    for run in campaign_runs():
        state = (gate if run.round <= rounds else met).check(measurement)
        fast = run.path == fastest() and run.failure is None
        yield replace(run, checks=(*run.checks, state)) if fast else run


@cache
def fastest() -> str:
    with stored() as store:
        return rank_cells(Analysis.of(store), IOPS).ranking.rows[0].cell.name


def ranked(runs: Iterator[Run]) -> RankAnswer:
    with stored(runs) as store:
        return rank_cells(Analysis.of(store), IOPS)


BUSY = Gate.at_most("busy processors", 0.97, 0.9)


def test_a_gate_is_a_state_that_is_only_recorded() -> None:
    assert BUSY.check("m") == Check("m.gate.busy processors", None, "missed: 0.97, at most 0.9")
    said = Gate.at_least("data", 1, 4, only_said=True).check("m").observed
    assert said == "not met, only said: 1, at least 4"
    assert Gate.at_least("data", 4, 4).check("m").observed == "met: 4, at least 4"


def test_a_cell_that_missed_a_gate_is_shown_without_a_rank() -> None:
    answer = ranked(gated(BUSY, rounds=2))
    gone, *_ = [row for row in answer.ranking.unranked if row.reason is Unranked.GATE_MISSED]
    assert gone.cell.name == fastest()
    assert gone.rounds == 4
    (shown,) = [row for row in answer.cells if row.cell == gone.cell]
    assert shown.medians
    (said,) = [finding for finding in answer.findings if isinstance(finding, GateMissed)]
    assert "busy processors 0.97, not at most 0.9" in str(said)
    assert "has no rank: something else than the disk was the limit" in str(said)


def test_it_is_not_recommended() -> None:
    with stored(gated(BUSY, rounds=4)) as store:
        answer = recommend(Analysis.of(store), ())
    assert answer.recommendation.cell.name != fastest()


@pytest.mark.parametrize(
    ("gate", "rounds", "measurement"),
    [
        (BUSY, 1, "randread-4k-q1"),  # fewer than half of its runs
        (BUSY, 4, "another"),
        (replace(BUSY, only_said=True), 4, "randread-4k-q1"),
        (replace(BUSY, met=True), 4, "randread-4k-q1"),
    ],
)
def test_what_does_not_take_the_rank(gate: Gate, rounds: int, measurement: str) -> None:
    answer = ranked(gated(gate, rounds, measurement))
    assert fastest() in {row.cell.name for row in answer.ranking.rows}


def test_the_table_says_it_too() -> None:
    with stored(gated(replace(BUSY, only_said=True), rounds=4)) as store:
        said = [
            str(finding)
            for finding in answer_table(store, None).findings
            if isinstance(finding, GateMissed)
        ]
    assert said
    assert "A quick look" in said[0]


def test_every_cell_may_miss_it() -> None:
    missed = BUSY.check("randread-4k-q1")
    answer = ranked(replace(run, checks=(*run.checks, missed)) for run in campaign_runs())
    assert not answer.ranking.rows
    reasons = {row.reason for row in answer.ranking.unranked if not row.reason.beside}
    assert reasons == {Unranked.GATE_MISSED}
