"""dm-log-writes' format: what reached a disk, in order, so that any tool can replay it.

The format is that of the Linux kernel, drivers/md/dm-log-writes.c: a superblock in the first
sector, then for each entry one sector of header, followed by its data. A discard has no data; a
mark has its text in the header's sector. All numbers are little-endian.
"""

from __future__ import annotations

import errno
import os
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import IntFlag
from pathlib import Path

from vdisklab.errors import PowercutError
from vdisklab.host.syscalls import write_whole

SECTOR = 512

_MAGIC = 0x6A736677736872
_VERSION = 1
_SUPER = struct.Struct("<QQQI")
_HEADER = struct.Struct("<QQQQ")
_COUNT_AT = 16
_MAX_SECTORS = 1 << 40
_PAGE = 4096


class Flag(IntFlag):
    """What an entry is; none of them: a write."""

    FLUSH = 1
    FUA = 2
    DISCARD = 4
    MARK = 8
    METADATA = 16


class LogError(PowercutError):
    """A file is no log of writes, or a damaged one."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One thing that happened to the disk. `offset`, `length` and `data_at` count bytes.

    `zeroes` tells that the data are a hole in the log: a range that was zeroed.
    """

    offset: int
    length: int
    flags: Flag
    data_at: int
    zeroes: bool = False
    header_at: int = 0

    @property
    def flushes(self) -> bool:
        """Everything that completed before it is durable."""
        return Flag.FLUSH in self.flags

    @property
    def changes_disk(self) -> bool:
        """It is a write or a discard, not a mere flush or mark."""
        return self.length > 0 and Flag.MARK not in self.flags


@dataclass(frozen=True, slots=True)
class Log:
    """A whole log, without its data, which stay in the file."""

    path: Path
    entries: tuple[Entry, ...]


def superblock(count: int) -> bytes:
    """The head of a log with so many entries."""
    return _SUPER.pack(_MAGIC, _VERSION, count, SECTOR)


