"""The search's predecessor, which ignores segments, for comparison in bench/search.py.

Each round measures every surviving cell. From the third round on, a cell is dropped once it is
shown not to beat the leader by more than the margin: selection with an indifference zone (Kim &
Nelson, ACM TOMACS 11, 2001) and elimination as in Hoeffding races (Maron & Moore 1994), by
Student's t within rounds. A budget is spread over the rounds as in sequential halving (Karnin et
al. 2013), more slowly.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from vdisklab.analysis.additive import PRECISION, moderate, round_effects
from vdisklab.analysis.distributions import t_isf
from vdisklab.analysis.intervals import MIN_ROUNDS
from vdisklab.analysis.observations import Floats

ALPHA = 0.05
ASSUMED_NOISE = 0.2
WORTH = 3.0
ENOUGH = 10.0
"""The assumed noise counts as WORTH degrees of freedom until the data have ENOUGH."""

ROUND_SHARE = 0.25
"""Share of the remaining budget for one round."""


def eliminate(
    round: Callable[[Sequence[int]], Floats], cells: int, rounds: int, margin: float, budget: float
) -> tuple[int, int]:
    """The best of so many cells, and the runs that it took; `round` measures one round."""
    logs = np.full((cells, rounds), np.nan)
    rows, leader, spent = list(range(cells)), 0, 0
    for number in range(rounds):
        logs[rows, number] = round(rows)
        spent += len(rows)
        order, left = _standing(logs[:, : number + 1], margin)
        leader = next(row for row in order if row in set(rows))
        survivors = [row for row in left if row in set(rows)]
        affordable = budget - spent
        if len(left) < 2 or affordable < 2 or (math.isinf(budget) and len(survivors) < 2):
            break
        if math.isinf(budget):
            rows = survivors
        else:
            dropped = [row for row in left if row not in set(rows)]
            rows = [*survivors, *dropped][: int(max(2.0, affordable * ROUND_SHARE))]
    return leader, spent


def _standing(logs: Floats, margin: float) -> tuple[list[int], list[int]]:
    """All rows, best first, and of these the ones that are not shown to be worse."""
    rounds = logs.shape[1]
    effect, error, freedom = _estimates(logs)
    order = np.argsort(-effect, kind="stable").tolist()
    if rounds < MIN_ROUNDS:
        return order, order
    measured = np.isfinite(logs[:, -1])
    leader = next(row for row in order if measured[row])
    level = ALPHA / (rounds * (rounds + 1)) / max(1, len(logs) - 1)
    limit = t_isf(level, np.minimum(freedom, freedom[leader]))
    may = limit * np.hypot(error, error[leader]) - (effect[leader] - effect)
    left = [row for row in order if row == leader or may[row] >= math.log1p(margin)]
    return order, left


def _estimates(table: Floats) -> tuple[Floats, Floats, Floats]:
    """Effect, standard error and degrees of freedom of each cell, from one round on."""
    measured = np.isfinite(table)
    count = measured.sum(axis=1)
    adjusted = np.where(measured, table - round_effects(table, measured), 0.0)
    effect = adjusted.sum(axis=1) / count
    residual = np.where(measured, adjusted - effect[:, None], 0.0)
    freedom_within = np.maximum(count - 1.0, 0.0)
    total = float(max(freedom_within.sum() - (measured.shape[1] - 1), 0.0))
    squares = (residual**2).sum(axis=1)
    prior = ASSUMED_NOISE**2
    if total < 1:
        variance = np.full(len(table), prior)
        return effect, np.sqrt(variance / count), np.full(len(table), WORTH)
    worth = WORTH if total < ENOUGH else 0.0
    common = max((worth * prior + float(squares.sum())) / (worth + total), PRECISION**2)
    variance = np.full(len(table), common)
    freedom = np.full(len(table), worth + total)
    several = freedom_within >= 1
    if several.sum() >= 3:
        # Adds the common noise to each cell once: zero residuals are luck.
        noisy = (squares[several] + common) / (freedom_within[several] + 1)
        variance[several], freedom[several] = moderate(
            noisy, freedom_within[several] + 1, total + worth
        )
    return effect, np.sqrt(variance / count), freedom
