"""System calls that Python lacks: mounts, loop devices, clones of files, seccomp's filter.

The power cut builds thousands of disk states; starting `mount` for each would take longer than the
state itself. Numbers are from linux/loop.h, linux/fs.h, linux/mount.h and linux/falloc.h. These
functions raise OSError with the path.

A filter makes some fsyncs of a process succeed without effect. It tests the power cut itself, which
must detect a QEMU that drops one flush in fifty. An LD_PRELOAD library would need a compiler on the
user's machine; seccomp's user notification (seccomp_unotify(2), Linux 5.5) does not. Numbers are
from linux/seccomp.h and linux/filter.h.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import platform
import select
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from vdisklab.errors import HostError
from vdisklab.host.mounts import still_mounted
from vdisklab.host.waiting import patience
from vdisklab.path.architecture import SYSTEM_CALLS, SystemCalls

FALLOC_KEEP_SIZE = 0x01
FALLOC_PUNCH_HOLE = 0x02
FALLOC_ZERO_RANGE = 0x10
MS_RDONLY, MS_REMOUNT = 1, 32

_FIFREEZE = 0xC0045877
_FITHAW = 0xC0045878
_LOOP_CONFIGURE = 0x4C0A
_LOOP_CLR_FD = 0x4C01
_LOOP_CTL_GET_FREE = 0x4C82
_LOOP_BLOCK_SIZE = 512
_LOOP_MAJOR = 7
_LO_FLAGS_DIRECT_IO = 16
_LOOP_INFO_BYTES, _LOOP_FLAGS_AT, _LOOP_NAME_AT, _LOOP_NAME_BYTES = 232, 52, 56, 64
_BTRFS_IOC_FORGET_DEV = 0x50009405
_BTRFS_VOLUME_BYTES = 4096
_MCL_CURRENT, _MCL_FUTURE = 1, 2
_PR_SET_PDEATHSIG = 1
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_KEPT_BYTES, _MAPPED_BYTES = 256 << 20, 32 << 20
_RELEASE_SECONDS = 10.0
_NO_ID = 0xFFFFFFFF

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mount.argtypes = (
    ctypes.c_char_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_ulong, ctypes.c_char_p,
)  # fmt: skip
_libc.umount2.argtypes = (ctypes.c_char_p, ctypes.c_int)
_libc.fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
_libc.syncfs.argtypes = (ctypes.c_int,)


_PR_SET_NO_NEW_PRIVS = 38
_INSTRUCTION = struct.Struct("HBBI")
_NOTIFICATION_BYTES = 80
_RESPONSE = struct.Struct("<QqiI")
_CONTINUE = 1


def _check(result: int, path: Path | str | None = None) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), None if path is None else str(path))


def mount(source: str, target: Path, filesystem: str, options: str = "", flags: int = 0) -> None:
    """mount(2)."""
    where = os.fsencode(target)
    done = _libc.mount(source.encode(), where, filesystem.encode(), flags, options.encode())
    _check(done, source)


def unmount(target: Path) -> None:
    """umount2(2), repeated for some seconds while the mount is busy."""
    deadline = time.monotonic() + _RELEASE_SECONDS * patience()
    while _libc.umount2(os.fsencode(target), 0) != 0:
        number = ctypes.get_errno()
        if number != errno.EBUSY or time.monotonic() > deadline:
            raise OSError(number, os.strerror(number), str(target))
        time.sleep(0.002)


def set_file_rights(user: int, group: int, groups: Sequence[int]) -> None:
    """Gives this thread of a process of root's a user's rights over files (setfsuid(2)).

    With another user's rights the thread also loses what root may do beyond a file's mode. The
    other threads keep theirs: the C library's setgroups(2) would change them too, so the system
    call is made without it. Raises OSError.
    """
    calls = SYSTEM_CALLS.get(platform.machine())
    if calls is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    listed = (ctypes.c_uint32 * len(groups))(*groups)
    if set(groups) != set(os.getgroups()):  # a user namespace may forbid a change
        _check(_libc.syscall(calls.setgroups, len(groups), ctypes.byref(listed)))
    for change, number in ((_libc.setfsgid, group), (_libc.setfsuid, user)):
        change(ctypes.c_uint32(number))
        if change(ctypes.c_uint32(_NO_ID)) != number:  # they return the former number, no error
            raise OSError(errno.EPERM, os.strerror(errno.EPERM))


def punch_hole(descriptor: int, offset: int, length: int) -> None:
    """Deallocates a range, which then reads as zeros."""
    _check(_libc.fallocate(descriptor, FALLOC_PUNCH_HOLE | FALLOC_KEEP_SIZE, offset, length))


@contextmanager
def opened(path: str | os.PathLike[str], flags: int, mode: int = 0o600) -> Iterator[int]:
    """A file's descriptor, closed at the end; programs that are started meanwhile do not get it."""
    descriptor = os.open(path, flags | os.O_CLOEXEC, mode)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def write_whole(descriptor: int, parts: Sequence[bytes], offset: int) -> None:
    """pwritev(2) of all parts. A short write means that there is no room for the rest."""
    if os.pwritev(descriptor, parts, offset) < sum(map(len, parts)):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def sync_filesystem(directory: Path) -> None:
    """syncfs(2): writes everything in the directory's file system to its disk."""
    with opened(directory, os.O_RDONLY | os.O_DIRECTORY) as descriptor:
        _check(_libc.syncfs(descriptor), directory)


