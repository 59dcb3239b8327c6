"""A client of the network block device protocol: writes, flushes and reads, several in flight.

Speaks the fixed newstyle handshake and simple replies of the protocol's specification
(NetworkBlockDevice/nbd, doc/proto.md). The packages for Python are bindings that need libnbd of
the distribution; what is needed here is a page.
"""

from __future__ import annotations

import socket
import struct
from dataclasses import dataclass, field
from enum import IntEnum, IntFlag

from vdisklab.errors import GuestError

_GREETING = struct.Struct(">8s8sH")
_OPTION = struct.Struct(">8sII")
_OPTION_REPLY = struct.Struct(">QIII")
_REQUEST = struct.Struct(">IHHQQI")
_REPLY = struct.Struct(">IIQ")
_EXPORT = struct.Struct(">HQH")

_FIXED_NEWSTYLE, _NO_ZEROES = 1, 2
_OPTION_GO = 7
_OPTION_REPLY_MAGIC = 0x3E889045565A9
_REP_ACK, _REP_INFO, _INFO_EXPORT = 1, 3, 0
_REP_ERROR = 1 << 31
_REQUEST_MAGIC, _REPLY_MAGIC = 0x25609513, 0x67446698


class Command(IntEnum):
    """What is asked of the disk."""

    READ = 0
    WRITE = 1
    DISCONNECT = 2
    FLUSH = 3


class CommandFlag(IntFlag):
    """How."""

    FUA = 1


class Feature(IntFlag):
    """What the server says it can do (transmission flags)."""

    READ_ONLY = 2
    FLUSH = 4
    FUA = 8


@dataclass(slots=True)
class NbdClient:
    """One connection, after the handshake. Requests are numbered; replies come in any order."""

    connection: socket.socket
    size: int
    features: Feature
    _next: int = 1
    _reads: dict[int, int] = field(default_factory=dict)

    def write(self, offset: int, data: bytes, *, fua: bool = False) -> int:
        """Sends a write and returns its number."""
        flags = CommandFlag.FUA if fua else CommandFlag(0)
        return self._send(Command.WRITE, offset, len(data), flags, data)

    def flush(self) -> int:
        """Sends a flush and returns its number."""
        return self._send(Command.FLUSH, 0, 0)

    def await_one(self) -> tuple[int, bytes]:
        """The number of the next request that is answered, and what was read.

        Raises GuestError when the server refuses it or is gone.
        """
        magic, error, number = _REPLY.unpack(_receive(self.connection, _REPLY.size))
        if magic != _REPLY_MAGIC:
            raise GuestError("the NBD server sent something that is no reply")
        if error:
            raise GuestError(
                f"the disk answered a request with error {error}",
                hint="the host's file system may be full (`df`); else QEMU's words stand in "
                "--debug",
            )
        return number, _receive(self.connection, self._reads.pop(number, 0))

    def read(self, offset: int, length: int) -> bytes:
        """Reads, with nothing else in flight."""
        number = self._send(Command.READ, offset, length)
        self._reads[number] = length
        answered, data = self.await_one()
        if answered != number:
            raise GuestError("the NBD server answered a request that was not sent")
        return data

    def sync(self) -> None:
        """Flushes and waits, with nothing else in flight."""
        self.flush()
        self.await_one()

    def disconnect(self) -> None:
        """Says good-bye; there is no answer."""
        self._send(Command.DISCONNECT, 0, 0)

    def _send(
        self,
        command: Command,
        offset: int,
        length: int,
        flags: CommandFlag = CommandFlag(0),  # noqa: B008 - a constant
        data: bytes = b"",
    ) -> int:
        number, self._next = self._next, self._next + 1
        head = _REQUEST.pack(_REQUEST_MAGIC, flags, command, number, offset, length)
        try:
            self.connection.sendall(head + data)
        except OSError as error:
            raise GuestError(
                f"the connection to the disk was lost: {error}",
                hint="qemu-storage-daemon ended: `dmesg` says whether it was killed for want "
                "of memory",
            ) from error
        return number


def open_nbd(connection: socket.socket, export: str) -> NbdClient:
    """Shakes hands for an export. Raises GuestError when the server has no such export."""
    first, second, flags = _GREETING.unpack(_receive(connection, _GREETING.size))
    if (first, second) != (b"NBDMAGIC", b"IHAVEOPT") or not flags & _FIXED_NEWSTYLE:
        raise GuestError("what listens there is no NBD server of the newstyle protocol")
    name = export.encode()
    body = struct.pack(">I", len(name)) + name + struct.pack(">H", 0)
    connection.sendall(
        struct.pack(">I", flags & (_FIXED_NEWSTYLE | _NO_ZEROES))
        + _OPTION.pack(b"IHAVEOPT", _OPTION_GO, len(body))
        + body
    )
    size, features = 0, Feature(0)
    while True:
        magic, _, kind, length = _OPTION_REPLY.unpack(_receive(connection, _OPTION_REPLY.size))
        answer = _receive(connection, length)
        if magic != _OPTION_REPLY_MAGIC or kind & _REP_ERROR:
            said = answer.decode(errors="replace") or f"error {kind:#x}"
            raise GuestError(
                f"the NBD server refuses the export {export}: {said}",
                hint="another program may use the image: `lsof` names it",
            )
        if kind == _REP_INFO and int.from_bytes(answer[:2], "big") == _INFO_EXPORT:
            _, size, bits = _EXPORT.unpack(answer)
            features = Feature(bits & sum(Feature))
        if kind == _REP_ACK:
            return NbdClient(connection, size, features)


def _receive(connection: socket.socket, length: int) -> bytes:
    parts = bytearray()
    while len(parts) < length:
        try:
            part = connection.recv(length - len(parts))
        except OSError as error:
            raise GuestError(
                f"the connection to the disk was lost: {error}",
                hint="qemu-storage-daemon ended: `dmesg` says whether it was killed for want "
                "of memory",
            ) from error
        if not part:
            raise GuestError(
                "the connection to the disk was closed by the other side",
                hint="qemu-storage-daemon ended: `dmesg` says whether it was killed for want "
                "of memory",
            )
        parts += part
    return bytes(parts)
