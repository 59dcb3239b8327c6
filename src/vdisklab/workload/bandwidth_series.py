"""Bandwidth second by second: the worst second, and the longest time without a completion.

fio's bandwidth log (`--write_bw_log`) has lines `milliseconds, KiB/s, direction (0 read, 1 write, 2
trim), block size, offset`: the mean over a window that ended at that time (fio's HOWTO, "Log File
Formats"). Undocumented behaviour of fio 3.33, observed with `--thinktime` and on a frozen file
system: a window without completions has no line; a window is longer than requested if fio's helper
thread was late; the jobs of one file follow each other, and the last, unfinished window of each has
no line.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from vdisklab.errors import WorkloadError
from vdisklab.results.model import Direction, Sample, Series


@dataclass(frozen=True, slots=True)
class Moved:
    """Bytes completed in an interval, in seconds from the start."""

    begin: float
    end: float
    size: float


def series_of(direction: Direction, moved: Sequence[Moved], seconds: float) -> Series | None:
    """Bytes per second in each whole second of a run of `seconds`; None below one second."""
    # By the program's own clock, a run of 5 seconds may end after 4.999.
    whole = math.floor(seconds + 0.005)
    if whole < 1:
        return None
    values = [0.0] * whole
    for piece in moved:
        _spread(values, piece)
    return Series("bandwidth", direction, 1.0, tuple(values))


def _spread(values: list[float], piece: Moved) -> None:
    width = piece.end - piece.begin
    if width <= 0:
        return
    for second in range(int(piece.begin), min(len(values), math.ceil(piece.end))):
        shared = min(piece.end, second + 1) - max(piece.begin, second)
        values[second] += piece.size * shared / width


def longest_gap(moved: Iterable[Moved], seconds: float) -> float:
    """The longest time within a run of `seconds` without a completion."""
    longest, until = 0.0, 0.0
    for piece in sorted(moved, key=lambda interval: interval.begin):
        if piece.size > 0:
            longest = max(longest, piece.begin - until)
            until = max(until, piece.end)
    return max(longest, seconds - until)


def worst_second(series: Series) -> Sample:
    """The smallest value of the series."""
    return Sample("worst_second", series.direction, min(series.values))


_LINES = re.compile(r"^[0-9]+, [0-9]+, [0-9]+, [0-9]+, [0-9]+(?:, [0-9]+)?$", re.MULTILINE)
_DIRECTIONS = (Direction.READ, Direction.WRITE, Direction.TRIM)


@dataclass(frozen=True, slots=True)
class BandwidthLog:
    """Bandwidth over time from a log, with the worst second and the longest stall."""

    series: tuple[Series, ...]
    samples: tuple[Sample, ...]


@dataclass(frozen=True, slots=True)
class LoggedRun:
    """fio's report of a run: seconds of the log's window and of the run, bytes of each direction,
    and the slowest request's latency in seconds.
    """

    window: float
    seconds: float
    totals: Mapping[Direction, int]
    longest: float


def read_log(text: str, run: LoggedRun) -> BandwidthLog:
    """The bandwidth over time of a run.

    Windows without a line are a stall only if a request took that long; otherwise fio's helper
    thread was late, or the job paused. Raises WorkloadError for a malformed line.
    """
    moved: dict[Direction, list[Moved]] = {}
    for direction, piece in _pieces(text, run):
        moved.setdefault(direction, []).append(piece)
    series: list[Series] = []
    for direction, pieces in moved.items():
        moved[direction] = _completed(pieces, run, run.totals.get(direction, 0))
        series_read = series_of(direction, moved[direction], run.seconds)
        if series_read is not None:
            series.append(series_read)
    samples = [worst_second(points) for points in series]
    if series:
        side = series[0].direction if len(series) == 1 else Direction.NONE
        every = [piece for pieces in moved.values() for piece in pieces]
        gap = longest_gap(every, run.seconds)
        samples.append(Sample("longest_stall", side, gap if gap >= run.window else 0.0))
    return BandwidthLog(tuple(series), tuple(samples))


def lines_of_log(text: str) -> tuple[str, ...]:
    """The log lines in fio's standard error, as one text; empty if there are none."""
    lines = _LINES.findall(text)
    return ("\n".join(lines),) if lines else ()


def _is_stall(gap: float, run: LoggedRun) -> bool:
    """True if a request waited during a gap in the log: it started at most two windows after the
    gap began, or ended at most two windows before the gap's end."""
    return gap >= 2 * run.window and run.longest >= gap - 2 * run.window


def _completed(pieces: Sequence[Moved], run: LoggedRun, total: int) -> list[Moved]:
    """The pieces, completed with the unlogged end of the run, so that they add up to `total` bytes.

    The bytes that the log lacks were transferred at the end. If the log lacks none (a shortened
    window is logged with its full rate), the end has the mean rate, unless it is a stall.
    """
    every = list(pieces)
    last = max(piece.end for piece in every)
    known = sum(piece.size for piece in every)
    left = run.seconds - last
    if left > 0:
        stalled = _is_stall(left, run)
        size = max(total - known, 0.0)
        if size == 0 and not stalled:
            size = known / last * left
        every.append(Moved(last, last + run.window if stalled else run.seconds, size))
    factor = total / sum(piece.size for piece in every) if total and known else 1.0
    return [Moved(piece.begin, piece.end, piece.size * factor) for piece in every]


def _pieces(text: str, run: LoggedRun) -> Iterator[tuple[Direction, Moved]]:
    last: dict[Direction, float] = {}
    before = 0.0
    for number, line in enumerate(text.splitlines(), 1):
        end, rate, direction = _line(line, number)
        if end < before:
            last = {}  # the next job begins
        before = end
        begin = last.get(direction, 0.0)
        last[direction] = end
        if _is_stall(end - begin, run):
            begin = end - run.window
        yield direction, Moved(begin, end, rate * (end - begin))


def _line(line: str, number: int) -> tuple[float, float, Direction]:
    fields = line.split(",")
    try:
        end, rate, direction = (int(field) for field in fields[:3])
        if end < 0 or rate < 0 or direction < 0:
            raise ValueError
        return end / 1000, rate * 1024.0, _DIRECTIONS[direction]
    except (ValueError, IndexError, OverflowError) as error:
        raise WorkloadError(
            f"line {number} of fio's bandwidth log is {line[:60]!r}, "
            "not milliseconds, KiB/s and direction"
        ) from error
