"""Installations and boots as tables: thin, allocated and raw images side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from vdisklab.path.disk_path import DiskPath, Image, parse_path
from vdisklab.path.segments import ImageFormat
from vdisklab.render import numbers
from vdisklab.render.articles import COURSE, MEDIANS, Medians, course_values
from vdisklab.render.tables import Column, Table, Value, text
from vdisklab.results.model import METRICS, Direction

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


def _growth_row(found: Medians, cell: str, name: str, last: str) -> tuple[Value, ...]:
    seconds, allocated, mapped, flushes = (
        found.get(cell, name, Direction.WRITE, metric) for metric in _GROWTH
    )
    allocated_image, raw_image = _counterparts(cell)
    again = found.get(cell, last, Direction.WRITE, "duration") if name != last else None
    others = (
        None if other in (None, cell) else found.get(other or "", name, Direction.WRITE, "duration")
        for other in (allocated_image, raw_image)
    )
    return (
        text(name),
        text(cell),
        _of("duration", seconds),
        _of("allocated", allocated),
        _of("mapped", mapped),
        Value(flushes, numbers.MISSING if flushes is None else f"{flushes:.0f}"),
        *course_values(found, cell, name, Direction.WRITE),
        *(_ratio(seconds, other) for other in (again, *others)),
    )


def _counterparts(cell: str) -> tuple[str | None, str | None]:
    """The cells with the allocated image of the same format, and with the raw one."""
    spelled, blank, state = cell.partition(" ")
    path = parse_path(spelled)
    if path.on_host or path.image is None:
        return None, None
    kept = tuple(each for each in path.image.options if each[0] != "preallocation")
    allocated = replace(path, image=Image(path.image.format, kept))
    raw = replace(path, image=Image(ImageFormat.RAW))
    return _label(allocated, blank + state), _label(raw, blank + state)


def _label(path: DiskPath, state: str) -> str:
    return f"{path.canonical}{state}"


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
                text(cell),
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
