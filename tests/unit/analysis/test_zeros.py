"""A zero is a measured value: of stalls and flushes it is the best one."""

from __future__ import annotations

import numpy as np
import pytest

from tests.unit.analysis.made import cell, drifting, labelled, observed
from vdisklab.analysis.candidates import ratio_of, recommend_path
from vdisklab.analysis.diagnostics.values import (
    bimodal_diagnostics,
    ceiling_diagnostics,
    drift_diagnostics,
    first_round_diagnostics,
)
from vdisklab.analysis.intervals import median_interval
from vdisklab.analysis.observations import Floats, MeasureKey
from vdisklab.analysis.paired_ratios import Verdict, compare_cells, paired_ratios
from vdisklab.analysis.pareto import ShareOfBest, Standing, add_metric_mean, pareto_front
from vdisklab.analysis.rank_intervals import rank
from vdisklab.analysis.score import MEAN, MIX, add_mix, add_scores
from vdisklab.analysis.search import goodness, margin_with_resolution
from vdisklab.analysis.summary import summarise
from vdisklab.answers.loading import find_measure
from vdisklab.path.durability import CrashVerdicts
from vdisklab.results.model import METRICS, Direction
from vdisklab.views.wording import compared, reach_sentence

STALL = MeasureKey("seqread-1m-q32", Direction.READ, "longest_stall")
IOPS = MeasureKey("randread-4k-q1", Direction.READ, "iops")
NEVER, ONCE = [0.0, 0.0, 0.0], [0.0, 0.201, 0.0]
ALWAYS = [0.4, 0.9, 0.6]


def test_cells_that_never_stalled_are_ranked_first() -> None:
    answer = rank(observed({STALL: np.array([ALWAYS, ONCE, NEVER, NEVER])}), STALL)
    assert answer.unranked == ()
    assert [str(row.cell) for row in answer.rows] == ["c02", "c03", "c01", "c00"]
    assert all(row.rounds == 3 for row in answer.rows)
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
    assert (answer.a.rounds, answer.b.rounds, answer.ratio.pairs) == (3, 3, 3)
    assert answer.ratio.ratio is not None
    assert answer.ratio.ratio > 4
    summary = summarise(data, STALL)[cell("c01")]
    assert (summary.median, summary.low, summary.high) == (0.0, 0.0, 0.05)


def test_zeros_are_recommended() -> None:
    data = observed({STALL: np.array([ALWAYS, NEVER])})
    answer = recommend_path(data, STALL, (), CrashVerdicts())
    # Names that are no disk path are no candidates, so this is the ranking's part only.
    assert answer is None or answer.cell == cell("c01")


def test_a_run_in_which_nothing_was_done_is_the_worst() -> None:
    answer = rank(observed({IOPS: np.array([[0.0, 0.0, 0.0], [10, 11, 12], [20, 22, 24]])}), IOPS)
    assert [str(row.cell) for row in answer.rows] == ["c02", "c01", "c00"]


def test_one_run_in_which_nothing_was_done_hides_no_other_difference() -> None:
    """Its logarithm was noise in every cell, so that not even ×40 was shown."""
    grid = drifting(np.random.default_rng(2), [40, 20, 19, 5, 4, 1], 5, noise=0.05)
    whole = rank(observed({IOPS: grid}), IOPS)
    grid[4, 2] = 0.0
    answer = rank(observed({IOPS: grid}), IOPS)
    assert answer.separated >= whole.separated - 4  # of 15 pairs, those with the cell itself
    assert answer.best is not None
    assert whole.best is not None
    assert answer.best.leader == cell("c00")
    assert answer.best.noise < 2 * whole.best.noise
    assert answer.best.shared == 0
    for row in (1, 2, 3):
        assert np.isfinite(answer.rows[row].effect)


def test_a_round_in_which_no_cell_did_anything_changes_no_order() -> None:
    grid = np.array([[20.0, 0, 21, 20], [10, 0, 10.5, 10], [5, 0, 5.2, 5]])
    answer = rank(observed({IOPS: grid}), IOPS)
    assert [str(row.cell) for row in answer.rows] == ["c00", "c01", "c02"]


def test_no_interval_is_narrower_than_the_step_of_its_values() -> None:
    flushes = METRICS["flushes"]
    low, high = median_interval(np.array([[5.0, 5.0, 5.0], [6.0, 6.0, 6.0]]), quantity=flushes)
    np.testing.assert_allclose([low, high], [[4.5, 5.5], [5.5, 6.5]])
    low, high = median_interval(np.array([[5.0] * 8]), quantity=flushes)
    np.testing.assert_allclose([low, high], [[4.5], [5.5]])
    (ratio,) = paired_ratios(np.array([5.0] * 3), np.array([6.0] * 3), flushes)
    assert ratio.low is not None
    assert ratio.high is not None
    # The true values may be anything from 4.5 to 5.5 and from 5.5 to 6.5; one step is added.
    assert ratio.low == pytest.approx(5.5 / 7.5, rel=0.03)
    assert ratio.high == pytest.approx(6.5 / 6.5, rel=0.03)
    assert ratio.p is not None
    assert ratio.p > 0.04


