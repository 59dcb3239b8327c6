"""Medians over the runs, laid out as articles do: measurements, a grid, installations, boots."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from vdisklab import numbers
from vdisklab.analysis.observations import Observations
from vdisklab.analysis.summary import summarise
from vdisklab.path.cell import MeasuredCell
from vdisklab.path.disk_path import Image
from vdisklab.path.segments import ImageFormat
from vdisklab.results.model import METRICS, Direction
from vdisklab.units import MIB
from vdisklab.views.documents.reports import BootRow, GridRow, GrowthRow, MeasurementRow
from vdisklab.views.layout import NAMES, Column, Table

MEDIANS = "each number is the median of its runs"
SECONDS = (
    "worst s: the smallest whole second of a run; stall: the longest time without a completion"
)

_RATES = ("bandwidth", "transactions")
_TIME_SERIES = ("worst_second", "longest_stall")


@dataclass(frozen=True, slots=True, order=True)
class PlacedCell:
    """A cell, and the place where it was measured if the table has several places."""

    cell: MeasuredCell
    place: str = ""

    def __str__(self) -> str:
        return f"{self.cell} in {self.place}" if self.place else self.cell.label


@dataclass(frozen=True, slots=True)
class Medians:
    """The medians of some campaigns' observations."""

    cells: tuple[PlacedCell, ...]
    runs: int
    values: Mapping[tuple[PlacedCell, str, Direction, str], float]

    @property
    def names(self) -> tuple[str, ...]:
        """The measurements that have a number."""
        return tuple(dict.fromkeys(name for _, name, _, _ in self.values))

    def get(self, cell: PlacedCell, name: str, direction: Direction, metric: str) -> float | None:
        """One median, by cell and measure; None for what was not measured."""
        return self.values.get((cell, name, direction, metric))


def compute_medians(observations: Observations) -> Medians:
    """The median of every measure of every cell."""
    values: dict[tuple[PlacedCell, str, Direction, str], float] = {}
    for measure in observations.measures:
        for cell, summary in summarise(observations, measure).items():
            key = (measure.name, measure.direction, measure.metric)
            values[PlacedCell(cell), *key] = summary.median
    return Medians(tuple(map(PlacedCell, observations.cells)), len(observations.rounds), values)


def side_by_side(parts: Mapping[str, Medians]) -> Medians:
    """The cells of several places, each with its own medians: `host in /mnt/local`."""
    values = {
        (replace(cell, place=place), name, direction, metric): value
        for place, medians in parts.items()
        for (cell, name, direction, metric), value in medians.values.items()
    }
    cells = (
        replace(cell, place=place) for place, medians in parts.items() for cell in medians.cells
    )
    return Medians(tuple(cells), max((part.runs for part in parts.values()), default=0), values)


def measurements_table(medians: Medians, order: Sequence[str]) -> Table[MeasurementRow]:
    """All cells under each measurement: operations, access time, MB/s, the worst second, stalls.

    `order` is that of the profile; measurements that it lacks come last.
    """
    rows = [
        row
        for name, direction in _measured(medians, order)
        for cell in medians.cells
        if (row := _row(medians, cell, name, direction)) is not None
    ]
    with_syncs = any(metric == "sync_p99" for _, _, _, metric in medians.values)
    sync_column = Column[MeasurementRow]("sync p99", lambda row: _time(row.sync_p99), right=True)
    columns: tuple[Column[MeasurementRow], ...] = (
        Column("measurement", lambda row: row.measurement),
        Column("", lambda row: "" if row.direction == "none" else row.direction),
        Column("cell", lambda row: row.cell, folds=NAMES),
        Column("MB/s", lambda row: _mega(row.bandwidth), right=True),
        Column("IOPS", lambda row: _plain(row.iops), right=True),
        Column("mean", lambda row: _time(row.latency_mean), right=True, spare=1),
        Column("p50", lambda row: _time(row.latency_p50), right=True, spare=2),
        Column("p99", lambda row: _time(row.latency_p99), right=True, spare=1),
        Column("p99.9", lambda row: _time(row.latency_p99_9), right=True, spare=2),
        Column("max", lambda row: _time(row.latency_max), right=True, spare=2),
        *((sync_column,) if with_syncs else ()),
        Column("worst s MB/s", lambda row: _mega(row.worst_second), right=True, spare=1),
        Column("stall", lambda row: _time(row.longest_stall), right=True, spare=1),
        Column("trans/s", lambda row: _plain(row.transactions), right=True, spare=1),
    )
    notes = (
        f"{MEDIANS} (at most {medians.runs}); MB/s = 1,000,000 bytes/s",
        SECONDS,
        *(
            ("sync p99: of the fsync calls alone; the other times are those of writes",)
            if with_syncs
            else ()
        ),
    )
    return Table("Measurements", columns, rows, notes, kind=MeasurementRow)


