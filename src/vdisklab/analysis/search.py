"""Finds the best path with fewer runs than a full campaign: what to measure next, when to stop.

Each block measures every surviving cell. From the third block on, a cell is dropped once it is
shown not to beat the leader by more than the margin. The search ends when only the leader is left
or time runs out. This is selection of the best with an indifference zone (Kim &
Nelson, "A fully sequential procedure for indifference-zone selection in simulation", ACM TOMACS
11, 2001), with elimination as in Hoeffding races (Maron & Moore 1994) but by Student's t within
blocks. A budget is spread over the blocks as in sequential halving (Karnin et al. 2013), more
slowly.

Pure: values in, the next cells out. The same values give the same answer, so an interrupted search
continues from the database.

All matrices are cells x blocks of logarithms, negated for latencies so that more is better; NaN
where nothing was measured.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from vdisklab.analysis.additive import PRECISION, block_effects, moderate
from vdisklab.analysis.intervals import MIN_BLOCKS, t_isf
from vdisklab.analysis.observations import Floats, MeasureKey, Observations
from vdisklab.path.cell import MeasuredCell
from vdisklab.results.model import Better

ASSUMED_NOISE = 0.2
"""Standard deviation of a log value within its block, assumed until there are enough data."""

BLOCK_SHARE = 0.25
"""Share of the remaining budget for one block. Between 0.2 and 0.3 `bench/search.py` shows no
difference; 0.5 (halving) leaves too few blocks for the last cells, 0.1 leaves budget unused."""

WORTH = 3.0
ENOUGH = 10.0
"""The assumed noise counts like WORTH degrees of freedom, until the data have ENOUGH."""


class Ended(StrEnum):
    """Why a search is over."""

    SEPARATED = "separated"  # all others are shown to be worse
    TIED = "tied"  # no other cell can be better by more than the margin
    UNSETTLED = "unsettled"  # others may be better, but missed the last block
    OUT_OF_BUDGET = "out-of-budget"
    OUT_OF_BLOCKS = "out-of-blocks"


@dataclass(frozen=True, slots=True)
class Rules:
    """`margin` is a share (0.03): a cell worse than the best by no more than this is good enough.

    `alpha` is the risk, over the whole search, of an answer that is worse than that.
    """

    margin: float = 0.03
    alpha: float = 0.05


@dataclass(frozen=True, slots=True)
class SearchState:
    """The state after some blocks. All fields are rows of the matrix, best first.

    The first survivor is the leader. `worse` were shown to be worse than the leader at that time,
    `near` to be better by no more than the margin. `dropped` missed the last block for another
    reason: they failed, or the budget was too small.
    `gap` is the share by which a survivor or dropped cell may be better than the leader: 0 if
    none can be, infinite while there are too few blocks.
    """

    survivors: tuple[int, ...]
    worse: frozenset[int] = frozenset()
    near: frozenset[int] = frozenset()
    dropped: tuple[int, ...] = ()
    gap: float = 0.0

    @property
    def leader(self) -> int:
        """The row of the best cell."""
        return self.survivors[0]

    @property
    def ended(self) -> Ended | None:
        """Why the search ended; None while there are cells to measure."""
        if len(self.survivors) > 1:
            return None
        if self.dropped:
            return Ended.UNSETTLED
        return Ended.TIED if self.near else Ended.SEPARATED


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a search. `as_good` cannot be better than `best` by more than `margin`.

    `unsettled` may be better, by up to `gap` (infinite if unknown); there are some only if time or
    blocks ran out, or cells failed. `others` is the number of other cells with numbers.
    """

    best: MeasuredCell
    as_good: tuple[MeasuredCell, ...]
    unsettled: tuple[MeasuredCell, ...]
    ended: Ended
    blocks: int
    margin: float
    gap: float
    others: int


def search_state(logs: Floats, rules: Rules) -> SearchState:
    """The state after these blocks, evaluated one after another.

    Raises ValueError when nothing was measured.
    """
    columns = np.flatnonzero(np.isfinite(logs).any(axis=0))
    state: SearchState | None = None
    for place in range(len(columns)):
        state = look(logs[:, columns[: place + 1]], rules, state)
    if state is None:
        raise ValueError("no block has been measured yet")
    return state


def look(logs: Floats, rules: Rules, before: SearchState | None) -> SearchState:
    """The state after one more block, which is the last column.

    Cells are tested after each block b at level alpha/(b(b+1)); the levels of all blocks add up
    to at most alpha. Each cell is compared with the leader at that level divided by the number of
    other cells (Bonferroni), so that the best cell stays whichever cell leads. Below three blocks
    no cell is dropped: the noise is unknown, and one bad run would remove a cell that is several
    times noisier than the others (one with two modes).
    """
    rows = np.flatnonzero(np.isfinite(logs).any(axis=1))
    before = before or SearchState(tuple(rows.tolist()))
    known = {*before.survivors, *before.dropped}
    effect, error, freedom = _estimates(logs[rows])
    at = {int(row): place for place, row in enumerate(rows)}
    order = sorted(known, key=lambda row: (-effect[at[row]], row))
    measured = {row for row in order if np.isfinite(logs[row, -1])}
    if not measured:
        return before
    leader = next(row for row in order if row in measured)
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
        survivors=tuple(row for row in left if row in measured),
        worse=before.worse | shown,
        near=before.near | (out - shown),
        dropped=tuple(row for row in left if row not in measured),
        gap=math.expm1(ahead),
    )


def _estimates(table: Floats) -> tuple[Floats, Floats, Floats]:
    """Effect, standard error and degrees of freedom of each cell, from one block on."""
    measured = np.isfinite(table)
    count = measured.sum(axis=1)
    adjusted = np.where(measured, table - block_effects(table, measured), 0.0)
    effect = adjusted.sum(axis=1) / count
    residual = np.where(measured, adjusted - effect[:, None], 0.0)
    own = np.maximum(count - 1.0, 0.0)
    total = float(max(own.sum() - (measured.shape[1] - 1), 0.0))
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
        # Adds the common noise to each cell once: zero residuals are luck.
        noisy = (squares[several] + common) / (own[several] + 1)
        variance[several], freedom[several] = moderate(noisy, own[several] + 1, total + worth)
    return effect, np.sqrt(variance / count), freedom


def next_cells(state: SearchState, affordable: float) -> tuple[int, ...]:
    """The rows to measure in the next block, best first; none when the search is over.

    Normally every survivor. If the remaining budget (`affordable`, in runs) is too small for
    that, this block gets BLOCK_SHARE of it, so that enough is left to separate the best cells; it
    measures at least two cells. If budget remains, cells that were left out earlier come back.
    Without a budget only failed cells have missed a block.
    """
    if math.isinf(affordable):
        return state.survivors if state.ended is None else ()
    if state.ended in {Ended.SEPARATED, Ended.TIED} or affordable < 2:
        return ()
    left = (*state.survivors, *state.dropped)
    return left[: int(max(2.0, affordable * BLOCK_SHARE))]


def goodness(observations: Observations, measure: MeasureKey) -> Floats:
    """Logarithms in which more is better, cells x blocks."""
    logs = observations.logs(measure)
    return logs if measure.quantity.better is Better.HIGHER else -logs