@pytest.mark.parametrize(("apart", "least"), [(0.0, 0.93), (0.08, 0.9)])
def test_ratios_of_rounded_values_hold_the_true_one(apart: float, least: float) -> None:
    """Whole numbers of steps; 51 to 70 % held it where intervals ignored the rounding."""
    rng = np.random.default_rng(4)
    level = np.log(5) + np.array([apart, 0.0])
    drift = rng.normal(0, 0.15, (400, 1, 5))
    # Ratios are those of value + step.
    values = np.round(np.exp(level[:, None] + drift + rng.normal(0, 0.03, (400, 2, 5))) - 1)
    held = 0
    for a, b in values:
        (ratio,) = paired_ratios(a, b, METRICS["flushes"], forecast=False)
        held += (ratio.low or 0) <= np.exp(apart) <= (ratio.high or 0)
    assert held / 400 >= least


def test_ranks_and_the_set_do_not_show_what_rounding_may_have_made() -> None:
    """The true values may all be 5.5."""
    counts = MeasureKey("write", Direction.NONE, "flushes")
    grid = np.array([[5.0, 5.0, 5.0], [6.0, 6.0, 6.0], [6.0, 6.0, 6.0]])
    answer = rank(observed({counts: grid}), counts)
    assert answer.separated == 0
    assert answer.best is not None
    assert len(answer.best.cells) == 3
    assert answer.best.shows is not None
    assert answer.best.shows > 1 / 7
    front = pareto_front(observed({counts: grid, STALL: 0.1 * grid}), [counts, STALL])
    assert not any(placed.standing is Standing.BEATEN for placed in front.cells)


def test_computed_measures_have_the_resolution_of_their_parts() -> None:
    names = ["raw/none", "qcow2/none"]
    numbers = {(name, round, STALL): 0.0 for name in names for round in range(3)}
    data = add_mix(labelled(numbers), cell("raw/none"), {STALL: 1.0})
    answer = recommend_path(data, MIX, (), CrashVerdicts())
    assert answer is not None
    assert len(answer.ties) == 2
    (ratio,) = (row for row in [ratio_of(data, MIX, cell(names[0]), cell(names[1]))])
    # 0.05 s more than none, beside the step of 0.1 s, for each of the two and their baseline
    assert (ratio.low, ratio.high) == pytest.approx((1.5**-2, 1.5**2))
    summary = summarise(data, MIX)[cell(names[1])]
    assert (summary.low, summary.high) == pytest.approx((1 - np.log(1.5), 1 + np.log(1.5)))
    mean, key = add_metric_mean(data, "longest_stall")
    assert mean.resolution(key) == pytest.approx([np.log(1.5)] * 2)


@pytest.mark.parametrize("cells", [2, 13, 40])
@pytest.mark.parametrize("worse", [0.2, 1.0])
def test_rounding_does_not_grow_with_the_number_of_comparisons(cells: int, worse: float) -> None:
    """More than a step apart in each of 30 rounds: the ranks show what the set of the best does."""
    rng = np.random.default_rng(3)
    grid: Floats = worse + 0.1 * rng.integers(0, 2, (cells, 30)).astype(np.float64)
    grid[0] = 0.0
    answer = rank(observed({STALL: grid}), STALL)
    assert answer.best is not None
    assert answer.best.cells == (cell("c00"),)
    assert (answer.rows[0].best, answer.rows[0].worst) == (1, 1)


def test_rounding_is_a_bound_for_claims_and_ratios_alike() -> None:
    """A difference of less than both errors is not shown by any number of rounds."""
    close = paired_ratios(np.full(500, 0.0), np.full(500, 0.1), METRICS["longest_stall"])[0]
    assert close.p == pytest.approx(1.0, abs=1e-4)
    assert close.rounds_needed is None


