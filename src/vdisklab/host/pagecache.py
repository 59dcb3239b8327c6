"""The host's page cache, emptied, filled and read back; and what this kernel supports around it.

O_DIRECT and io_uring are tried, drivers are looked up by their modules.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import mmap
import os
import re
import stat
import tempfile
import time
from collections.abc import Iterable
from functools import cached_property, partial
from pathlib import Path

from vdisklab.errors import HostError
from vdisklab.host import command, mounts, syscalls
from vdisklab.host.answering import answered
from vdisklab.host.direct_alignment import LEAST_BLOCK, direct_alignment
from vdisklab.host.machine import SYSTEM, page_size, read_text

_CHUNK = 4 << 20

# cachestat(2), since Linux 6.5: counts cached pages without changing them.
_SYS_CACHESTAT = 451
# ioctl of linux/fs.h: flushes and invalidates a block device's buffers.
_BLKFLSBUF = 0x1261

_libc = ctypes.CDLL(None, use_errno=True)


_PAUSES = (0.01, 0.05, 0.1, 0.3)
"""Seconds between the trials of O_DIRECT."""

# The same number on every architecture.
_IO_URING_SETUP = 425


class _Range(ctypes.Structure):
    _fields_ = (("offset", ctypes.c_uint64), ("length", ctypes.c_uint64))


class _Cachestat(ctypes.Structure):
    _fields_ = tuple(
        (name, ctypes.c_uint64)
        for name in ("cached", "dirty", "writeback", "evicted", "recently_evicted")
    )


def evict(*paths: Path) -> None:
    """Writes back the dirty pages of files, devices and directories' files, and drops all pages.

    POSIX_FADV_DONTNEED drops only clean pages (mm/fadvise.c), hence the sync first. Pages that a
    process has mapped or locked stay, so check `residency`. Raises HostError.
    """
    for place in paths:
        answered(place, partial(_evict_all, place))


def _evict_all(place: Path) -> None:
    for path in files_of([place]):
        _evict_one(path)


def _evict_one(path: Path) -> None:
    try:
        with syscalls.opened(path, os.O_RDONLY) as descriptor:
            os.fsync(descriptor)
            if stat.S_ISBLK(os.fstat(descriptor).st_mode):
                fcntl.ioctl(descriptor, _BLKFLSBUF, 0)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    except OSError as error:
        raise HostError(
            f"the page cache of {path} cannot be emptied: {error.strerror}",
            hint="check that the file is still there and readable",
        ) from error


def write_back(path: Path) -> None:
    """Writes back dirty pages, which stay in the page cache. Raises HostError."""
    try:
        with syscalls.opened(path, os.O_RDONLY) as descriptor:
            os.fsync(descriptor)
    except OSError as error:
        raise HostError(f"{path} cannot be written back: {error.strerror}") from error


def warm(path: Path) -> None:
    """Reads a whole file or device into the page cache. Raises HostError."""
    try:
        with path.open("rb", buffering=0) as file:
            buffer = bytearray(_CHUNK)
            while file.readinto(buffer):
                pass
    except OSError as error:
        raise HostError(
            f"{path} cannot be read into the page cache: {error.strerror}",
            hint="the disk may be failing: see `dmesg`",
        ) from error


def residency(path: Path) -> float:
    """The share (0 to 1) of a file's or device's pages, holes included, that are in the page cache.

    Uses cachestat(2), or mincore(2) on older kernels. Raises HostError.
    """
    try:
        with syscalls.opened(path, os.O_RDONLY) as descriptor:
            size, page = os.lseek(descriptor, 0, os.SEEK_END), page_size()
            if size == 0:
                return 0.0
            return cached_share(_cached_pages(descriptor, size, page), size, page)
    except OSError as error:
        raise HostError(
            f"the page cache of {path} cannot be read back: {os.strerror(error.errno or 0)}",
            hint="this file system supports neither mincore(2) nor cachestat(2): name a directory "
            "on another one with --dir",
        ) from error


def cached_share(cached: int, size: int, page: int) -> float:
    """The share (0 to 1) of a file of `size` bytes that `cached` pages of `page` bytes hold."""
    return min(1.0, cached / _pages(size, page))


def _pages(size: int, page: int) -> int:
    return -(-size // page)


def files_of(paths: Iterable[Path]) -> tuple[Path, ...]:
    """These files and devices; each directory is replaced by the files that are in it now."""
    return tuple(
        file
        for path in paths
        for file in (sorted(path.rglob("*")) if path.is_dir() else (path,))
        if file == path or file.is_file()
    )


def resident_share(path: Path) -> float | None:
    """The `residency` of a file, or of a directory's data; None if the directory holds none.

    Holes in its files hold no data, and on tmpfs they never get a page. A guest's fio leaves holes
    in files that it writes through 9p, because 9p cannot allocate.
    """
    if not path.is_dir():
        return residency(path)
    sizes = {file: file.stat().st_size for file in files_of([path])}
    total = min(sum(sizes.values()), occupied_bytes(path) or 0)
    if not total:
        return None
    return min(1.0, sum(residency(file) * size for file, size in sizes.items()) / total)


def occupied_bytes(path: Path) -> int | None:
    """Bytes that a file or a directory's files occupy on their file system; None for a device."""
    if path.is_block_device():
        return None
    return sum(file.stat().st_blocks * 512 for file in files_of([path]))


