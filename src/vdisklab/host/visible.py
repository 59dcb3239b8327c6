"""Whether a path that a user or a configuration names is a file or a directory, and its format.

pathlib's own questions raise OSError if a directory above may not be searched, or if the name is
longer than the file system takes; os.path answers False.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from vdisklab.errors import HostError
from vdisklab.path.segments import ImageFormat


def is_visible_file(path: Path) -> bool:
    """True for a regular file that this user can find."""
    return os.path.isfile(path)  # noqa: PTH113


def require_work_directory(directory: Path) -> None:
    """Raises HostError, which says why, for what is not a directory that this user can find."""
    try:
        mode = directory.stat().st_mode
    except FileNotFoundError as error:
        raise HostError(
            f"the work directory {directory} does not exist", hint=f"mkdir -p {directory}"
        ) from error
    except OSError as error:
        raise HostError(
            f"the work directory {directory} cannot be used: {error.strerror}",
            hint="name another one",
        ) from error
    if not stat.S_ISDIR(mode):
        raise HostError(
            f"the work directory {directory} is not a directory", hint="name another one"
        )


def is_visible_directory(path: Path) -> bool:
    """True for a directory that this user can find."""
    return os.path.isdir(path)  # noqa: PTH112


def is_visible_device(path: Path) -> bool:
    """True for a block device that this user can find."""
    try:
        return path.is_block_device()
    except OSError:
        return False


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


def header_format(image: Path) -> ImageFormat | None:
    """The format of a file or block device; raw without a known header, None if unreadable."""
    try:
        # O_NONBLOCK: a FIFO in place of the image must not stop us.
        handle = os.open(image, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        mode = os.fstat(handle).st_mode
        if not (stat.S_ISREG(mode) or stat.S_ISBLK(mode)):
            return None
        first = os.pread(handle, 128, 0)
    except OSError:
        return None
    finally:
        os.close(handle)
    for offset, magic, form in _MAGICS:
        if first.startswith(magic, offset):
            return form
    return ImageFormat.RAW
