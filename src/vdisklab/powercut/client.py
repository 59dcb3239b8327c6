"""Writes to a disk like a guest, and records from when on which writes are durable.

The client's writes, and when they were durable, by positions in the log. Values and their JSON.

The field names of `Write` and `Trace` are those of `trace.json` in recordings that users keep.
Earlier versions wrote `promised` and `seen`.
"""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Annotated, Protocol

from msgspec import to_builtins
from pydantic import AliasChoices, Field, TypeAdapter, ValidationError

from vdisklab.errors import PowercutError
from vdisklab.path.power_cut_words import ClientKind
from vdisklab.powercut.sectors import Extent
from vdisklab.storage.write_log import LogEntry
from vdisklab.validation import first_problem
from vdisklab.value import Value, replace

FILLED = 1
"""The version of every sector of an image that was filled when it was created."""

FIRST_VERSION = 2

NO_FILESYSTEM = "none"
"""`Trace.filesystem` of an image that is itself the logged file."""

SHARED = "directory"
"""`Trace.image_format` of a host directory that the guest mounts."""


DEFAULT_WRITES = 80
"""Number of writes in a run: enough for flushes between writes to many places."""

_SIZES = (1, 8, 8, 8, 8, 16, 64, 128)
_ALIGNMENT = 8
_HOT_SHARE = 16


@dataclass(frozen=True, slots=True)
class Write:
    """One write, or one database transaction, which has no sectors of its own.

    Positions are numbers of log entries: `submitted` was read before the write was sent, `acked`
    after its acknowledgement, `durable_at` after the acknowledgement that made it durable (None
    without one).
    """

    version: int
    first: int
    count: int
    submitted: int
    acked: int | None = None
    durable_at: Annotated[
        int | None, Field(validation_alias=AliasChoices("durable_at", "promised"))
    ] = None


class Images(Value):
    """The image that a guest's configuration names, and those below it, nearest first."""

    image: str
    backing: tuple[str, ...] = ()
    format: str | None = None
    """The image's format if it is another than that of those below."""


class ImageSwitch(Value):
    """A change of the guest's configuration in the middle of a run, at a log position.

    `size` is the disk's new size; None if it stays the same.
    """

    position: int
    after: Images
    size: int | None = None


@dataclass(frozen=True, slots=True)
class Trace:
    """A recorded run: the stack, the log positions of its begin and end, and all its writes."""

    path: str
    client: ClientKind
    access: str
    filesystem: str
    mount_options: tuple[str, ...]
    image: str
    """Relative to the mount point; without a file system, to the recording."""
    image_format: str
    image_size: int
    disk_size: int
    filled: bool
    begin: int
    """The log's position before the client's first write."""
    end: int
    """The log's position after the client's last write."""
    writes: tuple[Write, ...]
    observed: Annotated[Mapping[str, str], Field(validation_alias=AliasChoices("observed", "seen"))]
    """The properties that were read back."""
    flushes: tuple[tuple[int, int], ...] = ()
    """For each flush: the log's positions before it was sent and after its acknowledgement."""
    backing: tuple[str, ...] = ()
    """The images below, nearest first; named as `image` is."""
    data_file: str | None = None
    """The image's external data file; named as `image` is."""
    encrypted: bool = False
    """True if the image's key is beside the recording."""
    switch: ImageSwitch | None = None

    def images_at(self, position: int) -> Images:
        """The images that a guest is started with after a cut at a log position."""
        if self.switch is not None and position > self.switch.position:
            return self.switch.after
        return Images(self.image, self.backing)

    def size_at(self, position: int) -> int:
        """The size of the disk in bytes, as the guest was told until a log position."""
        if self.switch is None or self.switch.size is None or position <= self.switch.position:
            return self.image_size
        return self.switch.size

    def due_size(self, position: int) -> int:
        """The size that the disk must have after a cut at a log position, in bytes.

        A new size is due from the first write after it that is durable.
        """
        switch = self.switch
        if switch is None or switch.size is None:
            return self.image_size
        due = any(
            write.submitted > switch.position
            and write.durable_at is not None
            and write.durable_at <= position
            for write in self.writes
        )
        return switch.size if due else self.image_size

    @property
    def last_size(self) -> int:
        """The size of the disk at the end of the run, in bytes."""
        return self.image_size if self.switch is None else self.switch.size or self.image_size

    @property
    def stops(self) -> tuple[int, ...]:
        """The positions at which a cut is judged although no flush was sent there."""
        return () if self.switch is None else (self.switch.position,)

    @property
    def acknowledged(self) -> int:
        """The number of writes that were acknowledged as durable within the run."""
        return sum(1 for write in self.writes if write.durable_at is not None)


