"""What the observers counted, summed over the blocks of a cell: why one path beats another."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from vdisklab.path.cell import MeasuredCell
from vdisklab.results.outlines import CellTally


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
