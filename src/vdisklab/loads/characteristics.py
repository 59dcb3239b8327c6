"""What a load is like: shares, sizes, runs, depth, bursts, working set, service times; pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np

from vdisklab.loads.load import Flags, Integers, IoKind, RecordedLoad
from vdisklab.value import Value

RECENT = 16
"""A request is sequential if it begins where one of so many of its kind before it ended."""

ALIGNMENT = 4096
"""Bytes: what most file systems and most disks write at once, and a page of most kernels."""

_BINS = 60
_SECOND = 1_000_000
_LIMITS = (1, 10, 60, 600, 3600, 21_600, 86_400)
"""Widths of a row of the series over time, in seconds."""

_LEFT_OVER = 0.1
"""The last part has the rest of the time, if that is less than this share of a part."""


class KindSummary(Value):
    """The requests of one kind. Sizes in bytes, times in seconds; None without such requests, or
    where no end was seen."""

    kind: IoKind
    count: int
    share: float
    per_second: float
    bytes: int
    size_low: int | None
    size_median: int | None
    size_high: int | None
    sequential_share: float | None
    service_p50: float | None
    service_p99: float | None
    service_max: float | None


class IntervalSummary(Value):
    """What began in one part of the time. `busiest` is the most requests in one of its seconds."""

    start_seconds: float
    seconds: float
    reads: int
    writes: int
    flushes: int
    bytes: int
    busiest: int


class SizeCount(Value):
    """The reads and writes that are larger than half of `at_most` bytes and not larger than it."""

    at_most: int
    reads: int
    writes: int


class ServiceCount(Value):
    """The requests that took longer than half of `at_most` seconds and not longer than it."""

    at_most: float
    reads: int
    writes: int
    flushes: int


class LoadCharacteristics(Value):
    """What a load is like.

    Shares are of 1. `writes_per_flush` and `forced_share` are None without flushes or writes.
    `burst` is the most requests that began in one second, `quiet_share` the share of seconds in
    which none began. `touched_bytes` counts each byte once, however often it was asked for;
    `moved_bytes` all. `depth` is of requests in flight, the new one counted.
    """

    requests: int
    seconds: float
    kinds: tuple[KindSummary, ...]
    write_share: float | None
    writes_per_flush: float | None
    forced_share: float | None
    aligned_share: float | None
    per_second: float
    burst: int
    quiet_share: float
    depth_mean: float | None
    depth_p95: int | None
    depth_max: int | None
    moved_bytes: int
    touched_bytes: int
    touched_read: int
    touched_written: int
    rewritten_share: float | None
    intervals: tuple[IntervalSummary, ...]
    sizes: tuple[SizeCount, ...]
    services: tuple[ServiceCount, ...]

    def of(self, kind: IoKind) -> KindSummary:
        """The summary of one kind."""
        return next(each for each in self.kinds if each.kind is kind)

    @property
    def reuse(self) -> float | None:
        """How often the bytes that were asked for at all were asked for, on average."""
        return self.moved_bytes / self.touched_bytes if self.touched_bytes else None


def characteristics_of(load: RecordedLoad) -> LoadCharacteristics:
    """What the load is like. All counts are exact."""
    seconds = load.source.span_us / _SECOND
    kinds = tuple(_kind(load, kind, seconds) for kind in IoKind)
    by_kind = {each.kind: each for each in kinds}
    reads, writes = by_kind[IoKind.READ], by_kind[IoKind.WRITE]
    flushes = by_kind[IoKind.FLUSH].count
    moves = load.moves_data
    written = load.kind == IoKind.WRITE
    touched_written = _touched(load, written)
    depth = load.outstanding()[moves] + 1
    timed = bool(load.is_timed[moves].any())
    within = np.minimum(load.due_us, load.source.span_us - 1)  # the last moment belongs to it
    each_second = np.bincount(within // _SECOND, minlength=max(1, math.ceil(seconds)))
    moved = reads.count + writes.count
    aligned = (load.offset % ALIGNMENT == 0) & (load.length % ALIGNMENT == 0)
    return LoadCharacteristics(
        requests=len(load),
        seconds=seconds,
        kinds=kinds,
        write_share=writes.count / moved if moved else None,
        writes_per_flush=writes.count / flushes if flushes and writes.count else None,
        forced_share=float(load.forced.sum()) / writes.count if writes.count else None,
        aligned_share=float(aligned[moves].mean()) if moved else None,
        per_second=len(load) / seconds,
        burst=int(each_second.max()),
        quiet_share=float((each_second == 0).mean()),
        depth_mean=float(depth.mean()) if timed else None,
        depth_p95=int(np.percentile(depth, 95)) if timed else None,
        depth_max=int(depth.max()) if timed else None,
        moved_bytes=reads.bytes + writes.bytes,
        touched_bytes=_touched(load, moves),
        touched_read=_touched(load, load.kind == IoKind.READ),
        touched_written=touched_written,
        rewritten_share=1 - touched_written / writes.bytes if writes.bytes else None,
        intervals=tuple(_intervals(load, each_second)),
        sizes=tuple(
            SizeCount(at_most, *counts)
            for at_most, counts in _doubling(load, load.length, moves, _MOVING)
        ),
        services=tuple(
            ServiceCount(at_most / _SECOND, *counts)
            for at_most, counts in _doubling(load, load.service_us, load.is_timed, _TIMED)
        ),
    )


_MOVING = (IoKind.READ, IoKind.WRITE)
_TIMED = (*_MOVING, IoKind.FLUSH)


def _doubling(
    load: RecordedLoad, numbers: Integers, chosen: Flags, kinds: Sequence[IoKind]
) -> Iterator[tuple[int, list[int]]]:
    """Counts by powers of two that the numbers do not exceed, from the lowest to the highest that
    has some, for each kind."""
    chosen = chosen & np.isin(load.kind, kinds)
    if not chosen.any():
        return
    powers = np.ceil(np.log2(np.maximum(numbers[chosen], 1))).astype(np.int64)
    by_kind = [
        np.bincount(powers[load.kind[chosen] == kind], minlength=int(powers.max()) + 1)
        for kind in kinds
    ]
    for power in range(int(powers.min()), int(powers.max()) + 1):
        yield 1 << power, [int(counts[power]) for counts in by_kind]


def _kind(load: RecordedLoad, kind: IoKind, seconds: float) -> KindSummary:
    chosen = load.kind == kind
    count = int(chosen.sum())
    lengths = load.length[chosen]
    sized = count and kind is not IoKind.FLUSH
    low, median, high = (
        (int(each) for each in np.percentile(lengths, (10, 50, 90), method="nearest"))
        if sized
        else (None, None, None)
    )
    timed = load.service_us[chosen & load.is_timed] / _SECOND
    p50, p99, most = (
        (float(each) for each in np.percentile(timed, (50, 99, 100)))
        if len(timed)
        else (None, None, None)
    )
    return KindSummary(
        kind=kind,
        count=count,
        share=count / len(load) if len(load) else 0.0,
        per_second=count / seconds,
        bytes=int(lengths.sum()),
        size_low=low,
        size_median=median,
        size_high=high,
        sequential_share=_sequential(load.offset[chosen], lengths) if sized else None,
        service_p50=p50,
        service_p99=p99,
        service_max=most,
    )


def _sequential(offset: Integers, length: Integers) -> float:
    """The share of requests that begin where one of the RECENT before ended: several streams at
    once, such as a log beside a table, are each sequential."""
    end = offset + length
    found = np.zeros(len(offset), np.bool_)
    for back in range(1, min(RECENT, len(offset) - 1) + 1):
        found[back:] |= offset[back:] == end[:-back]
    return float(found.mean())


def _touched(load: RecordedLoad, chosen: Flags) -> int:
    """How many bytes the requests cover, each counted once."""
    start = load.offset[chosen]
    if not len(start):
        return 0
    order = np.argsort(start, kind="stable")
    start = start[order]
    covered = np.maximum.accumulate(start + load.length[chosen][order])
    before = np.concatenate(([start[0]], covered[:-1]))
    return int((covered - np.maximum(start, np.minimum(before, covered))).clip(min=0).sum())


def _intervals(load: RecordedLoad, each_second: Integers) -> Iterator[IntervalSummary]:
    seconds = load.source.span_us / _SECOND
    width = next((each for each in _LIMITS if seconds / each <= _BINS), _LIMITS[-1])
    count = max(1, math.ceil(seconds / width - _LEFT_OVER))
    edges = np.arange(count) * width
    places = [*np.searchsorted(load.due_us, edges * _SECOND), len(load)]
    ends = [*edges[1:], math.ceil(seconds)]
    for index, (first, last) in enumerate(pairwise(places)):
        kinds = np.bincount(load.kind[first:last], minlength=len(IoKind))
        moved = load.moves_data[first:last]
        busy = each_second[int(edges[index]) : int(ends[index])]
        yield IntervalSummary(
            start_seconds=float(edges[index]),
            seconds=float(min(ends[index], seconds) - edges[index]),
            reads=int(kinds[IoKind.READ]),
            writes=int(kinds[IoKind.WRITE]),
            flushes=int(kinds[IoKind.FLUSH]),
            bytes=int(load.length[first:last][moved].sum()),
            busiest=int(busy.max()) if len(busy) else 0,
        )
