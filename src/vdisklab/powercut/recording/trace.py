"""The client's writes and promises, by their positions in the log. Values and their JSON.

The field names of `Write` and `Trace` are those of `trace.json` in recordings that users keep.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import PurePosixPath

from pydantic import TypeAdapter, ValidationError

from vdisklab.errors import PowercutError
from vdisklab.powercut.recording.write_log import LogEntry
from vdisklab.powercut.vocabulary import ClientKind
from vdisklab.validation import first_problem

FILLED = 1
"""The version of every sector of an image that was filled when it was created."""

FIRST_VERSION = 2

NO_FILESYSTEM = "none"
"""`Trace.filesystem` of an image that is itself the logged file."""

SHARED = "directory"
"""`Trace.image_format` of a host directory that the guest mounts."""


@dataclass(frozen=True, slots=True)
class Write:
    """One write, or one database transaction, which has no sectors of its own.

    Positions are numbers of log entries: `submitted` was read before the write was sent, `acked`
    after its acknowledgement, `promised` after the acknowledgement that made it durable (None
    without one).
    """

    version: int
    first: int
    count: int
    submitted: int
    acked: int | None = None
    promised: int | None = None


@dataclass(frozen=True, slots=True)
class Images:
    """The image that a guest's configuration names, and those below it, nearest first."""

    image: str
    backing: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ImageSwitch:
    """A change of the guest's configuration in the middle of a run, at a log position.

    `size` is the disk's new size; None if it stays the same.
    """

    position: int
    after: Images
    size: int | None = None


@dataclass(frozen=True, slots=True)
class Trace:
    """A recorded run: the stack, the log positions of its begin and end, and all its writes.

    `image` is relative to the mount point, and so are `data_file` and `backing`, the images below,
    nearest first; without a file system these are beside the recording. `seen` holds the properties
    that were read back. `flushes` has, for each flush, the positions before it was sent and after
    its acknowledgement. The key of an `encrypted` image is beside the recording.
    """

    path: str
    client: ClientKind
    access: str
    filesystem: str
    mount_options: tuple[str, ...]
    image: str
    image_format: str
    image_size: int
    disk_size: int
    filled: bool
    begin: int
    end: int
    writes: tuple[Write, ...]
    seen: Mapping[str, str]
    flushes: tuple[tuple[int, int], ...] = ()
    backing: tuple[str, ...] = ()
    data_file: str | None = None
    encrypted: bool = False
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

    def promised_size(self, position: int) -> int:
        """The size that the disk must have after a cut at a log position, in bytes.

        A new size is promised by the first write after it that is promised to be durable.
        """
        switch = self.switch
        if switch is None or switch.size is None:
            return self.image_size
        promised = any(
            write.submitted > switch.position
            and write.promised is not None
            and write.promised <= position
            for write in self.writes
        )
        return switch.size if promised else self.image_size

    @property
    def last_size(self) -> int:
        """The size of the disk at the end of the run, in bytes."""
        return self.image_size if self.switch is None else self.switch.size or self.image_size

    @property
    def stops(self) -> tuple[int, ...]:
        """The positions at which a cut is judged although no flush was sent there."""
        return () if self.switch is None else (self.switch.position,)

    @property
    def promises(self) -> int:
        """The number of writes that were promised to be durable within the run."""
        return sum(1 for write in self.writes if write.promised is not None)


_TRACE = TypeAdapter(Trace)


def trace_to_json(trace: Trace) -> str:
    """The trace as the JSON document that `trace_from_json` reads."""
    return json.dumps(asdict(trace), indent=1)


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
    metadata of an image format. They make writes durable earlier than promised and so can hide a
    loss. A promise is judged at its own position, so a later flush does not matter, but a flush
    between a write and its acknowledgement does.
    """
    causes = [*trace.flushes]
    if writes_flush or trace.client is ClientKind.FUA:
        causes += [
            (write.submitted, trace.end if write.acked is None else write.acked)
            for write in trace.writes
        ]
    flushes = [at for at in range(trace.begin, trace.end) if entries[at].flushes]
    return sum(1 for at in flushes if not any(first <= at < last for first, last in causes))
