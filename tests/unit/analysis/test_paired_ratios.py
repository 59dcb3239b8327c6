from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from tests.unit.analysis.made import IOPS, P99, cell, drifting, observed
from vdisklab.analysis.observations import MeasureKey
from vdisklab.analysis.paired_ratios import (
    Ratio,
    Verdict,
    against_baseline,
    compare_cells,
    holm,
    paired_ratios,
    rounds_needed,
    unpaired_ratio,
)
from vdisklab.results.model import Direction


def test_the_ratio_and_its_interval_agree_with_scipy() -> None:
    rng = np.random.default_rng(1)
    a, b = drifting(rng, [2.0, 1.0], 8)
    (ratio,) = paired_ratios(a, b)
    oracle = stats.ttest_rel(np.log(a), np.log(b))
    bounds = oracle.confidence_interval(0.95)
    assert ratio.pairs == 8
    assert ratio.p == pytest.approx(oracle.pvalue)
    assert (ratio.low, ratio.high) == pytest.approx((np.exp(bounds.low), np.exp(bounds.high)))


def test_cells_that_share_no_round_are_compared_as_welch_does() -> None:
    rng = np.random.default_rng(3)
    a, b = rng.lognormal(0.2, 0.3, 9), rng.lognormal(0.0, 0.05, 4)
    ratio = unpaired_ratio(np.append(a, np.nan), b, IOPS.quantity)
    oracle = stats.ttest_ind(np.log(a), np.log(b), equal_var=False)
    bounds = oracle.confidence_interval(0.95)
    assert ratio.pairs == 4
    assert ratio.p == pytest.approx(oracle.pvalue)
    assert (ratio.low, ratio.high) == pytest.approx((np.exp(bounds.low), np.exp(bounds.high)))
    assert unpaired_ratio(a, b[:2], IOPS.quantity).low is None
    assert unpaired_ratio(a, np.array([np.nan]), IOPS.quantity) == Ratio(0)
    assert unpaired_ratio(a, np.array([1.0, 0.0, 1.0]), IOPS.quantity).ratio is None


def test_swapping_inverts() -> None:
    a, b = drifting(np.random.default_rng(2), [2.0, 1.0], 5)
    (first,), (other,) = paired_ratios(a, b), paired_ratios(b, a)
    assert first.ratio is not None
    assert other.ratio is not None
    assert first.low is not None
    assert other.high is not None
    assert first.ratio == pytest.approx(1 / other.ratio)
    assert first.low == pytest.approx(1 / other.high)
    assert first.p == pytest.approx(other.p)


def test_drift_that_touches_both_cancels() -> None:
    rounds = np.array([1.0, 0.5, 0.25, 2.0]) * np.pi  # no round numbers, which had a rounding error
    (ratio,) = paired_ratios(1.1 * rounds, rounds)
    assert ratio.ratio == pytest.approx(1.1)
    assert ratio.high == pytest.approx(1.1)
    assert ratio.p is not None
    assert ratio.p < 1e-6


@pytest.mark.parametrize(
    ("a", "b", "pairs"),
    [
        ([np.nan, 1.0], [1.0, np.nan], 0),
        ([2.0, 1.0], [1.0, np.nan], 1),
        ([2.0, np.inf], [1.0, 1.0], 1),
    ],
)
def test_one_pair_or_none_has_no_interval(a: list[float], b: list[float], pairs: int) -> None:
    (ratio,) = paired_ratios(np.array(a), np.array(b))
    assert ratio.pairs == pairs
    assert ratio.ratio == (2.0 if pairs else None)
    assert ratio.low is ratio.high is ratio.p is ratio.rounds_needed is None


def test_equal_samples_never_differ() -> None:
    values = np.array([1.0, 1.2, 0.8, 1.1])
    (ratio,) = paired_ratios(values, values)
    assert ratio.ratio == 1.0
    assert ratio.p == 1.0
    assert ratio.rounds_needed is None


@given(st.lists(st.floats(0, 1), min_size=1, max_size=20))
def test_holm_agrees_with_its_definition(values: list[float]) -> None:
    p = np.array(values)
    adjusted = holm(p)
    order = np.argsort(p, kind="stable")
    running = 0.0
    for place, index in enumerate(order):
        running = max(running, min(1.0, p[index] * (len(p) - place)))
        assert adjusted[index] == pytest.approx(running)


