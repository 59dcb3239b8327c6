"""What a client did and was promised, by positions of the log. Pure values and their JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import PurePosixPath

from pydantic import TypeAdapter, ValidationError

from vdisklab.errors import PowercutError

FILLED = 1
"""The version that every sector of an image has that was filled when it was made."""

FIRST_VERSION = 2

_COMMIT = "a transaction is durable once COMMIT returned, on the guest's ext4 with"


class ClientKind(StrEnum):
    """When a client takes a write for durable."""

    FLUSHES = "flushes"
    FUA = "fua"
    NEVER = "never"
    SQLITE_WAL = "sqlite-wal"
    SQLITE_DELETE = "sqlite-delete"
    SQLITE_EXTRA = "sqlite-extra"

    @property
    def is_database(self) -> bool:
        """True for a real program, whose promise is a transaction and not a sector."""
        return self in (ClientKind.SQLITE_WAL, ClientKind.SQLITE_DELETE, ClientKind.SQLITE_EXTRA)

    @property
    def promise(self) -> str:
        """What it relies on, for people."""
        return {
            ClientKind.FLUSHES: "a write is durable once a later flush was acknowledged",
            ClientKind.FUA: "a write with FUA is durable once it was acknowledged",
            ClientKind.NEVER: "a write is durable once acknowledged; nothing is ever flushed",
            ClientKind.SQLITE_WAL: f"{_COMMIT} WAL, synchronous=FULL",
            ClientKind.SQLITE_DELETE: f"{_COMMIT} a rollback journal, synchronous=FULL",
            ClientKind.SQLITE_EXTRA: f"{_COMMIT} a rollback journal, synchronous=EXTRA",
        }[self]


@dataclass(frozen=True, slots=True)
class Write:
    """One write, or one transaction of a database, which has no sectors of its own.

    Positions count the entries that the log had.
    `submitted` was read before it was sent, `acked` after it was answered, `promised` after the
    answer that made it durable; None when that answer never came.
    """

    version: int
    first: int
    count: int
    submitted: int
    acked: int | None = None
    promised: int | None = None


@dataclass(frozen=True, slots=True)
class Trace:
    """A recorded run: on which stack, between which positions, and all its writes.

    `image` is relative to the mounted file system. `seen` are states that were read back. `flushes`
    are the positions before each flush was sent and after it was acknowledged.
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

    @property
    def promises(self) -> int:
        """How many writes were promised to be durable within the run."""
        return sum(1 for write in self.writes if write.promised is not None)


_TRACE = TypeAdapter(Trace)


def trace_to_json(trace: Trace) -> str:
    """The trace as a document that `trace_from_json` reads."""
    return json.dumps(asdict(trace), indent=1)


def trace_from_json(text: str | bytes) -> Trace:
    """The trace in a document; PowercutError when it is none, or says what cannot be.

    A recording of an older version has no flushes.
    """
    try:
        trace = _TRACE.validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"])) or "as a whole"
        raise PowercutError(f"the recording is damaged: {place}: {first['msg']}") from error
    wrong = _contradiction(trace)
    if wrong is not None:
        raise PowercutError(f"the recording is damaged: {wrong}")
    return trace


def _contradiction(trace: Trace) -> str | None:
    """What of a trace cannot be, or must not be used on this host; None for a sound one."""
    image = PurePosixPath(trace.image)
    if image.is_absolute() or ".." in image.parts:
        return "its image lies outside its file system"
    if min(trace.image_size, trace.disk_size) <= 0:
        return "its disk has no size"
    if any(write.first < 0 or write.count < 0 for write in trace.writes):
        return "it writes before the start of its disk"
    return None
