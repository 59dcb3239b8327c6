"""The typical value of each cell, with its doubt."""

from __future__ import annotations

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
    return {
        observations.cells[row]: Summary(
            cell=observations.cells[row],
            measure=measure,
            blocks=int(count[row]),
            median=float(median[place]),
            low=known(low, place),
            high=known(high, place),
            method=_method(int(count[row])) if np.isfinite(low[place]) else None,
        )
        for place, row in enumerate(rows)
    }


def known(values: Floats, place: int) -> float | None:
    """The value there, or None where it is NaN or beyond what can be stated."""
    value = float(values[place])
    return value if np.isfinite(value) else None


def _method(blocks: int) -> IntervalMethod:
    if blocks >= ORDER_STATISTICS_FROM:
        return IntervalMethod.ORDER_STATISTICS
    return IntervalMethod.LOG_T
