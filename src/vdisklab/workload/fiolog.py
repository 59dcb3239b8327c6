"""fio's bandwidth log (`--write_bw_log`), as whole seconds.

Each line is `milliseconds, KiB/s, direction (0 read, 1 write, 2 trim), block size, offset`: the
mean over a window that ended at that time (fio's HOWTO, "Log File Formats"). What fio 3.33 does
beside that, as tried with `--thinktime` and on a frozen file system: a window in which nothing
completed has no line; a window is longer than asked when fio's helper thread was late; jobs of
one file stand one after the other, and the last, unfinished window of each has no line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from vdisklab.errors import WorkloadError
from vdisklab.results.model import Direction, Sample, Series
from vdisklab.workload.seconds import Moved, longest_gap, series_of, worst_second

_LINES = re.compile(r"^[0-9]+, [0-9]+, [0-9]+, [0-9]+, [0-9]+(?:, [0-9]+)?$", re.MULTILINE)
_DIRECTIONS = (Direction.READ, Direction.WRITE, Direction.TRIM)


@dataclass(frozen=True, slots=True)
class Course:
    """How a run went, second by second."""

    series: tuple[Series, ...]
    samples: tuple[Sample, ...]


@dataclass(frozen=True, slots=True)
class Run:
    """What fio says of the run: windows of the log and the run itself in seconds, the bytes of
    each direction, and the longest time, in seconds, that any request took."""

    window: float
    seconds: float
    totals: Mapping[Direction, int]
    longest: float


def read_log(text: str, run: Run) -> Course:
    """How the run went, by its log.

    Windows without a line are a stall only if a request took as long: else fio's helper was
    late, or the job itself rested. Raises WorkloadError for a line of another form.
    """
    moved: dict[Direction, list[Moved]] = {}
    for direction, piece in _pieces(text, run):
        moved.setdefault(direction, []).append(piece)
    series: list[Series] = []
    for direction, pieces in moved.items():
        moved[direction] = _completed(pieces, run, run.totals.get(direction, 0))
        found = series_of(direction, moved[direction], run.seconds)
        if found is not None:
            series.append(found)
    samples = [worst_second(each) for each in series]
    if series:
        one = series[0].direction if len(series) == 1 else Direction.NONE
        every = [piece for pieces in moved.values() for piece in pieces]
        gap = longest_gap(every, run.seconds)
        samples.append(Sample("longest_stall", one, gap if gap >= run.window else 0.0))
    return Course(tuple(series), tuple(samples))


def lines_of_log(text: str) -> tuple[str, ...]:
    """The log among other things that fio said, as one text; nothing if there is none."""
    found = _LINES.findall(text)
    return ("\n".join(found),) if found else ()


def _is_stall(gap: float, run: Run) -> bool:
    """True for a time without a line in which a request waited: it was begun at most two windows
    after the time began, or ended as much before its end."""
    return gap >= 2 * run.window and run.longest >= gap - 2 * run.window


def _completed(pieces: Sequence[Moved], run: Run, total: int) -> list[Moved]:
    """The pieces with the unfinished windows at the end, so that they add up to `total` bytes.

    What the log lacks was moved there. It may lack nothing, because a window that was cut short
    is logged with its rate: then the end, unless it is a stall, went on like the rest.
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


def _pieces(text: str, run: Run) -> Iterator[tuple[Direction, Moved]]:
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
    except (ValueError, IndexError) as error:
        raise WorkloadError(
            f"line {number} of fio's bandwidth log is {line[:60]!r}, "
            "not milliseconds, KiB/s and direction"
        ) from error
