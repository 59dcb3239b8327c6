"""Ranks with ties: for each cell the range of ranks it may have, for all cells jointly."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum
from functools import partial
from itertools import pairwise
from typing import Annotated

import numpy as np
import numpy.typing as npt

from vdisklab.analysis.additive import LEAST_ROUNDS, Fit, fit, usable
from vdisklab.analysis.best import BestSet, best_set, competitors
from vdisklab.analysis.distributions import t_isf
from vdisklab.analysis.intervals import MIN_ROUNDS
from vdisklab.analysis.observations import (
    Floats,
    MeasureKey,
    Observations,
    Round,
    different,
    narrowed,
)
from vdisklab.path.cell import MeasuredCell, numbers_of_guests
from vdisklab.results.model import Better
from vdisklab.value import HIDDEN, Value, replace

LOOK_SHARE = 0.1
"""Share of the error that a look gets which is not the one that was planned. In simulations, looks
after each of 20 rounds then leave out the best of 13 equals as seldom as one look, not in 19 % of
campaigns, and the end of a race in 5 %, not in 20 to 30 % (`bench/race.py`)."""

Counts = npt.NDArray[np.int64]
CLASSES = 20
"""Number of classes of cells with similar standard errors, if there are more cells."""

STEPS = 25
"""Maximum number of iterations of Holm's procedure; stopping early can only miss a difference."""


class Unranked(StrEnum):
    """Why a cell has no rank."""

    TOO_FEW_ROUNDS = "too-few-rounds"
    NO_COMMON_ROUND = "no-common-round"
    NOTHING_TO_COMPARE = "nothing-to-compare"
    GATE_MISSED = "gate-missed"
    NOT_COMPETING = "not-competing"
    LOSES_DATA = "loses-data"

    @property
    def beside(self) -> bool:
        """True for a cell that is shown beside the ranked ones, for comparison."""
        return self in (Unranked.NOT_COMPETING, Unranked.LOSES_DATA)


class Ranked(Value):
    """One cell's rank: between `best` and `worst` (from 1), with joint confidence.

    `effect` is the mean logarithm without the round effects; rows are ordered by it.
    """

    cell: Annotated[MeasuredCell, HIDDEN]
    rounds: Annotated[int, "in which the cell has the ranked measure"]
    best: int
    worst: int
    effect: float

    @property
    def tied(self) -> bool:
        """True when at least one other cell may have the same rank."""
        return self.best != self.worst


class WithoutRank(Value):
    """A cell that was measured but cannot be ranked."""

    cell: Annotated[MeasuredCell, HIDDEN]
    rounds: int
    reason: Annotated[Unranked, "why there is no rank"]


class Ranking(Value):
    """Best first. `separated` of `comparisons` pairs differ at family-wise error `alpha`."""

    measure: Annotated[MeasureKey, "what is ranked, as MEASUREMENT/DIRECTION/METRIC"]
    alpha: Annotated[float, "family-wise error"]
    rows: Annotated[tuple[Ranked, ...], HIDDEN]
    unranked: Annotated[tuple[WithoutRank, ...], HIDDEN]
    comparisons: Annotated[int, "pairs of cells"]
    separated: Annotated[int, "pairs shown to differ"]
    best: Annotated[
        BestSet | None, "null without ranked cells, or if they differ in their number of guests"
    ] = None
    too_slow: Annotated[tuple[tuple[MeasuredCell, Round], ...], HIDDEN] = ()
    """The cells that got their round's worst value, because they did not end in time."""
    use: Annotated[MeasuredCell | None, HIDDEN] = None
    """Over hosts, which have no `best`: the simplest path shown to be close to the leader."""

    @property
    def inconclusive(self) -> bool:
        """True when no pair of cells is shown to differ."""
        return bool(self.rows) and self.separated == 0


