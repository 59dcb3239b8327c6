"""Flushes that reached a disk while a client wrote, and those that nobody asked for. Pure.

Somebody else's sync makes durable what the client was not yet promised, and so may hide what a path
loses. Each promise is judged at its own position, where a later flush does not help it; but one
that comes between a write and its acknowledgement does.
"""

from __future__ import annotations

from collections.abc import Sequence

from vdisklab.powercut.recording.log import Entry
from vdisklab.powercut.recording.trace import ClientKind, Trace


def count_flushes(trace: Trace, entries: Sequence[Entry]) -> int:
    """Flushes in the log while the client ran, whoever sent them."""
    return sum(entry.flushes for entry in entries[trace.begin : trace.end])


def unasked_flushes(trace: Trace, entries: Sequence[Entry], *, writes_flush: bool) -> int:
    """Flushes in the log while no request of the client's could have caused them.

    A flush of the client's may cause any between its sending and its acknowledgement, and so may
    a write with FUA, or any write to a device without a write cache (`writes_flush`). What is left
    is somebody else's sync, a commit by the file system's clock, or QEMU ordering the metadata of
    an image format.
    """
    asked = [*trace.flushes]
    if writes_flush or trace.client is ClientKind.FUA:
        asked += [
            (write.submitted, trace.end if write.acked is None else write.acked)
            for write in trace.writes
        ]
    flushes = [at for at in range(trace.begin, trace.end) if entries[at].flushes]
    return sum(1 for at in flushes if not any(first <= at < last for first, last in asked))