def freeze_and_thaw(directory: Path) -> None:
    """Freezes a file system, as for a snapshot, and thaws it (FIFREEZE in linux/fs.h).

    This empties its journal, as some idle seconds do.
    """
    with opened(directory, os.O_RDONLY | os.O_DIRECTORY) as descriptor:
        fcntl.ioctl(descriptor, _FIFREEZE, 0)
        fcntl.ioctl(descriptor, _FITHAW, 0)


def attach_loop(backing: Path, *, direct_io: bool = True) -> str:
    """Attaches a file to a free loop device and returns the device's name.

    LOOP_CONFIGURE needs Linux 5.8. If another process takes the free device first, the next one
    is used.
    """
    flags = _LO_FLAGS_DIRECT_IO if direct_io else 0
    with opened("/dev/loop-control", os.O_RDWR) as control, opened(backing, os.O_RDWR) as file:
        while True:
            number = fcntl.ioctl(control, _LOOP_CTL_GET_FREE)
            device = f"/dev/loop{number}"
            if not Path(device).exists():  # a container without devtmpfs
                os.mknod(device, 0o60660, os.makedev(_LOOP_MAJOR, number))
            if _configure(device, file, _loop_config(file, backing, flags)):
                return device


def _loop_config(file: int, backing: Path, flags: int) -> bytes:
    information = bytearray(_LOOP_INFO_BYTES)
    struct.pack_into("<I", information, _LOOP_FLAGS_AT, flags)
    name = os.fsencode(backing)[-(_LOOP_NAME_BYTES - 1) :]
    information[_LOOP_NAME_AT : _LOOP_NAME_AT + len(name)] = name
    return struct.pack("<II", file, _LOOP_BLOCK_SIZE) + bytes(information) + bytes(64)


def _configure(device: str, _file: int, config: bytes) -> bool:
    with opened(device, os.O_RDWR) as loop:
        try:
            fcntl.ioctl(loop, _LOOP_CONFIGURE, config)
        except OSError as error:
            if error.errno == errno.EBUSY:
                return False
            raise
    return True


def detach_loop(device: str) -> None:
    """Detaches a loop device and waits until it is free; no error if it is free already.

    Another process may attach the device to its own file at once; that counts as free. Raises
    HostError naming the processes if another mount namespace still has it mounted.
    """
    deadline = time.monotonic() + _RELEASE_SECONDS * patience()
    backing_file = _backing_file(device)
    with opened(device, os.O_RDWR) as loop:
        try:
            fcntl.ioctl(loop, _LOOP_CLR_FD)
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise
    while backing_file is not None and _backing_file(device) == backing_file:
        if time.monotonic() > deadline:
            raise still_mounted(f"the file system on {device}", device) or OSError(
                errno.EBUSY, os.strerror(errno.EBUSY), device
            )
        time.sleep(0.0005)


def _backing_file(device: str) -> str | None:
    """The file that a loop device is attached to; None if it is free."""
    try:
        return Path("/sys/block", Path(device).name, "loop", "backing_file").read_text()
    except OSError:  # ENOENT; ENODEV if it is detached while we read
        return None


def forget_btrfs_devices() -> None:
    """Makes btrfs forget unmounted devices: the next disk state has the same UUID."""
    try:
        control = os.open("/dev/btrfs-control", os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        fcntl.ioctl(control, _BTRFS_IOC_FORGET_DEV, bytearray(_BTRFS_VOLUME_BYTES))
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.EBUSY):
            raise
    finally:
        os.close(control)


def lock_memory() -> bool:
    """Locks this process in memory: a server of a disk must not wait for swap. True on success."""
    return bool(_libc.mlockall(_MCL_CURRENT | _MCL_FUTURE) == 0)