def _measured(medians: Medians, order: Sequence[str]) -> list[tuple[str, Direction]]:
    """Measurements with a rate, in the profile's order."""
    measured = dict.fromkeys(
        (name, direction)
        for cell, name, direction, metric in medians.values
        if metric in _RATES
        or (metric in _TIME_SERIES and _has_only_time_series(medians, cell, name))
    )
    place = {name: number for number, name in enumerate(order)}
    return sorted(measured, key=lambda entry: (place.get(entry[0], len(place)), *entry))


def _row(
    medians: Medians, cell: PlacedCell, name: str, direction: Direction
) -> MeasurementRow | None:
    def number(metric: str) -> float | None:
        return medians.get(cell, name, direction, metric)

    if all(number(metric) is None for metric in _RATES) and not (
        direction is Direction.NONE and _has_only_time_series(medians, cell, name)
    ):
        return None
    return MeasurementRow(
        measurement=name,
        direction=direction.value,
        cell=str(cell),
        bandwidth=number("bandwidth"),
        iops=number("iops"),
        latency_mean=number("latency_mean"),
        latency_p50=number("latency_p50"),
        latency_p99=number("latency_p99"),
        latency_p99_9=number("latency_p99.9"),
        latency_max=number("latency_max"),
        sync_p99=number("sync_p99"),
        **time_series_fields(medians, cell, name, direction),
        transactions=number("transactions"),
    )


def _has_only_time_series(medians: Medians, cell: PlacedCell, name: str) -> bool:
    """True if every test of the program was too short for a rate.

    Installations and boots have tables of their own.
    """
    other = (*_RATES, "duration", "boot_time")
    metrics = {metric for direction in Direction for metric in (*other, *_TIME_SERIES)
           if medians.get(cell, name, direction, metric) is not None}  # fmt: skip
    return bool(metrics) and metrics <= set(_TIME_SERIES)


def time_series_fields(
    medians: Medians, cell: PlacedCell, name: str, direction: Direction
) -> dict[str, float | None]:
    """The worst second and the longest stall in that direction, else of reads and writes
    together."""
    return {
        metric: own
        if (own := medians.get(cell, name, direction, metric)) is not None
        else medians.get(cell, name, Direction.NONE, metric)
        for metric in ("worst_second", "longest_stall")
    }


def _mega(value: float | None) -> str:
    return numbers.MISSING if value is None else numbers.digits(value / 1e6)


def _plain(value: float | None) -> str:
    return numbers.MISSING if value is None else numbers.digits(value)


def _time(value: float | None) -> str:
    return numbers.value(value, "s")


_UNITS = {"MiB/s": (MIB, "1,048,576 bytes/s"), "MB/s": (10**6, "1,000,000 bytes/s")}


def grid_table(
    medians: Medians, names: Sequence[str], in_mebi: Collection[str]
) -> Table[GridRow] | None:
    """A cell in each row and a bandwidth in each column; None without any bandwidth.

    `names` are the plan's measurements in its order. The unit is MiB/s where all measurements are
    `in_mebi`, those whose program counts so, else MB/s.
    """
    order = {name: place for place, name in enumerate(names)}
    bandwidths = {(name, way) for _, name, way, metric in medians.values if metric == "bandwidth"}
    tests = sorted(bandwidths, key=lambda test: (order.get(test[0], len(order)), *test))
    if not tests:
        return None
    directions = Counter(name for name, _ in tests)
    unit = "MiB/s" if directions.keys() <= set(in_mebi) else "MB/s"
    factor, meaning = _UNITS[unit]

    def column(name: str, direction: Direction) -> Column[GridRow]:
        def show(row: GridRow) -> str:
            value = row.bandwidths[f"{name}/{direction}"]
            return numbers.MISSING if value is None else numbers.digits(value / factor)

        return Column(f"{name} {direction}" if directions[name] > 1 else name, show, right=True)

    rows = [
        GridRow(
            cell=str(cell),
            bandwidths={
                f"{name}/{way}": medians.get(cell, name, way, "bandwidth") for name, way in tests
            },
        )
        for cell in medians.cells
    ]
    columns: tuple[Column[GridRow], ...] = (
        Column(unit, lambda row: row.cell, folds=NAMES),
        *(column(*test) for test in tests),
    )
    notes = (f"{MEDIANS} (at most {medians.runs}); {unit} = {meaning}",)
    return Table(f"Bandwidth in {unit}", columns, rows, notes, kind=GridRow)


