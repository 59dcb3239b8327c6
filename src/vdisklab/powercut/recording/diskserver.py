"""The process that is the logged disk: one file, served over /dev/fuse, every change in a log.

Run as `python -m vdisklab.powercut.recording.diskserver`; `logdisk` starts it. Decision 0007
(docs/decisions) says why no FUSE library does this.
"""

from __future__ import annotations

import argparse
import errno
import os
import random
import select
import signal
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from vdisklab.host import syscalls
from vdisklab.host.interrupts import INTERRUPTS
from vdisklab.powercut.recording import fuse
from vdisklab.powercut.recording.fuse import Operation, Request, Span
from vdisklab.powercut.recording.log import LogWriter

READY = b"ready\n"
FULL = b"full\n"
"""Said once on standard error when there was no room for something: the disk then failed."""

_MOUNT_OPTIONS = (
    "fd={fd},rootmode=100600,user_id=0,group_id=0,allow_other,default_permissions,max_read=1048576"
)
_KNOWN_FALLOCATE = (
    syscalls.FALLOC_KEEP_SIZE | syscalls.FALLOC_PUNCH_HOLE | syscalls.FALLOC_ZERO_RANGE
)
_SILENT = (Operation.FORGET, Operation.BATCH_FORGET, Operation.INTERRUPT)


@dataclass(frozen=True, slots=True)
class Lies:
    """What a dishonest disk does: it answers so many of its flushes without flushing."""

    dropped_flushes: float = 0.0
    seed: int = 1


class DiskServer:
    """Answers the kernel's requests about one file.

    Writes are answered as late as possible: when no further request waits. They are logged just
    before their answer, in a random order. A write that is unanswered when a flush arrives
    therefore stands behind it in the log and is not covered by it, as with a real disk (the
    rule of dm-log-writes).
    """

    def __init__(self, device: int, disk: int, log: LogWriter, size: int, lies: Lies) -> None:
        self._device = device
        self._disk = disk
        self._log = log
        self._size = size
        self._lies = lies
        self._lying = random.Random(lies.seed)  # noqa: S311 - a reproducible liar
        self._order = random.Random(lies.seed)  # noqa: S311 - the order of completions
        self._pending: list[Callable[[], None]] = []
        self._running = True
        self._full = False
        self._handlers: Mapping[int, Callable[[Request], None]] = {
            Operation.WRITE: self._write,
            Operation.READ: self._read,
            Operation.FSYNC: self._flush,
            Operation.FALLOCATE: self._fallocate,
            Operation.INIT: lambda it: self._reply(it.unique, fuse.init_reply(it.body)),
            Operation.GETATTR: lambda it: self._reply(it.unique, fuse.attributes_reply(size)),
            Operation.SETATTR: lambda it: self._reply(it.unique, fuse.attributes_reply(size)),
            Operation.OPEN: lambda it: self._reply(it.unique, fuse.open_reply()),
            Operation.STATFS: lambda it: self._reply(it.unique, fuse.statfs_reply(size)),
            Operation.RELEASE: lambda it: self._reply(it.unique),
            Operation.FLUSH: lambda it: self._reply(it.unique),  # a close, not a flush of the disk
            Operation.DESTROY: self._destroy,
        }

    def serve(self) -> None:
        """Answers until the file is unmounted."""
        buffer = bytearray(fuse.REQUEST_BUFFER)
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
                self._answer(fuse.parse_request(view[:length]))

    def _receive(self, buffer: bytearray) -> int:
        """Reads a request; 0 when there was none after all, or when the file is unmounted."""
        try:
            return os.readv(self._device, [buffer])
        except OSError as error:
            if error.errno == errno.ENODEV:
                self._running = False
            elif error.errno not in (errno.EAGAIN, errno.EINTR, errno.ENOENT):
                raise
            return 0

    def _answer(self, request: Request) -> None:
        if request.operation in _SILENT:
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
        """The memory below is full: the file system above must hear of it, and so must we."""
        if not self._full:
            self._full = True
            os.write(sys.stderr.fileno(), FULL)
        self._reply(unique, error=error.errno or errno.EIO)

    def _complete(self) -> None:
        self._order.shuffle(self._pending)
        pending, self._pending = self._pending, []
        for complete in pending:
            complete()

    def _write(self, request: Request) -> None:
        offset, data = fuse.parse_write(request.body)
        syscalls.write_whole(self._disk, [data], offset)
        self._answer_when_logged(
            request.unique,
            lambda: self._log.write(offset, data),
            fuse.write_reply(len(data)),
        )

    def _answer_when_logged(self, unique: int, log: Callable[[], None], body: bytes = b"") -> None:
        """Answers a request as late as possible, just after it was logged."""

        def complete() -> None:
            try:
                log()
            except OSError as error:
                self._fail(unique, error)
                return
            self._reply(unique, body)

        self._pending.append(complete)

    def _fallocate(self, request: Request) -> None:
        span, mode = fuse.parse_fallocate(request.body)
        span = Span(span.offset, min(span.length, self._size - span.offset))
        gives_back = bool(mode & syscalls.FALLOC_PUNCH_HOLE)
        if mode & ~_KNOWN_FALLOCATE or not (gives_back or mode & syscalls.FALLOC_ZERO_RANGE):
            self._reply(request.unique, error=errno.EOPNOTSUPP)
            return
        syscalls.punch_hole(self._disk, span.offset, span.length)
        note = self._log.discard if gives_back else self._log.zero
        self._answer_when_logged(request.unique, lambda: note(span.offset, span.length))

    def _flush(self, request: Request) -> None:
        if self._lying.random() >= self._lies.dropped_flushes:
            self._log.flush()
        self._reply(request.unique)

    def _read(self, request: Request) -> None:
        span = fuse.parse_read(request.body)
        length = max(0, min(span.length, self._size - span.offset))
        self._reply(request.unique, os.pread(self._disk, length, span.offset))

    def _destroy(self, request: Request) -> None:
        self._reply(request.unique)
        self._running = False

    def _reply(self, unique: int, body: bytes = b"", *, error: int = 0) -> None:
        try:
            os.writev(self._device, [fuse.reply_head(unique, error, len(body)), body])
        except OSError as failure:
            if failure.errno != errno.ENOENT:  # ENOENT: the request was interrupted
                raise


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
    """Mounts the file, says `ready`, serves until it is unmounted."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--marker", required=True)
    parser.add_argument("--size", type=int, required=True)
    parser.add_argument("--dropped-flushes", type=float, default=0.0)
    parser.add_argument("--seed", type=int, default=1)
    for name in ("mountpoint", "disk", "log"):
        parser.add_argument(name, type=Path)
    asked = parser.parse_args()
    # It ends with its mount. To die with its parent would take the disk away from a file system or
    # a pool that still stands on it: zfs-fuse then suspends the pool, and nobody can destroy it.
    for number in INTERRUPTS:
        signal.signal(number, signal.SIG_IGN)
    disk = os.open(asked.disk, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    os.ftruncate(disk, asked.size)
    device = os.open("/dev/fuse", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    lies = Lies(asked.dropped_flushes, asked.seed)
    server = DiskServer(device, disk, _new_log(asked.log), asked.size, lies)
    options = _MOUNT_OPTIONS.format(fd=device)
    syscalls.mount(asked.marker, asked.mountpoint, "fuse.vdisklab", options, 6)
    syscalls.lock_memory()
    sys.stdout.buffer.write(READY)
    sys.stdout.buffer.flush()
    server.serve()


if __name__ == "__main__":
    main()
