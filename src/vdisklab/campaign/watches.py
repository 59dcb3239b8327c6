"""Follows a measurement from outside: QEMU's counters of a disk, the kernel's of a process.

In a guest, QEMU counts the bytes and operations that it completed (query-blockstats). A pause is a
stall only if a request took that long, which QEMU's latency histogram shows
(block-latency-histogram-set); otherwise the guest had requested nothing.

On the host, the kernel counts the bytes that a program made a device read or write, without those
of the page cache. A pause is a stall if one of the program's threads was in uninterruptible
sleep at every sample, as threads are that wait for a disk or for fsync(2).
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vdisklab.campaign.time_series import SHORTEST_STALL, Span, TimeSeries
from vdisklab.errors import GuestError
from vdisklab.guest.hotplug import ended
from vdisklab.guest.qemu.block_nodes import AttachedNames
from vdisklab.guest.qemu.qmp import Channel
from vdisklab.host.counters import Activity, children_storage_bytes, tree_activity
from vdisklab.host.mounts import mount_of
from vdisklab.progress import Progress, Throughput

_BOUNDS = (0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0)


@dataclass(frozen=True, slots=True)
class DiskPoint:
    """A disk's counters at a moment, in seconds of a clock.

    `slow` has, for each of `_BOUNDS`, the number of requests that took at least that long; None if
    QEMU does not say.
    """

    at: float
    size: int
    operations: int
    slow: tuple[int, ...] | None


class DiskWatch:
    """Follows one disk of a running guest, and reports its throughput as progress."""

    def __init__(self, monitor: Channel, names: AttachedNames, progress: Progress) -> None:
        self._monitor = monitor
        self._device = names.device
        self._progress = progress
        self._points: list[DiskPoint] = []

    def begin(self) -> None:
        """Starts a new series at this moment."""
        if not self._points:
            qdev, _ = self._stats()
            if qdev is not None:
                self._request_histograms(qdev)
        self._points = []
        self._sample()

    def __call__(self, process: int | None = None) -> None:
        """Takes another sample."""
        del process  # the program runs in the guest; QEMU knows what the disk did for it
        self._sample()
        if len(self._points) < 2:
            return
        before, now = self._points[-2:]
        if now.at > before.at:
            seconds = now.at - before.at
            operations = (now.operations - before.operations) / seconds
            self._progress(Throughput((now.size - before.size) / seconds, operations))

    def end(self) -> TimeSeries:
        """The series since `begin`, with a last sample."""
        self._sample()
        return disk_series(self._points)

    def _sample(self) -> None:
        _, stats = self._stats()
        if stats is not None:
            self._points.append(disk_point(stats, time.monotonic()))

    def _stats(self) -> tuple[str | None, Mapping[str, Any] | None]:
        for block in self._monitor.execute("query-blockstats"):
            qdev = str(block.get("qdev", ""))
            if self._device in qdev.split("/"):
                return qdev, block["stats"]
        return None, None

    def _request_histograms(self, qdev: str) -> None:
        bounds = [round(bound * 1e9) for bound in _BOUNDS]
        arguments = {"id": qdev, "boundaries": bounds}
        try:
            self._monitor.execute("block-latency-histogram-set", arguments)
        except GuestError:
            return  # this QEMU has no histograms: stalls are unknown, and stay missing


def disk_point(stats: Mapping[str, Any], at: float) -> DiskPoint:
    """A sample from one disk's part of query-blockstats."""
    operations = sum(stats[f"{kind}_operations"] for kind in ("rd", "wr", "flush"))
    return DiskPoint(at, stats["rd_bytes"] + stats["wr_bytes"], operations, _slow(stats))


def _slow(stats: Mapping[str, Any]) -> tuple[int, ...] | None:
    histograms = [stats.get(f"{kind}_latency_histogram") for kind in ("rd", "wr", "flush")]
    if any(
        histogram is None or len(histogram["bins"]) != len(_BOUNDS) + 1 for histogram in histograms
    ):
        return None
    counts = [
        sum(bins)
        for bins in zip(*(histogram["bins"] for histogram in histograms if histogram), strict=True)
    ]
    return tuple(sum(counts[number + 1 :]) for number in range(len(_BOUNDS)))


def disk_series(points: Sequence[DiskPoint]) -> TimeSeries:
    """The series of some samples of a disk."""
    busy = [
        (before.at, now.at)
        for before, now in itertools.pairwise(points)
        if now.operations > before.operations
    ]
    moved = tuple((point.at, point.size) for point in points)
    return TimeSeries(moved, tuple(busy), _disk_stalls(points))


def _disk_stalls(points: Sequence[DiskPoint]) -> tuple[Span, ...] | None:
    """Pauses in which a request waited throughout; None if latencies are unknown."""
    if any(point.slow is None for point in points):
        return None
    stalls = []
    last = points[0] if points else None
    for before, now in itertools.pairwise(points):
        if last is None or now.operations == before.operations:
            continue
        gap = before.at - last.at
        if gap >= SHORTEST_STALL and _request_took(gap, before, now):
            stalls.append((last.at, before.at))
        last = now
    return tuple(stalls)