def rank(
    observations: Observations,
    measure: MeasureKey,
    alpha: float = 0.05,
    *,
    unplanned_look: bool = False,
) -> Ranking:
    """Ranks the competing cells that have the measure in three rounds or more, and those that miss
    one of three.

    First it decides which cells may be the best, at an error of `alpha` (`best_set`): none of them
    is shown to be worse, and if there is but one, all others are. Then every other pair is compared
    by a t-test on the
    additive model of `additive.py`, at a family-wise error of `alpha` after Holm. A cell's best
    rank follows all cells shown to be better; its worst rank precedes all cells shown to be worse
    (Mohamad, Goeman & van Zwet 2019; Klein, Wright & Wieczorek, Journal of the Royal Statistical
    Society C 69, 2020). An `unplanned_look` may use LOOK_SHARE of that error only. It is a look
    before the last round, or at a campaign that ended because of its numbers.
    """
    stated, alpha = alpha, alpha * (LOOK_SHARE if unplanned_look else 1)
    count = np.isfinite(observations.grid(measure)).sum(axis=1)
    places = competitors(observations.cells)
    unranked = [
        (row, Unranked.NOT_COMPETING)
        for row in sorted(set(range(len(count))) - set(places.tolist()))
        if count[row]
    ]
    model, few, apart = _model(observations, measure, places)
    unranked += [(row, Unranked.TOO_FEW_ROUNDS) for row in few]
    unranked += [(row, Unranked.NO_COMMON_ROUND) for row in apart]
    if model is None:
        unranked = [
            (row, _alone(count[places], int(count[row]), reason)) for row, reason in unranked
        ]
    missing = tuple(
        WithoutRank(observations.cells[row], int(count[row]), reason)
        for row, reason in sorted(unranked, key=lambda pair: observations.cells[pair[0]])
    )
    if model is None:
        return Ranking(measure, stated, (), missing, 0, 0)
    sign = 1.0 if measure.quantity.better is Better.HIGHER else -1.0
    cells = [observations.cells[row] for row in model.rows.tolist()]
    best = _best(measure, model, cells, alpha)
    if best is not None:
        few_rounds = len(places) - len(cells)
        best = replace(best, alpha=stated, of_this_look=alpha, unranked=few_rounds)
    better, worse = separate(sign * model.effect, model, alpha, _standing(best, cells))
    # Rounded, so that cells with equal values are ordered by name, not by rounding errors.
    order = np.lexsort((-worse, better, -np.round(sign * model.effect, 12)))
    if best is not None and not best.alone:
        tied = tuple(cells[place] for place in order.tolist() if not better[place])
        best = replace(best, cells=tied, beaten=len(cells) - len(tied))
    columns = (order, count[model.rows[order]], better[order], worse[order], model.effect[order])
    rows = tuple(
        Ranked(cells[place], rounds, 1 + ahead, len(cells) - behind, effect)
        for place, rounds, ahead, behind, effect in zip(
            *(column.tolist() for column in columns), strict=True
        )
    )
    return Ranking(
        measure=measure,
        alpha=stated,
        rows=rows,
        unranked=missing,
        comparisons=len(cells) * (len(cells) - 1) // 2,
        separated=int(better.sum()),
        best=best,
        too_slow=tuple(pair for pair in observations.too_slow if pair[0] in observations.place),
    )


def _model(
    observations: Observations, measure: MeasureKey, places: npt.NDArray[np.intp]
) -> tuple[Fit | None, list[int], list[int]]:
    """The fit of the cells at `places`, those with too few rounds, and those apart from the others.

    The others' noise and rounds take no part: `recommend`, which has neither the host nor warm page
    caches, would answer differently. Only where nothing else connects the cells do they connect
    them.
    """
    every = observations.ranked_logs(measure)
    measured = every == observations.logs(measure)
    resolution = observations.resolution(measure)
    part = narrowed(observations, [observations.cells[place] for place in places.tolist()])
    logs = part.ranked_logs(measure)
    alone, together = usable(logs, LEAST_ROUNDS), usable(every, LEAST_ROUNDS)
    among = np.isin(together.rows, places)
    enough = np.isfinite(every[together.rows]).sum(axis=1) >= MIN_ROUNDS
    if (among & enough).sum() > max(len(alone.rows), 1):
        model, few = fit(every, together, resolution, measured), together.few
        model, apart = _only(model, among), together.apart
    else:
        rows = np.array([observations.place[cell] for cell in part.cells], dtype=np.intp)
        few, apart = rows[alone.few], rows[alone.apart]
        if not len(alone.rows):
            return None, few.tolist(), apart.tolist()
        model = fit(logs, alone, part.resolution(measure), logs == part.logs(measure))
        model = replace(model, rows=rows[model.rows])
    competing = set(places.tolist())
    return (
        model,
        [row for row in few.tolist() if row in competing],
        [row for row in apart.tolist() if row in competing],
    )


