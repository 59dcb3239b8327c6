"""Whether a directory really serves O_DIRECT: found by trying, not from a list of file systems."""

from __future__ import annotations

import errno
import mmap
import os

from vdisklab.errors import HostError
from vdisklab.host.ledger import Kind
from vdisklab.storage.site import Site
from vdisklab.storage.target import Target

_BLOCK = 4096


def serves_direct_io(site: Site, target: Target) -> bool:
    """True when a file there can be opened with O_DIRECT, written and read back.

    Raises HostError when it fails for another reason than O_DIRECT. For a block device the
    answer is read without writing.
    """
    if target.is_block:
        return _read_directly(target)
    file = target.path / "o_direct.trial"
    with site.made(Kind.FILE, file):
        try:
            return _write_directly(os.fspath(file))
        except OSError as error:
            if error.errno in (errno.EINVAL, errno.EOPNOTSUPP):
                return False
            raise HostError(
                f"O_DIRECT cannot be tried in {target.path}: {error.strerror}"
            ) from error


def _write_directly(file: str) -> bool:
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_DIRECT | os.O_CLOEXEC, 0o600)
    try:
        with mmap.mmap(-1, _BLOCK) as block:  # anonymous memory is aligned to pages
            block[:] = os.urandom(_BLOCK)
            written = bytes(block)
            os.pwritev(descriptor, [block], 0)
            block[:] = bytes(_BLOCK)
            os.preadv(descriptor, [block], 0)
            return bytes(block) == written
    finally:
        os.close(descriptor)


def _read_directly(target: Target) -> bool:
    try:
        descriptor = os.open(target.path, os.O_RDONLY | os.O_DIRECT | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in (errno.EINVAL, errno.EOPNOTSUPP):
            return False
        raise HostError(f"{target.path} cannot be opened: {error.strerror}") from error
    try:
        with mmap.mmap(-1, _BLOCK) as block:
            return os.preadv(descriptor, [block], 0) == _BLOCK
    finally:
        os.close(descriptor)