def header(offset: int, length: int, flags: Flag) -> bytes:
    """The sector before an entry's data."""
    fixed = _HEADER.pack(offset // SECTOR, length // SECTOR, flags, 0)
    return fixed.ljust(SECTOR, b"\0")


class LogWriter:
    """Appends to a new log. The count of entries is true as soon as a method returns.

    A method that raises OSError, for want of room, has appended nothing.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._end = SECTOR
        self._count = 0
        os.ftruncate(descriptor, 0)
        self._set_count(0)

    def write(self, offset: int, data: bytes) -> None:
        """Logs written bytes."""
        self._append([header(offset, len(data), Flag(0)), data])

    def zero(self, offset: int, length: int) -> None:
        """Logs written zeros; their data are a hole, which costs nothing and reads the same."""
        self._append([header(offset, length, Flag(0))], hole=length)

    def discard(self, offset: int, length: int) -> None:
        """Logs that a range was given back."""
        self._append([header(offset, length, Flag.DISCARD)])

    def flush(self) -> None:
        """Logs that everything before is durable."""
        self._append([header(0, 0, Flag.FLUSH)])

    def _append(self, parts: Sequence[bytes], *, hole: int = 0) -> None:
        end = self._end + sum(map(len, parts)) + hole
        try:
            write_whole(self._descriptor, parts, self._end)
            if hole:
                os.ftruncate(self._descriptor, end)
        except OSError:
            # What was written of it would else be found in the hole of a later entry.
            os.ftruncate(self._descriptor, self._end)
            raise
        self._end = end
        self._count += 1
        self._set_count(self._count)

    def _set_count(self, count: int) -> None:
        os.pwrite(self._descriptor, superblock(count), 0)


class LogTail:
    """How long a log is that somebody writes at this moment."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def position(self) -> int:
        """The number of entries now.

        The server answers a request after its entry is counted. A position read after an
        answer is therefore never too small: a promise is never believed to be older than it is.
        """
        return int.from_bytes(os.pread(self._descriptor, 8, _COUNT_AT), "little")


@contextmanager
def open_tail(path: Path) -> Iterator[LogTail]:
    """A log that is being written."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield LogTail(descriptor)
    finally:
        os.close(descriptor)


def read_log(path: Path) -> Log:
    """The entries of a log file. Raises LogError for a file that is none, or that ends too soon."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise LogError(f"the log {path} cannot be read: {error.strerror}") from error
    try:
        return Log(path, tuple(_entries(descriptor, path)))
    finally:
        os.close(descriptor)


def mark_text(log: Log, entry: Entry) -> str | None:
    """The text of a mark, which stands behind the header's numbers; None for other entries."""
    if Flag.MARK not in entry.flags:
        return None
    with log.path.open("rb") as opened:
        opened.seek(entry.header_at + _HEADER.size)
        text = opened.read(entry.data_at - entry.header_at - _HEADER.size)
    return text.split(b"\0")[0].decode(errors="replace")


def _entries(descriptor: int, path: Path) -> Iterator[Entry]:
    count, sector = _read_super(descriptor, path)
    size = os.fstat(descriptor).st_size
    at = sector
    for number in range(count):
        head = os.pread(descriptor, _HEADER.size, at)
        if len(head) < _HEADER.size:
            raise LogError(
                f"the log {path} ends after {number} of {count} entries",
                hint="the recording was cut short: record it again with --new",
            )
        first, sectors, bits, _ = _HEADER.unpack(head)
        if bits & ~sum(Flag) or max(first, sectors) > _MAX_SECTORS:
            raise LogError(
                f"entry {number} of the log {path} is damaged",
                hint="the recording was cut short, or its disk is bad: record it again with --new",
            )
        flags = Flag(bits)
        length = sectors * sector
        data_at = at + sector
        stored = 0 if flags & (Flag.DISCARD | Flag.MARK) else length
        if data_at + stored > size:
            raise LogError(
                f"the log {path} ends in the data of entry {number} of {count}",
                hint="the recording was cut short: record it again with --new",
            )
        hole = bool(stored) and _is_hole(descriptor, data_at, stored)
        yield Entry(first * sector, length, flags, data_at, hole, at)
        at = data_at + stored


def _read_super(descriptor: int, path: Path) -> tuple[int, int]:
    head = os.pread(descriptor, _SUPER.size, 0)
    if len(head) < _SUPER.size:
        raise LogError(
            f"{path} is too short for a log of writes",
            hint="name a log that dm-log-writes or vdisklab wrote",
        )
    magic, version, count, sector = _SUPER.unpack(head)
    if magic != _MAGIC:
        raise LogError(
            f"{path} is no log of writes: its first bytes are not dm-log-writes'",
            hint="name a log that dm-log-writes or vdisklab wrote",
        )
    if version != _VERSION or sector < SECTOR or sector & (sector - 1) or sector > 1 << 16:
        raise LogError(
            f"{path} is a log of a version ({version}) or sector size that is not known",
            hint="it was written by another version of dm-log-writes than the one that is read, 1",
        )
    return count, sector


def _is_hole(descriptor: int, at: int, length: int) -> bool:
    """True when nothing is stored there (lseek(2), SEEK_DATA) but zeros at the two ends.

    Files are stored by pages, and the ends share theirs with the headers before and after.
    """
    first, last = -(-at // _PAGE) * _PAGE, (at + length) // _PAGE * _PAGE
    if first >= last:
        return False  # too short to be worth it
    try:
        if os.lseek(descriptor, first, os.SEEK_DATA) < last:
            return False
    except OSError as error:
        if error.errno != errno.ENXIO:  # ENXIO: no data up to the file's end
            raise
    ends = os.pread(descriptor, first - at, at) + os.pread(descriptor, at + length - last, last)
    return not any(ends)