_TRACE = TypeAdapter(Trace)


def trace_to_json(trace: Trace) -> str:
    """The trace as the JSON document that `trace_from_json` reads."""
    return json.dumps(to_builtins(trace), indent=1)


def trace_from_json(text: str | bytes) -> Trace:
    """The trace in a JSON document; one of an older version has no flushes.

    Raises PowercutError if the document is invalid or contradicts itself.
    """
    try:
        trace = _TRACE.validate_json(text)
    except ValidationError as error:
        raise PowercutError(f"the recording is damaged: {first_problem(error)}") from error
    contradiction = _contradiction(trace)
    if contradiction is not None:
        raise PowercutError(f"the recording is damaged: {contradiction}")
    return trace


def _contradiction(trace: Trace) -> str | None:
    """The first impossible or unsafe statement in a trace; None if there is none."""
    after = Images("") if trace.switch is None else trace.switch.after
    names = (trace.image, *trace.backing, trace.data_file or "", after.image, *after.backing)
    for name in names:
        file = PurePosixPath(name)
        if file.is_absolute() or ".." in file.parts:
            return "its image lies outside its file system"
    if min(trace.image_size, trace.last_size, trace.disk_size) <= 0:
        return "its disk has no size"
    if any(write.first < 0 or write.count < 0 for write in trace.writes):
        return "it writes before the start of its disk"
    return None


def count_flushes(trace: Trace, entries: Sequence[LogEntry]) -> int:
    """The number of flushes in the log while the client ran, from any sender."""
    return sum(entry.flushes for entry in entries[trace.begin : trace.end])


def unrequested_flushes(trace: Trace, entries: Sequence[LogEntry], *, writes_flush: bool) -> int:
    """The number of flushes in the log that the client's requests cannot have caused.

    A flush by the client may cause any flush between its submission and its acknowledgement; so may
    a write with FUA, or any write to a device without a write cache (`writes_flush`). The rest come
    from another program's sync, from the file system's commit timer, or from QEMU ordering the
    metadata of an image format. They make writes durable earlier than their
    acknowledgement and so can hide a loss. A write is judged at its own position, so a later flush
    does not matter, but a flush between a write and its acknowledgement does.
    """
    causes = [*trace.flushes]
    if writes_flush or trace.client is ClientKind.FUA:
        causes += [
            (write.submitted, trace.end if write.acked is None else write.acked)
            for write in trace.writes
        ]
    flushes = [place for place in range(trace.begin, trace.end) if entries[place].flushes]
    return sum(1 for place in flushes if not any(first <= place < last for first, last in causes))


class ClientDisk(Protocol):
    """A client's access to the disk: over NBD, in a guest, as a database, from a boot sector."""

    @property
    def observed(self) -> Mapping[str, str]:
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

    def finish(self) -> None:
        """Ends it, and returns when it has ended and the client can go on."""


class Tail(Protocol):
    """The end of the log as a growing number; a value read after an answer includes that
    request."""

    def position(self) -> int:
        """The position now."""


class Load(Value):
    """The client's load. `depth` requests are in flight; `seed` decides sizes and places.

    `synced` is False only in a control: a database that does not sync what it commits.
    """

    kind: ClientKind
    writes: int = DEFAULT_WRITES
    flush_every: int = 4
    depth: int = 1
    seed: int = 1
    max_sectors: int = 128
    synced: bool = True


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


class _Flush(Value):
    """A flush in flight: the indices of the writes that it covers, and the position before it."""

    covered: tuple[int, ...]
    submitted: int


class ClientRun(Value):
    """All writes of a run.

    `flushes` has the positions before each flush was sent and after its answer; `finished` is the
    position after the operation in the middle of the run ended.
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
        """Sends a flush, which makes the writes acknowledged before it durable."""
        if self.load.depth == 1:
            self.drain()
        covered = tuple(
            index
            for index, write in enumerate(self.writes)
            if write.acked is not None and write.durable_at is None
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
                if self.writes[index].durable_at is None:
                    self.writes[index] = replace(self.writes[index], durable_at=position)
            return
        index = self.writing.pop(request)
        durable = None if self.load.kind is ClientKind.FLUSHES else position
        self.writes[index] = replace(self.writes[index], acked=position, durable_at=durable)

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
            mid_run.finish()
            finished = tail.position()
    recorder.drain()
    return ClientRun(tuple(recorder.writes), tuple(recorder.flushes), finished)