@pytest.mark.parametrize(
    "metric", ["latency_p50", "latency_p95", "latency_p99", "latency_p99.9", "sync_p99"]
)
@pytest.mark.parametrize("latency", [0.9e-3, 1.05e-3, 3e-3])
def test_percentiles_in_bins_are_known_no_better_than_these(metric: str, latency: float) -> None:
    """Two paths 0.2 % apart lie on both sides of an edge between two of fio's bins."""

    def binned(value: float) -> float:
        nanoseconds = int(1e9 * value)
        bits = nanoseconds.bit_length() - 7
        return ((nanoseconds >> bits) + 0.5) * (1 << bits) / 1e9

    edge = next(value for value in latency * np.linspace(1, 1.02, 2000)
                if binned(float(value)) > binned(latency))  # fmt: skip
    true = np.array([edge * 0.999, edge * 1.001])
    first, second = (np.full(30, binned(float(value))) for value in true)
    assert second[0] / first[0] > 1.005
    key = MeasureKey("randread", Direction.READ, metric)
    (ratio,) = paired_ratios(first, second, METRICS[metric])
    assert (ratio.low or 0) <= true[0] / true[1] <= (ratio.high or 0)
    assert ratio.p == pytest.approx(1.0, abs=1e-4)
    data = observed({key: np.array([first, second, second])})
    answer = rank(data, key)
    assert (answer.separated, len(answer.best.cells if answer.best else ())) == (0, 3)
    shown = summarise(data, key)[cell("c00")]
    assert (shown.low or 0) <= true[0] <= (shown.high or 0)


def test_a_search_does_not_tell_apart_what_rounding_does_not() -> None:
    logs = goodness(observed({IOPS: np.array([[5.0, 5.0], [6.0, 6.0]])}), IOPS)
    assert margin_with_resolution(0.03, logs, np.log1p([0.1, 0.08])) == pytest.approx(0.16)
    assert margin_with_resolution(0.2, logs, np.log1p([0.1, 0.08])) == 0.2


def test_a_margin_of_one_step_is_a_share() -> None:
    """Best is never to stall: one step of 0.1 s is as much again as the value and its step."""
    data = observed({STALL: np.array([[0.0] * 3, [0.1] * 3])})
    margin = margin_with_resolution(0.1, goodness(data, STALL), data.resolution(STALL))
    assert margin == pytest.approx(1.0)


def test_values_one_step_apart_are_no_two_modes() -> None:
    grid = np.array([[0.1, 0.2] * 6, *np.full((3, 12), 0.1)])
    assert bimodal_diagnostics(observed({STALL: grid}), STALL) == ()
    assert len(bimodal_diagnostics(observed({STALL: 10.03 * grid}), STALL)) == 1


def test_every_metric_that_can_be_zero_declares_its_step() -> None:
    stepped = {name for name, metric in METRICS.items() if metric.step}
    assert {"worst_second", "longest_stall", "flushes", "allocated", "mapped"} <= stepped


READ = MeasureKey("read", Direction.READ, "bandwidth")
WRITE = MeasureKey("write", Direction.WRITE, "bandwidth")
STILL = [0.0, 0.0, 0.0]
"""A rate in three rounds in which nothing was done."""


def test_a_mean_with_a_rate_of_zero_is_zero() -> None:
    data = labelled(
        {
            (name, round, key): value
            for name, rates in {"host": (8.0, 4.0), "a": (0.0, 4.0), "b": (4.0, 4.0)}.items()
            for key, value in zip((READ, WRITE), rates, strict=True)
            for round in (1, 2, 3)
        }
    )
    scored = add_scores(data, cell("host"))
    assert scored.overall == MEAN
    grid = scored.observations.grid(MEAN)
    assert grid[data.place[cell("a")]].tolist() == STILL
    assert grid[data.place[cell("b")]] == pytest.approx(np.sqrt([0.5] * 3))
    ranking = rank(scored.observations, MEAN)
    assert str(ranking.rows[-1].cell) == "a"
    summary = summarise(scored.observations, MEAN)[cell("a")]
    assert (summary.median, summary.low, summary.high) == (0.0, None, None)
    (answer,) = (
        cell
        for cell in compare_cells(scored.observations, cell("a"), cell("b"))
        if cell.measure == MEAN
    )
    assert (answer.ratio.ratio, answer.ratio.low, answer.ratio.high) == (None, None, None)
    assert answer.verdict is Verdict.B_BETTER


def test_a_rate_that_is_zero_at_the_baseline_is_no_part_of_the_mean() -> None:
    data = observed(
        {READ: np.array([STILL, [4.0, 5.0, 6.0]]), WRITE: np.array([[1.0] * 3, [2.0] * 3])}
    )
    scored = add_scores(data, cell("c00"))
    assert scored.rates == (WRITE,)
    assert add_scores(observed({READ: np.array([STILL, [4.0] * 3])}), cell("c00")).rates == ()
    mixed = add_mix(data, cell("c00"), {READ: 1.0, WRITE: 1.0})
    assert not np.isfinite(mixed.grid(MIX)).any()


