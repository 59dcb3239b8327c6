"""What was measured, laid out as the articles and their programs do: medians over the runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from vdisklab.analysis.observations import Observations
from vdisklab.analysis.summary import summarise
from vdisklab.path.cell import MeasuredCell
from vdisklab.path.disk_path import Image
from vdisklab.path.segments import ImageFormat
from vdisklab.render import numbers
from vdisklab.render.tables.layout import Column, Table, Value, text
from vdisklab.results.model import METRICS, Direction
from vdisklab.units import MIB

MEDIANS = "each number is the median of its runs"
COURSE = "worst s: the smallest whole second of a run; stall: the longest time without a completion"

_RATES = ("bandwidth", "transactions")
_COURSE = ("worst_second", "longest_stall")


@dataclass(frozen=True, slots=True, order=True)
class PlacedCell:
    """A cell, and the place where it was measured when several stand side by side."""

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


def medians(observations: Observations) -> Medians:
    """The median of every measure of every cell."""
    values: dict[tuple[PlacedCell, str, Direction, str], float] = {}
    for measure in observations.measures:
        for cell, summary in summarise(observations, measure).items():
            key = (measure.name, measure.direction, measure.metric)
            values[PlacedCell(cell), *key] = summary.median
    return Medians(tuple(map(PlacedCell, observations.cells)), len(observations.blocks), values)


def side_by_side(parts: Mapping[str, Medians]) -> Medians:
    """The cells of several places as cells of their own: `host in /mnt/local`.

    Nothing of two places is put together: what stands beside each other keeps its own median.
    """
    values = {
        (replace(cell, place=place), name, direction, metric): value
        for place, found in parts.items()
        for (cell, name, direction, metric), value in found.values.items()
    }
    cells = tuple(
        replace(cell, place=place) for place, found in parts.items() for cell in found.cells
    )
    return Medians(cells, max((found.runs for found in parts.values()), default=0), values)


def measurements_table(found: Medians, order: Sequence[str]) -> Table:
    """All cells under each measurement: operations, access time, MB/s, the worst second, stalls.

    `order` is that of the profile; what is not in it comes last.
    """
    rows = [
        row
        for name, direction in _measured(found, order)
        for cell in found.cells
        if (row := _row(found, cell, name, direction)) is not None
    ]
    syncs = any(metric == "sync_p99" for _, _, _, metric in found.values)
    columns = (
        Column("measurement", "measurement"),
        Column("direction", ""),
        Column("cell", "cell", folds=True),
        Column("bandwidth", "MB/s", right=True),
        Column("iops", "IOPS", right=True),
        Column("latency_mean", "mean", right=True),
        Column("latency_p50", "p50", right=True, only_wide=True),
        Column("latency_p99", "p99", right=True),
        Column("latency_p99_9", "p99.9", right=True, only_wide=True),
        Column("latency_max", "max", right=True, only_wide=True),
        Column("sync_p99", "sync p99", right=True, only_data=not syncs),
        Column("worst_second", "worst s MB/s", right=True),
        Column("longest_stall", "stall", right=True),
        Column("transactions", "trans/s", right=True),
    )
    notes = (
        f"{MEDIANS} (at most {found.runs}); MB/s = 1,000,000 bytes/s",
        COURSE,
        *(("sync p99: of the fsyncs alone; the other times are of the writes",) if syncs else ()),
    )
    return Table("Measurements", columns, tuple(rows), notes)


def _measured(found: Medians, order: Sequence[str]) -> list[tuple[str, Direction]]:
    seen = dict.fromkeys(
        (name, direction)
        for cell, name, direction, metric in found.values
        if metric in _RATES or (metric in _COURSE and _has_only_a_course(found, cell, name))
    )
    place = {name: number for number, name in enumerate(order)}
    return sorted(seen, key=lambda each: (place.get(each[0], len(place)), each[0], each[1]))


def _row(
    found: Medians, cell: PlacedCell, name: str, direction: Direction
) -> tuple[Value, ...] | None:
    def number(metric: str, *, of: Direction = direction) -> float | None:
        return found.get(cell, name, of, metric)

    if all(number(metric) is None for metric in _RATES) and not (
        direction is Direction.NONE and _has_only_a_course(found, cell, name)
    ):
        return None
    latencies = (number(f"latency_{kind}") for kind in ("mean", "p50", "p99", "p99.9", "max"))
    return (
        text(name),
        Value(direction.value, "" if direction is Direction.NONE else direction.value),
        text(str(cell)),
        _mega(number("bandwidth")),
        _plain(number("iops")),
        *(_time(latency) for latency in latencies),
        _time(number("sync_p99")),
        *course_values(found, cell, name, direction),
        _plain(number("transactions")),
    )


def _has_only_a_course(found: Medians, cell: PlacedCell, name: str) -> bool:
    """True for a program whose every test was too short for a rate; installations and boots have
    tables of their own."""
    other = (*_RATES, "duration", "boot_time")
    has = {metric for way in Direction for metric in (*other, *_COURSE)
           if found.get(cell, name, way, metric) is not None}  # fmt: skip
    return bool(has) and has <= set(_COURSE)


def course_values(
    found: Medians, cell: PlacedCell, name: str, direction: Direction
) -> tuple[Value, Value]:
    """The worst second and the longest stall: of that direction, else of reads and writes
    together."""
    worst, stall = (
        of if (of := found.get(cell, name, direction, metric)) is not None
        else found.get(cell, name, Direction.NONE, metric)
        for metric in ("worst_second", "longest_stall")
    )  # fmt: skip
    return _mega(worst), _time(stall)


def _mega(value: float | None) -> Value:
    return Value(value, numbers.MISSING if value is None else numbers.digits(value / 1e6))


def _plain(value: float | None) -> Value:
    return Value(value, numbers.MISSING if value is None else numbers.digits(value))


def _time(value: float | None) -> Value:
    return Value(value, numbers.value(value, METRICS["latency_mean"].unit))


_UNITS = {"MiB/s": (MIB, "1,048,576 bytes/s"), "MB/s": (10**6, "1,000,000 bytes/s")}


def grid_table(found: Medians, names: Sequence[str], in_mebi: Collection[str]) -> Table | None:
    """A cell in each row and a measurement in each column; None without a bandwidth.

    `names` are those of the plan, in its order. The unit is MiB/s where all measurements are
    `in_mebi`, those whose program counts so, else MB/s.
    """
    order = {name: place for place, name in enumerate(names)}
    seen = {(name, way) for _, name, way, metric in found.values if metric == "bandwidth"}
    tests = sorted(seen, key=lambda each: (order.get(each[0], len(order)), each[0], each[1]))
    if not tests:
        return None
    ways = Counter(name for name, _ in tests)
    unit = "MiB/s" if ways.keys() <= set(in_mebi) else "MB/s"
    factor, meaning = _UNITS[unit]
    columns = (
        Column("cell", unit, folds=True),
        *(
            Column(f"{name}/{way}", f"{name} {way}" if ways[name] > 1 else name, right=True)
            for name, way in tests
        ),
    )
    rows = tuple(
        (text(str(cell)), *(_in(factor, found.get(cell, *test, "bandwidth")) for test in tests))
        for cell in found.cells
    )
    notes = (f"{MEDIANS} (at most {found.runs}); {unit} = {meaning}",)
    return Table(f"Bandwidth in {unit}", columns, rows, notes)


def _in(unit: int, value: float | None) -> Value:
    return Value(value, numbers.MISSING if value is None else numbers.digits(value / unit))


_IN_WIDE = f"{COURSE}; these two, mapped and ÷ again stand in a wide terminal, in CSV and JSON"

_GROWTH = ("duration", "allocated", "mapped", "flushes")


def growth_table(found: Medians, installations: Sequence[str]) -> Table | None:
    """What installations took, and how their images grew; None without one.

    `installations` are those measurements in the profile's order. On the host there is no image,
    and only the time is known. A ratio is one of seconds: to the last measurement of the same
    image, to the allocated image of the same format, and to the raw one with the same rest.
    """
    names = [
        name
        for name in installations
        if any(
            found.get(cell, name, Direction.WRITE, "duration") is not None for cell in found.cells
        )
    ]
    if not names:
        return None
    rows = tuple(
        _growth_row(found, cell, name, names[-1]) for name in names for cell in found.cells
    )
    columns = (
        Column("measurement", "measurement"),
        Column("cell", "cell", folds=True),
        Column("seconds", "time", right=True),
        Column("allocated", "allocated", right=True),
        Column("mapped", "mapped", right=True, only_wide=True),
        Column("flushes", "flushes", right=True),
        Column("worst_second", "worst s MB/s", right=True, only_wide=True),
        Column("longest_stall", "stall", right=True, only_wide=True),
        Column("to_again", "÷ again", right=True, only_wide=True),
        Column("to_allocated", "÷ allocated", right=True),
        Column("to_raw", "÷ raw", right=True),
    )
    notes = (
        f"{MEDIANS} (at most {found.runs}); ratios are of these times",
        "allocated: by how much the image grew on the host's file system (st_blocks); mapped: in "
        "its format's own map; flushes: what QEMU was asked for",
        _IN_WIDE,
        f"÷ again: to {names[-1]} on the same image; ÷ allocated, ÷ raw: to the same measurement "
        "on that image",
    )
    return Table("Growth", columns, rows, notes)


def _growth_row(found: Medians, cell: PlacedCell, name: str, last: str) -> tuple[Value, ...]:
    seconds, allocated, mapped, flushes = (
        found.get(cell, name, Direction.WRITE, metric) for metric in _GROWTH
    )
    allocated_image, raw_image = _counterparts(cell)
    again = found.get(cell, last, Direction.WRITE, "duration") if name != last else None
    others = (
        None
        if other is None or other == cell
        else found.get(other, name, Direction.WRITE, "duration")
        for other in (allocated_image, raw_image)
    )
    return (
        text(name),
        text(str(cell)),
        _of("duration", seconds),
        _of("allocated", allocated),
        _of("mapped", mapped),
        Value(flushes, numbers.MISSING if flushes is None else f"{flushes:.0f}"),
        *course_values(found, cell, name, Direction.WRITE),
        *(_ratio(seconds, other) for other in (again, *others)),
    )


def _counterparts(cell: PlacedCell) -> tuple[PlacedCell | None, PlacedCell | None]:
    """The cells with the allocated image of the same format, and with the raw one."""
    path = cell.cell.path
    if path is None or path.image is None:
        return None, None
    kept = tuple(each for each in path.image.options if each[0] != "preallocation")
    allocated = replace(path, image=Image(path.image.format, kept))
    raw = replace(path, image=Image(ImageFormat.RAW))
    first, second = (
        replace(cell, cell=MeasuredCell(other.canonical, cell.cell.page_cache))
        for other in (allocated, raw)
    )
    return first, second


def boot_table(found: Medians) -> Table | None:
    """Seconds of boot and shutdown; None where nothing was booted."""
    rows = []
    for cell, name, direction, metric in found.values:
        if metric != "boot_time":
            continue
        ended = found.get(cell, name, direction, "shutdown_time")
        booted = found.get(cell, name, direction, metric)
        rows.append(
            (
                text(name),
                text(str(cell)),
                _of("boot_time", booted),
                *course_values(found, cell, name, direction),
                _of("shutdown_time", ended),
            )
        )
    if not rows:
        return None
    columns = (
        Column("measurement", "measurement"),
        Column("cell", "cell", folds=True),
        Column("boot_time", "boot", right=True),
        Column("worst_second", "worst s MB/s", right=True),
        Column("longest_stall", "stall", right=True),
        Column("shutdown_time", "shutdown", right=True),
    )
    notes = (
        f"{MEDIANS} (at most {found.runs})",
        "boot: from the start of QEMU to the guest agent's first answer; shutdown: from the order "
        "to the end of QEMU",
        f"{COURSE}, both of the boot",
    )
    return Table("Boots", columns, tuple(sorted(rows, key=lambda row: str(row[1].raw))), notes)


def _of(metric: str, value: float | None) -> Value:
    return Value(value, numbers.value(value, METRICS[metric].unit))


def _ratio(value: float | None, other: float | None) -> Value:
    ratio = None if value is None or not other else value / other
    return Value(ratio, numbers.MISSING if ratio is None else f"×{numbers.digits(ratio)}")
