"""The server process of storage that fails when it is told to: one file served over /dev/fuse.

Run as `python -m vdisklab.storage.failing_disk`; `failing_file` starts it. Orders come as lines of
JSON on standard input, and each is confirmed by a line on standard output when it is in effect.
Every request that is not answered as usual is noted in a file, with its time and place, so that
what failed is known and not guessed.

When standard input ends, the storage is good again: a vdisklab that is killed leaves no QEMU behind
that waits for an answer.
"""

from __future__ import annotations

import argparse
import errno
import json
import os
import select
import sys
import time
from collections.abc import Iterator, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any

from msgspec import to_builtins

from vdisklab.host import syscalls
from vdisklab.storage.disk_server import (
    FALLOCATE_IN,
    HONEST,
    READ_IN,
    WRITE_IN,
    WRITE_OUT,
    DiskServer,
    FuseRequest,
    NoLog,
    Operation,
    serve_file,
)
from vdisklab.value import Value

IN_EFFECT = b"in effect\n"
BLOCK = 4096
"""Bytes that a thin storage allocates at once."""

_ORDERS = 0  # standard input
_LONGEST_LINE = 1 << 16


class Behaviour(StrEnum):
    """How the storage answers."""

    GOOD = "good"
    ERROR = "error"
    """EIO."""
    FULL = "full"
    """ENOSPC for writes to places without data; all others go well, as in a thin image."""
    QUOTA = "quota"
    """EDQUOT for the same writes: so answer btrfs and ZFS when a quota is reached."""
    SILENT = "silent"
    """No answer until it is good again."""
    FORGETFUL = "forgetful"
    """Writes are answered as done, and not done."""


class StorageRequest(StrEnum):
    """A request that can fail."""

    WRITE = "write"
    READ = "read"
    FLUSH = "flush"


EVERY_REQUEST = tuple(StorageRequest)


class StorageOrder(Value):
    """How to answer from now on: which kinds of requests, and only within these ranges of bytes.

    After `most` requests the storage is good again; None: not by itself. A flush has no place, so
    ranges spare it.
    """

    behaviour: Behaviour
    kinds: tuple[StorageRequest, ...] = EVERY_REQUEST
    within: tuple[tuple[int, int], ...] = ()
    most: int | None = None

    def to_line(self) -> bytes:
        """The order as `from_line` reads it."""
        return json.dumps(to_builtins(self)).encode() + b"\n"

    @classmethod
    def from_line(cls, line: bytes) -> StorageOrder:
        """The order in a line. Raises ValueError."""
        fields: dict[str, Any] = json.loads(line)
        return cls(
            Behaviour(fields["behaviour"]),
            tuple(StorageRequest(kind) for kind in fields["kinds"]),
            tuple((int(begin), int(end)) for begin, end in fields["within"]),
            fields["most"],
        )

    def concerns(self, kind: StorageRequest, offset: int, length: int) -> bool:
        """True for a request that is not answered as usual."""
        if self.behaviour is Behaviour.GOOD or kind not in self.kinds:
            return False
        if not self.within:
            return True
        return any(offset < end and begin < offset + length for begin, end in self.within)


class TouchedRequest(Value):
    """A request that was not answered as usual: when, and how. `offset` of a flush is 0."""

    seconds: float
    """The host's time of day."""
    kind: StorageRequest
    offset: int
    length: int
    behaviour: Behaviour

    def to_line(self) -> str:
        """The request as `touched_requests` reads it."""
        return json.dumps(to_builtins(self)) + "\n"


def touched_requests(text: str) -> tuple[TouchedRequest, ...]:
    """The requests in a file of them; a line that is still being written is left out."""
    whole = text[: text.rfind("\n") + 1]
    return tuple(
        TouchedRequest(
            float(fields["seconds"]),
            StorageRequest(fields["kind"]),
            fields["offset"],
            fields["length"],
            Behaviour(fields["behaviour"]),
        )
        for fields in map(json.loads, whole.splitlines())
    )


_REFUSING_NEW = {Behaviour.FULL: errno.ENOSPC, Behaviour.QUOTA: errno.EDQUOT}
"""How storage refuses a write to a place without data."""

_KINDS = {
    Operation.WRITE: StorageRequest.WRITE,
    Operation.FALLOCATE: StorageRequest.WRITE,
    Operation.READ: StorageRequest.READ,
    Operation.FSYNC: StorageRequest.FLUSH,
}


