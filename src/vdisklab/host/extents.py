"""Which bytes of a file share their place on the disk with another file, by FIEMAP, and whether
files in a directory can.

Documentation/filesystems/fiemap.rst; structures and numbers are from linux/fiemap.h and linux/fs.h.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from vdisklab.host import syscalls
from vdisklab.host.answering import answered
from vdisklab.value import Value

_FS_IOC_FIEMAP = 0xC020660B
_FICLONE = 0x40049409
_REFUSED = (errno.EOPNOTSUPP, errno.ENOTTY, errno.EINVAL, errno.EXDEV)
"""What ioctl_ficlone(2) says where a file system shares no blocks."""

_BLOCK = 4096
_HEADER = struct.Struct("=QQIIII")
_EXTENT = struct.Struct("=QQQQQIIII")
_MOST = 512
_LAST, _SHARED = 0x1, 0x2000
_WHOLE = (1 << 64) - 1


class Extents(Value):
    """How many extents a file has, their bytes, and those of extents that are shared."""

    count: int
    mapped: int
    shared: int


def extents_of(file: Path) -> Extents | None:
    """The extents of a file; None if its file system does not tell, as tmpfs. Raises OSError."""
    count = mapped = shared = 0
    try:
        with syscalls.opened(file, os.O_RDONLY) as descriptor:
            for length, flags in _extents(descriptor):
                count += 1
                mapped += length
                shared += length if flags & _SHARED else 0
    except OSError as error:
        if error.errno in (errno.EOPNOTSUPP, errno.ENOTTY, errno.EINVAL):
            return None
        raise
    return Extents(count, mapped, shared)


def can_share_blocks(directory: Path) -> bool | None:
    """True if a file in a directory can share its blocks with another, tried with two files
    without a name; None if that cannot be tried. Raises HostError if a server does not answer.
    """
    return answered(directory, partial(_shares_blocks, directory))


def _shares_blocks(directory: Path) -> bool | None:
    try:
        with (
            tempfile.TemporaryFile(dir=directory) as source,
            tempfile.TemporaryFile(dir=directory) as copy,
        ):
            source.write(bytes(_BLOCK))
            source.flush()
            fcntl.ioctl(copy.fileno(), _FICLONE, source.fileno())
    except OSError as error:
        return False if error.errno in _REFUSED else None
    return True


def _extents(descriptor: int) -> Iterator[tuple[int, int]]:
    """The length and flags of each extent."""
    start = 0
    while True:
        buffer = bytearray(_HEADER.size + _MOST * _EXTENT.size)
        _HEADER.pack_into(buffer, 0, start, _WHOLE - start, 0, 0, _MOST, 0)
        fcntl.ioctl(descriptor, _FS_IOC_FIEMAP, buffer)
        found = _HEADER.unpack_from(buffer, 0)[3]
        for number in range(found):
            extent = _EXTENT.unpack_from(buffer, _HEADER.size + number * _EXTENT.size)
            logical, length, flags = extent[0], extent[2], extent[5]
            yield length, flags
            if flags & _LAST:
                return
            start = logical + length
        if not found:
            return
