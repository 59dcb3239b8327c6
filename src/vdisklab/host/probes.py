"""What this kernel supports: O_DIRECT and io_uring by trying, drivers by their modules."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import re
import tempfile
from functools import cached_property
from pathlib import Path

from vdisklab.host.command import Host
from vdisklab.host.facts import SYSTEM, read_text
from vdisklab.host.mounts import mount_of
from vdisklab.host.pagecache import residency

# O_DIRECT needs buffer, offset and length aligned to the logical block size; 4096 is the largest.
_ALIGNED = 4096
# The same number on every architecture.
_IO_URING_SETUP = 425


def try_o_direct(directory: Path) -> str | None:
    """Writes and reads a block with O_DIRECT in `directory`; returns why that failed, or None.

    Opening a file proves nothing: some file systems accept the flag and refuse the transfer, and
    some transfer through the page cache.
    """
    try:
        with tempfile.NamedTemporaryFile(dir=directory, prefix=".vdisklab-direct-") as file:
            return _try_block(file.name)
    except OSError as error:
        return f"no file can be created in {directory}: {error.strerror}"


def _try_block(path: str) -> str | None:
    flags = os.O_RDWR | os.O_DIRECT | os.O_CLOEXEC
    try:
        descriptor = os.open(path, flags)
    except OSError as error:
        return f"opening with O_DIRECT: {error.strerror}"
    # An anonymous mapping is aligned to a page, unlike a bytes object.
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
            return "the block read differs from the block written"
    return _cached_nevertheless(Path(path))


def _cached_nevertheless(file: Path) -> str | None:
    """ext4 with data=journal and btrfs with compression use the page cache despite O_DIRECT.

    So does tmpfs, which has no other storage; it counts as direct.
    """
    mount = mount_of(file)
    if mount is not None and mount.filesystem == "tmpfs":
        return None
    return "the data went through the page cache" if residency(file) > 0 else None


def try_device(name: str, root: Path = SYSTEM) -> OSError | None:
    """Opens /dev/NAME for reading and writing; returns why that failed, or None."""
    try:
        os.close(os.open(root / "dev" / name, os.O_RDWR | os.O_CLOEXEC))
    except OSError as error:
        return error
    return None


def try_io_uring() -> str | None:
    """Sets up a ring with one entry; returns why the kernel refused, or None."""
    libc = ctypes.CDLL(None, use_errno=True)
    # struct io_uring_params has 120 bytes; zeros select the defaults.
    descriptor = libc.syscall(_IO_URING_SETUP, 1, ctypes.create_string_buffer(120))
    if descriptor >= 0:
        os.close(descriptor)
        return None
    number = ctypes.get_errno()
    reason = {
        errno.ENOSYS: "this kernel has no io_uring, or a container's seccomp filter hides it",
        errno.EPERM: "not permitted, by kernel.io_uring_disabled or a container's seccomp filter",
    }
    return reason.get(number, os.strerror(number))


def mapper_target(host: Host, name: str) -> str | None:
    """A target of device-mapper with its version, `crypt v1.24.0`; None if this kernel lacks it."""
    if host.which("modprobe") is not None:
        host.run("modprobe", "--quiet", f"dm-{name}", allowed=range(256))
    listed = host.run("dmsetup", "targets", allowed=range(256))
    targets = map(str.split, listed.stdout.splitlines() if listed.status == 0 else ())
    return next((" ".join(words) for words in targets if words[:1] == [name]), None)


class KernelParts:
    """The file systems, drivers and modules of the running kernel."""

    def __init__(self, root: Path = SYSTEM) -> None:
        self._root = root

    def has_filesystem(self, name: str) -> bool:
        """True when file system `name` is built in, or its module is loaded or installed."""
        listed = (read_text(self._root / "proc/filesystems") or "").split()
        return name in listed or self.has_module(name)

    def has_driver(self, name: str, module: str) -> bool:
        """True when /proc/devices lists `name`, or its module is loaded or installed."""
        listed = (read_text(self._root / "proc/devices") or "").split()
        return name in listed or self.has_module(module)

    def has_module(self, name: str) -> bool:
        """True for a module that is loaded, built in or installed."""
        return name.replace("-", "_") in self._modules

    @cached_property
    def _modules(self) -> frozenset[str]:
        release = read_text(self._root / "proc/sys/kernel/osrelease") or ""
        directory = self._root / "lib/modules" / release
        texts = [read_text(directory / name) or "" for name in ("modules.dep", "modules.builtin")]
        names = re.findall(r"([^/\s]+)\.ko(?:\.\w+)?(?=:|$)", "\n".join(texts), re.MULTILINE)
        loaded = self._root / "sys/module"
        names += [path.name for path in loaded.iterdir()] if loaded.is_dir() else []
        return frozenset(name.replace("-", "_") for name in names)
