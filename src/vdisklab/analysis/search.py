"""Finding the best path without measuring all of them as often: what is next, when to stop.

Block by block every surviving cell is measured. From the third block on a cell leaves when it is
shown that it cannot be better than the leader by more than the margin; the search ends when only
the leader is left, or when time is. This is selection of the best with an indifference zone (Kim &
Nelson, "A fully sequential procedure for indifference-zone selection in simulation", ACM TOMACS
11, 2001), with elimination as in Hoeffding races (Maron & Moore 1994) but by Student's t within
blocks. A budget is spread over the blocks as in sequential halving (Karnin et al. 2013), more
slowly.

Pure: values in, the next cells out. The same values give the same answer, so a search that was
interrupted goes on from the database.

All matrices here are logarithms of goodness (a latency with its sign turned), cells x blocks, NaN
where nothing was measured.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from vdisklab.analysis.additive import PRECISION, block_effects, moderate
from vdisklab.analysis.intervals import MIN_BLOCKS, t_isf
from vdisklab.analysis.observations import Floats, MeasureKey, Observations, logarithms
from vdisklab.path.cell import MeasuredCell
from vdisklab.results.model import Better

ASSUMED_NOISE = 0.2
"""Standard deviation of a log value within its block, assumed until the data show their own."""

BLOCK_SHARE = 0.25
"""Of the rest of the budget, for one block. Between 0.2 and 0.3 `bench/search.py` shows no
difference; halving (0.5) leaves the last few cells too few blocks, 0.1 leaves budget unused."""

WORTH = 3.0
ENOUGH = 10.0
"""The assumed noise still counts as WORTH degrees of freedom until the data have ENOUGH."""


class Ended(StrEnum):
    """Why a search is over."""

    SEPARATED = "separated"  # all others are shown to be worse
    TIED = "tied"  # nothing is left that could be better by more than the margin
    UNSETTLED = "unsettled"  # others may be better, and missed the last block
    OUT_OF_BUDGET = "out-of-budget"
    OUT_OF_BLOCKS = "out-of-blocks"


@dataclass(frozen=True, slots=True)
class Rules:
    """`margin` is a share (0.03): what is so much worse than the best counts as good.

    `alpha` is the risk, over the whole search, of an answer that is worse than that.
    """

    margin: float = 0.03
    alpha: float = 0.05


@dataclass(frozen=True, slots=True)
class SearchState:
    """After some blocks, as rows of the matrix: who may be the best, best first.

    The leader is the first survivor. `worse` were shown to be worse than the leader of their
    day, `near` to be better by no more than the margin; `dropped` missed the last block without
    either: they failed, or the budget did not do for them.
    `gap` is how much better than the leader any survivor or dropped cell may be, as a share: 0
    for none, infinite while too few blocks say so.
    """

    survivors: tuple[int, ...]
    worse: frozenset[int] = frozenset()
    near: frozenset[int] = frozenset()
    dropped: tuple[int, ...] = ()
    gap: float = 0.0

    @property
    def leader(self) -> int:
        """The row to name as the best."""
        return self.survivors[0]

    @property
    def ended(self) -> Ended | None:
        """Why nothing is left to measure; None while there is."""
        if len(self.survivors) > 1:
            return None
        if self.dropped:
            return Ended.UNSETTLED
        return Ended.TIED if self.near else Ended.SEPARATED


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a search found. `as_good` cannot be better than `best` by more than `margin`.

    `unsettled` may be, by up to `gap` (infinite: nobody knows); there are some only when time or
    blocks ran out, or cells failed. `others` were measured beside the best.
    """

    best: MeasuredCell
    as_good: tuple[MeasuredCell, ...]
    unsettled: tuple[MeasuredCell, ...]
    ended: Ended
    blocks: int
    margin: float
    gap: float
    others: int


def standing(logs: Floats, rules: Rules) -> SearchState:
    """Who is left after these blocks, looked at one after another.

    Raises ValueError when nothing was measured.
    """
    columns = np.flatnonzero(np.isfinite(logs).any(axis=0))
    found: SearchState | None = None
    for place in range(len(columns)):
        found = look(logs[:, columns[: place + 1]], rules, found)
    if found is None:
        raise ValueError("nothing was measured yet")
    return found


