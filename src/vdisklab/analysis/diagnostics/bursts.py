"""Writes that begin faster than they last: what a program saw, and what reached the disk."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Annotated

import numpy as np

from vdisklab.analysis.diagnostics.diagnostic import OfMeasurement
from vdisklab.analysis.measure_words import key_words
from vdisklab.analysis.observations import MeasureKey, Observations, median
from vdisklab.numbers import value
from vdisklab.path.cell import MeasuredCell
from vdisklab.path.durability import promise_of
from vdisklab.results.model import Direction
from vdisklab.units import named
from vdisklab.value import replace

MEANS_SOMETHING = 1.5
"""A burst that is this many times as fast as what lasts is told."""


class Burst(OfMeasurement):
    """A cell's writes went to the host's memory faster than they reach the disk."""

    cell: MeasuredCell
    measurement: str
    bandwidth: Annotated[float, "B/s that the program saw, median"]
    sustained: Annotated[float, "B/s that reached the disk, median"]

    def __str__(self) -> str:
        what = key_words(self.measurement, seconds=self.runtime)
        seen, lasting = (value(rate, "B/s") for rate in (self.bandwidth, self.sustained))
        return (
            f"{self.cell}: a burst of writes goes to memory at {seen}; with the time until "
            f"the disk has them, writes reach {lasting} ({what})."
        )


class NoLastingRate(OfMeasurement):
    """Cells whose writes have no sustained rate, because nothing on this host could sync them."""

    cells: tuple[MeasuredCell, ...]
    measurement: str

    def __str__(self) -> str:
        what = key_words(self.measurement, seconds=self.runtime)
        return (
            f"{named(self.cells)} in {what}: no sustained rate. With "
            "cache=unsafe QEMU sends the server no flush, and this host has no file to sync, so "
            "nobody knows when the bytes reach a disk. The rate is a burst."
        )


def unlasting_diagnostics(
    observations: Observations, measures: Collection[MeasureKey]
) -> Iterator[NoLastingRate]:
    """Cells on servers to which QEMU sends no flush, with a rate of writes among these measures."""
    names = dict.fromkeys(key.name for key in measures if key.metric in ("bandwidth", "sustained"))
    for name in names:
        seen = observations.grid(MeasureKey(name, Direction.WRITE, "bandwidth"))
        lasting = observations.grid(MeasureKey(name, Direction.WRITE, "sustained"))
        cells = tuple(
            cell
            for row, cell in enumerate(observations.cells)
            if np.isfinite(seen[row]).any()
            and not np.isfinite(lasting[row]).any()
            and cell.path is not None
            and not cell.path.on_host
            and cell.path.cache.no_flush
            and promise_of(cell.path) is not None
        )
        if cells:
            yield NoLastingRate(cells, name)
            return


def burst_diagnostics(
    observations: Observations, measures: Collection[MeasureKey]
) -> Iterator[Burst]:
    """The largest difference of each cell among these measures, if it means something."""
    found: dict[MeasuredCell, Burst] = {}
    for key in measures:
        if key.metric != "sustained":
            continue
        lasting = observations.grid(key)
        seen = observations.grid(replace(key, metric="bandwidth"))
        for row, cell in enumerate(observations.cells):
            both = np.isfinite(lasting[row]) & np.isfinite(seen[row])
            if not both.any():
                continue
            burst = Burst(
                cell, key.name, median(seen[row][both]),
                median(lasting[row][both]),
            )  # fmt: skip
            longest = found.get(cell)
            if longest is None or _times(burst) > _times(longest):
                found[cell] = burst
    yield from (burst for burst in found.values() if _times(burst) >= MEANS_SOMETHING)


def _times(burst: Burst) -> float:
    return burst.bandwidth / burst.sustained if burst.sustained else np.inf
