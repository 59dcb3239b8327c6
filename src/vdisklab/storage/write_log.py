"""The log of writes to a disk, in order, in the format of dm-log-writes.

The format is that of the Linux kernel, drivers/md/dm-log-writes.c: a superblock in the first
sector, then one header sector for each entry, followed by its data. A discard has no data; a mark
has its text in the header sector. All numbers are little-endian.
"""

from __future__ import annotations

import errno
import os
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import IntFlag
from pathlib import Path

from vdisklab.errors import PowercutError
from vdisklab.host.machine import page_size
from vdisklab.host.syscalls import opened, write_whole
from vdisklab.units import SECTOR
from vdisklab.value import Value

_MAGIC = 0x6A736677736872
_VERSION = 1
_SUPER = struct.Struct("<QQQI")
_HEADER = struct.Struct("<QQQQ")
_COUNT_AT = 16
_MAX_SECTORS = 1 << 40


class Flag(IntFlag):
    """The kind of an entry; a plain write has none."""

    FLUSH = 1
    FUA = 2
    DISCARD = 4
    MARK = 8
    METADATA = 16


class LogError(PowercutError):
    """A file is not a log of writes, or is damaged."""


class LogEntry(Value):
    """One event. `offset`, `length` and `data_at` are in bytes.

    `zeroes` is True for a zeroed range, whose data are a hole in the log.
    """

    offset: int
    length: int
    flags: Flag
    data_at: int
    zeroes: bool = False
    header_at: int = 0

    @property
    def flushes(self) -> bool:
        """True when everything that completed before it is durable."""
        return Flag.FLUSH in self.flags

    @property
    def changes_disk(self) -> bool:
        """True for a write or a discard, false for a mere flush or mark."""
        return self.length > 0 and Flag.MARK not in self.flags


class Log(Value):
    """The entries of a log; their data remain in the file."""

    path: Path
    entries: tuple[LogEntry, ...]


class LogWriter:
    """Appends to a new log. The count in the superblock is correct whenever a method returns.

    A method that raises OSError (no space) has appended nothing.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._end = SECTOR
        self._count = 0
        os.ftruncate(descriptor, 0)
        self._set_count(0)

    def write(self, offset: int, data: bytes) -> None:
        """Logs written bytes."""
        self._append([_header(offset, len(data), Flag(0)), data])

    def zero(self, offset: int, length: int) -> None:
        """Logs written zeros as a hole, which takes no space and reads as zeros."""
        self._append([_header(offset, length, Flag(0))], hole=length)

    def discard(self, offset: int, length: int) -> None:
        """Logs a discarded range."""
        self._append([_header(offset, length, Flag.DISCARD)])

    def flush(self) -> None:
        """Logs a flush: everything before it is durable."""
        self._append([_header(0, 0, Flag.FLUSH)])

    def _append(self, parts: Sequence[bytes], *, hole: int = 0) -> None:
        end = self._end + sum(map(len, parts)) + hole
        try:
            write_whole(self._descriptor, parts, self._end)
            if hole:
                os.ftruncate(self._descriptor, end)
        except OSError:
            # A partly written entry would otherwise show up in the hole of a later one.
            os.ftruncate(self._descriptor, self._end)
            raise
        self._end = end
        self._count += 1
        self._set_count(self._count)

    def _set_count(self, count: int) -> None:
        os.pwrite(self._descriptor, _SUPER.pack(_MAGIC, _VERSION, count, SECTOR), 0)


def _header(offset: int, length: int, flags: Flag) -> bytes:
    fixed = _HEADER.pack(offset // SECTOR, length // SECTOR, flags, 0)
    return fixed.ljust(SECTOR, b"\0")


class LogTail:
    """The end of a log that another process is writing."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def position(self) -> int:
        """The number of entries now.

        The server acknowledges a request after counting its entry. So a position read after an
        acknowledgement is never too small, and no write counts as durable too early.
        """
        return int.from_bytes(os.pread(self._descriptor, 8, _COUNT_AT), "little")


@contextmanager
def open_tail(path: Path) -> Iterator[LogTail]:
    """Opens a log that is being written."""
    with opened(path, os.O_RDONLY) as descriptor:
        yield LogTail(descriptor)


def read_log(path: Path) -> Log:
    """The entries of a log file. Raises LogError for another file, or a damaged or short one."""
    try:
        with opened(path, os.O_RDONLY) as descriptor:
            return Log(path, tuple(_entries(descriptor, path)))
    except OSError as error:
        raise LogError(f"the log {path} cannot be read: {error.strerror}") from error


def _entries(descriptor: int, path: Path) -> Iterator[LogEntry]:
    count, sector = _read_super(descriptor, path)
    page = page_size()
    size = os.fstat(descriptor).st_size
    header_sector = sector
    for number in range(count):
        head = os.pread(descriptor, _HEADER.size, header_sector)
        if len(head) < _HEADER.size:
            raise _cut_short(f"the log {path} ends after {number} of {count} entries")
        first, sectors, bits, _ = _HEADER.unpack(head)
        if bits & ~sum(Flag) or max(first, sectors) > _MAX_SECTORS:
            raise _cut_short(f"entry {number} of the log {path} is damaged")
        flags = Flag(bits)
        length = sectors * sector
        data_at = header_sector + sector
        stored = 0 if flags & (Flag.DISCARD | Flag.MARK) else length
        if data_at + stored > size:
            raise _cut_short(f"the log {path} ends within the data of entry {number} of {count}")
        hole = bool(stored) and is_hole(descriptor, data_at, stored, page)
        yield LogEntry(first * sector, length, flags, data_at, hole, header_sector)
        header_sector = data_at + stored


def _cut_short(message: str) -> LogError:
    return LogError(
        message, hint="the recording was cut short, or its disk is bad: record it again with --new"
    )


def _read_super(descriptor: int, path: Path) -> tuple[int, int]:
    """The number of entries and the sector size."""
    name_a_log = "name a log that dm-log-writes or vdisklab wrote"
    head = os.pread(descriptor, _SUPER.size, 0)
    if len(head) < _SUPER.size:
        raise LogError(f"{path} is too short for a log of writes", hint=name_a_log)
    magic, version, count, sector = _SUPER.unpack(head)
    if magic != _MAGIC:
        raise LogError(
            f"{path} is not a log of writes: it does not begin with dm-log-writes' magic number",
            hint=name_a_log,
        )
    if version != _VERSION or sector < SECTOR or sector & (sector - 1) or sector > 1 << 16:
        raise LogError(
            f"{path} is a log with unknown version ({version}) or sector size ({sector})",
            hint="only version 1 of dm-log-writes' format is supported",
        )
    return count, sector


def is_hole(descriptor: int, offset: int, length: int, page: int) -> bool:
    """True if the range is a hole (lseek(2), SEEK_DATA), except for zeros at its two ends.

    Files in memory are stored in pages of `page` bytes; the first and last one are shared with the
    headers around the data.
    """
    first, last = -(-offset // page) * page, (offset + length) // page * page
    if first >= last:
        return False  # less than a page: treat it as data
    try:
        if os.lseek(descriptor, first, os.SEEK_DATA) < last:
            return False
    except OSError as error:
        if error.errno != errno.ENXIO:  # ENXIO: no data up to the end of the file
            raise
    ends = os.pread(descriptor, first - offset, offset) + os.pread(
        descriptor, offset + length - last, last
    )
    return not any(ends)
