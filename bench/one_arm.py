"""A disk that does one request after another, as the arm of a hard disk, with stated times.

    python one_arm.py FILE BYTES READ WRITE FLUSH RATE    # as root, until it is unmounted

FILE becomes a disk of so many bytes in memory. A request takes READ, WRITE or FLUSH milliseconds,
and one more for each RATE bytes, after the requests that came before it. So how long a request
waits depends only on when it and the others arrive.

The disk is a FUSE file system of a single file, served by one thread: no second thread has to be
woken for a request, and requests are done in the order in which they arrive. nbdkit and nbdfuse
(slow_disk.py) send a few of 15 requests to the disk, and the others later, in another order. QEMU
7.2's NBD client reports 15 requests in flight as done when the last of them is.

The protocol is that of include/uapi/linux/fuse.h, version 7.31 (`struct fuse_*`).
"""

from __future__ import annotations

import ctypes
import errno
import heapq
import os
import select
import stat
import struct
import sys
import time
from contextlib import suppress

_IN = struct.Struct("<IIQQIIIHH")
_OUT = struct.Struct("<IiQ")
_MOVE = struct.Struct("<QQIIQII")
"""fuse_read_in and fuse_write_in."""
_INIT = struct.Struct("<IIIIHHIIHHI28x")
_ATTRIBUTES = struct.Struct("<QIIQQQQQQIIIIIIIIII")
_OPENED = struct.Struct("<QII")
_WRITTEN = struct.Struct("<II")
_GETATTR, _OPEN, _READ, _WRITE = 3, 14, 15, 16
_RELEASE, _FSYNC, _FLUSH, _INITIALIZE, _DESTROY = 18, 20, 25, 26, 38
_UNANSWERED = (2, 36, 42)
"""FORGET, INTERRUPT, BATCH_FORGET."""
_VERSION = (7, 31)
_ASYNC_READ, _BIG_WRITES, _ASYNC_DIO, _MAX_PAGES = 1, 1 << 5, 1 << 15, 1 << 22
_DIRECT_IO = 1
"""FOPEN_DIRECT_IO."""
_AT_ONCE = 256
_PAGES = 256
_LARGEST = _PAGES * 4096
_NOSUID, _NODEV = 2, 4
_YEAR = 31_536_000
_ROOT_MODE = stat.S_IFREG | 0o600


class Disk:
    """The disk's content, and when its arm is free."""

    def __init__(self, size: int, times: dict[int, float], rate: float) -> None:
        self.size = size
        self._times = times
        self._rate = rate
        self._free_at = 0.0
        self._content = os.memfd_create("disk")
        os.truncate(self._content, size)

    def answer(self, operation: int, body: memoryview) -> tuple[float, int, bytes]:
        """When an operation that comes now is done, its error and its answer."""
        if operation in (_READ, _WRITE, _FSYNC):
            return self._move(operation, body)
        if operation == _GETATTR:
            return 0.0, 0, self._attributes()
        if operation == _OPEN:
            return 0.0, 0, _OPENED.pack(0, _DIRECT_IO, 0)
        if operation in (_RELEASE, _FLUSH, _DESTROY):
            return 0.0, 0, b""
        return 0.0, errno.ENOSYS, b""

    def _move(self, operation: int, body: memoryview) -> tuple[float, int, bytes]:
        if operation == _FSYNC:
            return self._end(operation, 0), 0, b""
        _, offset, length, *_ = _MOVE.unpack_from(body)
        if operation == _READ:
            return self._end(operation, length), 0, os.pread(self._content, length, offset)
        os.pwrite(self._content, body[_MOVE.size : _MOVE.size + length], offset)
        return self._end(operation, length), 0, _WRITTEN.pack(length, 0)

    def _end(self, operation: int, moved: int) -> float:
        took = (self._times[operation] + moved / self._rate) / 1000
        self._free_at = max(time.monotonic(), self._free_at) + took
        return self._free_at

    def _attributes(self) -> bytes:
        blocks = self.size // 512
        return _ATTRIBUTES.pack(
            _YEAR, 0, 0, 1, self.size, blocks, 0, 0, 0, 0, 0, 0, _ROOT_MODE, 1, 0, 0, 0, 4096, 0
        )


def serve(connection: int, disk: Disk) -> None:
    """Answers each request when the disk has done it, until the file is unmounted."""
    buffer = bytearray(_LARGEST + 4096)
    due: list[tuple[float, int, int, bytes]] = []
    while True:
        wait = max(due[0][0] - time.monotonic(), 0) if due else None
        readable, _, _ = select.select([connection], [], [], wait)
        while due and due[0][0] <= time.monotonic():
            _, unique, error, text = heapq.heappop(due)
            _reply(connection, unique, error, text)
        if not readable:
            continue
        try:
            length = os.readv(connection, [buffer])
        except OSError as problem:
            if problem.errno == errno.ENODEV:  # unmounted
                return
            if problem.errno in (errno.EINTR, errno.EAGAIN, errno.ENOENT):
                continue
            raise
        _, operation, unique, *_ = _IN.unpack_from(buffer)
        body = memoryview(buffer)[_IN.size : length]
        if operation in _UNANSWERED:
            continue
        if operation == _INITIALIZE:
            _reply(connection, unique, 0, _initialized())
            continue
        end, error, text = disk.answer(operation, body)
        heapq.heappush(due, (end, unique, error, text))


def _initialized() -> bytes:
    flags = _ASYNC_READ | _BIG_WRITES | _ASYNC_DIO | _MAX_PAGES
    return _INIT.pack(*_VERSION, 0, flags, _AT_ONCE, _AT_ONCE, _LARGEST, 1, _PAGES, 0, 0)


def _reply(connection: int, unique: int, error: int, text: bytes) -> None:
    with suppress(FileNotFoundError):  # the request was interrupted
        os.writev(connection, [_OUT.pack(_OUT.size + len(text), -error, unique), text])


def main() -> None:
    """Mounts the disk over a file and serves it."""
    place, size, *numbers = sys.argv[1:]
    read, write, flush, rate = map(float, numbers)
    disk = Disk(int(size), {_READ: read, _WRITE: write, _FSYNC: flush}, rate)
    connection = os.open("/dev/fuse", os.O_RDWR)
    libc = ctypes.CDLL(None, use_errno=True)
    options = f"fd={connection},rootmode={_ROOT_MODE:o},user_id=0,group_id=0"
    if libc.mount(b"arm", os.fsencode(place), b"fuse", _NOSUID | _NODEV, options.encode()):
        raise SystemExit(f"{place} cannot be mounted: {os.strerror(ctypes.get_errno())}")
    serve(connection, disk)


if __name__ == "__main__":
    main()
