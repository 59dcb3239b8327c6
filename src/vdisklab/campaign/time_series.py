"""A measurement second by second as it is seen from outside, for what its program does not say.

In a guest QEMU's counters are followed (`diskwatch`), on the host the kernel's of the program
(`programwatch`).
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace
from typing import Protocol

from vdisklab.results.model import Direction, Sample, Series
from vdisklab.workload.bandwidth_series import Moved, series_of
from vdisklab.workload.program import Outcome

SHORTEST_STALL = 0.5
"""Seconds; in a guest the counters are asked for no more often while a timed program runs."""

# A program that is just started reads its own file, and between two requests it thinks: as seldom
# as a long run is looked at, nobody would see it.
_NO_PAUSE = 0.2

# A run of a second is over after 1.0004 s.
_ONE = 1.005

# Sums of shares of a second are not exact.
_THROUGHOUT = 0.99

Span = tuple[float, float]
"""From one moment to a later one, in seconds of a clock."""


@dataclass(frozen=True, slots=True)
class TimeSeries:
    """What was seen of one measurement.

    `moved` are bytes at moments of a clock, counted from anywhere, the first at the measurement's
    beginning and the last at its end. `busy` are times in which something was completed; `stalls`
    those of at least `SHORTEST_STALL` in which nothing was, and something waited for it: None
    where that cannot be known.
    """

    moved: tuple[tuple[float, int], ...]
    busy: tuple[Span, ...]
    stalls: tuple[Span, ...] | None


class Watch(Protocol):
    """Follows measurements, one after the other."""

    def begin(self) -> None:
        """Forgets what was, and begins at this moment."""

    def __call__(self, process: int | None = None) -> None:
        """Looks once more. `process` is the program's number where it runs on this machine."""

    def end(self) -> TimeSeries:
        """All that was seen since the beginning, this moment included."""


def with_time_series(outcome: Outcome, course: TimeSeries) -> Outcome:
    """The outcome, and of its course what the program did not say and was seen from outside."""
    known = {sample.metric for sample in outcome.samples}
    short = outcome.measured_seconds is not None and outcome.measured_seconds <= _ONE
    own_worst = _bandwidths(outcome) if short else ()
    found = (*(own_worst or worst_second_of(course, short=short)), *longest_stall_of(course))
    seen = [sample for sample in found if sample.metric not in known]
    series = None if short else _series(course)
    kept = outcome.series if outcome.series or series is None else (series,)
    return replace(outcome, samples=(*outcome.samples, *seen), series=kept)


def _bandwidths(outcome: Outcome) -> tuple[Sample, ...]:
    """Of a program that was done within a second: that is all there was."""
    return tuple(
        replace(sample, metric="worst_second")
        for sample in outcome.samples
        if sample.metric == "bandwidth"
    )


def worst_second_of(course: TimeSeries, *, short: bool = False) -> tuple[Sample, ...]:
    """The smallest of the whole seconds; nothing where it cannot be known.

    Seconds are counted from the first completion on. One in which nothing was asked of the disk,
    or not all the time, is no bad one, and does not count. What was `short`, over within a
    second, counts whole.
    """
    asked = _asked_part(course)
    if course.stalls is None or asked is None:
        return ()
    if short or course.moved[-1][0] - course.moved[0][0] <= _ONE:
        seconds = asked.moved[-1][0] - asked.moved[0][0]
        return (Sample("worst_second", Direction.NONE, _size(asked) / seconds),)
    series = _series(asked)
    values = () if series is None else series.values
    busy = _busy(asked, len(values))
    throughout = [value for value, share in zip(values, busy, strict=True) if share >= _THROUGHOUT]
    return (Sample("worst_second", Direction.NONE, min(throughout)),) if throughout else ()


def longest_stall_of(course: TimeSeries) -> tuple[Sample, ...]:
    """The longest of the stalls, 0 without one; nothing where they cannot be known."""
    if course.stalls is None or len(course.moved) < 2:
        return ()
    longest = max((end - begin for begin, end in course.stalls), default=0.0)
    return (Sample("longest_stall", Direction.NONE, longest),)


def _asked_part(course: TimeSeries) -> TimeSeries | None:
    """From the first time in which something was completed or awaited to the last such time."""
    spans = _spans(course)
    if not spans:
        return None
    begin, end = spans[0][0], spans[-1][1]
    moved = tuple(each for each in course.moved if begin <= each[0] <= end)
    return replace(course, moved=moved) if end > begin else None


def _size(course: TimeSeries) -> int:
    return course.moved[-1][1] - course.moved[0][1]


def _series(course: TimeSeries) -> Series | None:
    if len(course.moved) < 2:
        return None
    start = course.moved[0][0]
    moved = [
        Moved(begin - start, end - start, size - before)
        for (begin, before), (end, size) in itertools.pairwise(course.moved)
    ]
    return series_of(Direction.NONE, moved, course.moved[-1][0] - start)


def _spans(course: TimeSeries) -> list[Span]:
    """Times in which the disk was asked for something, in order, short pauses among them."""
    found: list[Span] = []
    for begin, end in sorted((*course.busy, *(course.stalls or ()))):
        if found and begin - found[-1][1] < _NO_PAUSE:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((begin, end))
    return found


def _busy(course: TimeSeries, seconds: int) -> list[float]:
    """For each second how much of it the disk was asked for something: completed it, or let it
    wait.

    The program's own idle time is no fault of the disk: a second of which only the edge lay in a
    time with a completion would else be the worst one, with a few hundred bytes.
    """
    start, busy = course.moved[0][0], [0.0] * seconds
    for begin, end in _spans(course):
        for second in range(int(begin - start), min(seconds, math.ceil(end - start))):
            until = min(end - start, second + 1)
            busy[second] += max(0.0, until - max(begin - start, second))
    return busy
