"""What was counted during a cell's runs, and their bandwidth over time."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from vdisklab.path.cell import MeasuredCell
from vdisklab.results.model import Direction
from vdisklab.results.outlines import CellTally, RunCourse


@dataclass(frozen=True, slots=True)
class Workings:
    """How a cell came to its numbers.

    `flushes_per_1000` are flushes that QEMU saw for each thousand reads and writes,
    `device_flushes_per_1000` those that the host's device got; `cpu_per_operation` is in seconds;
    `device_share` the bytes that reached the device for each one that was asked for.
    """

    cell: MeasuredCell
    flushes_per_1000: float | None
    device_flushes_per_1000: float | None
    cpu_per_operation: float | None
    device_share: float | None


def workings(
    tallies: Iterable[CellTally], cells: Mapping[str, MeasuredCell]
) -> dict[MeasuredCell, Workings]:
    """For each cell what its measurements add up to; `cells` are by fingerprint."""
    groups: dict[MeasuredCell, list[CellTally]] = {}
    for tally in tallies:
        groups.setdefault(cells[tally.cell], []).append(tally)
    return {cell: _workings(cell, group) for cell, group in groups.items()}


def _workings(cell: MeasuredCell, group: list[CellTally]) -> Workings:
    operations = [tally.operations for tally in group]
    return Workings(
        cell,
        _share([tally.flushes for tally in group], operations, 1000),
        _share([tally.device_flushes for tally in group], operations, 1000),
        _share([tally.cpu_seconds for tally in group], operations, 1),
        _share([t.device_bytes for t in group], [t.asked_bytes for t in group], 1),
    )


def _share(
    parts: Sequence[float | None], wholes: Sequence[int | None], factor: float
) -> float | None:
    """The sum of the parts over that of their wholes; what lacks either is left out."""
    above = total = 0.0
    for part, whole in zip(parts, wholes, strict=True):
        if part is not None and whole:
            above += part
            total += whole
    return factor * above / total if total else None


STALL_BELOW = 0.1
"""A second is a stall when less than this share of its run's median second was moved in it."""


@dataclass(frozen=True, slots=True)
class Course:
    """One run's measurement over time: `values` are bytes per second in intervals of `interval` s.

    `run` names campaign and block.
    """

    cell: MeasuredCell
    run: str
    measurement: str
    direction: Direction
    interval: float
    values: tuple[float, ...]

    @property
    def knows_stalls(self) -> bool:
        """False for a course that was seen from outside, reads and writes together: a second in
        which nothing came may be one in which the program asked for nothing."""
        return self.direction is not Direction.NONE

    @property
    def stalls(self) -> tuple[int, ...]:
        """The intervals in which next to nothing came: below a tenth of the median one.

        Of a run that stood still most of the time the median is zero: then it is those of zero.
        None at all where rest cannot be told from a stall.
        """
        if not self.knows_stalls:
            return ()
        limit = STALL_BELOW * float(np.median(self.values)) if self.values else 0.0
        return tuple(
            place for place, value in enumerate(self.values) if value == 0 or value < limit
        )


def courses(
    seen: Iterable[RunCourse], cells: Mapping[str, MeasuredCell], measurements: Collection[str]
) -> tuple[Course, ...]:
    """The courses of some measurements ; `cells` are by fingerprint."""
    return tuple(
        Course(
            cells[each.cell],
            f"{each.campaign}/{each.block:04d}",
            each.measurement,
            each.series.direction,
            each.series.interval,
            each.series.values,
        )
        for each in seen
        if each.measurement in measurements and each.series.values
    )


def coarser(values: Sequence[float], most: int) -> tuple[tuple[float, ...], int]:
    """The values as at most `most` means of equally many each, and how many each one holds.

    The last mean may be of fewer.
    """
    width = -(-len(values) // most) if len(values) > most else 1
    pieces = [values[at : at + width] for at in range(0, len(values), width)]
    return tuple(sum(piece) / len(piece) for piece in pieces), width
