"""fio's bandwidth log (`--write_bw_log`), as whole seconds.

Each line is `milliseconds, KiB/s, direction (0 read, 1 write, 2 trim), block size, offset`: the
mean over a window that ended at that time (fio's HOWTO, "Log File Formats"). What fio 3.33 does
beside that, as tried with `--thinktime`: a window in which nothing completed has no line; a
window is longer than asked when fio's helper thread was late; jobs of one file stand one after
the other, and the last, unfinished window of each has no line.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from vdisklab.errors import WorkloadError
from vdisklab.result.model import Direction, Sample, Series
from vdisklab.workload.seconds import Moved, longest_gap, series_of, worst_second

_DIRECTIONS = (Direction.READ, Direction.WRITE, Direction.TRIM)


@dataclass(frozen=True, slots=True)
class Course:
    """How a run went, second by second."""

    series: tuple[Series, ...]
    samples: tuple[Sample, ...]


def read_log(text: str, window: float, seconds: float, totals: Mapping[Direction, int]) -> Course:
    """The course of a run of `seconds` whose log has windows of `window` seconds.

    `totals` are the bytes of each direction by fio's own count; what the log lacks of them was
    moved in the unfinished windows at the end. A stall is told from a late helper only when it
    is longer than a window. Raises WorkloadError for a line of another form.
    """
    moved: dict[Direction, list[Moved]] = {}
    for direction, piece in _pieces(text, window):
        moved.setdefault(direction, []).append(piece)
    series: list[Series] = []
    for direction, pieces in moved.items():
        missing = totals.get(direction, 0) - sum(piece.size for piece in pieces)
        last = max(piece.end for piece in pieces)
        if missing > 0 and last < seconds:
            pieces.append(Moved(last, seconds, missing))
        found = series_of(direction, pieces, seconds)
        if found is not None:
            series.append(found)
    samples = [worst_second(each) for each in series]
    if series:
        one = series[0].direction if len(series) == 1 else Direction.NONE
        every = [piece for pieces in moved.values() for piece in pieces]
        gap = longest_gap(every, seconds)
        samples.append(Sample("longest_stall", one, gap if gap >= window else 0.0))
    return Course(tuple(series), tuple(samples))


def _pieces(text: str, window: float) -> Iterator[tuple[Direction, Moved]]:
    last: dict[Direction, float] = {}
    before = 0.0
    for number, line in enumerate(text.splitlines(), 1):
        end, rate, direction = _line(line, number)
        if end < before:
            last = {}  # the next job begins
        before = end
        begin = last.get(direction, 0.0)
        last[direction] = end
        # Longer than two windows: at least one of them was left out because it was empty.
        if end - begin >= 2 * window:
            begin = end - window
        yield direction, Moved(begin, end, rate * (end - begin))


def _line(line: str, number: int) -> tuple[float, float, Direction]:
    fields = line.split(",")
    try:
        end, rate, direction = (int(field) for field in fields[:3])
        if end < 0 or rate < 0 or direction < 0:
            raise ValueError
        return end / 1000, rate * 1024.0, _DIRECTIONS[direction]
    except (ValueError, IndexError) as error:
        raise WorkloadError(
            f"line {number} of fio's bandwidth log is {line[:60]!r}, "
            "not milliseconds, KiB/s and direction"
        ) from error
