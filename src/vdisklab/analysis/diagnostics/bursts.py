"""Writes that begin faster than they last: what a program saw, and what reached the disk."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np

from vdisklab.analysis.diagnostics.diagnostic import Diagnostic
from vdisklab.analysis.observations import MeasureKey, Observations
from vdisklab.path.cell import MeasuredCell

MEANS_SOMETHING = 1.5
"""A burst that is this many times as fast as what lasts is told."""


@dataclass(frozen=True, slots=True)
class Burst(Diagnostic):
    """A cell's writes went to the host's memory faster than they reach the disk."""

    cell: MeasuredCell
    measurement: str
    bandwidth: Annotated[float, "B/s that the program saw, median"]
    sustained: Annotated[float, "B/s that reached the disk, median"]

    def __str__(self) -> str:
        seen, lasting = (f"{rate / 1e6:,.0f} MB/s" for rate in (self.bandwidth, self.sustained))
        return (
            f"{self.cell}: a burst of writes goes to memory at {seen}; lasting writes {lasting} "
            f"({self.measurement})."
        )


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
                cell, key.name, float(np.median(seen[row][both])),
                float(np.median(lasting[row][both])),
            )  # fmt: skip
            longest = found.get(cell)
            if longest is None or _times(burst) > _times(longest):
                found[cell] = burst
    yield from (burst for burst in found.values() if _times(burst) >= MEANS_SOMETHING)


def _times(burst: Burst) -> float:
    return burst.bandwidth / burst.sustained if burst.sustained else np.inf
