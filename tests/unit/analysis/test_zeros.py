"""A zero is a measured value: of stalls and flushes it is the best one."""

from __future__ import annotations

import numpy as np
import pytest

from tests.unit.analysis.made import cell, observed
from vdisklab.analysis.candidates import recommend_path
from vdisklab.analysis.intervals import median_interval
from vdisklab.analysis.observations import MeasureKey
from vdisklab.analysis.paired_ratios import compare_cells, paired_ratios
from vdisklab.analysis.rank_intervals import rank
from vdisklab.analysis.summary import summarise
from vdisklab.path.durability import Verdicts
from vdisklab.render.wording import reach_sentence
from vdisklab.results.model import METRICS, Direction
from vdisklab.services.answers import find_measure

STALL = MeasureKey("seqread-1m-q32", Direction.READ, "longest_stall")
IOPS = MeasureKey("randread-4k-q1", Direction.READ, "iops")
NEVER, ONCE = [0.0, 0.0, 0.0], [0.0, 0.201, 0.0]
ALWAYS = [0.4, 0.9, 0.6]


def test_cells_that_never_stalled_are_ranked_first() -> None:
    answer = rank(observed({STALL: np.array([ALWAYS, ONCE, NEVER, NEVER])}), STALL)
    assert answer.unranked == ()
    assert [str(row.cell) for row in answer.rows] == ["c02", "c03", "c01", "c00"]
    assert all(row.blocks == 3 for row in answer.rows)
    assert answer.rows[-1].worst == 4
    assert answer.best is not None
    assert {cell("c02"), cell("c03")} <= set(answer.best.cells)


def test_zeros_everywhere_are_a_tie_without_noise() -> None:
    answer = rank(observed({STALL: np.zeros((4, 3))}), STALL)
    assert [(row.best, row.worst) for row in answer.rows] == [(1, 4)] * 4
    assert answer.best is not None
    assert reach_sentence(answer.best) is None


def test_a_stall_is_found_whether_or_not_it_has_a_direction() -> None:
    undirected = MeasureKey(STALL.name, Direction.NONE, STALL.metric)
    assert find_measure(observed({undirected: np.zeros((2, 3))}), str(STALL)) == undirected
    assert find_measure(observed({STALL: np.zeros((2, 3))}), str(STALL)) == STALL


def test_zeros_are_compared_and_have_an_interval_of_their_step() -> None:
    data = observed({STALL: np.array([ALWAYS, NEVER])})
    (answer,) = compare_cells(data, cell("c00"), cell("c01"))
    assert (answer.a.blocks, answer.b.blocks, answer.ratio.pairs) == (3, 3, 3)
    assert answer.ratio.ratio is not None
    assert answer.ratio.ratio > 4
    summary = summarise(data, STALL)[cell("c01")]
    assert (summary.median, summary.low, summary.high) == (0.0, 0.0, 0.05)


def test_zeros_are_recommended() -> None:
    data = observed({STALL: np.array([ALWAYS, NEVER])})
    answer = recommend_path(data, STALL, (), Verdicts())
    # Names that are no disk path are no candidates, so this is the ranking's part only.
    assert answer is None or answer.cell == cell("c01")


def test_a_run_in_which_nothing_was_done_is_the_worst() -> None:
    answer = rank(observed({IOPS: np.array([[0.0, 0.0, 0.0], [10, 11, 12], [20, 22, 24]])}), IOPS)
    assert [str(row.cell) for row in answer.rows] == ["c02", "c01", "c00"]


def test_no_interval_is_narrower_than_the_digits_of_its_values() -> None:
    low, high = median_interval(np.array([[5.0, 5.0, 5.0], [6.0, 6.0, 6.0]]))
    np.testing.assert_allclose([low, high], [[4.5, 5.5], [5.5, 6.5]])
    low, high = median_interval(np.array([[5.0] * 8]))
    np.testing.assert_allclose([low, high], [[4.5], [5.5]])
    (ratio,) = paired_ratios(np.array([5.0] * 3), np.array([6.0] * 3))
    assert ratio.low is not None
    assert ratio.high is not None
    # The true values may be anything from 4.5 to 5.5 and from 5.5 to 6.5.
    assert ratio.low == pytest.approx(4.5 / 6.5, rel=0.03)
    assert ratio.high == pytest.approx(5.5 / 5.5, rel=0.03)
    assert ratio.p is not None
    assert ratio.p > 0.04


@pytest.mark.parametrize(("apart", "least"), [(0.0, 0.93), (0.08, 0.9)])
def test_ratios_of_rounded_values_hold_the_true_one(apart: float, least: float) -> None:
    """Integers from 3 to 7; 51 to 70 % held it where intervals ignored the rounding."""
    rng = np.random.default_rng(4)
    level = np.log(5) + np.array([apart, 0.0])
    drift = rng.normal(0, 0.15, (400, 1, 5))
    values = np.round(np.exp(level[:, None] + drift + rng.normal(0, 0.03, (400, 2, 5))))
    held = 0
    for a, b in values:
        (ratio,) = paired_ratios(a, b, forecast=False)
        held += (ratio.low or 0) <= np.exp(apart) <= (ratio.high or 0)
    assert held / 400 >= least


def test_every_metric_that_can_be_zero_declares_its_step() -> None:
    stepped = {name for name, metric in METRICS.items() if metric.step}
    assert {"worst_second", "longest_stall", "flushes", "allocated", "mapped"} <= stepped
