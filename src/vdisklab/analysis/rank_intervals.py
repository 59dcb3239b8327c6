"""Ranks with ties: for each cell the range of ranks it may have, for all cells jointly."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import compress, pairwise
from typing import Annotated

import numpy as np
import numpy.typing as npt

from vdisklab.analysis.additive import LEAST_ROUNDS, Fit, fit, usable
from vdisklab.analysis.best import BestSet, best_set, competitors
from vdisklab.analysis.distributions import t_isf
from vdisklab.analysis.intervals import MIN_ROUNDS
from vdisklab.analysis.observations import Floats, MeasureKey, Observations, Round, narrowed
from vdisklab.documents import HIDDEN
from vdisklab.path.cell import MeasuredCell, numbers_of_guests
from vdisklab.results.model import Better


class Unranked(StrEnum):
    """Why a cell has no rank."""

    TOO_FEW_ROUNDS = "too-few-rounds"
    NO_COMMON_ROUND = "no-common-round"
    NOTHING_TO_COMPARE = "nothing-to-compare"
    GATE_MISSED = "gate-missed"


@dataclass(frozen=True, slots=True)
class Ranked:
    """One cell's rank: between `best` and `worst` (from 1), with joint confidence.

    `effect` is the mean logarithm without the round effects; rows are ordered by it.
    """

    cell: MeasuredCell = field(metadata=HIDDEN)
    rounds: Annotated[int, "in which the cell has the ranked measure"]
    best: int
    worst: int
    effect: float

    @property
    def tied(self) -> bool:
        """True when at least one other cell may have the same rank."""
        return self.best != self.worst


@dataclass(frozen=True, slots=True)
class WithoutRank:
    """A cell that was measured but cannot be ranked."""

    cell: MeasuredCell = field(metadata=HIDDEN)
    rounds: int
    reason: Annotated[Unranked, "why there is no rank"]


@dataclass(frozen=True, slots=True)
class Ranking:
    """Best first. `separated` of `comparisons` pairs differ at family-wise error `alpha`."""

    measure: Annotated[MeasureKey, "what is ranked, as MEASUREMENT/DIRECTION/METRIC"]
    alpha: Annotated[float, "family-wise error"]
    rows: tuple[Ranked, ...] = field(metadata=HIDDEN)
    unranked: tuple[WithoutRank, ...] = field(metadata=HIDDEN)
    comparisons: Annotated[int, "pairs of cells"]
    separated: Annotated[int, "pairs shown to differ"]
    best: Annotated[
        BestSet | None, "null without ranked cells, or if they differ in their number of guests"
    ] = None
    too_slow: tuple[tuple[MeasuredCell, Round], ...] = field(default=(), metadata=HIDDEN)
    """The cells that got their round's worst value, because they did not end in time."""
    use: MeasuredCell | None = field(default=None, metadata=HIDDEN)
    """Over hosts, which have no `best`: the simplest path shown to be close to the leader."""

    @property
    def inconclusive(self) -> bool:
        """True when no pair of cells is shown to differ."""
        return bool(self.rows) and self.separated == 0


LOOK_SHARE = 0.1
"""Share of the error that a look gets which is not the one that was planned. In simulations, looks
after each of 20 rounds then leave out the best of 13 equals as seldom as one look, not in 19 % of
campaigns, and the end of a race in 5 %, not in 20 to 30 % (`bench/race.py`)."""


def rank(
    observations: Observations,
    measure: MeasureKey,
    alpha: float = 0.05,
    *,
    unplanned_look: bool = False,
) -> Ranking:
    """Ranks all cells that have the measure in three rounds or more, and those that miss one of
    three.

    Every pair of cells is compared by a t-test on the additive model of `additive.py`, at a
    family-wise error of `alpha` after Holm. A cell's best rank follows all cells shown to be
    better; its worst rank precedes all cells shown to be worse. All ranges are right at once with a
    confidence of 1 - alpha (Mohamad, Goeman & van Zwet 2019; Klein, Wright & Wieczorek, Journal of
    the Royal Statistical Society C 69, 2020). An `unplanned_look` may use LOOK_SHARE of that error
    only. It is a look before the last round, or at a campaign that ended because of its numbers.
    """
    stated, alpha = alpha, alpha * (LOOK_SHARE if unplanned_look else 1)
    logs = observations.ranked_logs(measure)
    count = np.isfinite(observations.grid(measure)).sum(axis=1)
    chosen = usable(logs, LEAST_ROUNDS)
    unranked = [(row, Unranked.TOO_FEW_ROUNDS) for row in chosen.few]
    unranked += [(row, Unranked.NO_COMMON_ROUND) for row in chosen.apart]
    if not len(chosen.rows):
        unranked = [(row, _alone(count, int(row), reason)) for row, reason in unranked]
    missing = tuple(
        WithoutRank(observations.cells[row], int(count[row]), reason)
        for row, reason in sorted(unranked, key=lambda pair: observations.cells[pair[0]])
    )
    if not len(chosen.rows):
        return Ranking(measure, stated, (), missing, 0, 0)
    known = logs == observations.logs(measure)
    model = fit(logs, chosen, observations.resolution(measure), known)
    sign = 1.0 if measure.quantity.better is Better.HIGHER else -1.0
    better, worse = separate(sign * model.effect, model, alpha)
    cells = len(model.rows)
    # Rounded, so that cells with equal values are ordered by name, not by rounding errors.
    order = np.lexsort((-worse, better, -np.round(sign * model.effect, 12)))
    places = model.rows[order]
    columns = (places, count[places], better[order], worse[order], model.effect[order])
    rows = tuple(
        Ranked(observations.cells[row], rounds, 1 + ahead, cells - behind, effect)
        for row, rounds, ahead, behind, effect in zip(
            *(column.tolist() for column in columns), strict=True
        )
    )
    return Ranking(
        measure=measure,
        alpha=stated,
        rows=rows,
        unranked=missing,
        comparisons=cells * (cells - 1) // 2,
        separated=int(better.sum()),
        best=_best(observations, measure, model, alpha, stated),
        too_slow=tuple(pair for pair in observations.too_slow if pair[0] in observations.place),
    )


