"""The minutes of a long recording that stand for it: the busiest one, and a typical one."""

from __future__ import annotations

from enum import StrEnum

import numpy as np

from vdisklab.loads.load import Integers, IoKind, RecordedLoad
from vdisklab.value import Value

_MOST_WINDOWS = 4096
_SECOND = 1_000_000


class Part(StrEnum):
    """Which part of a recording is meant."""

    WHOLE = "whole"
    BUSIEST = "busiest"
    TYPICAL = "typical"


class Cut(Value):
    """The part of a recording from `begin_us` on and before `end_us`, of `span_us`."""

    part: Part
    begin_us: int
    end_us: int
    span_us: int

    def __str__(self) -> str:
        if self.part is Part.WHOLE:
            return f"the whole recording, {self.span_us / _SECOND:.0f} s"
        begin, end = self.begin_us / _SECOND, self.end_us / _SECOND
        return f"the {self.part} part, {begin:.0f} to {end:.0f} s of {self.span_us / _SECOND:.0f} s"


def cut(load: RecordedLoad, part: Part, seconds: float) -> Cut:
    """The part of a load, `seconds` long; the whole load if it is no longer.

    The busiest has the most requests. The typical one is the window that is nearest to the median
    of all windows with requests, in reads, writes and flushes and in bytes read and written, all as
    logarithms. A part `whole` of a longer load is its typical one.
    """
    span, length = load.source.span_us, max(1, round(seconds * _SECOND))
    if span <= length or not len(load):
        return Cut(Part.WHOLE, 0, span, span)
    # Windows overlap by half, so that a burst is not cut in two everywhere.
    step = max(length // 2, -(-(span - length) // _MOST_WINDOWS), 1)
    begins = np.append(np.arange(0, span - length, step, dtype=np.int64), span - length)
    counted = _counts(load, begins, begins + length)
    requests = counted[:, :3].sum(axis=1)
    if part is Part.BUSIEST:
        begin = int(begins[np.argmax(requests)])
        return Cut(Part.BUSIEST, begin, begin + length, span)
    logs = np.log1p(counted[requests > 0].astype(float))
    distance = np.abs(logs - np.median(logs, axis=0)).sum(axis=1)
    begin = int(begins[requests > 0][np.argmin(distance)])
    return Cut(Part.TYPICAL, begin, begin + length, span)


def _counts(load: RecordedLoad, begins: Integers, ends: Integers) -> Integers:
    """By window: reads, other requests, flushes, bytes read, bytes written or discarded."""
    reads, flushes = load.kind == IoKind.READ, load.kind == IoKind.FLUSH
    others = ~reads & ~flushes
    columns = (reads, others, flushes, load.length * reads, load.length * others)
    first, last = np.searchsorted(load.due_us, (begins, ends))
    rows = []
    for column in columns:
        sums = np.concatenate(([0], np.cumsum(column, dtype=np.int64)))
        rows.append(sums[last] - sums[first])
    return np.stack(rows, axis=1)
