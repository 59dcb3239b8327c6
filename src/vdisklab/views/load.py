"""What a recorded guest asks of its disk: one sentence, its requests, its figures, its time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from vdisklab import numbers
from vdisklab.answers.load import (
    LoadAnswer,
    LoadIntervalRow,
    LoadKindRow,
    LoadServiceRow,
    LoadSizeRow,
)
from vdisklab.units import format_bytes, format_duration, in_percent
from vdisklab.views.layout import WORDS, Column, StackedColumns, Table

_BAR = 20


def tables(answer: LoadAnswer) -> Iterator[Table[Any]]:
    """The sentence above the kinds of requests, the figures, the time in parts, and how requests
    are spread over sizes and service times."""
    yield _kinds(answer)
    yield _figures(answer)
    yield _time(answer)
    yield _sizes_table(answer)
    if answer.services:
        yield _services_table(answer)


def _kinds(answer: LoadAnswer) -> Table[LoadKindRow]:
    columns: tuple[Column[LoadKindRow], ...] = (
        Column("requests", lambda row: row.kind),
        Column("number", lambda row: f"{row.count:,}", right=True),
        Column("share", lambda row: _percent(row.share), right=True),
        Column("rate", lambda row: numbers.value(row.per_second, "1/s"), right=True, spare=3),
        Column("bytes", lambda row: format_bytes(row.bytes) if row.bytes else "", right=True),
        Column("size (median)", _sizes, right=True),
        Column("sequential", lambda row: _percent(row.sequential_share), right=True, spare=1),
        Column("p50", lambda row: numbers.value(row.service_p50, "s"), right=True),
        Column("p99", lambda row: numbers.value(row.service_p99, "s"), right=True),
        Column("max", lambda row: numbers.value(row.service_max, "s"), right=True, spare=2),
    )
    sentence = answer.sentence[:1].upper() + answer.sentence[1:]
    return Table(
        f"{answer.name}: {format_duration(answer.seconds)}",
        columns,
        answer.kinds,
        intro=(f"{sentence}.",),
        notes=(*answer.notes, *_lost(answer)),
        kind=LoadKindRow,
    )


def _lost(answer: LoadAnswer) -> Iterator[str]:
    if answer.lost:
        yield f"{answer.lost:,} events were lost: the recording is not whole"


def _sizes(row: LoadKindRow) -> str:
    if row.size_low is None or row.size_high is None or row.size_median is None:
        return numbers.MISSING
    low, median, high = map(format_bytes, (row.size_low, row.size_median, row.size_high))
    if row.size_low == row.size_high:
        return low
    number, _, unit = low.partition(" ")
    return f"{number if high.endswith(f' {unit}') else low}–{high} ({median})"


def _figures(answer: LoadAnswer) -> Table[tuple[str, str]]:
    flushes = (
        "none"
        if answer.writes_per_flush is None
        else f"one after {numbers.digits(answer.writes_per_flush)} writes"
    )
    depth = (
        "not known"
        if answer.depth_mean is None
        else f"{numbers.digits(answer.depth_mean)} on average, 95 % at most {answer.depth_p95}, "
        f"most {answer.depth_max}"
    )
    reuse = f", each byte asked for {numbers.digits(answer.reuse)} times" if answer.reuse else ""
    rows = [
        ("flushes", flushes),
        ("forced writes", f"{_percent(answer.forced_share)} of the writes"),
        ("at multiples of 4 KiB", _percent(answer.aligned_share)),
        (
            "rate",
            f"{numbers.value(answer.per_second, '1/s')}, busiest second {answer.burst:,}, "
            f"{_percent(answer.quiet_share)} of the seconds without a request",
        ),
        ("requests in flight", depth),
        ("working set", f"{format_bytes(answer.touched_bytes)}{reuse}"),
        (
            "of it",
            f"read {format_bytes(answer.touched_read)}, written "
            f"{format_bytes(answer.touched_written)}; {_percent(answer.rewritten_share)} of what "
            "was written was written again",
        ),
        ("disk", _disk(answer)),
        ("recorded", _recorded(answer)),
    ]
    columns: tuple[Column[tuple[str, str]], ...] = (
        Column("", lambda row: row[0]),
        Column("", lambda row: row[1], folds=WORDS),
    )
    return Table("Figures", columns, rows)


def _disk(answer: LoadAnswer) -> str:
    size = "size unknown" if answer.disk_bytes is None else format_bytes(answer.disk_bytes)
    bus = "" if answer.bus is None else f", {answer.bus}"
    return f"{size}{bus}, logical blocks of {answer.logical_block} bytes"


def _recorded(answer: LoadAnswer) -> str:
    when = f" on {answer.recorded_at:%Y-%m-%d %H:%M} UTC" if answer.recorded_at else ""
    qemu = f", QEMU {answer.qemu}" if answer.qemu else ""
    return f"by {answer.recorded_by.value}{when}{qemu}"


def _time(answer: LoadAnswer) -> Table[LoadIntervalRow]:
    most = max((row.busiest for row in answer.intervals), default=0) or 1

    def rate(count: int, row: LoadIntervalRow) -> str:
        return numbers.value(count / row.seconds, "1/s") if row.seconds else numbers.MISSING

    columns: tuple[Column[LoadIntervalRow], ...] = (
        Column("from", lambda row: format_duration(row.start_seconds), right=True),
        Column("reads", lambda row: rate(row.reads, row), right=True),
        Column("writes", lambda row: rate(row.writes, row), right=True),
        Column("flushes", lambda row: rate(row.flushes, row), right=True),
        Column(
            "moved",
            lambda row: numbers.value(row.bytes / row.seconds, "B/s") if row.seconds else "",
            right=True,
        ),
        Column("busiest second", lambda row: f"{row.busiest:,}", right=True),
        Column("", lambda row: "█" * round(_BAR * row.busiest / most), spare=1),
    )
    names = ("reads", "writes", "flushes")
    rates = [
        tuple(count / (row.seconds or 1.0) for count in (row.reads, row.writes, row.flushes))
        for row in answer.intervals
    ]
    figure = StackedColumns(
        f"Columns over time: {numbers.value(answer.per_second, '1/s')} requests on average, "
        f"at most {answer.burst:,} in a second.",
        names,
        [format_duration(row.start_seconds) for row in answer.intervals],
        rates,
        numbers.value(max(map(sum, rates), default=0.0), "1/s"),
    )
    return Table("Over time", columns, answer.intervals, kind=LoadIntervalRow, figure=figure)


def _sizes_table(answer: LoadAnswer) -> Table[LoadSizeRow]:
    most = max((row.reads + row.writes for row in answer.sizes), default=0) or 1
    columns: tuple[Column[LoadSizeRow], ...] = (
        Column("up to", lambda row: format_bytes(row.size_at_most), right=True),
        Column("reads", lambda row: f"{row.reads:,}", right=True),
        Column("writes", lambda row: f"{row.writes:,}", right=True),
        Column("", lambda row: "█" * round(_BAR * (row.reads + row.writes) / most), spare=1),
    )
    figure = StackedColumns(
        f"Columns of requests by size, up to {columns[0].show(answer.sizes[-1])}."
        if answer.sizes
        else "",
        ("reads", "writes"),
        [format_bytes(row.size_at_most) for row in answer.sizes],
        [(row.reads, row.writes) for row in answer.sizes],
        f"{most:,} requests",
    )
    return Table(
        "Sizes", columns, answer.sizes, kind=LoadSizeRow, figure=figure if answer.sizes else None
    )


def _services_table(answer: LoadAnswer) -> Table[LoadServiceRow]:
    most = max(row.reads + row.writes + row.flushes for row in answer.services)
    columns: tuple[Column[LoadServiceRow], ...] = (
        Column("up to", lambda row: numbers.value(row.service_at_most, "s"), right=True),
        Column("reads", lambda row: f"{row.reads:,}", right=True),
        Column("writes", lambda row: f"{row.writes:,}", right=True),
        Column("flushes", lambda row: f"{row.flushes:,}", right=True),
        Column(
            "",
            lambda row: "█" * round(_BAR * (row.reads + row.writes + row.flushes) / most),
            spare=1,
        ),
    )
    figure = StackedColumns(
        f"Columns of requests by service time, up to {columns[0].show(answer.services[-1])}.",
        ("reads", "writes", "flushes"),
        [numbers.value(row.service_at_most, "s") for row in answer.services],
        [(row.reads, row.writes, row.flushes) for row in answer.services],
        f"{most:,} requests",
    )
    return Table("Service times", columns, answer.services, kind=LoadServiceRow, figure=figure)


def _percent(share: float | None) -> str:
    return numbers.MISSING if share is None else in_percent(share)
