from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import stats

from vdisklab.analysis.intervals import (
    log_t_interval,
    median_interval,
    order_statistic_interval,
)
from vdisklab.analysis.observations import Floats

POSITIVE = st.floats(1e-3, 1e9)


@given(st.integers(3, 12).flatmap(lambda n: arrays(np.float64, (1, n), elements=POSITIVE)))
def test_the_interval_holds_the_median(grid: Floats) -> None:
    low, high = median_interval(grid)
    slack = 1e-9 * np.median(grid)
    assert low[0] - slack <= np.median(grid) <= high[0] + slack


@pytest.mark.parametrize("n", [0, 1, 2])
def test_below_three_rounds_there_is_no_interval(n: int) -> None:
    grid = np.full((1, 5), np.nan)
    grid[0, :n] = 1.0 + np.arange(n)
    low, high = median_interval(grid)
    assert np.isnan(low).all()
    assert np.isnan(high).all()


def test_log_t_agrees_with_scipy() -> None:
    values = np.random.default_rng(1).lognormal(3, 0.4, 4)
    low, high = log_t_interval(values[None, :])
    oracle = stats.ttest_1samp(np.log(values), 0).confidence_interval(0.95)
    np.testing.assert_allclose([low[0], high[0]], np.exp([oracle.low, oracle.high]))


def test_order_statistics_agree_with_scipy_where_scipy_does_not_interpolate() -> None:
    # scipy takes the next wider order statistics, so its interval encloses ours ...
    values = np.random.default_rng(2).normal(10, 1, 10)
    low, high = order_statistic_interval(values[None, :])
    wide = stats.quantile_test(values, p=0.5).confidence_interval(0.95)
    assert wide.low <= low[0]
    assert high[0] <= wide.high
    # ... and with the level that the order statistics have by themselves both are equal.
    exact = 1 - 2 * stats.binom.cdf(1, 10, 0.5)
    low, high = order_statistic_interval(values[None, :], exact)
    ordered = np.sort(values)
    np.testing.assert_allclose([low[0], high[0]], [ordered[1], ordered[8]])


def test_a_row_does_not_depend_on_its_neighbours_nor_on_its_order() -> None:
    rng = np.random.default_rng(3)
    grid = rng.lognormal(0, 1, (20, 8))
    grid[rng.random(grid.shape) < 0.3] = np.nan
    whole = median_interval(grid)
    for row in range(len(grid)):
        single = median_interval(rng.permuted(grid[row : row + 1], axis=1))
        np.testing.assert_allclose([s[0] for s in single], [w[row] for w in whole], rtol=1e-9)


def test_zeros_have_no_log_normal_interval() -> None:
    low, _ = median_interval(np.array([[0.0, 1.0, 2.0]]))
    assert np.isnan(low[0])


@pytest.mark.parametrize("n", [3, 5, 6, 10])
@pytest.mark.parametrize("kind", ["log-normal", "skewed"])
def test_coverage_is_what_the_method_page_says(n: int, kind: str) -> None:
    rng = np.random.default_rng(100 + n)
    if kind == "log-normal":
        grid, truth = np.exp(rng.normal(0, 0.2, (20_000, n))), 1.0
    else:
        grid, truth = np.exp(0.1 * rng.exponential(1, (20_000, n))), np.exp(0.1 * np.log(2))
    low, high = median_interval(grid)
    assert 0.93 <= ((low <= truth) & (truth <= high)).mean() <= 0.97
