"""The typical value of each cell, with its doubt."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from vdisklab.analysis.intervals import MIN_BLOCKS, ORDER_STATISTICS_FROM, median_interval
from vdisklab.analysis.observations import Floats, MeasureKey, Observations


class IntervalMethod(StrEnum):
    """Where an interval comes from."""

    LOG_T = "log-t"  # 3 to 5 blocks: assumes that values are log-normal
    ORDER_STATISTICS = "order-statistics"  # 6 blocks and more: assumes nothing on their form


@dataclass(frozen=True, slots=True)
class Summary:
    """Median over blocks in the metric's SI unit; no interval below three blocks."""

    cell: str
    measure: MeasureKey
    blocks: int
    median: float
    low: float | None
    high: float | None
    method: IntervalMethod | None

    @property
    def too_few(self) -> bool:
        """True when there are not enough blocks to state an interval."""
        return self.blocks < MIN_BLOCKS


def summarise(
    observations: Observations, measure: MeasureKey, level: float = 0.95
) -> dict[str, Summary]:
    """The summary of each cell that has values of the measure, by the cell's label."""
    grid = observations.grid(measure)
    count = np.isfinite(grid).sum(axis=1)
    rows = np.flatnonzero(count)
    median = np.nanmedian(grid[rows], axis=1) if len(rows) else np.array([])
    low, high = median_interval(grid[rows], level)
    methods = {n: _method(n) for n in set(count[rows].tolist())}
    # Lists, as taking single values out of arrays is slow: a report has half a million of these.
    columns = zip(rows.tolist(), count[rows].tolist(), median.tolist(), low.tolist(),
                  high.tolist(), strict=True)  # fmt: skip
    return {
        observations.cells[row]: Summary(
            cell=observations.cells[row],
            measure=measure,
            blocks=blocks,
            median=middle,
            low=lower if math.isfinite(lower) else None,
            high=upper if math.isfinite(upper) else None,
            method=methods[blocks] if math.isfinite(lower) else None,
        )
        for row, blocks, middle, lower, upper in columns
    }


def known(values: Floats, place: int) -> float | None:
    """The value there, or None where it is NaN or beyond what can be stated."""
    value = float(values[place])
    return value if np.isfinite(value) else None


def _method(blocks: int) -> IntervalMethod:
    if blocks >= ORDER_STATISTICS_FROM:
        return IntervalMethod.ORDER_STATISTICS
    return IntervalMethod.LOG_T