def unwritten_bytes(file: Path) -> int | None:
    """Bytes of a file's pages that have not reached the disk: dirty ones, and those on their way.

    None where the kernel does not count them (before 6.5), and for a file that is not there.
    """
    try:
        with syscalls.opened(file, os.O_RDONLY) as descriptor:
            counts = _cache_counts(descriptor, 0)  # to the end of the file
    except OSError:
        return None
    return None if counts is None else (int(counts.dirty) + int(counts.writeback)) * page_size()


def _cached_pages(descriptor: int, size: int, page: int) -> int:
    counts = _cache_counts(descriptor, size)
    return _mincore(descriptor, size, page) if counts is None else int(counts.cached)


def _cache_counts(descriptor: int, size: int) -> _Cachestat | None:
    """The pages of the first `size` bytes; None if the kernel has no cachestat(2)."""
    where = _Range(0, size)
    counts = _Cachestat()
    done = _libc.syscall(
        ctypes.c_long(_SYS_CACHESTAT), descriptor, ctypes.byref(where), ctypes.byref(counts), 0
    )
    if done == 0:
        return counts
    if ctypes.get_errno() not in (errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM):
        raise OSError(ctypes.get_errno(), "cachestat")
    return None


def _mincore(descriptor: int, size: int, page: int) -> int:
    _libc.mmap.restype = ctypes.c_void_p
    _libc.mmap.argtypes = (
        ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long,
    )  # fmt: skip
    prot_none, map_shared = 0, 1
    address = _libc.mmap(None, size, prot_none, map_shared, descriptor, 0)
    if address in (None, ctypes.c_void_p(-1).value):
        raise OSError(ctypes.get_errno(), "mmap")
    try:
        vector = (ctypes.c_ubyte * _pages(size, page))()
        if _libc.mincore(ctypes.c_void_p(address), ctypes.c_size_t(size), vector) != 0:
            raise OSError(ctypes.get_errno(), "mincore")
        return sum(byte & 1 for byte in vector)
    finally:
        _libc.munmap(ctypes.c_void_p(address), ctypes.c_size_t(size))


