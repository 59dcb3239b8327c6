"""Intervals for a median from few rounds, vectorised over cells. `docs/proofs.md` has the coverage.

Rows are cells, columns are rounds, NaN is a missing value. Every function returns (low, high) for
each row, NaN where there is no interval.
"""

from __future__ import annotations

import numpy as np

from vdisklab.analysis.distributions import fair_binomial_cdf, t_isf
from vdisklab.analysis.observations import POSITIVE, Floats, different, logarithms, medians
from vdisklab.results.model import Metric

MIN_ROUNDS = 3
"""Minimum number of rounds for an interval, a verdict or a rank."""

ORDER_STATISTICS_FROM = 6
"""The smallest n whose full range covers the median with 95 %: 1 - 2 * 0.5**n >= 0.95."""

Interval = tuple[Floats, Floats]


def median_interval(
    grid: Floats, level: float = 0.95, quantity: Metric = POSITIVE, resolution: Floats | None = None
) -> Interval:
    """The interval that vdisklab shows: order statistics from 6 rounds on, log-t for 3 to 5.

    With 3 to 5 rounds, no interval from order statistics can reach 95 % (the range of three values
    covers the median with 75 %), so a log-normal distribution is assumed. An interval is never
    narrower than the metric's step and rounding; for computed values the logarithmic `resolution`
    takes their place.
    """
    count = np.isfinite(grid).sum(axis=1)
    few_low, few_high = log_t_interval(grid, level, quantity)
    low = np.where(count >= MIN_ROUNDS, few_low, np.nan)
    high = np.where(count >= MIN_ROUNDS, few_high, np.nan)
    many = count >= ORDER_STATISTICS_FROM
    low[many], high[many] = order_statistic_interval(grid[many], level)
    if quantity.step or quantity.rounding or resolution is not None:
        middle = medians(np.where((count > 0)[:, None], grid, 0.0))
        half = (quantity.step or 0.0) / 2 + np.abs(middle) * quantity.rounding
        if resolution is not None:
            half = np.abs(middle) * resolution
        low, high = np.minimum(low, middle - half), np.maximum(high, middle + half)
    # A metric that can be zero cannot be less.
    return (low if quantity.step is None else np.maximum(low, 0.0)), high


def log_t_interval(grid: Floats, level: float = 0.95, quantity: Metric = POSITIVE) -> Interval:
    """Student's t interval of the mean logarithm, converted back (for log-normal data, the median).

    Needs two values, positive ones if the metric has no step. With 3 to 5 values it always contains
    the sample median: that is within sqrt((n-1)/n) standard deviations of the mean (Hotelling &
    Solomons 1932), which is less than t/sqrt(n).
    """
    logs = logarithms(grid, quantity)
    count = np.isfinite(logs).sum(axis=1)
    low, high = np.full(len(grid), np.nan), np.full(len(grid), np.nan)
    usable = count >= 2
    if quantity.step is None:
        usable &= ~(grid <= 0).any(axis=1)
    if usable.any():
        mean = np.nanmean(logs[usable], axis=1)
        error = np.nanstd(logs[usable], axis=1, ddof=1) / np.sqrt(count[usable])
        half = t_isf((1 - level) / 2, count[usable] - 1) * error
        # The interval of two values may be too wide for a float.
        with np.errstate(over="ignore", under="ignore"):
            low[usable], high[usable] = np.exp(mean - half), np.exp(mean + half)
    step = quantity.step or 0.0
    return low - step, high - step


def order_statistic_interval(grid: Floats, level: float = 0.95) -> Interval:
    """Interpolated binomial interval of the median: assumes nothing about the distribution.

    The k-th smallest and k-th largest value cover the median with a binomial probability; the
    interpolation between neighbouring k is that of Hettmansperger & Sheather (Statistics &
    Probability Letters 4, 1986). NaN for rows too short to reach `level`.
    """
    ordered = np.sort(grid, axis=1)  # NaN last
    count = np.isfinite(grid).sum(axis=1)
    low, high = np.full(len(grid), np.nan), np.full(len(grid), np.nan)
    for n in different(count).tolist():
        if 1 - 2 * fair_binomial_cdf(0, n) < level or n < 2:
            continue
        rows = count == n
        k, share = _order_statistic(n, level)
        values = ordered[rows]
        low[rows] = (1 - share) * values[:, k - 1] + share * values[:, k]
        high[rows] = (1 - share) * values[:, n - k] + share * values[:, n - k - 1]
    return low, high


def _order_statistic(n: int, level: float) -> tuple[int, float]:
    """The rank k (from 1) that still reaches `level`, and the weight of the next rank."""
    ranks = np.arange(1, n // 2 + 1)
    covered = 1 - 2 * fair_binomial_cdf(ranks - 1, n)
    k = int(ranks[covered >= level].max())
    outer = float(covered[k - 1])
    inner = float(1 - 2 * fair_binomial_cdf(k, n)) if k < n // 2 else 0.0
    excess = (outer - level) / (outer - inner)
    return k, (n - k) * excess / (k + (n - 2 * k) * excess)
