"""The plan of a replay, for the program that does the requests: pure.

Two ways to replay need two things of each request: when it was due, and what it waited for. A
request waits for all requests that had ended before it began; then passes its think time, the time
from the last such end to its begin. So no more requests are in flight than were, a flush follows
the writes that it made lasting, and what a client did between two requests takes as long. Accurate
replay by such dependencies: hfplayer (Haghdoost et al., FAST 2017).

The binary form is described in `workload/programs/replay.c`, which reads it.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from vdisklab.loads.folding import Folded
from vdisklab.loads.load import Integers, IoKind, RecordedLoad
from vdisklab.value import Value

_MAGIC = b"VDLPLAN2"
_FORCED = 5
_MOST_32 = (1 << 32) - 1
_AT_ONCE_US = 20_000
"""An emulated guest's database thinks so long between a flush and a write."""

_HEADER = np.dtype(
    [("magic", "S8"), ("count", "<u8"), ("largest", "<u8"), ("depth", "<u8"), ("span", "<u8")]
)
_REQUEST = np.dtype(
    [
        ("offset", "<u8"), ("due", "<u4"), ("think", "<u4"), ("length", "<u4"), ("after", "<u4"),
        ("rank", "<u4"), ("barrier", "<u4"), ("kind", "<u4"),
    ]
)  # fmt: skip


class Dependencies(Value, eq=False):
    """What each request waits for: the first `after` requests to end, then `think_us`.

    `rank` is each request's own place in the order of ends. `barrier`: the first so many requests
    to end are also waited for by a request that begins when it was due; 0 for none.
    """

    after: Integers
    think_us: Integers
    rank: Integers
    barrier: Integers


def dependencies(load: RecordedLoad) -> Dependencies:
    """What each request of a load waited for.

    A request whose end was not seen is taken to end last: nothing waits for it. Of a flush without
    one its end alone was seen, which stands for its beginning.
    """
    ends = load.due_us + np.maximum(load.service_us, 1)
    has_end = load.is_timed | (load.kind == IoKind.FLUSH)
    ends = np.where(has_end, ends, load.source.span_us + np.int64(1) + ends.max(initial=0))
    order = np.argsort(ends, kind="stable")
    rank = np.empty(len(load), np.int64)
    rank[order] = np.arange(len(load))
    ordered = np.concatenate((np.zeros(1, np.int64), ends[order]))
    after = np.searchsorted(ordered[1:], load.due_us, side="right").astype(np.int64)
    barrier = _barriers(load, after, rank, ordered)
    return Dependencies(after, load.due_us - ordered[after], rank, barrier)


def _barriers(load: RecordedLoad, after: Integers, rank: Integers, ordered: Integers) -> Integers:
    """How many requests have to end before one begins that is due.

    A flush waits for all that had ended: else it would flush less. So does a request that began
    within 20 ms of the last end before it, or within the time that this request took: its client
    had waited for it, and what ends late ends late by a share of its time. Otherwise a late replay
    would have two requests in flight where the client had one. In the same way what began soon
    after the end of the last flush waits for the flush, whatever else ended meanwhile. `ordered`
    has the moments of the ends in their order, after a 0.
    """
    if not len(load):
        return after
    is_flush = load.kind == IoKind.FLUSH
    due_by_rank = np.empty(len(load), np.int64)
    due_by_rank[rank] = load.due_us

    def follows(number: Integers) -> npt.NDArray[np.bool_]:
        """True if a request began soon after the last of the first `number` ends."""
        end = ordered[number]
        took = end - due_by_rank[number - 1]
        is_soon = load.due_us - end <= np.maximum(_AT_ONCE_US, took)
        return np.asarray((number > 0) & is_soon, np.bool_)

    flushes = np.concatenate((np.zeros(1, np.int64), np.sort(rank[is_flush]) + 1))
    flushed = flushes[np.searchsorted(flushes[1:], after, side="right")]
    barrier = np.where(follows(flushed), flushed, 0)
    return np.asarray(np.where(is_flush | follows(after), after, barrier), np.int64)


def least_seconds(load: RecordedLoad) -> float:
    """How long a replay as fast as it goes takes if every request takes no time: think times."""
    waits = dependencies(load)
    by_rank, latest, ended = [0] * len(load), 0, 0
    columns = (waits.after.tolist(), waits.think_us.tolist(), waits.rank.tolist())
    for after, think, rank in zip(*columns, strict=True):
        # What a request waits for stands before it, so its moments are known.
        latest = max(latest, max(by_rank[ended:after], default=0))
        ended = after
        by_rank[rank] = latest + think
    return max(by_rank, default=0) / 1e6


def recorded_depth(load: RecordedLoad) -> int:
    """How many requests were in flight at once, at most; at least 1."""
    return 1 + int(load.outstanding().max(initial=0))


def encode_plan(load: RecordedLoad, places: Folded) -> bytes:
    """The plan of a replay at these places, in the program's form."""
    waits = dependencies(load)
    requests = np.empty(len(load), _REQUEST)
    requests["offset"] = places.offset
    requests["due"] = np.minimum(load.due_us, _MOST_32)
    requests["think"] = np.minimum(waits.think_us, _MOST_32)
    requests["length"] = places.length
    requests["after"] = waits.after
    requests["rank"] = waits.rank
    requests["barrier"] = waits.barrier
    forced = load.forced & (load.kind == IoKind.WRITE)
    requests["kind"] = np.where(forced, _FORCED, load.kind)
    largest = int(places.length[load.moves_data].max(initial=0))
    span = load.source.span_us
    header = np.array([(_MAGIC, len(load), largest, recorded_depth(load), span)], _HEADER)
    return header.tobytes() + requests.tobytes()
