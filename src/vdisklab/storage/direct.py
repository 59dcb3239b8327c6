"""Tests whether a directory supports O_DIRECT, instead of trusting a list of file systems."""

from __future__ import annotations

import errno
import mmap
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

from vdisklab.errors import HostError
from vdisklab.host.counters import device_below, read_devices
from vdisklab.host.ledger import Kind
from vdisklab.host.probes import try_o_direct
from vdisklab.host.syscalls import opened
from vdisklab.storage.site import Site, Target

_BLOCK = 4096
_TRIAL = 4 << 20


def serves_direct_io(target: Target) -> bool:
    """True when O_DIRECT works there: a file is written and read back, a device only read.

    Raises HostError if the device cannot be opened, or the file not written, for other reasons.
    """
    if target.is_block:
        return _reads_directly(target.path)
    if try_o_direct(target.path) is None:
        return True
    _require_writable(target.path)
    return False


def _require_writable(directory: Path) -> None:
    """Raises HostError if nothing can be written: a full disk is not a lack of O_DIRECT."""
    try:
        with tempfile.TemporaryFile(dir=directory) as file:
            file.write(bytes(_BLOCK))
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise HostError(
            f"nothing can be written in {directory}: {error.strerror}",
            hint="free some space there, or name another directory with --dir",
        ) from error


def _reads_directly(device: Path) -> bool:
    try:
        descriptor = os.open(device, os.O_RDONLY | os.O_DIRECT | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in (errno.EINVAL, errno.EOPNOTSUPP):
            return False
        raise HostError(
            f"{device} cannot be opened: {error.strerror}",
            hint="check that the device still exists (`lsblk`) and that you are root",
        ) from error
    try:
        with mmap.mmap(-1, _BLOCK) as block:
            return os.preadv(descriptor, [block], 0) == _BLOCK
    finally:
        os.close(descriptor)


def directness(site: Site, directory: Path, members: Sequence[Path]) -> str:
    """What O_DIRECT does in a directory: `refused`, `direct`, or `accepted, served from a cache`.

    A file system may accept the flag but serve requests from a cache (ZFS before 2.3). Some MiB are
    written and read back with O_DIRECT: if the devices below did not transfer them, a cache did.
    """
    if not serves_direct_io(Target(directory, is_block=False)):
        return "refused"
    numbers = [number for member in members if (number := device_below(member)) is not None]
    file = directory / "o_direct.trial"
    with site.tracked(Kind.FILE, file):
        flags = os.O_RDWR | os.O_CREAT | os.O_DIRECT
        with opened(file, flags) as descriptor, mmap.mmap(-1, _TRIAL) as block:
            block[:] = os.urandom(_TRIAL)
            os.pwritev(descriptor, [block], 0)
            os.fsync(descriptor)
            before = read_devices(numbers)
            os.preadv(descriptor, [block], 0)
            after = read_devices(numbers)
    if before is None or after is None:
        return "accepted, and nobody counts below"
    read = after.since(before).read_bytes
    return "direct" if read >= _TRIAL else "accepted, served from a cache"