def _request_took(gap: float, before: DiskPoint, now: DiskPoint) -> bool:
    """True when a request completed between two samples took about as long as the gap, by the
    largest bound that is not longer."""
    number = max(place for place, bound in enumerate(_BOUNDS) if bound <= gap)
    if before.slow is None or now.slow is None:
        return False
    return now.slow[number] > before.slow[number]


@dataclass(frozen=True, slots=True)
class ProgramPoint:
    """A program's activity at a moment, in seconds of a clock; None is unknown."""

    at: float
    activity: Activity | None


class ProgramWatch:
    """Follows a host program and its children, and reports their throughput as progress.

    `shows_waiting` is False if a thread that waits for its file system looks like an idle one.
    """

    def __init__(
        self,
        progress: Progress,
        *,
        shows_waiting: bool = True,
        activity_of: Callable[[int], Activity | None] = tree_activity,
        ended_bytes: Callable[[], int] = children_storage_bytes,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._progress = progress
        self._shows_waiting = shows_waiting
        self._activity_of = activity_of
        self._ended_bytes = ended_bytes
        self._clock = clock
        self._began = (0.0, 0)
        self._points: list[ProgramPoint] = []

    def begin(self) -> None:
        """Starts a new series at this moment."""
        self._began = (self._clock(), self._ended_bytes())
        self._points = []

    def __call__(self, process: int | None = None) -> None:
        """Takes another sample of the program with this process number."""
        if process is None:
            return
        self._points.append(ProgramPoint(self._clock(), self._activity_of(process)))
        if len(self._points) < 2:
            return
        before, now = self._points[-2:]
        if before.activity is None or now.activity is None or now.at <= before.at:
            return
        size = max(0, now.activity.storage_bytes - before.activity.storage_bytes)
        self._progress(Throughput(size / (now.at - before.at), None))

    def end(self) -> TimeSeries:
        """The series since `begin`. The total is known only now that the program was waited for."""
        began, ended_before = self._began
        total = self._ended_bytes() - ended_before
        ended = (self._clock(), total)
        return program_series(self._points, began, ended, shows_waiting=self._shows_waiting)


def shows_waiting(directory: Path) -> bool:
    """False for FUSE: a thread that waits for its server sleeps interruptibly
    (fs/fuse/dev.c, request_wait_answer)."""
    mount = mount_of(directory)
    return mount is None or not mount.filesystem.startswith("fuse")


def program_series(
    points: Sequence[ProgramPoint],
    began: float,
    ended: tuple[float, int],
    *,
    shows_waiting: bool,
) -> TimeSeries:
    """The series of a program from `began` on; `ended` is when, and after how many bytes."""
    moved = [(began, 0)]
    for point in points:
        # While a child exits, its bytes are counted neither for it nor for its parent.
        size = 0 if point.activity is None else point.activity.storage_bytes
        moved.append((point.at, max(size, moved[-1][1])))
    moved.append((ended[0], max(ended[1], moved[-1][1])))
    busy = tuple((begin, end) for (begin, less), (end, more) in itertools.pairwise(moved)
                 if more > less)  # fmt: skip
    known = shows_waiting and all(point.activity is not None for point in points)
    return TimeSeries(tuple(moved), busy, tuple(_program_stalls(points)) if known else None)


def _program_stalls(points: Sequence[ProgramPoint]) -> list[Span]:
    stalls = []
    for _, unchanged in itertools.groupby(points, _state):
        span = list(unchanged)
        if _waits(span[0]) and span[-1].at - span[0].at >= SHORTEST_STALL:
            stalls.append((span[0].at, span[-1].at))
    return stalls


def _waits(point: ProgramPoint) -> bool:
    return point.activity is not None and point.activity.waits


def _state(point: ProgramPoint) -> tuple[bool, int]:
    """A value that changes when the program makes progress, and when it starts or stops waiting."""
    return _waits(point), -1 if point.activity is None else point.activity.progress


class DaemonWatch:
    """Follows the process that serves a guest: its traffic with the storage, and its end.

    Without it the guest would wait for its requests without end, so a measurement ends at once.
    """

    def __init__(
        self, program: str, pid: int, alive: Callable[[], bool], progress: Progress
    ) -> None:
        self._program = program
        self._pid = pid
        self._alive = alive
        self._progress = progress
        self._points: list[tuple[float, int]] = []

    def begin(self) -> None:
        """Starts a new series at this moment."""
        self._points = []
        self._sample()

    def __call__(self, process: int | None = None) -> None:
        """Takes another sample. Raises GuestError if the daemon has ended."""
        del process  # the program runs in the guest
        if not self._alive():
            raise ended(self._program)
        self._sample()
        (begin, less), (end, more) = self._points[-2:] if len(self._points) > 1 else ((0, 0),) * 2
        if end > begin:
            self._progress(Throughput((more - less) / (end - begin), None))

    def end(self) -> TimeSeries:
        """The series since `begin`; the daemon has no histogram, so stalls are unknown."""
        self._sample()
        busy = tuple(
            (begin, end)
            for (begin, less), (end, more) in itertools.pairwise(self._points)
            if more > less
        )
        return TimeSeries(tuple(self._points), busy, None)

    def _sample(self) -> None:
        activity = tree_activity(self._pid)
        if activity is not None:
            self._points.append((time.monotonic(), activity.storage_bytes))
