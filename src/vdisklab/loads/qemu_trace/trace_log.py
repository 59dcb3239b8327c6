"""A log of QEMU's trace events: `-trace` backend `log`, with or without `-msg timestamp=on`.

    20172@1795873676.828398:virtio_blk_handle_read vdev 0x5622 req 0x5623 sector 0 nsectors 8
    2026-11-28T13:47:56.828398Z virtio_blk_handle_read vdev 0x5622 req 0x5623 sector 0 nsectors 8

The first form is that of scripts/tracetool/backend/log.py for long, the second that of qemu_log in
util/log.c since, which leaves out a fraction of zero. A new bus is one file and one row of TRACED.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from functools import lru_cache
from typing import Protocol

from vdisklab.loads.load import Integers
from vdisklab.loads.qemu_trace import ide, nvme, scsi, virtio_blk
from vdisklab.loads.requests import Requests
from vdisklab.value import Value

LONGEST_LINE = 4096
"""Bytes; what follows is another program's."""

_LINE = re.compile(
    rb"(?:[0-9]{1,10}@([0-9]{1,12})\.([0-9]{6}):"
    rb"|([0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2})(?:\.([0-9]{6}))?Z )?"
    rb"([a-z][a-z0-9_]{2,60}) (.*)"
)
_MOST_US = 1 << 60


class TraceReader(Protocol):
    """Turns the events of one bus into requests."""

    def line(self, event: bytes, text: bytes, at_us: int) -> bool:
        """One event; False if its text is not as QEMU writes it."""

    def finish(self) -> None:
        """The log has ended."""


class TracedBus(Value):
    """How one kind of disk is traced.

    `devices` are the QOM types of its disks. `events` are all needed; `further` are left out where
    a QEMU does not have them. `untold` says what its events do not tell, for a note.
    """

    name: str
    devices: frozenset[str]
    events: tuple[str, ...]
    reader: Callable[[Requests, int], TraceReader]
    further: tuple[str, ...] = ()
    untold: str = ""
    one_place: bool = False
    """True if the disks of a guest cannot be told apart."""
    counts_flushes: bool = True
    """False if `query-blockstats` has no flushes of it."""


def _names(*events: bytes) -> tuple[str, ...]:
    return tuple(event.decode() for event in events)


TRACED = (
    TracedBus(
        "virtio",
        frozenset({"virtio-blk-device"}),
        _names(virtio_blk.BEGIN_READ, virtio_blk.BEGIN_WRITE, virtio_blk.END),
        virtio_blk.VirtioBlkReader,
        further=_names(virtio_blk.TAKEN),
        untold="what discards and write-zeroes covered",
    ),
    TracedBus(
        "scsi",
        frozenset({"scsi-hd", "scsi-disk"}),
        _names(scsi.BEGIN, scsi.COMMAND, scsi.END),
        scsi.ScsiReader,
        untold="what discards covered",
    ),
    TracedBus(
        "nvme",
        frozenset({"nvme", "nvme-ns"}),
        _names(nvme.BEGIN, nvme.READ, nvme.WRITE, nvme.END),
        nvme.NvmeReader,
        further=_names(nvme.DISCARD),
        untold="which writes were forced",
        one_place=True,
        counts_flushes=False,
    ),
    TracedBus(
        "sata",
        frozenset({"ide-hd", "ide-drive"}),
        _names(ide.COMMAND, ide.TRANSFER, ide.QUEUED, ide.QUEUED_END, ide.COMMAND_END),
        ide.IdeReader,
        further=_names(ide.QUEUED_FORCED),
        untold="what discards covered",
    ),
)
"""The buses that are traced."""


class TraceLog(Value):
    """What a log told. `strange` counts lines of the bus's events that could not be read."""

    requests: Requests
    timestamps: bool
    lines: int
    strange: int


class GrowthClock(Value):
    """When a log without timestamps had which size, as somebody looked; both columns grow."""

    size: Integers
    at_us: Integers

    def look_at(self, position: int) -> int:
        """The first look at which the byte at this position was there."""
        found = int(self.size.searchsorted(position, side="right"))
        return int(self.at_us[min(found, len(self.at_us) - 1)])


def read_trace(
    lines: Iterable[bytes],
    bus: TracedBus,
    logical_block: int,
    clock: GrowthClock | None = None,
    until_us: int | None = None,
) -> TraceLog:
    """The requests that a log tells of; lines of other events are left out.

    `clock` gives the times of lines without a timestamp; without one they count as strange. After
    `until_us` the events were being switched off, so no end is missed. Raises LoadError for more
    requests than a load may have.
    """
    requests = Requests(until_us=until_us)
    reader = bus.reader(requests, logical_block)
    events = frozenset(event.encode() for event in (*bus.events, *bus.further))
    position = count = strange = 0
    timestamps = False
    for line in lines:
        position += len(line)
        match = _LINE.match(line, 0, LONGEST_LINE)
        if match is None or match[5] not in events:
            continue
        count += 1
        seconds = _seconds(match[3]) if match[3] else match[1]
        if seconds is not None:
            timestamps = True
            at_us = int(seconds) * 1_000_000 + int(match[2] or match[4] or 0)
        elif clock is not None:
            at_us = clock.look_at(position - 1)
        else:
            strange += 1
            continue
        if at_us > _MOST_US or not reader.line(match[5], match[6], at_us):
            strange += 1
    reader.finish()
    return TraceLog(requests, timestamps, count, strange)


def has_times(start: bytes) -> bool:
    """True if a log whose first line begins so has times."""
    match = _LINE.match(start)
    return match is not None and (match[1] or match[3]) is not None


@lru_cache(maxsize=2)
def _seconds(moment: bytes) -> int | None:
    """Seconds since 1970 of a moment in UTC; None for one that no calendar has."""
    try:
        return int(datetime.fromisoformat(f"{moment.decode()}+00:00").timestamp())
    except ValueError:
        return None


def bus_of(device: str) -> TracedBus | None:
    """How a disk with this QOM type is traced; None if it is not."""
    return _BY_DEVICE.get(device)


_BY_DEVICE: Mapping[str, TracedBus] = {device: bus for bus in TRACED for device in bus.devices}
