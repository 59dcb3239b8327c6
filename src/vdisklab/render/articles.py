"""What was measured, laid out as the articles and their programs do: medians over the runs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from vdisklab.analysis.observations import Observations
from vdisklab.analysis.summary import summarise
from vdisklab.render import numbers
from vdisklab.render.tables import Column, Table, Value, text
from vdisklab.results.model import METRICS, Direction

MEDIANS = "each number is the median of its runs"
COURSE = "worst s: the smallest whole second of a run; stall: the longest time without a completion"

_RATES = ("bandwidth", "transactions")
_COURSE = ("worst_second", "longest_stall")

_WIDTH = 78
_CRYSTAL_ROWS = (
    ("SEQ    1MiB (Q=  8, T= 1)", "seq1m-q8t1"),
    ("SEQ    1MiB (Q=  1, T= 1)", "seq1m-q1t1"),
    ("RND    4KiB (Q= 32, T= 1)", "rnd4k-q32t1"),
    ("RND    4KiB (Q=  1, T= 1)", "rnd4k-q1t1"),
)


@dataclass(frozen=True, slots=True)
class Medians:
    """The medians of some campaigns' observations."""

    cells: tuple[str, ...]
    runs: int
    values: Mapping[tuple[str, str, Direction, str], float]

    @property
    def names(self) -> tuple[str, ...]:
        """The measurements that have a number."""
        return tuple(dict.fromkeys(name for _, name, _, _ in self.values))

    def get(self, cell: str, name: str, direction: Direction, metric: str) -> float | None:
        """One median, by cell and measure; None for what was not measured."""
        return self.values.get((cell, name, direction, metric))


def medians(observations: Observations) -> Medians:
    """The median of every measure of every cell."""
    values: dict[tuple[str, str, Direction, str], float] = {}
    for measure in observations.measures:
        for cell, summary in summarise(observations, measure).items():
            values[cell, measure.name, measure.direction, measure.metric] = summary.median
    return Medians(observations.cells, len(observations.blocks), values)


def side_by_side(parts: Mapping[str, Medians]) -> Medians:
    """The cells of several places as cells of their own: `host in /mnt/local`.

    Nothing of two places is put together: what stands beside each other keeps its own median.
    """
    values = {
        (beside(cell, place), name, direction, metric): value
        for place, found in parts.items()
        for (cell, name, direction, metric), value in found.values.items()
    }
    cells = tuple(beside(cell, place) for place, found in parts.items() for cell in found.cells)
    return Medians(cells, max((found.runs for found in parts.values()), default=0), values)


def beside(cell: str, place: str) -> str:
    """The name of a cell where several places stand side by side."""
    return f"{cell} in {place}"


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


def _row(found: Medians, cell: str, name: str, direction: Direction) -> tuple[Value, ...] | None:
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
        text(cell),
        _mega(number("bandwidth")),
        _plain(number("iops")),
        *(_time(latency) for latency in latencies),
        _time(number("sync_p99")),
        *course_values(found, cell, name, direction),
        _plain(number("transactions")),
    )


def _has_only_a_course(found: Medians, cell: str, name: str) -> bool:
    """True for a program whose every test was too short for a rate; installations and boots have
    tables of their own."""
    other = (*_RATES, "duration", "boot_time")
    has = {metric for way in Direction for metric in (*other, *_COURSE)
           if found.get(cell, name, way, metric) is not None}  # fmt: skip
    return bool(has) and has <= set(_COURSE)


def course_values(
    found: Medians, cell: str, name: str, direction: Direction
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


def crystaldiskmark_text(found: Medians, cell: str, version: str, how: str) -> str:
    """CrystalDiskMark 8's text for one cell, with what is not measured left as a dash.

    `how` says where the numbers are from: `measured with fio`.
    """
    line = "-" * _WIDTH
    parts = [
        line,
        f"vdisklab {version}, in the layout of CrystalDiskMark 8: {cell}",
        line,
        "* MB/s = 1,000,000 bytes/s [SATA/600 = 600,000,000 bytes/s]",
        "* KB = 1000 bytes, KiB = 1024 bytes",
        f"* {MEDIANS} (at most {found.runs}), {how}",
    ]
    parts += ["", "[Read]", *_crystal_lines(found, cell, "read", Direction.READ)]
    parts += ["", "[Write]", *_crystal_lines(found, cell, "write", Direction.WRITE)]
    for mix in _mixes(found, cell):
        share = int(mix.removeprefix("mix") or 0)
        heading = f"[Mix] Read {share}%/Write {100 - share}%" if share else "[Mix]"
        parts += ["", heading, *_crystal_lines(found, cell, mix, Direction.NONE)]
    return "\n".join([*parts, ""])


def _mixes(found: Medians, cell: str) -> list[str]:
    """The mixed tests that a cell has: `mix70` for 70 % reads. Only imported texts have any."""
    stems = "|".join(stem for _, stem in _CRYSTAL_ROWS)
    names = [name for where, name, _, _ in found.values if where == cell]
    seen = [re.fullmatch(rf"(?:{stems})-(mix[0-9]*)", name) for name in names]
    return sorted({match[1] for match in seen if match is not None})


def _crystal_lines(found: Medians, cell: str, way: str, direction: Direction) -> Iterator[str]:
    for title, stem in _CRYSTAL_ROWS:
        name = f"{stem}-{way}"
        bandwidth = found.get(cell, name, direction, "bandwidth")
        iops = found.get(cell, name, direction, "iops")
        latency = found.get(cell, name, direction, "latency_mean")
        yield (
            f"  {title}: {_fixed(bandwidth, 1e6, 9, 3)} MB/s [{_fixed(iops, 1, 9, 1)} IOPS] "
            f"<{_fixed(latency, 1e-6, 9, 2)} us>"
        )


def _fixed(value: float | None, unit: float, width: int, places: int) -> str:
    shown = numbers.MISSING if value is None else f"{value / unit:.{places}f}"
    return shown.rjust(width)