def test_a_latency_of_zero_has_no_mean() -> None:
    latency = MeasureKey("read", Direction.READ, "latency_mean")
    data = observed({latency: np.array([[1.0] * 3, STILL])})
    grid = add_mix(data, cell("c00"), {latency: 1.0}).grid(MIX)
    assert grid[0].tolist() == [1.0, 1.0, 1.0]
    assert np.isnan(grid[1]).all()


@pytest.mark.parametrize("paired", [True, False])
def test_a_ratio_with_a_rate_of_zero_is_unknown_and_still_a_verdict(paired: bool) -> None:
    """It was 0 one way round ("infinitely slower") and unknown the other, and unpaired no verdict
    stood beside it."""
    data = observed({IOPS: np.array([[9.0, 10.0, 11.0], STILL])})
    both = cell("c00"), cell("c01")
    for a, b in (both, both[::-1]):
        (answer,) = compare_cells(data, a, b, paired=paired)
        ratio = answer.ratio
        assert ratio.pairs == 3
        assert (ratio.ratio, ratio.low, ratio.rounds_needed) == (None, None, None)
        assert answer.verdict is (Verdict.A_BETTER if a == both[0] else Verdict.B_BETTER)
        assert compared(answer) == "not comparable, as one value is zero"
    shares = {row.cell: row.shares[0].share for row in pareto_front(data, [IOPS]).cells}
    assert shares == {both[0]: 1.0, both[1]: None}


def test_the_mean_of_a_metric_with_a_zero_is_zero() -> None:
    data = observed({READ: np.array([STILL, [4.0] * 3]), WRITE: np.array([[1.0] * 3, [9.0] * 3])})
    mean, key = add_metric_mean(data, "bandwidth")
    np.testing.assert_allclose(mean.grid(key), [STILL, [6.0] * 3])


def test_a_mean_of_one_rate_is_counted_once() -> None:
    data = add_scores(observed({READ: np.array([[4.0, 5.0, 6.0], [1.0, 2.0, 3.0]])}), cell("c00"))
    answers = compare_cells(data.observations, cell("c00"), cell("c01"))
    assert [(str(answer.measure), answer.main) for answer in answers] == [
        (str(READ), True), (str(MEAN), False),
    ]  # fmt: skip


def test_a_rate_of_zero_has_no_share_of_the_best() -> None:
    rates = np.array([[8.01, 9.02, 9.99], STILL, [4.02, 4.51, 5.01]])
    times = np.outer([1.0, 2.0, 3.0], [1.001, 1.002, 1.003])
    latency = MeasureKey("read", Direction.READ, "latency_mean")
    front = pareto_front(observed({READ: rates, latency: times}), [READ, latency])
    of = {str(placed.cell): placed for placed in front.cells}
    assert of["c01"].shares[0] == ShareOfBest()
    assert (of["c01"].standing, of["c01"].by) == (Standing.BEATEN, cell("c00"))
    assert of["c00"].shares[0] == ShareOfBest(1.0, 1.0, 1.0)
    assert of["c02"].shares[0].share == pytest.approx(0.5, rel=0.02)
    front = pareto_front(
        observed({READ: np.array([STILL, STILL]), latency: np.array([STILL, [1.0] * 3])}),
        [READ, latency],
    )
    of = {str(placed.cell): placed for placed in front.cells}
    assert of["c01"].shares == (ShareOfBest(), ShareOfBest())


def test_one_path_that_stopped_is_no_slow_round() -> None:
    grid = np.array([[0.0, 0.0, 8.0, 8.0, 9.0, 9.0], *np.full((3, 6), 8.0)])
    data = observed({IOPS: grid})
    assert first_round_diagnostics(data, IOPS) == ()
    assert drift_diagnostics(data, IOPS) == ()


def test_two_modes_of_which_one_is_zero_have_no_ratio() -> None:
    grid = np.array([[0.0, 0.0, 0.0, 0.0, 8.0, 8.1, 8.0, 8.1, 8.0, 8.1], *np.full((3, 10), 8.0)])
    (two,) = bimodal_diagnostics(observed({IOPS: grid}), IOPS)
    assert two.apart is None
    assert "the lower one with zeros" in str(two)


def test_a_duration_of_zero_has_no_ceiling() -> None:
    duration = MeasureKey("job", Direction.NONE, "duration")
    data = labelled(
        {
            (name, round, duration): value
            for name, value in {"host": 2.0, "raw/none": 0.0, "qcow2/none": 2.0}.items()
            for round in (1, 2, 3)
        }
    )
    (ceiling,) = ceiling_diagnostics(data, duration, ())
    assert set(ceiling.cells) == {cell("qcow2/none")}
