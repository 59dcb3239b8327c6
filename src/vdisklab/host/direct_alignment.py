"""How direct transfers (O_DIRECT) of a file must be aligned.

The kernel says it since Linux 6.1 (statx(2), STATX_DIOALIGN), for ext4, XFS, block devices and, by
now, most others. Where it does not, a page is enough: btrfs has sectors of up to a page, and ZFS
wants whole pages (module/os/linux/zfs/zfs_uio.c).
"""

from __future__ import annotations

import ctypes
import os
import struct

from vdisklab.value import Value

LEAST_BLOCK = 4096
"""Bytes of the smallest block that is tried: no disk of today needs more."""

_STATX_DIOALIGN = 0x2000
_AT_EMPTY_PATH = 0x1000
_STATX_BYTES = 256
# stx_mask; stx_dio_mem_align and stx_dio_offset_align (linux/stat.h).
_MASK, _ALIGNMENTS, _ALIGNMENTS_AT = struct.Struct("=I"), struct.Struct("=II"), 152

_libc = ctypes.CDLL(None, use_errno=True)


class DirectAlignment(Value):
    """The alignment, in bytes, of memory, and of offset and length; 0: no direct transfers."""

    memory: int
    offset: int

    @property
    def block(self) -> int:
        """Bytes of a block that satisfies both; 0: no direct transfers."""
        return max(self.memory, self.offset)


def alignment_in(statx: bytes) -> DirectAlignment | None:
    """What a `struct statx` says; None if the kernel or the file system does not say it."""
    if not _MASK.unpack_from(statx)[0] & _STATX_DIOALIGN:
        return None
    return DirectAlignment(*_ALIGNMENTS.unpack_from(statx, _ALIGNMENTS_AT))


def direct_alignment(descriptor: int) -> DirectAlignment | None:
    """The alignment that an open file or device needs; None where the kernel does not say it."""
    answer = ctypes.create_string_buffer(_STATX_BYTES)
    if not hasattr(_libc, "statx"):  # glibc before 2.28
        return None
    done = _libc.statx(descriptor, b"", _AT_EMPTY_PATH, _STATX_DIOALIGN, answer)
    return alignment_in(answer.raw) if done == 0 else None


def direct_block(descriptor: int, page: int) -> int:
    """Bytes of a block that direct transfers of an open file or device surely may have.

    `page` is the size of the host's pages in bytes.
    """
    return block_for(direct_alignment(descriptor), page)


def block_for(alignment: DirectAlignment | None, page: int) -> int:
    """`direct_block`, of what the kernel said."""
    return max(LEAST_BLOCK, page if alignment is None else alignment.block)


def direct_block_of(place: str | os.PathLike[str], page: int) -> int:
    """`direct_block` of a file or device. Raises OSError."""
    descriptor = os.open(place, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return direct_block(descriptor, page)
    finally:
        os.close(descriptor)
