"""What only trying can tell: O_DIRECT on a directory, io_uring for this process."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import tempfile
from pathlib import Path

from vdisklab.host.mounts import mount_of
from vdisklab.host.pagecache import residency

# The largest logical block size in use; O_DIRECT wants buffer, offset and length aligned to it.
_ALIGNED = 4096

# The same on every architecture that came with or after it.
_IO_URING_SETUP = 425


def try_o_direct(directory: Path) -> str | None:
    """Writes and reads a block with O_DIRECT in `directory`; returns why it failed, or None.

    Opening alone proves nothing: some file systems accept the flag and refuse the transfer, some
    even transfer, through the page cache.
    """
    try:
        with tempfile.NamedTemporaryFile(dir=directory, prefix=".vdisklab-direct-") as file:
            return _try_block(file.name)
    except OSError as error:
        return f"no file can be made in {directory}: {error.strerror}"


def _try_block(path: str) -> str | None:
    flags = os.O_RDWR | os.O_DIRECT | os.O_CLOEXEC
    try:
        descriptor = os.open(path, flags)
    except OSError as error:
        return f"opening with O_DIRECT: {error.strerror}"
    # An anonymous mapping is page-aligned, which a bytes object is not.
    with mmap.mmap(-1, _ALIGNED) as block:
        try:
            block.write(b"v" * _ALIGNED)
            os.pwritev(descriptor, [block], 0)
            os.preadv(descriptor, [block], 0)
        except OSError as error:
            return f"transfer with O_DIRECT: {error.strerror}"
        finally:
            os.close(descriptor)
        if block[:] != b"v" * _ALIGNED:
            return "what was written did not come back"
    return _cached_all_the_same(Path(path))


def _cached_all_the_same(file: Path) -> str | None:
    """Some accept O_DIRECT and use the page cache: ext4 with data=journal, btrfs that compresses.

    On tmpfs, which is the page cache, there is nothing else to be direct to.
    """
    mount = mount_of(file)
    if mount is not None and mount.filesystem == "tmpfs":
        return None
    return "the data went through the page cache" if residency(file) > 0 else None


def try_io_uring() -> str | None:
    """Sets up a ring of one entry; returns why the kernel refused it, or None."""
    libc = ctypes.CDLL(None, use_errno=True)
    # struct io_uring_params is 120 bytes; zeros ask for nothing special.
    descriptor = libc.syscall(_IO_URING_SETUP, 1, ctypes.create_string_buffer(120))
    if descriptor >= 0:
        os.close(descriptor)
        return None
    number = ctypes.get_errno()
    reason = {
        errno.ENOSYS: "this kernel has no io_uring (or a container's filter hides it)",
        errno.EPERM: "not allowed (kernel.io_uring_disabled, or a container's filter)",
    }
    return reason.get(number, os.strerror(number))
