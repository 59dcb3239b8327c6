"""Ranks over a fleet: pairs of cells are compared within hosts, and hosts are replications."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from vdisklab.analysis.additive import PRECISION, round_effects, usable
from vdisklab.analysis.best import NEGLIGIBLE, simplest_first
from vdisklab.analysis.distributions import t_isf, t_sf
from vdisklab.analysis.intervals import MIN_ROUNDS
from vdisklab.analysis.observations import Floats, MeasureKey, Observations
from vdisklab.analysis.paired_ratios import holm
from vdisklab.analysis.rank_intervals import Ranked, Ranking, Unranked, WithoutRank
from vdisklab.path.cell import MeasuredCell
from vdisklab.results.model import Better

MIN_HOSTS = MIN_ROUNDS
"""Minimum number of hosts for a comparison."""


def rank_over_hosts(hosts: Observations, measure: MeasureKey, alpha: float = 0.05) -> Ranking:
    """Ranks the cells of `host_means`; `rounds` of each row counts hosts.

    Each pair of cells is compared by a paired t-test over the hosts that have both, at a
    family-wise error of `alpha` after Holm over all pairs. Each pair has its own error: hosts of
    one kind treat a family of paths alike, so the model with one error for each cell
    (`rank_intervals.separate`) would show differences that are not there.
    """
    logs = hosts.ranked_logs(measure)
    chosen = usable(logs)
    count = np.isfinite(hosts.grid(measure)).sum(axis=1)
    without = [(row, Unranked.TOO_FEW_ROUNDS) for row in chosen.few]
    without += [(row, Unranked.NO_COMMON_ROUND) for row in chosen.apart]
    missing = tuple(
        WithoutRank(hosts.cells[row], int(count[row]), reason) for row, reason in sorted(without)
    )
    if not len(chosen.rows):
        return Ranking(measure, alpha, (), missing, 0, 0)
    sign = 1.0 if measure.quantity.better is Better.HIGHER else -1.0
    table = sign * logs[np.ix_(chosen.rows, chosen.columns)]
    effect = level_of_cells(table)
    resolution = hosts.resolution(measure)[chosen.rows]
    better, worse = separated(table, resolution, alpha)
    cells = len(chosen.rows)
    order = np.lexsort((-worse, better, -np.round(effect, 12))).tolist()
    tied = [row for row in order if not better[row]]
    close = (row for row in tied if _close(table, resolution, tied[0], row, alpha))
    use = min(close, key=lambda row: simplest_first(hosts.cells[chosen.rows[row]]), default=None)
    rows = tuple(
        Ranked(
            hosts.cells[chosen.rows[place]],
            int(count[chosen.rows[place]]),
            1 + int(better[place]),
            cells - int(worse[place]),
            float(sign * effect[place]),
        )
        for place in order
    )
    return Ranking(
        measure=measure,
        alpha=alpha,
        rows=rows,
        unranked=missing,
        comparisons=cells * (cells - 1) // 2,
        separated=int(better.sum()),
        too_slow=hosts.too_slow,
        use=None if use is None else hosts.cells[chosen.rows[use]],
    )


def may_be_best(ranking: Ranking) -> tuple[MeasuredCell, ...]:
    """The cells that no other is shown to beat, best first. With confidence 1 - alpha the best is
    one.
    """
    return tuple(row.cell for row in ranking.rows if row.best == 1)


def to_use(ranking: Ranking) -> MeasuredCell | None:
    """The simplest of those that may be the best and are shown to be close to their leader."""
    return ranking.use


def _close(table: Floats, resolution: Floats, leader: int, row: int, alpha: float) -> bool:
    """True if a cell is shown to be at most `NEGLIGIBLE` behind the leader of the mean host.

    A one-sided paired t-test over hosts, for all other cells at once (Bonferroni).
    """
    lead = table[leader] - table[row]
    lead = lead[np.isfinite(lead)]
    if row == leader or len(lead) < MIN_HOSTS:
        return row == leader
    error = max(float(lead.std(ddof=1)), PRECISION) / math.sqrt(len(lead))
    limit = float(t_isf(alpha / (len(table) - 1), len(lead) - 1))
    most = float(lead.mean()) + limit * error + float(resolution[leader] + resolution[row])
    return most <= math.log1p(NEGLIGIBLE)


def level_of_cells(table: Floats) -> Floats:
    """The mean of each cell (a row) over the hosts (columns), without the hosts' effects."""
    observed = np.isfinite(table)
    adjusted = np.where(observed, table - round_effects(table, observed), 0.0)
    answer: Floats = adjusted.sum(axis=1) / observed.sum(axis=1)
    return answer


def separated(
    table: Floats, resolution: Floats, alpha: float
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """For each cell, how many others are shown to be better and worse; a higher value is better."""
    mean, p = pair_tests_over_hosts(table, resolution)
    first, other = np.triu_indices(len(table), 1)
    adjusted = np.ones_like(p)
    tested = np.isfinite(p[first, other])
    adjusted[first[tested], other[tested]] = holm(p[first, other][tested])
    shown = np.triu(adjusted, 1) + np.triu(adjusted, 1).T + np.eye(len(table)) <= alpha
    better = (shown & (mean < 0)).sum(axis=1)
    worse = (shown & (mean > 0)).sum(axis=1)
    return better, worse


def pair_tests_over_hosts(table: Floats, resolution: Floats) -> tuple[Floats, Floats]:
    """The mean difference of each pair of rows within columns, and its two-sided p-value.

    NaN for a pair with fewer than three common hosts. All sums over hosts are matrix products, so
    the cost is cells^2 x hosts.
    """
    observed = np.isfinite(table)
    weight = observed.astype(np.float64)
    # Differences stay the same, and sums of squares lose fewer digits.
    centred = np.where(observed, table - np.nanmean(table, axis=0), 0.0)
    count = weight @ weight.T
    total = centred @ weight.T - weight @ centred.T
    squares = centred**2 @ weight.T + weight @ (centred**2).T - 2 * centred @ centred.T
    enough = count >= MIN_HOSTS
    hosts = np.where(enough, count, np.nan)
    mean = total / hosts
    variance = np.maximum(squares - hosts * mean**2, 0.0) / (hosts - 1)
    error = np.sqrt(np.maximum(variance, PRECISION**2) / hosts)
    freedom = np.where(enough, count - 1, 1.0)
    beyond = np.maximum(np.abs(mean) - (resolution[:, None] + resolution), 0.0)
    p = 2 * t_sf(beyond / error, freedom)
    return mean, np.where(enough, p, np.nan)
