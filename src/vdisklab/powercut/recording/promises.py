"""Writes to a disk like a guest, and records which writes were promised to be durable, and when."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

from vdisklab.powercut.recording.trace import FIRST_VERSION, Write
from vdisklab.powercut.sectors import Extent
from vdisklab.powercut.vocabulary import ClientKind

DEFAULT_WRITES = 80
"""Number of writes in a run: enough for flushes between writes to many places."""

_SIZES = (1, 8, 8, 8, 8, 16, 64, 128)
_ALIGNMENT = 8
_HOT_SHARE = 16


class ClientDisk(Protocol):
    """A client's access to the disk: over NBD, in a guest, as a database, from a boot sector."""

    @property
    def seen(self) -> Mapping[str, str]:
        """Properties of the disk that were read back."""

    def write(self, first: int, count: int, version: int, *, fua: bool) -> int:
        """Sends a write of sectors with that version; returns the request's number."""

    def flush(self) -> int:
        """Sends a flush; returns the request's number."""

    def await_one(self) -> int:
        """Waits for an acknowledgement; returns the request's number."""


class ReadableDisk(ClientDisk, Protocol):
    """A `ClientDisk` whose sectors can be read back."""

    def read(self, extent: Extent) -> bytes:
        """Reads sectors; no other request may be in flight."""


class MidRun(Protocol):
    """Something that happens to the disk in the middle of a run, while the client writes."""

    @property
    def added_sectors(self) -> int:
        """The number of sectors by which it makes the disk larger."""

    def start(self) -> None:
        """Begins it."""

    def finish(self, client: ClientDisk) -> None:
        """Ends it, and returns when it has ended and the client can go on."""


class Tail(Protocol):
    """The end of the log as a growing number; a value read after an answer includes that
    request."""

    def position(self) -> int:
        """The position now."""


@dataclass(frozen=True, slots=True)
class Load:
    """The client's load. `depth` requests are in flight; `seed` decides sizes and places."""

    kind: ClientKind
    writes: int = DEFAULT_WRITES
    flush_every: int = 4
    depth: int = 1
    seed: int = 1
    max_sectors: int = 128


def write_extents(load: Load, sectors: int) -> Iterator[Extent]:
    """The extent of each write: mixed sizes, with half of the writes in one sixteenth of the disk.

    The hot area causes overwrites; writes elsewhere make a thin image grow. A database chooses its
    own places, so its extents are empty.
    """
    if load.kind.is_database:
        yield from itertools.repeat(Extent(0, 0), load.writes)
        return
    rng = random.Random(load.seed)  # noqa: S311 - reproducible, not secret
    slots = max(1, sectors // _ALIGNMENT)
    for _ in range(load.writes):
        size = min(rng.choice(_SIZES), load.max_sectors, sectors)
        hot = rng.random() < 0.5
        first = rng.randrange(max(1, slots // _HOT_SHARE) if hot else slots) * _ALIGNMENT
        yield Extent(min(first, sectors - size), size)


@dataclass(frozen=True, slots=True)
class _Flush:
    """A flush in flight: the indices of the writes that it covers, and the position before it."""

    covered: tuple[int, ...]
    submitted: int


@dataclass(frozen=True, slots=True)
class ClientRun:
    """All writes of a run.

    `flushes` has the positions before each flush was sent and after its answer; `finished` is the
    position after the end of what happened in the middle of it.
    """

    writes: tuple[Write, ...]
    flushes: tuple[tuple[int, int], ...]
    finished: int | None = None


@dataclass(slots=True)
class _Recorder:
    disk: ClientDisk
    tail: Tail
    load: Load
    writes: list[Write] = field(default_factory=list)
    flushes: list[tuple[int, int]] = field(default_factory=list)
    writing: dict[int, int] = field(default_factory=dict)  # request -> index of its write
    flushing: dict[int, _Flush] = field(default_factory=dict)  # request -> flush

    def submit_write(self, extent: Extent) -> None:
        """Sends a write, unless another write in flight covers one of its sectors."""
        while self._is_blocked(extent):
            self._take_answer()
        version = FIRST_VERSION + len(self.writes)
        submitted = self.tail.position()
        fua = self.load.kind is ClientKind.FUA
        request = self.disk.write(extent.first, extent.count, version, fua=fua)
        self.writing[request] = len(self.writes)
        self.writes.append(Write(version, extent.first, extent.count, submitted))

    def submit_flush(self) -> None:
        """Sends a flush, which promises the writes acknowledged before it."""
        if self.load.depth == 1:
            self.drain()
        covered = tuple(
            index
            for index, write in enumerate(self.writes)
            if write.acked is not None and write.promised is None
        )
        submitted = self.tail.position()
        self.flushing[self.disk.flush()] = _Flush(covered, submitted)
        if self.load.depth == 1:
            self.drain()

    def drain(self) -> None:
        """Waits for all answers."""
        while self.writing or self.flushing:
            self._take_answer()

    def _take_answer(self) -> None:
        """Waits for one answer. The position is read after it, so it is never too early."""
        request = self.disk.await_one()
        position = self.tail.position()
        flush = self.flushing.pop(request, None)
        if flush is not None:
            self.flushes.append((flush.submitted, position))
            for index in flush.covered:
                if self.writes[index].promised is None:
                    self.writes[index] = replace(self.writes[index], promised=position)
            return
        index = self.writing.pop(request)
        promised = None if self.load.kind is ClientKind.FLUSHES else position
        self.writes[index] = replace(self.writes[index], acked=position, promised=promised)

    def _is_blocked(self, extent: Extent) -> bool:
        if len(self.writing) + len(self.flushing) >= self.load.depth:
            return True
        in_flight = (self.writes[index] for index in self.writing.values())
        return any(extent.overlaps(Extent(write.first, write.count)) for write in in_flight)


def run_client(
    disk: ClientDisk, tail: Tail, load: Load, sectors: int, mid_run: MidRun | None = None
) -> ClientRun:
    """Runs the load to its end; every write in the result was acknowledged.

    `mid_run` starts after a third of the writes and is finished after two thirds. If it makes the
    disk larger, every second write after that goes to the new part.
    """
    recorder = _Recorder(disk, tail, load)
    finished: int | None = None
    for number, extent in enumerate(write_extents(load, sectors), start=1):
        beyond = mid_run.added_sectors if mid_run and finished is not None and number % 2 else 0
        recorder.submit_write(Extent(extent.first + beyond, extent.count))
        if load.kind is ClientKind.FLUSHES and number % load.flush_every == 0:
            recorder.submit_flush()
        if mid_run is not None and number == load.writes // 3:
            mid_run.start()
        if mid_run is not None and number == 2 * load.writes // 3:
            if mid_run.added_sectors:
                recorder.drain()  # its connection breaks off
            mid_run.finish(disk)
            finished = tail.position()
    recorder.drain()
    return ClientRun(tuple(recorder.writes), tuple(recorder.flushes), finished)
