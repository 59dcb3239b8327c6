"""What was recorded of a guest's disk, in sentences; or what QEMU counted each second."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator, Sequence
from typing import Any

from vdisklab import numbers
from vdisklab.answers.record import CountedLatencyRow, CountedSecondRow, RecordAnswer
from vdisklab.units import counted, format_bytes, format_duration, in_percent
from vdisklab.value import replace
from vdisklab.views.layout import Column, Table

_PARTS = 20
"""How many rows of seconds a terminal shows at least, where there are more than twice as many."""


def tables(answer: RecordAnswer) -> Iterator[Table[Any]]:
    """A sentence and the file; without a file the counters."""
    if answer.file is None:
        yield _seconds(answer)
        yield _latencies(answer)
        return
    size = "" if answer.file_bytes is None else f", {format_bytes(answer.file_bytes)}"
    lost = f", {answer.lost:,} events lost" if answer.lost else ""
    yield Table(
        f"Recorded {answer.guest}'s {answer.disk} for {format_duration(answer.seconds)}: "
        f"{counted(answer.requests or 0, 'request')}{lost}",
        (),
        (),
        intro=(f"{answer.sentence[:1].upper()}{answer.sentence[1:]}.",),
        notes=(f"{answer.file} has places, sizes and times, no data{size}", *answer.notes),
        verbatim=(
            f"vdisklab show {shlex.quote(answer.file)}",
            f"vdisklab run {{raw,qcow2}}/{{none,writeback}} --profile {shlex.quote(answer.file)}",
        ),
    )


def _seconds(answer: RecordAnswer) -> Table[CountedSecondRow]:
    """Each second; where there are many, several of them in a row of a terminal's."""
    whole = _counted(answer, answer.statistics)
    if len(answer.statistics) <= 2 * _PARTS:
        return whole
    size = math.ceil(len(answer.statistics) / _PARTS)
    parts = [_sum(each) for each in _batched(answer.statistics, size)]
    return replace(whole, brief=_counted(answer, parts, f"a row has up to {size} readings"))


def _batched(rows: Sequence[CountedSecondRow], size: int) -> Iterator[Sequence[CountedSecondRow]]:
    """The rows in parts of that size; the last may be shorter."""
    for first in range(0, len(rows), size):
        yield rows[first : first + size]


def _sum(rows: Sequence[CountedSecondRow]) -> CountedSecondRow:
    return CountedSecondRow(
        rows[-1].at_seconds,
        sum(row.reads for row in rows),
        sum(row.read_bytes for row in rows),
        sum(row.writes for row in rows),
        sum(row.written_bytes for row in rows),
        None if any(row.flushes is None for row in rows) else sum(row.flushes or 0 for row in rows),
    )


def _in_words(answer: RecordAnswer) -> str:
    """What the guest did, from sums: `93 % writes of 8.0 KiB on average, …`."""
    if not answer.statistics or not answer.seconds:
        return ""
    total = _sum(answer.statistics)
    requests = total.reads + total.writes
    kinds = [
        f"{in_percent(count / requests)} {name} of {format_bytes(moved // count)} on average"
        for name, count, moved in (
            ("writes", total.writes, total.written_bytes),
            ("reads", total.reads, total.read_bytes),
        )
        if count
    ]
    if not kinds:
        return "Nothing was read or written."
    if total.flushes is None:
        flushes = "flushes not counted"
    elif total.flushes:
        flushes = f"a flush after {numbers.digits(total.writes / total.flushes)} writes"
    else:
        flushes = "no flush"
    rate = numbers.value(requests / answer.seconds, "1/s")
    return f"{' and '.join(kinds)}, {flushes}, {rate}."


def _flushes(row: CountedSecondRow) -> str:
    return numbers.MISSING if row.flushes is None else f"{row.flushes:,}"


def _counted(
    answer: RecordAnswer, rows: Sequence[CountedSecondRow], *notes: str
) -> Table[CountedSecondRow]:
    columns: tuple[Column[CountedSecondRow], ...] = (
        Column("after", lambda row: format_duration(row.at_seconds), right=True),
        Column("reads", lambda row: f"{row.reads:,}", right=True),
        Column("read", lambda row: format_bytes(row.read_bytes), right=True),
        Column("writes", lambda row: f"{row.writes:,}", right=True),
        Column("written", lambda row: format_bytes(row.written_bytes), right=True),
        Column("flushes", _flushes, right=True),
    )
    return Table(
        f"{answer.guest}'s {answer.disk} for {format_duration(answer.seconds)}: statistics only",
        columns,
        rows,
        intro=(
            *filter(None, (_in_words(answer),)),
            f"No request was recorded, because {answer.only_statistics}.",
        ),
        notes=(
            "statistics cannot be replayed: no file was written",
            "in the guest, `vdisklab record --here DEVICE` records the requests",
            *notes,
            *answer.notes,
        ),
        kind=CountedSecondRow,
    )


def _latencies(answer: RecordAnswer) -> Table[CountedLatencyRow]:
    columns: tuple[Column[CountedLatencyRow], ...] = (
        Column("requests", lambda row: row.operation),
        Column("number", lambda row: f"{row.count:,}", right=True),
        Column("p50 below", lambda row: numbers.value(row.p50, "s"), right=True),
        Column("p99 below", lambda row: numbers.value(row.p99, "s"), right=True),
    )
    title = "Latencies" if answer.latencies else "Latencies: this QEMU keeps no histograms"
    return Table(title, columns, answer.latencies, kind=CountedLatencyRow)
