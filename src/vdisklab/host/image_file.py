"""Opens the images that a guest's configuration names, for reading.

A name in a configuration is not trusted: a FIFO would hang its reader, opening a tape or a watchdog
has effects, and another file may take the name's place at any time. So a file is first looked at
through a descriptor that opens nothing (O_PATH in open(2)), and what is read is that very file.
"""

from __future__ import annotations

import fcntl
import os
import stat
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from vdisklab.path.segments import ImageFormat
from vdisklab.value import Value

FileId = tuple[int, int]
"""Device and inode of a file; 0 and the device's own number for a block device, of which there may
be several nodes."""

OpenFiles = frozenset[FileId]
"""Files that a process has open for reading."""


_MAGICS = (
    (0, b"QFI\xfb", ImageFormat.QCOW2),
    (0, b"QED\0", ImageFormat.QED),
    (0, b"KDMV", ImageFormat.VMDK),
    (0, b"COWD", ImageFormat.VMDK),
    (0, b"# Disk DescriptorFile", ImageFormat.VMDK),
    (0, b"vhdxfile", ImageFormat.VHDX),
    (64, b"\x7f\x10\xda\xbe", ImageFormat.VDI),
)
"""Offset and magic number of each format, as in the probe functions of QEMU's block drivers."""


_WRITE_LOCK = 101
"""The byte that a QEMU locks of a file that it may write to: RAW_LOCK_PERM_BASE plus the bit of
BLK_PERM_WRITE (block/file-posix.c)."""

_FLOCK = struct.Struct("hhqqi4x")


class SeenFile(Value):
    """A regular file or block device; `descriptor` is None if it may not be read."""

    status: os.stat_result
    descriptor: int | None

    @property
    def is_regular(self) -> bool:
        """True for a regular file, False for a block device."""
        return stat.S_ISREG(self.status.st_mode)

    @property
    def state(self) -> str:
        """Changes when the file is written to; see `state_of`."""
        return _state_by(self.status)

    @property
    def is_written_by_qemu(self) -> bool:
        """True if a QEMU has it open for writing; False where files cannot be locked, too."""
        if self.descriptor is None:
            return False
        asked = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, _WRITE_LOCK, 1, 0)
        try:
            kind, *_ = _FLOCK.unpack(fcntl.fcntl(self.descriptor, fcntl.F_OFD_GETLK, asked))
        except OSError:
            return False
        return bool(kind != fcntl.F_UNLCK)

    def first(self, size: int) -> bytes | None:
        """The first bytes; None if they cannot be read."""
        if self.descriptor is None:
            return None
        if self.is_regular and self.status.st_size == 0:
            return b""  # not read: reading takes the messages out of /proc/kmsg (proc(5))
        try:
            return os.pread(self.descriptor, size, 0)
        except OSError:
            return None

    def last(self, size: int) -> bytes | None:
        """The last bytes of a regular file; None for a device, or if they cannot be read."""
        if self.descriptor is None or not self.is_regular:
            return None
        try:
            return os.pread(self.descriptor, size, max(0, self.status.st_size - size))
        except OSError:
            return None


def state_of(image: Path) -> str:
    """An image's size and modification time, which change when it is written to. Raises OSError."""
    return _state_by(image.stat())


def _state_by(status: os.stat_result) -> str:
    return f"{status.st_size} bytes of {status.st_mtime_ns}"


def id_of(status: os.stat_result) -> FileId | None:
    """The identity of a regular file or block device; None for anything else."""
    if stat.S_ISBLK(status.st_mode):
        return 0, status.st_rdev
    return (status.st_dev, status.st_ino) if stat.S_ISREG(status.st_mode) else None


@contextmanager
def seen_file(name: Path, only: OpenFiles | None = None) -> Iterator[SeenFile | None]:
    """The file of that name, to be read while the block lasts.

    None for a name that is missing or of another kind (FIFO, character device, socket, directory),
    and for a file that is not among `only`, if that is given.
    """
    with _descriptor(name, os.O_PATH) as looked_at:
        if looked_at is None:
            yield None
            return
        status = os.fstat(looked_at)
        found = id_of(status)
        if found is None or (only is not None and found not in only):
            yield None
            return
        same = Path(f"/proc/self/fd/{looked_at}")
        with _descriptor(same, os.O_RDONLY | os.O_NONBLOCK) as descriptor:
            yield SeenFile(status, descriptor)


@contextmanager
def _descriptor(name: Path, flags: int) -> Iterator[int | None]:
    """A descriptor of the name; None if it cannot be opened so."""
    descriptor = None
    with suppress(OSError, ValueError):  # ValueError: a name with a zero byte
        descriptor = os.open(name, flags | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        if descriptor is not None:
            os.close(descriptor)


def format_of(file: SeenFile | None) -> ImageFormat | None:
    """The format of a file; raw without a known header, None if it cannot be read."""
    first = None if file is None else file.first(128)
    if first is None:
        return None
    forms = (form for offset, magic, form in _MAGICS if first.startswith(magic, offset))
    return next(forms, ImageFormat.RAW)


def header_format(image: Path, only: OpenFiles | None = None) -> ImageFormat | None:
    """The format of the image of that name, with the rules of `seen_file`."""
    with seen_file(image, only) as file:
        return format_of(file)