def test_rounds_needed_gives_the_promised_power() -> None:
    effect = 0.8
    (needed,) = rounds_needed(np.array([effect]), np.array([1.0]), 0.05)
    rng = np.random.default_rng(3)

    def power(n: int) -> float:
        p = stats.ttest_1samp(rng.normal(effect, 1, (4000, n)), 0, axis=1).pvalue
        return float((p < 0.05).mean())

    assert power(int(needed)) >= 0.78
    assert power(int(needed * 0.7)) < 0.78
    assert np.isnan(rounds_needed(np.array([1e-6]), np.array([1.0]), 0.05))[0]


def test_better_follows_the_metric() -> None:
    grid = np.array([[10.0, 11.0, 10.5, 10.2], [1.0, 1.1, 1.04, 1.0]])
    data = observed({IOPS: grid, P99: grid})
    found = {each.measure: each for each in compare_cells(data, cell("c00"), cell("c01"))}
    assert found[IOPS].verdict is Verdict.A_BETTER
    assert found[P99].verdict is Verdict.B_BETTER
    assert found[IOPS].ratio.ratio == found[P99].ratio.ratio


def test_two_rounds_are_too_few_for_a_verdict() -> None:
    data = observed({IOPS: np.array([[10.0, 10.0], [1.0, 1.0]])})
    (found,) = compare_cells(data, cell("c00"), cell("c01"))
    assert found.verdict is Verdict.TOO_FEW
    assert found.p_adjusted is None
    assert found.a.low is None


def test_what_only_one_has_is_not_compared() -> None:
    data = observed({IOPS: np.array([[1.0], [2.0]]), P99: np.array([[1.0], [np.nan]])})
    assert [each.measure for each in compare_cells(data, cell("c00"), cell("c01"))] == [IOPS]


def test_ratios_to_the_baseline_leave_out_who_never_met_it() -> None:
    data = observed({IOPS: np.array([[1.0, 2.0], [2.0, 4.0], [np.nan, 3.0]])})
    found = against_baseline(data, IOPS, cell("c00"))
    assert found[cell("c01")].ratio == pytest.approx(2.0)
    assert found[cell("c02")].pairs == 1
    assert cell("c00") not in found
    assert against_baseline(data, IOPS, cell("nobody")) == {}


def test_intervals_cover_under_drift_and_false_verdicts_are_rare() -> None:
    rng = np.random.default_rng(11)
    covered, wrong, repeats = 0, 0, 1500
    for _ in range(repeats):
        a, b = drifting(rng, [1.0, 1.0], 5, noise=0.05)
        (ratio,) = paired_ratios(a, b, forecast=False)
        assert ratio.low is not None
        assert ratio.high is not None
        assert ratio.p is not None
        covered += ratio.low <= 1 <= ratio.high
        wrong += ratio.p <= 0.05
    assert covered / repeats == pytest.approx(0.95, abs=0.02)
    assert wrong / repeats <= 0.07


def test_one_fact_is_corrected_once() -> None:
    """Bandwidth, IOPS and mean latency say the same: only the rate counts among the main ones."""
    rng = np.random.default_rng(2)
    speed = drifting(rng, [100.0, 118.0], 5, 0.06)
    other = drifting(rng, [100.0, 100.0], 5, 0.06)
    names = [f"more-{number}" for number in range(30)]
    measures = {
        **{MeasureKey("seqread", Direction.READ, name): speed for name in ("bandwidth", "iops")},
        MeasureKey("seqread", Direction.READ, "latency_mean"): 1 / speed,
        MeasureKey("score", Direction.NONE, "weighted_overall"): speed,
        **{MeasureKey(name, Direction.READ, "latency_p99"): other for name in names},
    }
    found = compare_cells(observed(measures), cell("c00"), cell("c01"))
    main = [row for row in found if row.main]
    assert [str(row.measure) for row in main] == [
        "score/none/weighted_overall",
        "seqread/read/bandwidth",
    ]
    assert found[: len(main)] == tuple(main)
    assert {row.verdict for row in main} == {Verdict.B_BETTER}
    (same,) = (row for row in found if row.measure.metric == "iops")
    assert same.ratio.p == main[1].ratio.p
    assert same.verdict is Verdict.B_LIKELY  # 32 others with it
