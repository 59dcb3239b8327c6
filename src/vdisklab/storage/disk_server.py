"""The server process of the logged disk: one file served over /dev/fuse, every change in a log.

Run as `python -m vdisklab.storage.disk_server`; `logged_disk` starts it. Decision 0007
(docs/decisions) says why no FUSE library is used.

The structures and numbers are those of linux/fuse.h, protocol 7.38 and older; the kernel takes the
lower of both sides' minor versions (FUSE_INIT).
"""

from __future__ import annotations

import argparse
import errno
import os
import random
import select
import signal
import struct
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping
from enum import IntEnum
from pathlib import Path

from vdisklab.errors import INTERRUPTS
from vdisklab.host import syscalls
from vdisklab.host.machine import page_size
from vdisklab.storage.write_log import LogWriter
from vdisklab.units import SECTOR
from vdisklab.value import Value

READY = b"ready\n"
FULL = b"full\n"
"""Written to standard error, once, if a request failed for lack of memory."""

_MOUNT_OPTIONS = (
    "fd={fd},rootmode=100600,user_id=0,group_id=0,allow_other,default_permissions,max_read=1048576"
)
_KNOWN_FALLOCATE = (
    syscalls.FALLOC_KEEP_SIZE | syscalls.FALLOC_PUNCH_HOLE | syscalls.FALLOC_ZERO_RANGE
)

_REQUEST_BUFFER = (1 << 20) + (1 << 13)
"""The buffer size for reads of /dev/fuse: the longest write and its header."""
_MAX_WRITE = 1 << 20

_IN = struct.Struct("<IIQQIIII")
_OUT = struct.Struct("<IiQ")
_INIT_IN = struct.Struct("<IIII")
_INIT_OUT = struct.Struct("<IIIIHHIIHHI28x")
READ_IN = struct.Struct("<QQI")
WRITE_IN = struct.Struct("<QQI20x")
FALLOCATE_IN = struct.Struct("<QQQI4x")
_ATTRIBUTES = struct.Struct("<QQQQQQIIIIIIIIII")
_ATTR_OUT = struct.Struct("<QII")
_OPEN_OUT = struct.Struct("<QII")
WRITE_OUT = struct.Struct("<II")
_STATFS_OUT = struct.Struct("<QQQQQIIII24x")

_MAJOR, _MINOR = 7, 38
_ASYNC_READ, _BIG_WRITES, _ASYNC_DIO, _MAX_PAGES = 1 << 0, 1 << 5, 1 << 15, 1 << 22
_SUPPORTED = _ASYNC_READ | _BIG_WRITES | _ASYNC_DIO | _MAX_PAGES
_OPEN_DIRECT_IO, _OPEN_PARALLEL_DIRECT_WRITES = 1 << 0, 1 << 6
_MAX_BACKGROUND, _CONGESTION = 64, 48
_VALID_SECONDS = 3600
_REGULAR_FILE = 0o100600
_BLOCK = 4096


class Operation(IntEnum):
    """The requests that the kernel sends for a single file mounted on itself."""

    FORGET = 2
    GETATTR = 3
    SETATTR = 4
    OPEN = 14
    READ = 15
    WRITE = 16
    STATFS = 17
    RELEASE = 18
    FSYNC = 20
    FLUSH = 25
    INIT = 26
    INTERRUPT = 36
    DESTROY = 38
    BATCH_FORGET = 42
    FALLOCATE = 43


_UNANSWERED = (Operation.FORGET, Operation.BATCH_FORGET, Operation.INTERRUPT)


class FuseRequest(Value):
    """One request with its number; `body`, which follows the header, is valid until the next
    request."""

    operation: int
    unique: int
    body: memoryview


def _parse_request(message: memoryview) -> FuseRequest:
    length, operation, unique, *_ = _IN.unpack_from(message)
    return FuseRequest(operation, unique, message[_IN.size : length])