def growth_table(medians: Medians, installations: Sequence[str]) -> Table[GrowthRow] | None:
    """The time of each installation and how its image grew; None without one.

    `installations` are those measurements in the profile's order. On the host there is no image,
    and only the time is known. Ratios are of times: to the last measurement on the same image, to
    the allocated image of the same format, and to the raw image of an otherwise equal path.
    """
    names = [
        name
        for name in installations
        if any(_seconds(medians, cell, name) is not None for cell in medians.cells)
    ]
    if not names:
        return None
    rows = [_growth_row(medians, cell, name, names[-1]) for name in names for cell in medians.cells]
    columns: tuple[Column[GrowthRow], ...] = (
        Column("measurement", lambda row: row.measurement),
        Column("cell", lambda row: row.cell, folds=NAMES),
        Column("time", lambda row: _time(row.seconds), right=True),
        Column("allocated", lambda row: _of("allocated", row.allocated), right=True),
        Column("mapped", lambda row: _of("mapped", row.mapped), right=True, spare=2),
        Column("flushes", _flushes, right=True, spare=1),
        Column("worst s MB/s", lambda row: _mega(row.worst_second), right=True, spare=2),
        Column("stall", lambda row: _time(row.longest_stall), right=True, spare=2),
        Column("÷ again", lambda row: numbers.ratio(row.to_again), right=True, spare=2),
        Column("÷ allocated", lambda row: numbers.ratio(row.to_allocated), right=True, spare=1),
        Column("÷ raw", lambda row: numbers.ratio(row.to_raw), right=True, spare=1),
    )
    notes = (
        f"{MEDIANS} (at most {medians.runs}); ratios are of these times",
        "allocated: by how much the image grew on the host's file system (st_blocks); mapped: in "
        "its format's own map; flushes: those that QEMU received",
        f"{SECONDS}; these two, mapped and ÷ again are shown on a wide terminal, and in CSV and "
        "JSON",
        f"÷ again: to {names[-1]} on the same image; ÷ allocated, ÷ raw: to the same measurement "
        "on that image",
    )
    return Table("Growth", columns, rows, notes, kind=GrowthRow)


def _seconds(medians: Medians, cell: PlacedCell | None, name: str) -> float | None:
    return None if cell is None else medians.get(cell, name, Direction.WRITE, "duration")


def _growth_row(medians: Medians, cell: PlacedCell, name: str, last: str) -> GrowthRow:
    seconds = _seconds(medians, cell, name)
    allocated_image, raw_image = _counterparts(cell)

    def ratio(other: PlacedCell | None, measurement: str = name) -> float | None:
        divisor = (
            None if (other, measurement) == (cell, name) else _seconds(medians, other, measurement)
        )
        return None if seconds is None or not divisor else seconds / divisor

    return GrowthRow(
        measurement=name,
        cell=str(cell),
        seconds=seconds,
        allocated=medians.get(cell, name, Direction.WRITE, "allocated"),
        mapped=medians.get(cell, name, Direction.WRITE, "mapped"),
        flushes=medians.get(cell, name, Direction.WRITE, "flushes"),
        **time_series_fields(medians, cell, name, Direction.WRITE),
        to_again=ratio(cell, last),
        to_allocated=ratio(allocated_image),
        to_raw=ratio(raw_image),
    )


def _flushes(row: GrowthRow) -> str:
    return numbers.MISSING if row.flushes is None else f"{row.flushes:.0f}"


def _counterparts(cell: PlacedCell) -> tuple[PlacedCell | None, PlacedCell | None]:
    """The cells with the allocated image of the same format, and with the raw one."""
    path = cell.cell.path
    if path is None or path.image is None:
        return None, None
    options = tuple(option for option in path.image.options if option[0] != "preallocation")
    allocated, raw = (
        replace(
            cell,
            cell=MeasuredCell(replace(path, image=image).canonical, cell.cell.page_cache),
        )
        for image in (Image(path.image.format, options), Image(ImageFormat.RAW))
    )
    return allocated, raw


def boot_table(medians: Medians) -> Table[BootRow] | None:
    """Seconds of boot and shutdown; None where nothing was booted."""
    rows = [
        BootRow(
            measurement=name,
            cell=str(cell),
            boot_time=seconds,
            **time_series_fields(medians, cell, name, direction),
            shutdown_time=medians.get(cell, name, direction, "shutdown_time"),
        )
        for (cell, name, direction, metric), seconds in medians.values.items()
        if metric == "boot_time"
    ]
    if not rows:
        return None
    columns: tuple[Column[BootRow], ...] = (
        Column("measurement", lambda row: row.measurement),
        Column("cell", lambda row: row.cell, folds=NAMES),
        Column("boot", lambda row: _time(row.boot_time), right=True),
        Column("worst s MB/s", lambda row: _mega(row.worst_second), right=True, spare=1),
        Column("stall", lambda row: _time(row.longest_stall), right=True, spare=1),
        Column("shutdown", lambda row: _time(row.shutdown_time), right=True),
    )
    notes = (
        f"{MEDIANS} (at most {medians.runs})",
        "boot: from the start of QEMU to the guest agent's first answer; shutdown: from the "
        "shutdown command to the end of QEMU",
        f"{SECONDS}, both of the boot",
    )
    return Table("Boots", columns, sorted(rows, key=lambda row: row.cell), notes, kind=BootRow)


def _of(metric: str, value: float | None) -> str:
    return numbers.value(value, METRICS[metric].unit)