def keep_freed_memory() -> None:
    """Makes this process reuse freed memory instead of returning it to the kernel (mallopt(3)).

    Page faults for the same few megabytes, again for each state, would take longer than reading
    them. A C library without mallopt stays as it is.
    """
    if hasattr(_libc, "mallopt"):
        _libc.mallopt(_M_MMAP_THRESHOLD, _MAPPED_BYTES)
        _libc.mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)


def die_with_parent(signal: int) -> None:
    """Makes the kernel signal this process when its parent ends (prctl(2), PR_SET_PDEATHSIG)."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal)


_SET_MODE_FILTER, _NEW_LISTENER = 1, 1 << 3
_RET_ALLOW, _RET_USER_NOTIF = 0x7FFF0000, 0x7FC00000
_LOAD, _JUMP_EQUAL, _RETURN = 0x20, 0x15, 0x06
_NUMBER_AT, _ARCHITECTURE_AT = 0, 4
_NOTIF_RECV, _NOTIF_SEND = 0xC0502100, 0xC0182101


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


@dataclass(slots=True)
class Forgetful:
    """`before` must run in the process; the counts of sync calls grow while it runs."""

    before: Callable[[], None]
    calls: int = 0
    dropped: int = 0


@contextmanager
def forgetful_syncs(every: int) -> Iterator[Forgetful]:
    """Drops every `every`-th fsync or fdatasync of a process that has called `before`.

    A dropped call returns 0. Raises HostError on an unknown architecture.
    """
    calls = SYSTEM_CALLS.get(platform.machine())
    if calls is None:
        raise HostError(f"dropping fsyncs is not supported on {platform.machine()}")
    near, far = socket.socketpair()
    stop_end, stop = os.pipe()
    state = Forgetful(lambda: _install(far, calls))
    watcher = threading.Thread(target=_watch, args=(near, stop_end, state, every), daemon=True)
    with near, far:
        watcher.start()
        try:
            yield state
        finally:
            os.close(stop)
            watcher.join()
            os.close(stop_end)


def _filter(calls: SystemCalls) -> bytes:
    """The BPF program: fsync and fdatasync go to the listener, other calls to the kernel."""
    return b"".join(
        _INSTRUCTION.pack(*instruction)
        for instruction in (
            (_LOAD, 0, 0, _ARCHITECTURE_AT),
            (_JUMP_EQUAL, 0, 3, calls.audit),
            (_LOAD, 0, 0, _NUMBER_AT),
            (_JUMP_EQUAL, 2, 0, calls.fsync),
            (_JUMP_EQUAL, 1, 0, calls.fdatasync),
            (_RETURN, 0, 0, _RET_ALLOW),
            (_RETURN, 0, 0, _RET_USER_NOTIF),
        )
    )


def _install(far: socket.socket, calls: SystemCalls) -> None:
    """Runs in the new process before exec: installs the filter and sends us the listener."""
    libc = ctypes.CDLL(None, use_errno=True)
    code = _filter(calls)
    program = _Program(len(code) // _INSTRUCTION.size, code)
    libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    listener = libc.syscall(calls.seccomp, _SET_MODE_FILTER, _NEW_LISTENER, ctypes.byref(program))
    if listener < 0:
        raise OSError(ctypes.get_errno(), "seccomp")
    socket.send_fds(far, [b"."], [listener])
    os.close(listener)


def _watch(near: socket.socket, stop: int, state: Forgetful, every: int) -> None:
    readable, _, _ = select.select([near.fileno(), stop], [], [])
    if near.fileno() not in readable:
        return
    _, (listener, *_), _, _ = socket.recv_fds(near, 1, 1)
    poll = select.poll()
    poll.register(listener, select.POLLIN)
    poll.register(stop, select.POLLIN)
    try:
        while True:
            events = dict(poll.poll())
            if stop in events or not events.get(listener, 0) & select.POLLIN:
                return
            _answer(listener, state, every)
    finally:
        os.close(listener)


def _answer(listener: int, state: Forgetful, every: int) -> None:
    notification = bytearray(_NOTIFICATION_BYTES)
    try:
        fcntl.ioctl(listener, _NOTIF_RECV, notification)
        (number,) = struct.unpack_from("<Q", notification)
        state.calls += 1
        drop = state.calls % every == 0
        response = bytearray(_RESPONSE.pack(number, 0, 0, 0 if drop else _CONTINUE))
        fcntl.ioctl(listener, _NOTIF_SEND, response)
        state.dropped += drop
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.EINTR):  # the caller was killed meanwhile
            raise
