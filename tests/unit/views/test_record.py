"""What is shown of a guest whose requests could only be counted."""

from __future__ import annotations

from tests.unit.cli.test_widths import require_whole
from vdisklab.answers.record import CountedLatencyRow, CountedSecondRow, RecordAnswer
from vdisklab.cli.shell.output import csv_of
from vdisklab.documents import document
from vdisklab.views.record import tables
from vdisklab.views.terminal import lines_of


def counted(
    seconds: int, *, writes: int = 3, reads: int = 1, flushes: int | None = 1
) -> RecordAnswer:
    """A guest that does the same each second."""
    rows = (
        CountedSecondRow(second + 1.0, reads, 4096 * reads, writes, 8192 * writes, flushes)
        for second in range(seconds)
    )
    return RecordAnswer(
        guest="web01", disk="vda", file=None, file_bytes=None, sentence="", seconds=float(seconds),
        requests=None, lost=None, only_statistics="this QEMU has no trace event x",
        statistics=tuple(rows), latencies=(CountedLatencyRow("write", 9, 1e-3, None),), notes=(),
    )  # fmt: skip


def test_counters_are_said_in_one_sentence() -> None:
    table, _ = tables(counted(5))
    assert table.intro[0] == (
        "75 % writes of 8.0 KiB on average and 25 % reads of 4.0 KiB on average, a flush after "
        "3.00 writes, 4.00/s."
    )
    assert table.intro[1] == "No request was recorded, because this QEMU has no trace event x."
    assert "no flush" in next(tables(counted(5, flushes=0))).intro[0]
    assert "flushes not counted" in next(tables(counted(5, flushes=None))).intro[0]
    assert next(tables(counted(5, writes=0, reads=0))).intro[0] == "Nothing was read or written."
    assert len(next(tables(counted(0))).intro) == 1


def test_an_hour_has_some_rows_on_a_terminal_and_each_second_in_csv() -> None:
    answer = counted(3601)
    table, _ = tables(answer)
    assert len(lines_of(table, 80)) < 40
    assert csv_of(table).count("\r\n") == 3602
    brief = table.brief
    assert brief is not None
    assert sum(row.writes for row in brief.rows) == 3 * 3601
    assert brief.rows[-1].at_seconds == 3601
    assert next(tables(counted(40))).brief is None


def test_the_tables_are_whole() -> None:
    answer = counted(3)
    require_whole(list(tables(answer)), document(answer))
