"""A measurement second by second as QEMU counts it, for programs that say nothing meanwhile.

Bytes and operations are those that QEMU completed for the guest (query-blockstats). A time in which
it completed nothing is a stall only if a request took that long, which QEMU's own histogram of
latencies tells (block-latency-histogram-set): otherwise the guest had asked for nothing.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from vdisklab.errors import GuestError
from vdisklab.guest.blockdev import AttachedNames
from vdisklab.guest.machine import Machine
from vdisklab.progress import Progress, Throughput
from vdisklab.result.model import Direction, Sample, Series
from vdisklab.workload.base import Outcome
from vdisklab.workload.seconds import Moved, series_of

SHORTEST_STALL = 0.5
"""Seconds; the counters are asked for no more often than this while a timed program runs."""

# Sums of shares of a second are not exact.
_THROUGHOUT = 0.99

_BOUNDS = (0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0)


@dataclass(frozen=True, slots=True)
class Point:
    """Counters at a moment, in seconds of a clock.

    `slow` are how many requests took at least each of the bounds; None where QEMU does not say.
    """

    at: float
    size: int
    operations: int
    slow: tuple[int, ...] | None


class DiskWatch:
    """Follows one disk of a running guest, and tells the progress what moves."""

    def __init__(self, machine: Machine, serial: str, progress: Progress) -> None:
        self._machine = machine
        self._device = AttachedNames(serial).device
        self._progress = progress
        self._points: list[Point] = []

    def begin(self) -> None:
        """Forgets what was, and begins at this moment."""
        if not self._points:
            qdev, _ = self._stats()
            if qdev is not None:
                self._ask_for_histograms(qdev)
        self._points = []
        self._look()

    def __call__(self) -> None:
        """Looks once more."""
        self._look()
        if len(self._points) < 2:
            return
        before, now = self._points[-2:]
        if now.at > before.at:
            seconds = now.at - before.at
            moved = Throughput(
                (now.size - before.size) / seconds, (now.operations - before.operations) / seconds
            )
            self._progress(moved)

    def end(self) -> tuple[Point, ...]:
        """All that was seen since the beginning, this moment included."""
        self._look()
        return tuple(self._points)

    def _look(self) -> None:
        _, stats = self._stats()
        if stats is not None:
            self._points.append(point_of(stats, time.monotonic()))

    def _stats(self) -> tuple[str | None, Mapping[str, Any] | None]:
        for block in self._machine.query("query-blockstats"):
            qdev = str(block.get("qdev", ""))
            if self._device in qdev.split("/"):
                return qdev, block["stats"]
        return None, None

    def _ask_for_histograms(self, qdev: str) -> None:
        bounds = [round(bound * 1e9) for bound in _BOUNDS]
        arguments = {"id": qdev, "boundaries": bounds}
        try:
            self._machine.monitor.execute("block-latency-histogram-set", arguments)
        except GuestError:
            return  # a QEMU without it: stalls are not known, and stay missing


def point_of(stats: Mapping[str, Any], at: float) -> Point:
    """A point of one disk's part of query-blockstats."""
    operations = sum(stats[f"{kind}_operations"] for kind in ("rd", "wr", "flush"))
    return Point(at, stats["rd_bytes"] + stats["wr_bytes"], operations, _slow(stats))


def _slow(stats: Mapping[str, Any]) -> tuple[int, ...] | None:
    found = [stats.get(f"{kind}_latency_histogram") for kind in ("rd", "wr", "flush")]
    if any(each is None or len(each["bins"]) != len(_BOUNDS) + 1 for each in found):
        return None
    counts = [sum(bins) for bins in zip(*(each["bins"] for each in found if each), strict=True)]
    return tuple(sum(counts[number + 1 :]) for number in range(len(_BOUNDS)))


def with_course(outcome: Outcome, points: Sequence[Point]) -> Outcome:
    """The outcome, and of its course what the program did not say and QEMU saw."""
    known = {sample.metric for sample in outcome.samples}
    seen = [sample for sample in course_samples(points) if sample.metric not in known]
    course = _series(points)
    series = outcome.series if outcome.series or course is None else (course,)
    return replace(outcome, samples=(*outcome.samples, *seen), series=series)


def course_samples(points: Sequence[Point]) -> Iterator[Sample]:
    """The worst second and the longest stall; none where they cannot be known.

    A second in which nothing was asked of the disk, or not all the time, is no bad one, and does
    not count.
    """
    stalls = _stalls(points)
    series = _series(points)
    if series is not None and len(series.values) > 1:
        asked = list(itertools.compress(series.values, _asked(points, stalls or [], series)))
        if asked and stalls is not None:
            yield Sample("worst_second", Direction.NONE, min(asked))
    if stalls is not None and len(points) > 1:
        longest = max((end - begin for begin, end in stalls), default=0.0)
        yield Sample("longest_stall", Direction.NONE, longest)


def _series(points: Sequence[Point]) -> Series | None:
    if len(points) < 2:
        return None
    start = points[0].at
    moved = [
        Moved(before.at - start, now.at - start, now.size - before.size)
        for before, now in itertools.pairwise(points)
    ]
    return series_of(Direction.NONE, moved, points[-1].at - start)


def _asked(
    points: Sequence[Point], stalls: Sequence[tuple[float, float]], series: Series
) -> list[bool]:
    """For each second whether the disk was asked for something throughout: completed it, or let it
    wait.

    The guest's own idle time is no fault of the disk: a second of which only the edge lay in a
    time with a completion would else be the worst one, with a few hundred bytes.
    """
    start, busy = points[0].at, [0.0] * len(series.values)
    done = [
        (before.at, now.at)
        for before, now in itertools.pairwise(points)
        if now.operations > before.operations
    ]
    for begin, end in (*done, *stalls):
        for second in range(int(begin - start), min(len(busy), math.ceil(end - start))):
            busy[second] += min(end - start, second + 1) - max(begin - start, second)
    return [share >= _THROUGHOUT for share in busy]


def _stalls(points: Sequence[Point]) -> list[tuple[float, float]] | None:
    """Times without a completion that a request took; None where latencies are not known."""
    if any(point.slow is None for point in points):
        return None
    found = []
    last = points[0] if points else None
    for before, now in itertools.pairwise(points):
        if last is None or now.operations == before.operations:
            continue
        gap = before.at - last.at
        if gap >= SHORTEST_STALL and _took(gap, before, now):
            found.append((last.at, before.at))
        last = now
    return found


def _took(gap: float, before: Point, now: Point) -> bool:
    """True when a request ended between two points that had taken as long as a gap, nearly: by
    the largest bound that is not longer."""
    number = max(place for place, bound in enumerate(_BOUNDS) if bound <= gap)
    if before.slow is None or now.slow is None:
        return False
    return now.slow[number] > before.slow[number]