def try_o_direct(directory: Path) -> str | None:
    """Writes and reads 4 KiB with O_DIRECT in `directory`; returns why that failed, or None.

    4 KiB is the largest alignment that QEMU tries for files (block/file-posix.c,
    raw_probe_alignment). On a file system that needs more, QEMU refuses cache=none.

    Opening a file proves nothing: some file systems accept the flag and refuse the transfer, and
    some transfer through the page cache. btrfs does that now and then on a busy machine, so what
    failed is tried again.
    """
    refused = None
    for pause in (*_PAUSES, 0.0):
        try:
            refused = _try_in(directory)
        except OSError as error:
            return f"no file can be created in {directory}: {error.strerror}"
        if refused is None:
            return None
        time.sleep(pause)
    return refused


def _try_in(directory: Path) -> str | None:
    """The file is made and removed in one directory, even if its name leads elsewhere meanwhile."""
    with syscalls.opened(directory, os.O_PATH | os.O_DIRECTORY) as above:
        same = f"/proc/self/fd/{above}"
        with tempfile.NamedTemporaryFile(dir=same, prefix=".vdisklab-direct-") as file:
            return _try_block(file.name, directory)


def _try_block(path: str, directory: Path) -> str | None:
    flags = os.O_RDWR | os.O_DIRECT | os.O_CLOEXEC
    try:
        descriptor = os.open(path, flags)
    except OSError as error:
        return f"opening with O_DIRECT: {error.strerror}"
    # An anonymous mapping is aligned to a page, unlike a bytes object.
    with mmap.mmap(-1, LEAST_BLOCK) as block:
        try:
            block.write(b"v" * LEAST_BLOCK)
            os.pwritev(descriptor, [block], 0)
            os.preadv(descriptor, [block], 0)
        except OSError as error:
            return _why_refused(error, descriptor)
        finally:
            os.close(descriptor)
        if block[:] != b"v" * LEAST_BLOCK:
            return "the block read differs from the block written"
    return _cached_nevertheless(Path(path), directory)


def _why_refused(error: OSError, descriptor: int) -> str:
    alignment = direct_alignment(descriptor)
    if alignment is not None and alignment.block > LEAST_BLOCK:
        return (
            f"it takes direct transfers in blocks of {alignment.block} bytes, and QEMU's have "
            f"{LEAST_BLOCK}"
        )
    return f"transfer with O_DIRECT: {error.strerror}"


def _cached_nevertheless(file: Path, directory: Path) -> str | None:
    """ext4 with data=journal and btrfs with compression use the page cache despite O_DIRECT.

    So does tmpfs, which has no other storage; it counts as direct.
    """
    mount = mounts.mount_of(directory)
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


def mapper_target(host: command.Host, name: str) -> str | None:
    """A target of device-mapper with its version, `crypt v1.24.0`; None if this kernel lacks it."""
    if host.which("modprobe") is not None:
        host.run("modprobe", "--quiet", f"dm-{name}", allowed=range(256))
    listed = host.run("dmsetup", "targets", allowed=range(256))
    targets = map(str.split, listed.stdout.splitlines() if listed.status == 0 else ())
    return next((" ".join(columns) for columns in targets if columns[:1] == [name]), None)


class KernelParts:
    """The file systems, drivers and modules of the running kernel."""

    def __init__(self, root: Path = SYSTEM) -> None:
        self._root = root

    def has_filesystem(self, name: str) -> bool:
        """True when file system `name` is built in, or its module is loaded or installed."""
        listed = (read_text(self._root / "proc/filesystems") or "").split()
        return name in listed or self.has_module(name)

    def has_process(self, name: str) -> bool:
        """True when a process of this name runs that serves what the kernel lacks."""
        processes = (self._root / "proc").glob("[0-9]*/comm")
        return any((read_text(comm) or "").strip() == name for comm in processes)

    def has_driver(self, name: str, module: str) -> bool:
        """True when /proc/devices lists `name`, or its module is loaded or installed."""
        listed = (read_text(self._root / "proc/devices") or "").split()
        return name in listed or self.has_module(module)

    def has_misc_device(self, name: str) -> bool:
        """True when /proc/misc lists `name`: its driver is loaded."""
        return name in (read_text(self._root / "proc/misc") or "").split()

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
