"""What was recorded of a guest's disk, in sentences; or what QEMU counted each second."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import Any

from vdisklab import numbers
from vdisklab.answers.record import CountedLatencyRow, CountedSecondRow, RecordAnswer
from vdisklab.units import counted, format_bytes, format_duration
from vdisklab.views.layout import Column, Table


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
    columns: tuple[Column[CountedSecondRow], ...] = (
        Column("after", lambda row: format_duration(row.at_seconds), right=True),
        Column("reads", lambda row: f"{row.reads:,}", right=True),
        Column("read", lambda row: format_bytes(row.read_bytes), right=True),
        Column("writes", lambda row: f"{row.writes:,}", right=True),
        Column("written", lambda row: format_bytes(row.written_bytes), right=True),
        Column("flushes", lambda row: f"{row.flushes:,}", right=True),
    )
    return Table(
        f"{answer.guest}'s {answer.disk} for {format_duration(answer.seconds)}: statistics only",
        columns,
        answer.statistics,
        intro=(f"No request was recorded, because {answer.only_statistics}.",),
        notes=("statistics cannot be replayed: no file was written", *answer.notes),
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