def _only(model: Fit, kept: npt.NDArray[np.bool_]) -> Fit:
    """Some cells of a fit."""
    columns = {name: getattr(model, name)[kept] for name in model.__struct_fields__}
    return Fit(**columns)


def _best(
    measure: MeasureKey, model: Fit, cells: Sequence[MeasuredCell], alpha: float
) -> BestSet | None:
    """Which of the ranked cells may be the best; None if they differ in their number of guests,
    whose rates are sums.
    """
    if len(numbers_of_guests(cells)) > 1:
        return None
    return best_set(measure, model, cells, np.arange(len(cells)), alpha)


class _Standing(Value, eq=False):
    """What is decided before pairs are compared: the places of the cells that may be the best, and
    of their leader.
    """

    may_be_best: npt.NDArray[np.bool_]
    leader: int


def _standing(best: BestSet | None, cells: Sequence[MeasuredCell]) -> _Standing | None:
    if best is None:
        return None
    first = set(best.cells)
    return _Standing(np.array([cell in first for cell in cells]), cells.index(best.leader))


def _alone(count: npt.NDArray[np.intp], rounds: int, reason: Unranked) -> Unranked:
    """Why no cell could be ranked: too few rounds, or only one cell."""
    if reason is Unranked.NOT_COMPETING:
        return reason
    if rounds < MIN_ROUNDS:
        return Unranked.TOO_FEW_ROUNDS
    only = int((count >= MIN_ROUNDS).sum()) == 1
    return Unranked.NOTHING_TO_COMPARE if only else reason


def separate(
    goodness: Floats, model: Fit, alpha: float, standing: _Standing | None = None
) -> tuple[Counts, Counts]:
    """For each cell, how many others are shown to be better and worse (Holm over all pairs).

    What `standing` says is decided already: no cell is shown to be better than one that may be the
    best, and a leader that is the best alone is better than each other cell.

    Holm's step-down procedure without a list of all pairs: count the pairs below the first
    threshold alpha/m. If r of them are rejected, the threshold becomes alpha/(m-r); repeat until
    the count stays the same. Time is about proportional to the number of cells.
    """
    cells = len(goodness)
    pairs = cells * (cells - 1) // 2
    nothing = np.zeros(cells, dtype=np.int64)
    if not pairs:
        return nothing, nothing
    classes = _classes(model)
    better, worse, rejected, p = nothing, nothing, -1, alpha / pairs
    for _ in range(STEPS):
        done = int(better.sum())
        if done in (rejected, pairs):
            break
        rejected, p = done, alpha / (pairs - done)
        better, worse = _count(goodness, model, classes, p)
    if standing is not None:
        _agree(better, worse, standing, partial(_ahead, goodness, model, p))
    return better, worse


def _agree(
    better: Counts,
    worse: Counts,
    standing: _Standing,
    ahead: Callable[[int], tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]],
) -> None:
    """Takes back what contradicts the set of the best, and adds what it shows (in place).

    That a cell is not among several that may be the best does not show it to be worse: the set
    holds the best with 95 %, but of equal cells it leaves one out more often.

    `ahead` gives the cells that are shown to be better than one, and those shown to be worse.
    """
    may_be_best, leader = standing.may_be_best, standing.leader
    for place in np.flatnonzero(may_be_best & (better > 0)).tolist():
        worse[ahead(place)[0]] -= 1
        better[place] = 0
    if int(may_be_best.sum()) == 1:
        missing = ~may_be_best & ~ahead(leader)[1]
        better[missing] += 1
        worse[leader] += int(missing.sum())


