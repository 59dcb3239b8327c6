"""Follows a measurement from outside: QEMU's counters of a disk, the kernel's of a process.

In a guest, QEMU counts the bytes and operations that it completed (query-blockstats). A pause is a
stall only if a request took that long, which QEMU's latency histogram shows
(block-latency-histogram-set); otherwise the guest had requested nothing.

On the host, the kernel counts the bytes that a program made a device read or write, without those
of the page cache. A pause is a stall if at every sample one of the program's threads was in
uninterruptible sleep, the state of a thread that waits for a disk or for fsync(2).

The time series of a watch give the values that a program does not report.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from vdisklab.errors import GuestError, HostError, ServerGoneError
from vdisklab.guest.qemu.block_nodes import AttachedNames
from vdisklab.guest.qemu.daemons import ended
from vdisklab.guest.qemu.qmp import Channel
from vdisklab.host.counters import Activity, children_storage_bytes, tree_activity
from vdisklab.host.mounts import mount_of
from vdisklab.progress import Progress, Throughput
from vdisklab.results.model import Direction, Sample, Series
from vdisklab.value import Value, replace
from vdisklab.workload.program import Moved, ProgramResult, series_of

_STILL_SECONDS = 10.0
"""How long a disk may stand still before its server is asked."""

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


_BOUNDS = (0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0)


class TimeSeries(Value):
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
    """The outcome with the samples and series that its program did not report."""
    reported = {sample.metric for sample in outcome.samples}
    short = outcome.measured_seconds is not None and outcome.measured_seconds <= _ONE_SECOND
    own_worst = _bandwidths(outcome) if short else ()
    observed = (*(own_worst or worst_second_of(measured, short=short)), *longest_stall_of(measured))
    added = [sample for sample in observed if sample.metric not in reported]
    series = None if short else _series(measured)
    all_series = outcome.series
    if series is not None and all(other.metric != series.metric for other in all_series):
        all_series = (*all_series, series)
    return replace(outcome, samples=(*outcome.samples, *added), series=all_series)


def _bandwidths(outcome: ProgramResult) -> tuple[Sample, ...]:
    """For a program that ran for a second at most: the worst second is its bandwidth."""
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
    """The disk's busy spans, in order; short pauses are included."""
    spans: list[Span] = []
    for begin, end in sorted((*measured.busy, *(measured.stalls or ()))):
        if spans and begin - spans[-1][1] < _NO_PAUSE:
            spans[-1] = (spans[-1][0], max(end, spans[-1][1]))
        else:
            spans.append((begin, end))
    return spans


def _busy(measured: TimeSeries, seconds: int) -> list[float]:
    """The share of each second in which the disk was busy.

    Without this, an idle second with a few hundred bytes at its edge would count as the worst one.
    """
    start, busy = measured.moved[0][0], [0.0] * seconds
    for begin, end in _spans(measured):
        for second in range(int(begin - start), min(seconds, math.ceil(end - start))):
            until = min(end - start, second + 1)
            busy[second] += max(0.0, until - max(begin - start, second))
    return busy


class DiskPoint(Value):
    """A disk's counters at a moment, in seconds of a clock.

    `slow` has, for each of `_BOUNDS`, the number of requests that took at least that long; None if
    QEMU does not say. `waited` is how many seconds QEMU took to answer: libssh waits for a server
    in QEMU's main loop (sftp_write in its src/sftp.c), so nothing completes and nobody counts.
    """

    moment: float
    size: int
    operations: int
    slow: tuple[int, ...] | None
    waited: float = 0.0


class _Stillness:
    """Asks for the server of a disk that stands still; `unanswered` says why it does not answer.

    A hard NFS mount and QEMU's drivers for iSCSI and NFS wait for a server for ever. NFS has no
    option against it; iSCSI repeats what timed out seven times (block/iscsi.c, iscsi_retry_times).
    """

    def __init__(self, unanswered: Callable[[], HostError | None]) -> None:
        self._unanswered = unanswered
        self._done = -1
        self._since = self._seen = math.inf

    def look(self, moment: float, done: int) -> None:
        """Notes what the disk had done at a moment. Raises ServerGoneError."""
        if done != self._done:
            self._done, self._since = done, min(moment, self._seen)
        self._seen = moment
        if moment - self._since >= _STILL_SECONDS:
            gone = self._unanswered()
            self._since = moment
            if gone is not None:
                raise ServerGoneError(gone.message, hint=gone.hint) from gone


class DiskWatch:
    """Follows one disk of a running guest, and reports its throughput as progress.

    `unanswered` says why the disk's server does not answer, None if it does.
    """

    def __init__(
        self,
        monitor: Channel,
        names: AttachedNames,
        progress: Progress,
        unanswered: Callable[[], HostError | None] = lambda: None,
    ) -> None:
        self._monitor = monitor
        self._device = names.device
        self._progress = progress
        self._unanswered = unanswered
        self._stillness = _Stillness(unanswered)
        self._points: list[DiskPoint] = []

    def begin(self) -> None:
        """Starts a new series at this moment."""
        if not self._points:
            qdev, _ = self._stats()
            if qdev is not None:
                self._request_histograms(qdev)
        self._points, self._stillness = [], _Stillness(self._unanswered)
        self._sample()

    def __call__(self, process: int | None = None) -> None:
        """Takes another sample. Raises ServerGoneError."""
        del process  # the program runs in the guest; QEMU knows what the disk did for it
        self._sample()
        if len(self._points) < 2:
            return
        before, now = self._points[-2:]
        # Zero before the first request is no throughput; zero after it is a stall.
        if now.moment > before.moment and now.operations > self._points[0].operations:
            seconds = now.moment - before.moment
            operations = (now.operations - before.operations) / seconds
            self._progress(Throughput((now.size - before.size) / seconds, operations))
        self._stillness.look(now.moment, now.operations)

    def end(self) -> TimeSeries:
        """The series since `begin`, with a last sample."""
        self._sample()
        return disk_series(self._points)

    def _sample(self) -> None:
        asked = time.monotonic()
        _, stats = self._stats()
        if stats is not None:
            answered = time.monotonic()
            self._points.append(disk_point(stats, answered, answered - asked))

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


