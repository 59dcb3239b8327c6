"""The median of each cell, with its interval."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

import numpy as np
import numpy.typing as npt

from vdisklab.analysis.distributions import t_isf
from vdisklab.analysis.intervals import MIN_ROUNDS, ORDER_STATISTICS_FROM, median_interval
from vdisklab.analysis.observations import Floats, MeasureKey, Observations, medians
from vdisklab.analysis.rank_intervals import Ranking
from vdisklab.path.cell import MeasuredCell
from vdisklab.value import HIDDEN, Value


class IntervalMethod(StrEnum):
    """Where an interval comes from."""

    LOG_T = "log-t"  # 3 to 5 rounds: assumes that values are log-normal
    ORDER_STATISTICS = "order-statistics"  # 6 rounds and more: no assumption


class Summary(Value):
    """Median over rounds in the metric's SI unit; no interval below three rounds."""

    cell: Annotated[MeasuredCell, HIDDEN]
    measure: Annotated[MeasureKey, HIDDEN]
    rounds: int
    median: Annotated[float, "in the SI unit"]
    low: Annotated[float | None, "lower end of the 95 % interval"]
    high: float | None
    method: IntervalMethod | None


class Level(Value):
    """The number by which a cell is ordered, in the metric's SI unit."""

    value: float
    low: Annotated[float | None, "lower end of the 95 % interval (Student's t of the logarithms)"]
    high: float | None

    @classmethod
    def of(cls, summary: Summary | None) -> Level | None:
        """That of `levels`; None for None."""
        return None if summary is None else cls(summary.median, summary.low, summary.high)


@dataclass(frozen=True, slots=True, eq=False)
class Summaries(Mapping[MeasuredCell, Summary]):
    """The summaries of one measure by cell, created on access.

    A report on ten thousand cells has half a million summaries and shows a few hundred as text.
    The arrays have one value for each of `cells`, at the index in `place`: NaN, or no rounds, where
    nothing was measured.
    """

    measure: MeasureKey
    cells: tuple[MeasuredCell, ...]
    place: Mapping[MeasuredCell, int]
    rounds: npt.NDArray[np.intp]
    median: Floats
    low: Floats
    high: Floats
    method: IntervalMethod | None = None
    """Of all intervals; None: by the number of rounds."""

    def __getitem__(self, cell: MeasuredCell) -> Summary:
        row = self.place[cell]
        rounds, low = int(self.rounds[row]), value_or_none(self.low, row)
        if not rounds:
            raise KeyError(cell)
        return Summary(
            cell=cell,
            measure=self.measure,
            rounds=rounds,
            median=float(self.median[row]),
            low=low,
            high=value_or_none(self.high, row),
            method=None if low is None else self.method or _method(rounds),
        )

    def __contains__(self, cell: object) -> bool:
        row = self.place.get(cell) if isinstance(cell, MeasuredCell) else None
        return row is not None and bool(self.rounds[row])

    def __iter__(self) -> Iterator[MeasuredCell]:
        return (self.cells[row] for row in np.flatnonzero(self.rounds).tolist())

    def __len__(self) -> int:
        return int(np.count_nonzero(self.rounds))


def summarise(observations: Observations, measure: MeasureKey, level: float = 0.95) -> Summaries:
    """The summary of each cell that has values of the measure."""
    grid = observations.grid(measure)
    rounds = np.isfinite(grid).sum(axis=1)
    rows = np.flatnonzero(rounds)
    median, low, high = (np.full(len(grid), np.nan) for _ in range(3))
    if len(rows):
        median[rows] = medians(grid[rows])
        low[rows], high[rows] = (
            _finite_or_nan(value)
            for value in median_interval(
                grid[rows],
                level,
                measure.quantity,
                observations.resolution(measure)[rows] if measure in observations.parts else None,
            )
        )
    return Summaries(measure, observations.cells, observations.place, rounds, median, low, high)


def levels(observations: Observations, measure: MeasureKey, ranking: Ranking) -> Summaries:
    """The number by which a ranking orders the cells, in the metric's unit, as `median`.

    The number is the geometric mean over the rounds. A ranked cell that lacks rounds is corrected
    by what the other cells show of the missing rounds, so a cell that was measured only in slow
    rounds loses nothing. The interval is Student's t of the logarithms.
    """
    logs, quantity = observations.ranked_logs(measure), measure.quantity
    count = np.isfinite(logs).sum(axis=1)
    of_cell = np.where(np.isfinite(logs), logs, 0.0).sum(axis=1) / np.maximum(count, 1)
    level = np.where(count > 0, of_cell, np.nan)
    rows = [observations.place[row.cell] for row in ranking.rows]
    if rows:
        effect = np.array([row.effect for row in ranking.rows])
        # Those that were measured in every round of these say how high the rounds are.
        level[rows] = effect + float(np.mean(of_cell[rows] - effect, where=_fullest(count[rows])))
    half = np.full(len(logs), np.nan)
    enough = np.flatnonzero(count >= MIN_ROUNDS)
    spread = np.nanstd(logs[enough], axis=1, ddof=1) / np.sqrt(count[enough])
    half[enough] = t_isf(0.025, count[enough] - 1) * spread
    half = np.maximum(half, observations.resolution(measure))
    step = quantity.step or 0.0
    least = -math.inf if quantity.step is None else 0.0
    with np.errstate(over="ignore"):
        value, low, high = (
            np.maximum(np.exp(logarithm) - step, least)
            for logarithm in (level, level - half, level + half)
        )
    rounds = np.isfinite(observations.grid(measure)).sum(axis=1)
    return Summaries(
        measure=measure,
        cells=observations.cells,
        place=observations.place,
        rounds=np.where(np.isfinite(value), rounds, 0),
        median=value,
        low=_finite_or_nan(low),
        high=_finite_or_nan(high),
        method=IntervalMethod.LOG_T,
    )


def _fullest(count: npt.NDArray[np.intp]) -> npt.NDArray[np.bool_]:
    return np.asarray(count == count.max())


def _finite_or_nan(values: Floats) -> Floats:
    """The array with NaN for infinities: an interval of very different values may overflow."""
    return np.where(np.isfinite(values), values, np.nan)


def value_or_none(values: Floats, place: int) -> float | None:
    """The value at an index; None if it is NaN or infinite."""
    value = float(values[place])
    return value if math.isfinite(value) else None


def _method(rounds: int) -> IntervalMethod:
    if rounds >= ORDER_STATISTICS_FROM:
        return IntervalMethod.ORDER_STATISTICS
    return IntervalMethod.LOG_T