def _best(
    observations: Observations, measure: MeasureKey, model: Fit, alpha: float, stated: float
) -> BestSet | None:
    """Which of the ranked cells may be the best; None if they differ in their number of guests,
    whose rates are sums.

    The noise is estimated from competitors only. If the host's own numbers and warm page caches
    took part, `recommend`, which has neither, would answer differently. A warm page cache does not
    compete either if its cold cell has no rank.
    """
    places = competitors(observations.cells)
    if len(numbers_of_guests(observations.cells[place] for place in places.tolist())) > 1:
        return None
    ranked = [observations.cells[row] for row in model.rows.tolist()]
    competing = np.isin(model.rows, places)
    if not competing.all():
        part = narrowed(observations, compress(ranked, competing))
        logs = part.ranked_logs(measure)
        chosen = usable(logs, LEAST_ROUNDS)
        if len(chosen.rows) == len(part.cells):  # else only other cells connect them
            known = logs == part.logs(measure)
            model = fit(logs, chosen, part.resolution(measure), known)
            ranked = [part.cells[row] for row in model.rows.tolist()]
            competing = np.ones(len(ranked), dtype=np.bool_)
    best = best_set(measure, model, ranked, np.flatnonzero(competing), alpha)
    unranked = len(places) - int(competing.sum())
    return best and replace(best, alpha=stated, of_this_look=alpha, unranked=unranked)


def _alone(count: npt.NDArray[np.intp], row: int, reason: Unranked) -> Unranked:
    """Why no cell could be ranked: too few rounds, or only one cell."""
    if count[row] < MIN_ROUNDS:
        return Unranked.TOO_FEW_ROUNDS
    only = int((count >= MIN_ROUNDS).sum()) == 1
    return Unranked.NOTHING_TO_COMPARE if only else reason


Counts = npt.NDArray[np.int64]

CLASSES = 20
"""Number of classes of cells with similar standard errors, if there are more cells."""

STEPS = 25
"""Maximum number of iterations of Holm's procedure; stopping early can only miss a difference."""


def separate(goodness: Floats, model: Fit, alpha: float) -> tuple[Counts, Counts]:
    """For each cell, how many others are shown to be better and worse (Holm over all pairs).

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
    better, worse, rejected = nothing, nothing, -1
    for _ in range(STEPS):
        done = int(better.sum())
        if done in (rejected, pairs):
            break
        rejected = done
        better, worse = _count(goodness, model, classes, alpha / (pairs - done))
    return better, worse


@dataclass(frozen=True, slots=True, eq=False)
class _Classes:
    """Cells with equal degrees of freedom and standard errors from `least` to `most`."""

    member: npt.NDArray[np.intp]
    freedom: Floats
    least: Floats
    most: Floats


def _classes(model: Fit) -> _Classes:
    """At most CLASSES for each number of degrees of freedom; of few cells each is its own."""
    at: npt.NDArray[np.intp] = np.arange(len(model.error))
    if len(at) > CLASSES:
        at = np.searchsorted(np.quantile(model.error, np.linspace(0, 1, CLASSES)), model.error)
    keys = np.stack([at.astype(np.float64), model.freedom], axis=1)
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
    limits = {df: float(t_isf(p / 2, df)) for df in np.unique(freedom)}
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
        one = np.repeat(np.arange(len(first)), width)
        other = np.repeat(possible - width.cumsum(), width) + np.arange(len(one))
        distance = np.hypot(errors[one], model.error[others][other])
        shown = values[one] - inside[other] > limit[kinds][one] * distance
        worse[first] += sure + np.bincount(one[shown], minlength=len(first))
        # Those before the n-th are worse than each cell that is better than n of them.
        better[others] += len(first) - np.bincount(sure, minlength=len(others) + 1).cumsum()[:-1]
        better[others] += np.bincount(other[shown], minlength=len(others))
    return better, worse
