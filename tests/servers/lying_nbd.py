"""An NBD server whose disk does not return what was written: `doc/proto.md` of the NBD project."""

from __future__ import annotations

import random
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

Lie = Literal["none", "flips bits", "answers zeros", "drops writes"]
SHARE = 0.05
"""The share of the requests that a lie is about; zeros are answered to every one."""

_OPTION, _REPLY, _SIMPLE = 0x49484156454F5054, 0x3E889045565A9, 0x67446698
_EXPORT_NAME, _ABORT, _INFO, _GO = 1, 2, 6, 7
_ACK, _INFORMATION, _UNSUPPORTED = 1, 3, 0x80000001
_FLAGS = 1 | 4 | 8 | 256  # has flags, flush, FUA, several connections


@dataclass(slots=True)
class LyingDisk:
    """A disk in memory; `lie` may be changed at any time, `told` counts the lies."""

    size: int
    lie: Lie = "none"
    seed: int = 0
    told: int = 0
    content: bytearray = field(init=False)
    chance: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self.content = bytearray(self.size)
        self.chance = random.Random(self.seed)  # noqa: S311 - lies need no secrecy

    def read(self, offset: int, length: int) -> bytes:
        data = bytearray(self.content[offset : offset + length])
        if self.lie == "answers zeros":
            self.told += 1
            return bytes(length)
        if self.lie == "flips bits" and self.chance.random() < SHARE:
            self.told += 1
            data[self.chance.randrange(length)] ^= 1 << self.chance.randrange(8)
        return bytes(data)

    def write(self, offset: int, data: bytes) -> None:
        if self.lie == "drops writes" and self.chance.random() < SHARE:
            self.told += 1
        else:
            self.content[offset : offset + len(data)] = data


@contextmanager
def lying_nbd(disk: LyingDisk, directory: Path) -> Iterator[str]:
    """The URL under which the disk is served."""
    place = directory / "lies.sock"
    connections: list[socket.socket] = []
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(place))
        listening.listen()

        def serve() -> None:
            with suppress(OSError):
                while True:
                    connection, _ = listening.accept()
                    connections.append(connection)
                    threading.Thread(target=_converse, args=(connection, disk), daemon=True).start()

        accepting = threading.Thread(target=serve, daemon=True)
        accepting.start()
        try:
            yield f"nbd+unix:///?socket={place}"
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            accepting.join()
            for connection in connections:
                connection.close()
            place.unlink()


def _converse(connection: socket.socket, disk: LyingDisk) -> None:
    with suppress(OSError, EOFError), connection:
        if _negotiated(connection, disk):
            while _answered(connection, disk):
                pass


def _received(connection: socket.socket, length: int) -> bytes:
    data = bytearray()
    while len(data) < length:
        part = connection.recv(length - len(data))
        if not part:
            raise EOFError
        data += part
    return bytes(data)


def _negotiated(connection: socket.socket, disk: LyingDisk) -> bool:
    connection.sendall(b"NBDMAGIC" + struct.pack(">QH", _OPTION, 3))
    _received(connection, 4)
    while True:
        _, option, length = struct.unpack(">QII", _received(connection, 16))
        _received(connection, length)

        def reply(kind: int, data: bytes = b"", option: int = option) -> None:
            connection.sendall(struct.pack(">QIII", _REPLY, option, kind, len(data)) + data)

        if option == _EXPORT_NAME:
            connection.sendall(struct.pack(">QH", disk.size, _FLAGS))
            return True
        if option in (_INFO, _GO):
            reply(_INFORMATION, struct.pack(">HQH", 0, disk.size, _FLAGS))
            reply(_ACK)
            if option == _GO:
                return True
        elif option == _ABORT:
            reply(_ACK)
            return False
        else:
            reply(_UNSUPPORTED)


def _answered(connection: socket.socket, disk: LyingDisk) -> bool:
    _, _, kind, handle, offset, length = struct.unpack(">IHHQQI", _received(connection, 28))
    answer = b""
    if kind == 0:
        answer = disk.read(offset, length)
    elif kind == 1:
        disk.write(offset, _received(connection, length))
    elif kind == 2:
        return False
    connection.sendall(struct.pack(">IIQ", _SIMPLE, 0, handle) + answer)
    return True