def disk_point(stats: Mapping[str, Any], moment: float, waited: float = 0.0) -> DiskPoint:
    """A sample from one disk's part of query-blockstats."""
    operations = sum(stats[f"{kind}_operations"] for kind in ("rd", "wr", "flush"))
    return DiskPoint(
        moment, stats["rd_bytes"] + stats["wr_bytes"], operations, _slow(stats), waited
    )


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
        (before.moment, now.moment)
        for before, now in itertools.pairwise(points)
        if now.operations > before.operations
    ]
    moved = tuple((point.moment, point.size) for point in points)
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
        for gap, end in ((before.moment - last.moment, before.moment), (now.waited, now.moment)):
            if gap >= SHORTEST_STALL and _request_took(gap, before, now):
                stalls.append((end - gap, end))
        last = now
    return tuple(stalls)


def _request_took(gap: float, before: DiskPoint, now: DiskPoint) -> bool:
    """True when a request completed between two samples took about as long as the gap, by the
    largest bound that is not longer."""
    number = max(place for place, bound in enumerate(_BOUNDS) if bound <= gap)
    if before.slow is None or now.slow is None:
        return False
    return now.slow[number] > before.slow[number]


class ProgramPoint(Value):
    """A program's activity at a moment, in seconds of a clock; None is unknown."""

    moment: float
    activity: Activity | None


class ProgramWatch:
    """Follows a host program and its children, and reports their throughput as progress.

    `shows_waiting` is False if a thread that waits for its file system looks like an idle one.
    `unanswered` says why the server of its files does not answer, None if it does.
    """

    def __init__(
        self,
        progress: Progress,
        unanswered: Callable[[], HostError | None] = lambda: None,
        *,
        shows_waiting: bool = True,
        activity_of: Callable[[int], Activity | None] = tree_activity,
        ended_bytes: Callable[[], int] = children_storage_bytes,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._progress = progress
        self._unanswered = unanswered
        self._stillness = _Stillness(unanswered)
        self._shows_waiting = shows_waiting
        self._activity_of = activity_of
        self._ended_bytes = ended_bytes
        self._clock = clock
        self._began = (0.0, 0)
        self._points: list[ProgramPoint] = []

    def begin(self) -> None:
        """Starts a new series at this moment."""
        self._began = (self._clock(), self._ended_bytes())
        self._points, self._stillness = [], _Stillness(self._unanswered)

    def __call__(self, process: int | None = None) -> None:
        """Takes another sample of the program with this process number. Raises ServerGoneError."""
        if process is None:
            return
        self._points.append(ProgramPoint(self._clock(), self._activity_of(process)))
        if len(self._points) < 2:
            return
        before, now = self._points[-2:]
        if before.activity is None or now.activity is None or now.moment <= before.moment:
            return
        size = max(0, now.activity.storage_bytes - before.activity.storage_bytes)
        if now.activity.storage_bytes:  # without a byte so far it may read the page cache
            self._progress(Throughput(size / (now.moment - before.moment), None))
        self._stillness.look(now.moment, now.activity.progress)

    def end(self) -> TimeSeries:
        """The series since `begin`; call it after the program has been waited for."""
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
    points: Sequence[ProgramPoint], began: float, ended: tuple[float, int], *, shows_waiting: bool
) -> TimeSeries:
    """The series of a program since `began`; `ended` is the end's moment and the total bytes."""
    moved = [(began, 0)]
    for point in points:
        # While a child exits, its bytes are counted neither for it nor for its parent.
        size = 0 if point.activity is None else point.activity.storage_bytes
        moved.append((point.moment, max(size, moved[-1][1])))
    moved.append((ended[0], max(ended[1], moved[-1][1])))
    busy = tuple((begin, end) for (begin, less), (end, more) in itertools.pairwise(moved)
                 if more > less)  # fmt: skip
    is_counted = shows_waiting and all(point.activity is not None for point in points)
    return TimeSeries(tuple(moved), busy, tuple(_program_stalls(points)) if is_counted else None)


def _program_stalls(points: Sequence[ProgramPoint]) -> list[Span]:
    stalls = []
    for _, unchanged in itertools.groupby(points, _state):
        span = list(unchanged)
        if _waits(span[0]) and span[-1].moment - span[0].moment >= SHORTEST_STALL:
            stalls.append((span[0].moment, span[-1].moment))
    return stalls


def _waits(point: ProgramPoint) -> bool:
    return point.activity is not None and point.activity.waits


def _state(point: ProgramPoint) -> tuple[bool, int]:
    """A value that changes when the program makes progress, and when it starts or stops waiting."""
    return _waits(point), -1 if point.activity is None else point.activity.progress


class DaemonWatch:
    """Follows the process that serves a guest: its traffic with the storage, and its end.

    If the process ends, the measurement ends at once: otherwise the guest would wait for ever.
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
        if end > begin and more > self._points[0][1]:
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
