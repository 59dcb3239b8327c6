"""The time series of a measurement from `watches`, for values that its program does not report."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace
from typing import Protocol

from vdisklab.results.model import Direction, Sample, Series
from vdisklab.workload.bandwidth_series import Moved, series_of
from vdisklab.workload.program import ProgramResult

SHORTEST_STALL = 0.5
"""Seconds; in a guest the counters are read no more often while a timed program runs."""

# A program that has just started reads its own file, and it computes between two requests. Pauses
# as short as this are invisible in a long run, which is sampled less often.
_NO_PAUSE = 0.2

# A run of one second lasts up to 1.0004 s.
_ONE_SECOND = 1.005

# Sums of shares of a second are not exact.
_WHOLE_SECOND = 0.99

Span = tuple[float, float]
"""From one moment to a later one, in seconds of a clock."""


@dataclass(frozen=True, slots=True)
class TimeSeries:
    """The traffic of one measurement.

    `moved` are (moment, total bytes so far), the first at the measurement's start and the last at
    its end. `busy` are spans with completions. `stalls` are spans of at least `SHORTEST_STALL`
    without a completion although something waited for one; None if that is unknown.
    """

    moved: tuple[tuple[float, int], ...]
    busy: tuple[Span, ...]
    stalls: tuple[Span, ...] | None


class Watch(Protocol):
    """Follows measurements, one after the other."""

    def begin(self) -> None:
        """Starts a new series at this moment."""

    def __call__(self, process: int | None = None) -> None:
        """Takes a sample. `process` is the program's process number if it runs on this host."""

    def end(self) -> TimeSeries:
        """The series since `begin`."""


def with_time_series(outcome: ProgramResult, measured: TimeSeries) -> ProgramResult:
    """The outcome, with samples and series added that its program did not report."""
    known = {sample.metric for sample in outcome.samples}
    short = outcome.measured_seconds is not None and outcome.measured_seconds <= _ONE_SECOND
    own_worst = _bandwidths(outcome) if short else ()
    observed = (*(own_worst or worst_second_of(measured, short=short)), *longest_stall_of(measured))
    added = [sample for sample in observed if sample.metric not in known]
    series = None if short else _series(measured)
    shown = outcome.series if outcome.series or series is None else (series,)
    return replace(outcome, samples=(*outcome.samples, *added), series=shown)


def _bandwidths(outcome: ProgramResult) -> tuple[Sample, ...]:
    """The worst second of a program that ran for no longer than a second: its bandwidth."""
    return tuple(
        replace(sample, metric="worst_second")
        for sample in outcome.samples
        if sample.metric == "bandwidth"
    )


def worst_second_of(measured: TimeSeries, *, short: bool = False) -> tuple[Sample, ...]:
    """The bandwidth of the slowest whole second; nothing if that is unknown.

    Seconds count from the first completion. A second in which the disk had nothing to do for part
    of the time does not count. A `short` run, over within a second, counts as a whole.
    """
    active = _busy_part(measured)
    if measured.stalls is None or active is None:
        return ()
    if short or measured.moved[-1][0] - measured.moved[0][0] <= _ONE_SECOND:
        (begin, less), (end, more) = active.moved[0], active.moved[-1]
        return (Sample("worst_second", Direction.NONE, (more - less) / (end - begin)),)
    series = _series(active)
    values = () if series is None else series.values
    busy = _busy(active, len(values))
    whole = [value for value, share in zip(values, busy, strict=True) if share >= _WHOLE_SECOND]
    return (Sample("worst_second", Direction.NONE, min(whole)),) if whole else ()


def longest_stall_of(measured: TimeSeries) -> tuple[Sample, ...]:
    """The longest stall in seconds, 0 without any; nothing if stalls are unknown."""
    if measured.stalls is None or len(measured.moved) < 2:
        return ()
    longest = max((end - begin for begin, end in measured.stalls), default=0.0)
    return (Sample("longest_stall", Direction.NONE, longest),)


def _busy_part(measured: TimeSeries) -> TimeSeries | None:
    """The part from the first span with a completion or a stall to the last one."""
    spans = _spans(measured)
    if not spans:
        return None
    begin, end = spans[0][0], spans[-1][1]
    moved = tuple(point for point in measured.moved if begin <= point[0] <= end)
    return replace(measured, moved=moved) if end > begin else None


def _series(measured: TimeSeries) -> Series | None:
    if len(measured.moved) < 2:
        return None
    start = measured.moved[0][0]
    moved = [
        Moved(begin - start, end - start, size - before)
        for (begin, before), (end, size) in itertools.pairwise(measured.moved)
    ]
    return series_of(Direction.NONE, moved, measured.moved[-1][0] - start)


def _spans(measured: TimeSeries) -> list[Span]:
    """Spans in which the disk had something to do, in order; short pauses are included."""
    spans: list[Span] = []
    for begin, end in sorted((*measured.busy, *(measured.stalls or ()))):
        if spans and begin - spans[-1][1] < _NO_PAUSE:
            spans[-1] = (spans[-1][0], max(end, spans[-1][1]))
        else:
            spans.append((begin, end))
    return spans


def _busy(measured: TimeSeries, seconds: int) -> list[float]:
    """For each second, the share of it in which the disk had something to do.

    Without this, an idle second with a few hundred bytes at its edge would count as the worst one.
    """
    start, busy = measured.moved[0][0], [0.0] * seconds
    for begin, end in _spans(measured):
        for second in range(int(begin - start), min(seconds, math.ceil(end - start))):
            until = min(end - start, second + 1)
            busy[second] += max(0.0, until - max(begin - start, second))
    return busy