def look(logs: Floats, rules: Rules, before: SearchState | None) -> SearchState:
    """Who is left after one more block, which is the last column.

    Looks are taken after each block, at levels alpha/(b(b+1)), which add up to alpha however
    many there are; at each look a cell is compared with the leader at that level over the number
    of other cells (Bonferroni), so that the best is kept whichever cell happens to lead. Below
    three blocks there is no verdict: nothing is known of the noise then, and a cell whose noise
    is several times the others' (one with two modes) would be put out by one bad run.
    """
    rows = np.flatnonzero(np.isfinite(logs).any(axis=1))
    before = before or SearchState(tuple(rows.tolist()))
    known = {*before.survivors, *before.dropped}
    effect, error, freedom = _estimates(logs[rows])
    at = {int(row): place for place, row in enumerate(rows)}
    order = sorted(known, key=lambda row: (-effect[at[row]], row))
    seen = {row for row in order if np.isfinite(logs[row, -1])}
    if not seen:
        return before
    leader = next(row for row in order if row in seen)
    blocks = logs.shape[1]
    if blocks < MIN_BLOCKS:
        out, shown, ahead = frozenset[int](), frozenset[int](), math.inf if len(order) > 1 else 0.0
    else:
        level = rules.alpha / (blocks * (blocks + 1)) / max(1, len(rows) - 1)
        limit = t_isf(level, np.minimum(freedom, freedom[at[leader]]))
        reach = limit * np.hypot(error, error[at[leader]])
        may = dict(zip(rows.tolist(), reach - (effect[at[leader]] - effect), strict=True))
        others = known - {leader}
        out = frozenset(row for row in others if may[row] < math.log1p(rules.margin))
        shown = frozenset(row for row in out if may[row] < 0)
        ahead = max((float(may[row]) for row in others - out), default=0.0)
    left = [row for row in order if row not in out]
    return SearchState(
        survivors=tuple(row for row in left if row in seen),
        worse=before.worse | shown,
        near=before.near | (out - shown),
        dropped=tuple(row for row in left if row not in seen),
        gap=math.expm1(ahead),
    )


def _estimates(table: Floats) -> tuple[Floats, Floats, Floats]:
    """Effect, standard error and degrees of freedom of each cell, from one block on."""
    seen = np.isfinite(table)
    count = seen.sum(axis=1)
    adjusted = np.where(seen, table - block_effects(table, seen), 0.0)
    effect = adjusted.sum(axis=1) / count
    residual = np.where(seen, adjusted - effect[:, None], 0.0)
    own = np.maximum(count - 1.0, 0.0)
    total = float(max(own.sum() - (seen.shape[1] - 1), 0.0))
    squares = (residual**2).sum(axis=1)
    prior = ASSUMED_NOISE**2
    if total < 1:
        variance = np.full(len(table), prior)
        return effect, np.sqrt(variance / count), np.full(len(table), WORTH)
    worth = WORTH if total < ENOUGH else 0.0
    common = max((worth * prior + float(squares.sum())) / (worth + total), PRECISION**2)
    variance = np.full(len(table), common)
    freedom = np.full(len(table), worth + total)
    several = own >= 1
    if several.sum() >= 3:
        # As if each cell had also shown the common noise once: zero residuals are luck.
        noisy = (squares[several] + common) / (own[several] + 1)
        variance[several], freedom[several] = moderate(noisy, own[several] + 1, total + worth)
    return effect, np.sqrt(variance / count), freedom


def next_cells(found: SearchState, affordable: float) -> tuple[int, ...]:
    """The rows to measure in the next block, best first; none when the search is over.

    Normally every survivor. Where the rest of the budget (`affordable`, in runs) is too small
    for that, BLOCK_SHARE of it goes into this block, so that the best ones can be told apart by
    what is left; fewer than two cells cannot be compared. Where it is larger, cells that it did
    not do for before come back. Without a budget only failed cells have missed a block.
    """
    if math.isinf(affordable):
        return found.survivors if found.ended is None else ()
    if found.ended in {Ended.SEPARATED, Ended.TIED} or affordable < 2:
        return ()
    left = (*found.survivors, *found.dropped)
    return left[: int(max(2.0, affordable * BLOCK_SHARE))]


def goodness(observations: Observations, measure: MeasureKey) -> Floats:
    """Logarithms in which more is better, cells x blocks."""
    logs = logarithms(observations.grid(measure))
    return logs if measure.quantity.better is Better.HIGHER else -logs
