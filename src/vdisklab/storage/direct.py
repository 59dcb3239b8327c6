"""Whether a directory really serves O_DIRECT: found by trying, not from a list of file systems."""

from __future__ import annotations

import errno
import mmap
import os
from pathlib import Path

from vdisklab.errors import HostError
from vdisklab.host.trials import try_o_direct
from vdisklab.storage.target import Target

_BLOCK = 4096


def serves_direct_io(target: Target) -> bool:
    """True when O_DIRECT works there: a file is written and read back, a device only read.

    Raises HostError when a device cannot be opened for another reason.
    """
    return _reads_directly(target.path) if target.is_block else try_o_direct(target.path) is None


def _reads_directly(device: Path) -> bool:
    try:
        descriptor = os.open(device, os.O_RDONLY | os.O_DIRECT | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in (errno.EINVAL, errno.EOPNOTSUPP):
            return False
        raise HostError(f"{device} cannot be opened: {error.strerror}") from error
    try:
        with mmap.mmap(-1, _BLOCK) as block:
            return os.preadv(descriptor, [block], 0) == _BLOCK
    finally:
        os.close(descriptor)
