"""The format that an image's first bytes show. The file is only read, and no lock is taken."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from vdisklab.path.segments import ImageFormat

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