def _ahead(
    goodness: Floats, model: Fit, p: float, place: int
) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """The cells shown to be better than the one at `place`, and those shown to be worse, with a
    two-sided p-value of at most `p`: as `_count` counts them.
    """
    freedom = np.minimum(model.freedom, model.freedom[place])
    unique, index = np.unique(freedom, return_inverse=True)
    limit = np.array([float(t_isf(p / 2, of)) for of in unique.tolist()])[index.reshape(-1)]
    limit = limit * np.hypot(model.error, model.error[place])
    lead = goodness - goodness[place]
    beyond = np.abs(lead) - model.resolution - model.resolution[place] > limit
    return beyond & (lead > 0), beyond & (lead < 0)


class _Classes(Value, eq=False):
    """Cells with equal degrees of freedom and standard errors from `least` to `most`."""

    member: npt.NDArray[np.intp]
    freedom: Floats
    least: Floats
    most: Floats


def _classes(model: Fit) -> _Classes:
    """At most CLASSES for each number of degrees of freedom; of few cells each is its own."""
    classes: npt.NDArray[np.intp] = np.arange(len(model.error))
    if len(classes) > CLASSES:
        classes = np.searchsorted(np.quantile(model.error, np.linspace(0, 1, CLASSES)), model.error)
    keys = np.stack([classes.astype(np.float64), model.freedom], axis=1)
    unique, member = np.unique(keys, axis=0, return_inverse=True)
    member = member.reshape(-1)
    least, most = np.full(len(unique), np.inf), np.zeros(len(unique))
    np.minimum.at(least, member, model.error)
    np.maximum.at(most, member, model.error)
    return _Classes(member, unique[:, 1], least, most)


def _count(goodness: Floats, model: Fit, classes: _Classes, p: float) -> tuple[Counts, Counts]:
    """Counts, for each cell, the others that differ with a two-sided p-value of at most `p`.

    A cell is better for sure than those of a class that are beyond the largest distance that two of
    their classes need, and than none within the smallest: binary searches in the class's sorted
    values count them. The few pairs between both are compared one by one. Cells are sorted by
    class, then by value, because searching for ascending values is several times faster.
    """
    freedom = classes.freedom
    limits = {df: float(t_isf(p / 2, df)) for df in different(freedom)}
    # Rounding may have made one of two cells look better, and the other one worse.
    high, low = goodness - model.resolution, goodness + model.resolution
    first, second = (np.lexsort((value, classes.member)) for value in (high, low))
    ends = np.searchsorted(classes.member[second], np.arange(len(freedom) + 1)).tolist()
    kinds, values, errors = classes.member[first], high[first], model.error[first]
    better, worse = np.zeros((2, len(high)), dtype=np.int64)
    for place, (begin, end) in enumerate(pairwise(ends)):
        others = second[begin:end]
        inside = low[others]
        limit = np.array([limits[df] for df in np.minimum(freedom, freedom[place]).tolist()])
        sure, possible = (
            np.searchsorted(inside, values - (limit * np.hypot(size, size[place]))[kinds])
            for size in (classes.most, classes.least)
        )
        # Each cell with those between both, which stand side by side in the class.
        width = possible - sure
        first_of_pair = np.repeat(np.arange(len(first)), width)
        other = np.repeat(possible - width.cumsum(), width) + np.arange(len(first_of_pair))
        distance = np.hypot(errors[first_of_pair], model.error[others][other])
        shown = values[first_of_pair] - inside[other] > limit[kinds][first_of_pair] * distance
        worse[first] += sure + np.bincount(first_of_pair[shown], minlength=len(first))
        # Those before the n-th are worse than each cell that is better than n of them.
        better[others] += len(first) - np.bincount(sure, minlength=len(others) + 1).cumsum()[:-1]
        better[others] += np.bincount(other[shown], minlength=len(others))
    return better, worse
