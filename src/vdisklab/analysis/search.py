"""Shortlists the paths of a race: which cells to measure next, and which may be the best.

The first round has each cell; of very many, a balanced fraction. After each round the model of
`path_model` says which few cells hold the best, as good as surely. If these are still many, the
next round measures the leader and the cells that were best in random draws of the model (Thompson
sampling: Russo et al., A Tutorial on Thompson Sampling, 2018; the leader is always among them as in
Russo's top-two sampling, Operations Research 68, 2020). Then the few race, which needs no model:
see `race`.

Pure: values in, the next cells out. The same values give the same answer, so an interrupted search
continues from the database.

Matrices are cells x rounds of logarithms, negated for latencies so that more is better; NaN where
nothing was measured. Cells are named by their rows.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

import numpy as np

from vdisklab.analysis.intervals import MIN_ROUNDS
from vdisklab.analysis.observations import Floats, MeasureKey, Observations
from vdisklab.analysis.path_model import PathModel, Runs
from vdisklab.path.factors import Levels
from vdisklab.results.model import Better
from vdisklab.value import Value

DRAWS = 400
"""Number of draws from the model."""

FEW = 8
"""So many cells race at once; more are narrowed down by the model first."""

FEWEST = 3
"""At least so many cells race: the model alone decides nothing."""

ENOUGH = 2
"""After as many runs as this many rounds of all cells, the cells that are left race, even if they
are more than FEW."""

PER_PARAMETER = 2
"""Runs of the first round for each level of a factor that the model has to estimate."""

EACH_ONCE = 100
"""Up to so many cells, the first round measures each, if that is at most half of the runs: a cell
that is much better than its segments promise shows itself in no other way. In simulations with one
such cell among 60, searches with a fraction found it in 48 %, with each cell in 98 % (`bench/
search.py`)."""

SMALLEST_ROUND = 6
GROWTH = 6
"""A round after the first has SMALLEST_ROUND cells, or 1/GROWTH of the runs so far if more."""

HOPELESS = 100.0
"""Values that are worse than the best by this factor or more count as equally bad."""

ATTEMPTS = 3
"""Number of failed cells of a level after which its other cells are not tried."""


class SearchState(Value):
    """The state after some rounds, in rows.

    `shortlist` holds the best cell of every draw, the leader first. The search is over if these are
    to `race`; otherwise the leader and the `challengers` are measured next.
    """

    shortlist: tuple[int, ...]
    challengers: tuple[int, ...]
    race: bool


def first_cells(levels: Levels, affordable: float) -> tuple[int, ...]:
    """The cells of the first round: each cell, or of more than EACH_ONCE each level of each factor
    about equally often.

    Those are PER_PARAMETER for each parameter of the factors. At most half of the `affordable` runs
    are made, and at least two; none if not even these are affordable.
    """
    if affordable < min(2, len(levels)):
        return ()
    cells, factors = levels.shape
    sizes = levels.max(axis=0, initial=0) + 1
    fraction = PER_PARAMETER * (1 + int((sizes - 1).sum()))
    wanted = min(cells if cells <= EACH_ONCE else fraction, affordable / 2)
    order = np.random.default_rng(0).permutation(cells)
    cost = np.zeros(cells)
    chosen: list[int] = []
    while len(chosen) < min(max(2, int(wanted)), cells):
        row = int(order[np.argmin(cost[order])])
        chosen.append(row)
        cost[row] = math.inf
        for factor in range(factors):
            cost[levels[:, factor] == levels[row, factor]] += sizes[factor]
    return tuple(chosen)


def search_state(
    model: PathModel, logs: Floats, margin: float, failed: Collection[int] = ()
) -> SearchState:
    """The state after the measured rounds. `failed` cells cannot be the answer.

    `margin` is a share (0.1): a cell worse than the best by no more than this is good enough.
    Raises ValueError when nothing was measured.
    """
    runs = Runs.of(logs)
    if not len(runs.value):
        raise ValueError("no round has been measured yet")
    draws = model.draws(runs, DRAWS, np.random.default_rng(len(runs.value)))
    draws[list(failed)] = -math.inf
    least = math.log1p(margin)
    means = draws.mean(axis=1)
    leader = int(np.argmax(means))
    better = (draws > draws[leader] + least).mean(axis=1)
    order = np.lexsort((-means, -better)).tolist()
    competing = [row for row in order if row != leader and row not in failed]
    winners = dict.fromkeys(draws.argmax(axis=0).tolist())
    first = max(SMALLEST_ROUND, len(winners), int((better > 0).sum()))
    challengers = [row for row in dict.fromkeys([*winners, *competing]) if row != leader][:first]
    chosen = shortlist(draws, leader, least / 2)  # the race may cost the other half
    wider = tuple(dict.fromkeys((*chosen, *challengers)))
    return SearchState(
        shortlist=wider[: max(FEWEST, len(chosen))],
        challengers=tuple(challengers),
        race=len(chosen) <= FEW or len(runs.value) >= ENOUGH * len(logs),
    )


def shortlist(draws: Floats, leader: int, margin: float) -> tuple[int, ...]:
    """The fewest rows that hold the best of each draw (greedily chosen).

    A row that is left out is better than all of these by no more than the margin. In simulations
    without structure, covering only 98 % of the draws left the best out in 7 % of 100 searches;
    with the whole margin of the race a recorded campaign was right in 84 %, with half in 97 %.
    """
    chosen = [leader]
    best = draws[leader].copy()
    while True:
        missed = draws.max(axis=0) > best + margin
        if not missed.any():
            return tuple(chosen)
        wins = np.bincount(draws[:, missed].argmax(axis=0), minlength=len(draws))
        chosen.append(int(wins.argmax()))
        best = np.maximum(best, draws[chosen[-1]])


def next_cells(state: SearchState, runs: int, affordable: float) -> tuple[int, ...]:
    """The cells of the next round after `runs` runs of a search; none if too few are affordable.

    They are the leader and the cells that may be the best. If few runs are `affordable`, they are
    the shortlist's first cells, as many as can be measured three times.
    """
    if affordable < 2:
        return ()
    if affordable < SMALLEST_ROUND + 2 * MIN_ROUNDS:
        few = tuple(dict.fromkeys((*state.shortlist, *state.challengers)))
        return few[: max(2, int(affordable / MIN_ROUNDS))]
    size = int(min(max(SMALLEST_ROUND, runs // GROWTH), affordable))
    return (state.shortlist[0], *state.challengers[: size - 1])


def given_up(levels: Levels, tried: Collection[int], failed: Collection[int]) -> frozenset[int]:
    """The `failed` cells, and all cells with a level whose tried cells all failed.

    A level is given up after ATTEMPTS cells. `failed` is a subset of `tried`.
    """
    out = set(failed)
    worked = sorted(set(tried) - out)
    for column in levels.T:
        lost = np.bincount(column[sorted(failed)], minlength=int(column.max()) + 1) >= ATTEMPTS
        lost[column[worked]] = False
        out |= set(np.flatnonzero(lost[column]).tolist())
    return frozenset(out)


def goodness(
    observations: Observations, measure: MeasureKey, columns: Sequence[int] | None = None
) -> Floats:
    """Logarithms in which more is better, cells x rounds; only for `columns` if given.

    Values that are HOPELESS times as bad as the best are set to that: how bad they are does not
    matter, and a cell that did nothing at all would be infinitely bad.
    """
    logs = observations.logs(measure)
    signed: Floats = logs if measure.quantity.better is Better.HIGHER else -logs
    if columns is not None:
        signed = signed[:, list(columns)]
    return np.maximum(signed, np.nanmax(signed, initial=-math.inf) - math.log(HOPELESS))


def margin_with_resolution(margin: float, logs: Floats, resolution: Floats) -> float:
    """The margin, or the share that one step is of the best cell's values if that is more: twice
    its `resolution`, which is the logarithm of half a step more.

    Smaller differences, such as one step of the metric, cannot be told apart. `logs` are those of
    `goodness`; both have a row for each cell.
    """
    measured = np.flatnonzero(np.isfinite(logs).any(axis=1))
    if not len(measured):
        return margin
    best = measured[np.nanmean(logs[measured], axis=1).argmax()]
    return max(margin, 2 * math.expm1(float(resolution[best])))
