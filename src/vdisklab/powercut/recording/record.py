"""Drives a disk as a guest would, and writes down what it was promised and when."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

from vdisklab.powercut.recording.trace import FIRST_VERSION, ClientKind, Write

_SIZES = (1, 8, 8, 8, 8, 16, 64, 128)
_ALIGNED = 8
_HOT_SHARE = 16


class PromisingDisk(Protocol):
    """A disk through some access: NBD, a guest, a boot sector."""

    @property
    def seen(self) -> Mapping[str, str]:
        """States of it that were read back."""

    def write(self, first: int, count: int, version: int, *, fua: bool) -> int:
        """Sends a write of sectors of that version; returns the request's number."""

    def flush(self) -> int:
        """Sends a flush; returns the request's number."""

    def await_one(self) -> int:
        """The number of the next request that was acknowledged."""


class Tail(Protocol):
    """Where the log ends, as a number that grows; read after an answer it is never too small."""

    def position(self) -> int:
        """The position now."""


@dataclass(frozen=True, slots=True)
class Load:
    """What the client does. `depth` requests are in flight; sizes and places come from `seed`."""

    kind: ClientKind
    writes: int = 80
    flush_every: int = 4
    depth: int = 1
    seed: int = 1
    max_sectors: int = 128


@dataclass(frozen=True, slots=True)
class Place:
    """Sectors to write."""

    first: int
    count: int

    def overlaps(self, other: Place) -> bool:
        """True when a sector is in both."""
        return self.first < other.first + other.count and other.first < self.first + self.count


def places(load: Load, sectors: int) -> Iterator[Place]:
    """Where the client writes: mixed sizes, half of them in a sixteenth of the disk.

    The hot area makes overwrites, the rest makes a growing image grow. A database decides for
    itself where it writes.
    """
    if load.kind.is_database:
        yield from itertools.repeat(Place(0, 0), load.writes)
        return
    rng = random.Random(load.seed)  # noqa: S311 - reproducible, not secret
    slots = max(1, sectors // _ALIGNED)
    for _ in range(load.writes):
        size = min(rng.choice(_SIZES), load.max_sectors, sectors)
        hot = rng.random() < 0.5
        first = rng.randrange(max(1, slots // _HOT_SHARE) if hot else slots) * _ALIGNED
        yield Place(min(first, sectors - size), size)


@dataclass(slots=True)
class _Recorder:
    disk: PromisingDisk
    tail: Tail
    load: Load
    writes: list[Write] = field(default_factory=list)
    flying: dict[int, int] = field(default_factory=dict)  # request -> index of its write
    flushes: dict[int, frozenset[int]] = field(default_factory=dict)  # request -> covered writes
    flushing: dict[int, int] = field(default_factory=dict)  # request -> position before it
    flushed: list[tuple[int, int]] = field(default_factory=list)

    def submit_write(self, place: Place) -> None:
        """Sends one more write; never over a sector that another write in flight covers."""
        while self._in_the_way(place) or len(self.flying) + len(self.flushes) >= self.load.depth:
            self.take_answer()
        version = FIRST_VERSION + len(self.writes)
        submitted = self.tail.position()
        fua = self.load.kind is ClientKind.FUA
        request = self.disk.write(place.first, place.count, version, fua=fua)
        self.flying[request] = len(self.writes)
        self.writes.append(Write(version, place.first, place.count, submitted))

    def submit_flush(self) -> None:
        """Sends a flush; it promises what was acknowledged before it was sent."""
        if self.load.depth == 1:
            self.drain()
        covered = {
            index
            for index, write in enumerate(self.writes)
            if write.acked is not None and write.promised is None
        }
        before = self.tail.position()
        request = self.disk.flush()
        self.flushes[request], self.flushing[request] = frozenset(covered), before
        if self.load.depth == 1:
            self.drain()

    def take_answer(self) -> None:
        """Waits for one answer; the position is read after it, so it is never too early."""
        request = self.disk.await_one()
        position = self.tail.position()
        if request in self.flushes:
            self.flushed.append((self.flushing.pop(request), position))
            for index in self.flushes.pop(request):
                if self.writes[index].promised is None:
                    self.writes[index] = replace(self.writes[index], promised=position)
            return
        index = self.flying.pop(request)
        promised = None if self.load.kind is ClientKind.FLUSHES else position
        self.writes[index] = replace(self.writes[index], acked=position, promised=promised)

    def drain(self) -> None:
        """Waits for all answers."""
        while self.flying or self.flushes:
            self.take_answer()

    def _in_the_way(self, place: Place) -> bool:
        ahead = (self.writes[index] for index in self.flying.values())
        return any(place.overlaps(Place(write.first, write.count)) for write in ahead)


@dataclass(frozen=True, slots=True)
class Recorded:
    """All writes of a run; `flushes`: the positions before each was sent and after its answer."""

    writes: tuple[Write, ...]
    flushes: tuple[tuple[int, int], ...]


def record(disk: PromisingDisk, tail: Tail, load: Load, sectors: int) -> Recorded:
    """Runs the load to its end; every write in it was acknowledged."""
    recorder = _Recorder(disk, tail, load)
    for number, place in enumerate(places(load, sectors), start=1):
        recorder.submit_write(place)
        if load.kind is ClientKind.FLUSHES and number % load.flush_every == 0:
            recorder.submit_flush()
    recorder.drain()
    return Recorded(tuple(recorder.writes), tuple(recorder.flushed))
