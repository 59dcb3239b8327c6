"""Sums of the counters of a cell's runs, and bandwidth over time."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from vdisklab.analysis.observations import median
from vdisklab.path.cell import MeasuredCell
from vdisklab.path.durability import promise_of
from vdisklab.results import model
from vdisklab.value import Value

STALL_BELOW = 0.1
"""A second is a stall if it moved less than this share of the run's median second."""


class RelativeSums(Value):
    """A cell's counters in relation to its operations and bytes.

    `flushes_per_1000` are the flushes at QEMU for each thousand reads and writes,
    `device_flushes_per_1000` those at the host's device; `cpu_per_operation` is in seconds;
    `device_share` is the bytes at the device for each requested byte.
    """

    cell: MeasuredCell
    flushes_per_1000: float | None
    device_flushes_per_1000: float | None
    cpu_per_operation: float | None
    device_share: float | None


def sums_of(run: model.Run) -> tuple[model.CellSums, ...]:
    """The counters of one run, one for each measurement, as `Store.sums` returns them."""
    return tuple(_sums(run.cell, measurement) for measurement in run.measurements)


def _sums(cell: str, measurement: model.Measurement) -> model.CellSums:
    evidence = measurement.evidence
    above, device = evidence.qemu or evidence.guest, evidence.device
    both = above if device is not None else None
    before, after = evidence.allocated_before, evidence.allocated_after
    busy, length = _busy(evidence.qemu), measurement.measured_seconds
    return model.CellSums(
        cell,
        measurement.name,
        operations=_total(above, "read_operations", "write_operations"),
        flushes=_total(above, "flush_operations"),
        device_flushes=_total(device, "flush_operations"),
        requested_bytes=_total(above, "read_bytes", "write_bytes"),
        device_bytes=_total(device, "read_bytes", "write_bytes"),
        cpu_seconds=evidence.host_cpu_seconds,
        read_requested=_total(both, "read_bytes"),
        read_reached=_reached(both, device, "read_bytes"),
        write_requested=_total(both, "write_bytes"),
        write_reached=_reached(both, device, "write_bytes"),
        grown=None if before is None or after is None else after - before,
        busy_seconds=None if length is None else busy,
        busy_of=None if busy is None else length,
    )


def _reached(
    above: model.IoCounters | None, device: model.IoCounters | None, name: str
) -> int | None:
    """The bytes at the device, as far as they can be the measurement's own."""
    requested, counted = _total(above, name), _total(device, name)
    return min(counted, requested) if requested and counted is not None else None


def _busy(counts: model.IoCounters | None) -> float | None:
    if counts is None or counts.read_seconds is None or counts.write_seconds is None:
        return None
    return counts.read_seconds + counts.write_seconds + (counts.flush_seconds or 0.0)


def _total(counts: model.IoCounters | None, *names: str) -> int | None:
    values: list[int | None] = [getattr(counts, name, None) for name in names]
    present = [value for value in values if value is not None]
    return sum(present) if len(present) == len(names) else None


def times_of(run: model.Run) -> tuple[model.TimedMeasurement, ...]:
    """How long the measurements of one run took."""
    return tuple(
        model.TimedMeasurement(
            run.cell,
            measurement.name,
            measurement.wall_seconds,
            measurement.measured_seconds,
            measurement.evidence.steal_seconds,
        )
        for measurement in run.measurements
    )


def relative_sums(
    sums: Iterable[model.CellSums], cells: Mapping[str, MeasuredCell]
) -> dict[MeasuredCell, RelativeSums]:
    """For each cell the sums over its measurements; `cells` are by fingerprint."""
    groups: dict[MeasuredCell, list[model.CellSums]] = {}
    for cell_sums in sums:
        groups.setdefault(cells[cell_sums.cell], []).append(cell_sums)
    return {cell: _relative_sums(cell, group) for cell, group in groups.items()}


def _relative_sums(cell: MeasuredCell, group: list[model.CellSums]) -> RelativeSums:
    operations = [member.operations for member in group]
    # The interface to a server counts all programs' bytes, with those of the protocol.
    on_server = cell.path is not None and promise_of(cell.path) is not None
    moved = [None if on_server else member.device_bytes for member in group]
    return RelativeSums(
        cell,
        _share([member.flushes for member in group], operations, 1000),
        _share([member.device_flushes for member in group], operations, 1000),
        _share([member.cpu_seconds for member in group], operations, 1),
        _share(moved, [member.requested_bytes for member in group], 1),
    )


def _share(
    parts: Sequence[float | None], wholes: Sequence[int | None], factor: float
) -> float | None:
    """The sum of the parts over the sum of the wholes, over the pairs that have both."""
    above = total = 0.0
    for part, whole in zip(parts, wholes, strict=True):
        if part is not None and whole:
            above += part
            total += whole
    return factor * above / total if total else None


class BandwidthSeries(Value):
    """One run's measurement over time: `values` are bytes per second in intervals of `interval` s.

    `run` names campaign and round.
    """

    cell: MeasuredCell
    run: str
    measurement: str
    direction: model.Direction
    interval: float
    values: tuple[float, ...]

    @property
    def knows_stalls(self) -> bool:
        """False for a sum of reads and writes: without traffic, the program may be idle."""
        return self.direction is not model.Direction.NONE

    @property
    def stalls(self) -> tuple[int, ...]:
        """Indices of the intervals that moved less than a tenth of the median one.

        If the median is zero, these are the intervals without any byte. Empty if a stall cannot be
        distinguished from an idle program.
        """
        if not self.knows_stalls:
            return ()
        limit = STALL_BELOW * median(self.values) if self.values else 0.0
        return tuple(
            place for place, value in enumerate(self.values) if value == 0 or value < limit
        )


def bandwidth_series(
    runs: Iterable[model.RunSeries],
    cells: Mapping[str, MeasuredCell],
    measurements: Collection[str],
) -> tuple[BandwidthSeries, ...]:
    """The series of some measurements that have values; `cells` are by fingerprint."""
    return tuple(
        BandwidthSeries(
            cells[series.cell],
            f"{series.campaign}/{series.round:04d}",
            series.measurement,
            series.series.direction,
            series.series.interval,
            series.series.values,
        )
        for series in runs
        if series.measurement in measurements and series.series.values
    )


def coarser(values: Sequence[float], most: int) -> tuple[tuple[float, ...], int]:
    """The values averaged in groups, at most `most` of them, and the size of a group.

    The last group may be smaller.
    """
    width = -(-len(values) // most) if len(values) > most else 1
    pieces = [values[start : start + width] for start in range(0, len(values), width)]
    return tuple(sum(piece) / len(piece) for piece in pieces), width