def init_reply(body: memoryview, page: int) -> bytes:
    """The reply to FUSE_INIT: asynchronous direct I/O and long requests, if the kernel has them.

    `page` is the size of the host's pages: the kernel wants a request's longest length in pages.
    """
    _, minor, readahead, flags = _INIT_IN.unpack_from(body)
    return _INIT_OUT.pack(
        _MAJOR, min(minor, _MINOR), readahead, flags & _SUPPORTED,
        _MAX_BACKGROUND, _CONGESTION, _MAX_WRITE, 1, _MAX_WRITE // page, 0, 0,
    )  # fmt: skip


def _attributes_reply(size: int) -> bytes:
    """A regular file of `size` bytes, for getattr and setattr."""
    attributes = _ATTRIBUTES.pack(
        1, size, size // 512, 0, 0, 0, 0, 0, 0, _REGULAR_FILE, 1, 0, 0, 0, _BLOCK, 0
    )
    return _ATTR_OUT.pack(_VALID_SECONDS, 0, 0) + attributes


def _open_reply() -> bytes:
    """No page cache between the file's users and the server, no lock between parallel writes."""
    return _OPEN_OUT.pack(1, _OPEN_DIRECT_IO | _OPEN_PARALLEL_DIRECT_WRITES, 0)


def _statfs_reply(size: int) -> bytes:
    """A file system as large as its file."""
    return _STATFS_OUT.pack(size // _BLOCK, 0, 0, 1, 0, _BLOCK, 255, _BLOCK, 0)


class Lies(Value):
    """A disk that drops flushes: this share of them is acknowledged without flushing."""

    dropped_flushes: float = 0.0
    seed: int = 1


HONEST = Lies()


class NoLog:
    """A log that keeps nothing, for a disk whose changes are not of interest."""

    def write(self, offset: int, data: bytes) -> None:
        """Written bytes."""

    def zero(self, offset: int, length: int) -> None:
        """Written zeros."""

    def discard(self, offset: int, length: int) -> None:
        """A discarded range."""

    def flush(self) -> None:
        """A flush."""


class DiskServer:
    """Answers the kernel's requests about one file.

    Writes are answered as late as possible: when no further request is waiting. They are logged
    just before the answer, in random order. So a write that is unanswered when a flush arrives
    follows that flush in the log and is not covered by it, as with a real disk (dm-log-writes has
    the same rule).
    """

    def __init__(
        self, device: int, disk: int, log: LogWriter | NoLog, size: int, lies: Lies
    ) -> None:
        self._device = device
        self._disk = disk
        self._log = log
        self._size = size
        self._lies = lies
        self._lying = random.Random(lies.seed)  # noqa: S311 - reproducible, not secret
        self._order = random.Random(lies.seed)  # noqa: S311 - the order of completions
        self._pending: list[Callable[[], None]] = []
        self._running = True
        self._full = False
        self._handlers: Mapping[int, Callable[[FuseRequest], None]] = {
            Operation.WRITE: self._write,
            Operation.READ: self._read,
            Operation.FSYNC: self._flush,
            Operation.FALLOCATE: self._fallocate,
            Operation.INIT: lambda it: self._reply(it.unique, init_reply(it.body, page_size())),
            Operation.GETATTR: lambda it: self._reply(it.unique, _attributes_reply(size)),
            Operation.SETATTR: lambda it: self._reply(it.unique, _attributes_reply(size)),
            Operation.OPEN: lambda it: self._reply(it.unique, _open_reply()),
            Operation.STATFS: lambda it: self._reply(it.unique, _statfs_reply(size)),
            Operation.RELEASE: lambda it: self._reply(it.unique),
            Operation.FLUSH: lambda it: self._reply(it.unique),  # close(2), not a disk flush
            Operation.DESTROY: self._destroy,
        }

    def serve(self) -> None:
        """Answers the kernel's requests until the file is unmounted."""
        buffer = bytearray(_REQUEST_BUFFER)
        view = memoryview(buffer)
        poll = select.poll()
        poll.register(self._device, select.POLLIN)
        while self._running:
            if not poll.poll(0):
                if self._pending:
                    self._complete()
                    continue
                poll.poll()
            length = self._receive(buffer)
            if length:
                self._answer(_parse_request(view[:length]))

    def _next(self) -> FuseRequest | None:
        """The next request with a body of its own; None if none is waiting."""
        buffer = bytearray(_REQUEST_BUFFER)
        length = self._receive(buffer)
        return _parse_request(memoryview(bytes(buffer[:length]))) if length else None

    def _receive(self, buffer: bytearray) -> int:
        """Reads a request and returns its length; 0 if none is waiting or the file is unmounted."""
        try:
            return os.readv(self._device, [buffer])
        except OSError as error:
            if error.errno == errno.ENODEV:
                self._running = False
            elif error.errno not in (errno.EAGAIN, errno.EINTR, errno.ENOENT):
                raise
            return 0

    def _answer(self, request: FuseRequest) -> None:
        if request.operation in _UNANSWERED:
            return
        handler = self._handlers.get(request.operation)
        if handler is None:
            self._reply(request.unique, error=errno.ENOSYS)
            return
        try:
            handler(request)
        except OSError as error:
            self._fail(request.unique, error)

    def _fail(self, unique: int, error: OSError) -> None:
        """Reports to the kernel and to the parent process that memory is full."""
        if not self._full:
            self._full = True
            os.write(sys.stderr.fileno(), FULL)
        self._reply(unique, error=error.errno or errno.EIO)

    def _complete(self) -> None:
        self._order.shuffle(self._pending)
        pending, self._pending = self._pending, []
        for complete in pending:
            complete()

    def _write(self, request: FuseRequest) -> None:
        _, offset, length = WRITE_IN.unpack_from(request.body)
        # A copy: the buffer is reused for the next request.
        data = bytes(request.body[WRITE_IN.size : WRITE_IN.size + length])
        syscalls.write_whole(self._disk, [data], offset)
        first, sectors = self._whole_sectors(offset, data)
        self._answer_when_logged(
            request.unique, lambda: self._log.write(first, sectors), WRITE_OUT.pack(length, 0)
        )

    def _whole_sectors(self, offset: int, data: bytes) -> tuple[int, bytes]:
        """The data with the rest of its first and last sector; the log has only whole ones.

        A loop device writes nothing else, but QEMU changes single bytes of an image's tables.
        """
        first, end = offset // SECTOR * SECTOR, offset + len(data)
        if first == offset and end % SECTOR == 0:
            return offset, data
        return first, os.pread(self._disk, -(-end // SECTOR) * SECTOR - first, first)

    def _answer_when_logged(self, unique: int, log: Callable[[], None], body: bytes = b"") -> None:
        """Queues a request, to log and answer it as late as possible."""

        def complete() -> None:
            try:
                log()
            except OSError as error:
                self._fail(unique, error)
                return
            self._reply(unique, body)

        self._pending.append(complete)

    def _fallocate(self, request: FuseRequest) -> None:
        _, offset, length, mode = FALLOCATE_IN.unpack_from(request.body)
        length = min(length, self._size - offset)
        discards = bool(mode & syscalls.FALLOC_PUNCH_HOLE)
        if mode & ~_KNOWN_FALLOCATE or not (discards or mode & syscalls.FALLOC_ZERO_RANGE):
            self._reply(request.unique, error=errno.EOPNOTSUPP)
            return
        syscalls.punch_hole(self._disk, offset, length)
        if offset % SECTOR or length % SECTOR:
            first, sectors = self._whole_sectors(offset, bytes(length))
            self._answer_when_logged(request.unique, lambda: self._log.write(first, sectors))
            return
        note = self._log.discard if discards else self._log.zero
        self._answer_when_logged(request.unique, lambda: note(offset, length))

    def _flush(self, request: FuseRequest) -> None:
        if self._lying.random() >= self._lies.dropped_flushes:
            self._log.flush()
        self._reply(request.unique)

    def _read(self, request: FuseRequest) -> None:
        _, offset, length = READ_IN.unpack_from(request.body)
        length = max(0, min(length, self._size - offset))
        self._reply(request.unique, os.pread(self._disk, length, offset))

    def _destroy(self, request: FuseRequest) -> None:
        self._reply(request.unique)
        self._running = False

    def _reply(self, unique: int, body: bytes = b"", *, error: int = 0) -> None:
        header = _OUT.pack(_OUT.size + len(body), -error, unique)
        try:
            os.writev(self._device, [header, body])
        except OSError as failure:
            if failure.errno != errno.ENOENT:  # ENOENT: the request was interrupted
                raise


_SERVED = frozenset({Operation.READ, Operation.WRITE})


class RatedDisk(DiskServer):
    """Answers reads and writes one by one, `rate` in a second; all other requests at once.

    Each takes the same time, whatever its size: so the disk's capacity is known, and a queue grows
    as soon as more is asked of it.
    """

    def __init__(self, device: int, disk: int, size: int, rate: float) -> None:
        super().__init__(device, disk, NoLog(), size, HONEST)
        self._service = 1 / rate
        self._free = 0.0
        self._waiting: deque[tuple[float, FuseRequest]] = deque()

    def serve(self) -> None:
        """Answers the kernel's requests until the file is unmounted."""
        poll = select.poll()
        poll.register(self._device, select.POLLIN)
        while self._running:
            poll.poll(self._milliseconds())
            request = self._next()
            if request is not None and request.operation in _SERVED:
                self._free = max(self._free, time.monotonic()) + self._service
                self._waiting.append((self._free, request))
            elif request is not None:
                self._answer(request)
            while self._waiting and self._waiting[0][0] <= time.monotonic():
                self._answer(self._waiting.popleft()[1])
            self._complete()

    def _milliseconds(self) -> float | None:
        """How long to wait for a request: until the next one is served."""
        if not self._waiting:
            return None
        return max(0.0, (self._waiting[0][0] - time.monotonic()) * 1000)


def _new_log(path: Path) -> LogWriter:
    log = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        return LogWriter(log)
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        os.write(sys.stderr.fileno(), FULL)
        sys.exit(1)


def main() -> None:
    """Mounts the file, prints `ready`, serves until it is unmounted."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--marker", required=True)
    parser.add_argument("--size", type=int, required=True)
    parser.add_argument("--dropped-flushes", type=float, default=0.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rate", type=float, help="requests in a second; nothing is logged")
    for name in ("mountpoint", "disk"):
        parser.add_argument(name, type=Path)
    parser.add_argument("log", type=Path, nargs="?")
    options = parser.parse_args()
    lies = Lies(options.dropped_flushes, options.seed)

    def server(device: int, disk: int) -> DiskServer:
        if options.rate is not None:
            return RatedDisk(device, disk, options.size, options.rate)
        return DiskServer(device, disk, _new_log(options.log), options.size, lies)

    serve_file(options.marker, options.mountpoint, options.disk, options.size, server)


def serve_file(
    marker: str, mountpoint: Path, content: Path, size: int, make: Callable[[int, int], DiskServer]
) -> None:
    """Mounts a file with `content`, prints `ready`, serves until it is unmounted.

    `make(FUSE descriptor, content descriptor)` returns the server.
    """
    # The server ends with its mount. If it died with its parent, the disk would vanish below a file
    # system or pool that still uses it: zfs-fuse then suspends the pool, and nobody can destroy it.
    for number in INTERRUPTS:
        signal.signal(number, signal.SIG_IGN)
    disk = os.open(content, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    os.ftruncate(disk, size)
    device = os.open("/dev/fuse", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    server = make(device, disk)
    mount_options = _MOUNT_OPTIONS.format(fd=device)
    syscalls.mount(marker, mountpoint, "fuse.vdisklab", mount_options, 6)
    syscalls.lock_memory()
    sys.stdout.buffer.write(READY)
    sys.stdout.buffer.flush()
    server.serve()


if __name__ == "__main__":
    main()
