"""What a guest's disk moves meanwhile, as QEMU counts it.

Bytes and operations are those that QEMU completed for the guest (query-blockstats). A time in which
it completed nothing is a stall only if a request took that long, which QEMU's own histogram of
latencies tells (block-latency-histogram-set): otherwise the guest had asked for nothing.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vdisklab.campaign.time_series import SHORTEST_STALL, Span, TimeSeries
from vdisklab.errors import GuestError
from vdisklab.guest.qemu.block_nodes import AttachedNames
from vdisklab.guest.qemu.qmp import Channel
from vdisklab.progress import Progress, Throughput

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

    def __init__(self, monitor: Channel, serial: str, progress: Progress) -> None:
        self._monitor = monitor
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

    def __call__(self, process: int | None = None) -> None:
        """Looks once more."""
        del process  # of the program in the guest; QEMU knows what the disk did for it
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

    def end(self) -> TimeSeries:
        """All that was seen since the beginning, this moment included."""
        self._look()
        return course_of(self._points)

    def _look(self) -> None:
        _, stats = self._stats()
        if stats is not None:
            self._points.append(point_of(stats, time.monotonic()))

    def _stats(self) -> tuple[str | None, Mapping[str, Any] | None]:
        for block in self._monitor.execute("query-blockstats"):
            qdev = str(block.get("qdev", ""))
            if self._device in qdev.split("/"):
                return qdev, block["stats"]
        return None, None

    def _ask_for_histograms(self, qdev: str) -> None:
        bounds = [round(bound * 1e9) for bound in _BOUNDS]
        arguments = {"id": qdev, "boundaries": bounds}
        try:
            self._monitor.execute("block-latency-histogram-set", arguments)
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


def course_of(points: Sequence[Point]) -> TimeSeries:
    """What the points say."""
    busy = [
        (before.at, now.at)
        for before, now in itertools.pairwise(points)
        if now.operations > before.operations
    ]
    moved = tuple((point.at, point.size) for point in points)
    return TimeSeries(moved, tuple(busy), _stalls(points))


def _stalls(points: Sequence[Point]) -> tuple[Span, ...] | None:
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
    return tuple(found)


def _took(gap: float, before: Point, now: Point) -> bool:
    """True when a request ended between two points that had taken as long as a gap, nearly: by
    the largest bound that is not longer."""
    number = max(place for place, bound in enumerate(_BOUNDS) if bound <= gap)
    if before.slow is None or now.slow is None:
        return False
    return now.slow[number] > before.slow[number]