class FailingDisk(DiskServer):
    """Answers the kernel's requests about one file as it is told to."""

    def __init__(self, device: int, disk: int, size: int, notes: int) -> None:
        super().__init__(device, disk, NoLog(), size, HONEST)
        self._notes = notes
        self._ordered = StorageOrder(Behaviour.GOOD)
        self._left: int | None = None
        self._held: list[FuseRequest] = []
        self._allocated = set(_blocks_with_data(disk, size))
        self._received = b""
        self._listening = True

    def serve(self) -> None:
        """Answers the kernel's requests until the file is unmounted."""
        poll = select.poll()
        poll.register(self._device, select.POLLIN)
        poll.register(_ORDERS, select.POLLIN)
        while self._running:
            for descriptor, _ in poll.poll():
                if descriptor == _ORDERS:
                    self._take_orders()
                    if not self._listening:
                        poll.unregister(_ORDERS)
                    continue
                request = self._next()
                if request is not None:
                    self._serve_one(request)

    def _take_orders(self) -> None:
        data = os.read(_ORDERS, _LONGEST_LINE)
        self._listening = bool(data)
        *lines, self._received = (self._received + data).split(b"\n")
        if not data:
            self._obey(StorageOrder(Behaviour.GOOD))
        for line in lines:
            self._obey(StorageOrder.from_line(line))
            sys.stdout.buffer.write(IN_EFFECT)
            sys.stdout.buffer.flush()

    def _obey(self, order: StorageOrder) -> None:
        self._ordered, self._left = order, order.most
        held, self._held = self._held, []
        for request in held:
            self._serve_one(request)

    def _serve_one(self, request: FuseRequest) -> None:
        kind = _KINDS.get(Operation(request.operation)) if _is_known(request) else None
        offset, length = _place(request) if kind is not None else (0, 0)
        order = self._ordered
        if kind is None or not order.concerns(kind, offset, length) or self._left == 0:
            self._do(request, kind, offset, length)
            return
        if order.behaviour in _REFUSING_NEW and (
            kind is not StorageRequest.WRITE or self._fits(request, offset, length)
        ):
            self._do(request, kind, offset, length)
            return
        self._left = None if self._left is None else self._left - 1
        noted = TouchedRequest(time.time(), kind, offset, length, order.behaviour)
        os.write(self._notes, noted.to_line().encode())
        self._misbehave(request, kind, order.behaviour, length)

    def _misbehave(
        self, request: FuseRequest, kind: StorageRequest, behaviour: Behaviour, length: int
    ) -> None:
        match behaviour:
            case Behaviour.SILENT:
                self._held.append(request)
            case Behaviour.FORGETFUL if kind is StorageRequest.READ:
                self._answer(request)
            case Behaviour.FORGETFUL if request.operation == Operation.WRITE:
                self._reply(request.unique, WRITE_OUT.pack(length, 0))
            case Behaviour.FORGETFUL:
                self._reply(request.unique)
            case _:
                self._reply(request.unique, error=_REFUSING_NEW.get(behaviour, errno.EIO))

    def _do(
        self, request: FuseRequest, kind: StorageRequest | None, offset: int, length: int
    ) -> None:
        """Answers a request as usual, at once, and notes what it allocates."""
        self._answer(request)
        self._complete()
        if kind is not StorageRequest.WRITE:
            return
        if request.operation == Operation.WRITE:
            self._allocated.update(_blocks(offset, length))
        else:  # a range of zeros, of which whole blocks are given back
            self._allocated.difference_update(
                range(-(-offset // BLOCK), (offset + length) // BLOCK)
            )

    def _fits(self, request: FuseRequest, offset: int, length: int) -> bool:
        """True if a write needs no new block; zeros need none."""
        if request.operation == Operation.FALLOCATE:
            return True
        return self._allocated.issuperset(_blocks(offset, length))


def _is_known(request: FuseRequest) -> bool:
    return request.operation in set(Operation)


def _place(request: FuseRequest) -> tuple[int, int]:
    """The first byte and the number of bytes of a request; a flush has none."""
    if request.operation == Operation.FSYNC:
        return 0, 0
    form = FALLOCATE_IN if request.operation == Operation.FALLOCATE else WRITE_IN
    if request.operation == Operation.READ:
        form = READ_IN
    _, offset, length, *_ = form.unpack_from(request.body)
    return offset, length


def _blocks(offset: int, length: int) -> range:
    return range(offset // BLOCK, -(-(offset + length) // BLOCK))


def _blocks_with_data(disk: int, size: int) -> Iterator[int]:
    """The blocks of a sparse file that have data."""
    end = 0
    while end < size:
        try:
            begin = os.lseek(disk, end, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:  # only a hole follows
                return
            raise
        end = os.lseek(disk, begin, os.SEEK_HOLE)
        yield from _blocks(begin, end - begin)


def main(argv: Sequence[str] | None = None) -> None:
    """Mounts the file, prints `ready`, serves until it is unmounted."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--marker", required=True)
    parser.add_argument("--size", type=int, required=True)
    for name in ("mountpoint", "disk", "notes"):
        parser.add_argument(name, type=Path)
    options = parser.parse_args(argv)
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
    with syscalls.opened(options.notes, flags) as notes:

        def server(device: int, disk: int) -> DiskServer:
            return FailingDisk(device, disk, options.size, notes)

        serve_file(options.marker, options.mountpoint, options.disk, options.size, server)


if __name__ == "__main__":
    main()
