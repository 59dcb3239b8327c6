"""The client on QEMU's block layer alone: requests over NBD to a storage daemon, no guest.

`NbdDisk` speaks the fixed newstyle handshake and simple replies of the protocol's specification
(NetworkBlockDevice/nbd, doc/proto.md). Python's NBD packages need the distribution's libnbd; the
part needed here is short.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import TypeVar

import numpy as np

from vdisklab.errors import GuestError, GuestTimeoutError, SilentGuestError
from vdisklab.guest.qemu.block_nodes import Disk
from vdisklab.guest.qemu.daemons import StorageDaemon, start_storage_daemon
from vdisklab.host.ledger import Ledger
from vdisklab.path.segments import Bus
from vdisklab.powercut.client import ReadableDisk
from vdisklab.powercut.sectors import Bytes, Extent, Numbers, make_sectors, read_sorted
from vdisklab.storage.qcow2_header import BadImageError
from vdisklab.units import SECTOR
from vdisklab.value import replace

_GREETING = struct.Struct(">8s8sH")
_OPTION = struct.Struct(">8sII")
_OPTION_REPLY = struct.Struct(">QIII")
_REQUEST = struct.Struct(">IHHQQI")
_REPLY = struct.Struct(">IIQ")

_FIXED_NEWSTYLE, _NO_ZEROES = 1, 2
_OPTION_GO = 7
_OPTION_REPLY_MAGIC = 0x3E889045565A9
_REP_ACK = 1
_REP_ERROR = 1 << 31
_REQUEST_MAGIC, _REPLY_MAGIC = 0x25609513, 0x67446698

T = TypeVar("T")


_FUA = 1


class _Command(IntEnum):
    READ = 0
    WRITE = 1
    DISCONNECT = 2
    FLUSH = 3
    TRIM = 4


@dataclass(slots=True)
class NbdDisk:
    """A `ClientDisk` over one connection, after the handshake.

    Requests are numbered; replies come in any order.
    """

    connection: socket.socket
    _next: int = 1

    @property
    def observed(self) -> Mapping[str, str]:
        """Empty: nothing is read back."""
        return {}

    def write(self, first: int, count: int, version: int, *, fua: bool) -> int:
        """Sends a write of sectors and returns its number."""
        data = make_sectors(first, count, version)
        flags = _FUA if fua else 0
        return self._send(_Command.WRITE, first * SECTOR, len(data), flags, data)

    def flush(self) -> int:
        """Sends a flush and returns its number."""
        return self._send(_Command.FLUSH, 0, 0)

    def discard(self, first: int, count: int) -> int:
        """Sends a discard of sectors and returns its number."""
        return self._send(_Command.TRIM, first * SECTOR, count * SECTOR)

    def await_one(self) -> int:
        """The number of the next answered request.

        Raises GuestError when the server refuses the request or has ended.
        """
        magic, error, number = _REPLY.unpack(_receive(self.connection, _REPLY.size))
        if magic != _REPLY_MAGIC:
            raise GuestError("the NBD server sent data that is not a reply")
        if error:
            raise GuestError(
                f"the disk answered a request with error {error}",
                hint="the host's file system may be full (`df`); otherwise --debug shows what QEMU "
                "printed",
            )
        return int(number)

    def read(self, extent: Extent) -> bytes:
        """Reads sectors; no other request may be in flight."""
        length = extent.count * SECTOR
        number = self._send(_Command.READ, extent.first * SECTOR, length)
        if self.await_one() != number:
            raise GuestError("the NBD server answered a request that vdisklab did not send")
        return _receive(self.connection, length)

    def sync(self) -> None:
        """Flushes and waits; no other request may be in flight."""
        self.flush()
        self.await_one()

    def disconnect(self) -> None:
        """Ends the session; there is no answer."""
        self._send(_Command.DISCONNECT, 0, 0)

    def go_on_with(self, connection: socket.socket, export: str) -> None:
        """Breaks the connection off, without a flush, and goes on with another one."""
        self.connection.close()
        self.connection = connection
        _open_export(connection, export)

    def _send(
        self, command: _Command, offset: int, length: int, flags: int = 0, data: bytes = b""
    ) -> int:
        number, self._next = self._next, self._next + 1
        head = _REQUEST.pack(_REQUEST_MAGIC, flags, command, number, offset, length)
        try:
            self.connection.sendall(head + data)
        except OSError as error:
            raise _connection_lost(error) from error
        return number


def _open_export(connection: socket.socket, export: str) -> None:
    """Does the handshake. Raises GuestError when the server has no such export."""
    first, second, flags = _GREETING.unpack(_receive(connection, _GREETING.size))
    if (first, second) != (b"NBDMAGIC", b"IHAVEOPT") or not flags & _FIXED_NEWSTYLE:
        raise GuestError("the server does not speak NBD's newstyle protocol")
    name = export.encode()
    body = struct.pack(">I", len(name)) + name + struct.pack(">H", 0)
    connection.sendall(
        struct.pack(">I", flags & (_FIXED_NEWSTYLE | _NO_ZEROES))
        + _OPTION.pack(b"IHAVEOPT", _OPTION_GO, len(body))
        + body
    )
    kind = None
    while kind != _REP_ACK:
        magic, _, kind, length = _OPTION_REPLY.unpack(_receive(connection, _OPTION_REPLY.size))
        answer = _receive(connection, length)
        if magic != _OPTION_REPLY_MAGIC or kind & _REP_ERROR:
            reason = answer.decode(errors="replace") or f"error {kind:#x}"
            raise GuestError(
                f"the NBD server refuses the export {export}: {reason}",
                hint="another program may use the image: `lsof` names it",
            )


def read_through(disk: ReadableDisk, numbers: Numbers) -> Bytes:
    """The sectors with these sorted numbers, read by QEMU. Raises GuestError."""
    sectors = np.zeros((len(numbers), SECTOR), dtype=np.uint8)
    for part, rows in read_sorted(numbers, disk.read):
        sectors[part] = rows
    return sectors.reshape(-1)


def _receive(connection: socket.socket, length: int) -> bytes:
    parts = bytearray()
    while len(parts) < length:
        try:
            part = connection.recv(length - len(parts))
        except OSError as error:
            raise _connection_lost(error) from error
        if not part:
            raise _connection_lost("closed by the other side")
        parts += part
    return bytes(parts)


def _connection_lost(reason: OSError | str) -> GuestError:
    if isinstance(reason, TimeoutError):
        return GuestTimeoutError("QEMU did not answer a request for the disk in time")
    return GuestError(
        f"the connection to the disk was lost: {reason}",
        hint="qemu-storage-daemon ended: `dmesg` shows whether it was killed for lack of memory",
    )


@contextmanager
def nbd_disk(daemon: StorageDaemon, disk: Disk) -> Iterator[NbdDisk]:
    """A disk that QEMU's storage daemon serves over NBD, whatever its bus, in an open context."""
    disk = replace(disk, attachment=replace(disk.attachment, bus=Bus.VIRTIO))
    with daemon.export(disk):
        opened = NbdDisk(daemon.connect())
        try:
            _open_export(opened.connection, disk.serial)
            yield opened
            opened.disconnect()
        finally:
            opened.connection.close()


@dataclass(slots=True)
class RestartingDaemon:
    """A storage daemon for many states, started on first use and restarted if it has ended."""

    ledger: Ledger
    directory: Path
    name: str
    _running: StorageDaemon | None = None
    _stack: ExitStack = field(default_factory=ExitStack)
    _started: int = 0

    def running(self) -> StorageDaemon:
        """The running daemon, started if necessary. Raises GuestError if it does not start."""
        if self._running is None or not self._running.alive():
            self.end()
            self._started += 1
            name = f"{self.name}-{self._started}"
            self._running = self._stack.enter_context(
                start_storage_daemon(self.ledger, self.directory, name)
            )
        return self._running

    def with_disk(self, disk: Disk, use: Callable[[NbdDisk], T]) -> T:
        """Calls `use` with the opened disk and returns its result.

        Raises BadImageError when QEMU refuses the image, and GuestTimeoutError or SilentGuestError
        when it does not answer in time, which is no verdict. An image can crash QEMU, which is a
        verdict; or QEMU is killed, which is not. So the image counts as bad only if a second daemon
        ends on it too.
        """
        for last in (False, True):
            daemon = self.running()
            try:
                with nbd_disk(daemon, disk) as opened:
                    return use(opened)
            except (GuestTimeoutError, SilentGuestError):
                self.end()  # the next state gets one that is not busy with this image
                raise
            except GuestError as error:
                if daemon.alive():
                    raise BadImageError(f"QEMU cannot use the image: {error}") from error
                if last:
                    raise BadImageError(
                        f"QEMU ended twice when it used the image: {error}"
                    ) from error
        raise AssertionError

    def end(self) -> None:
        """Ends the daemon if it runs."""
        self._running = None
        self._stack.close()


@contextmanager
def restarting_daemon(ledger: Ledger, directory: Path, name: str) -> Iterator[RestartingDaemon]:
    """A daemon that ends with the context; `name` must be unique on this host."""
    daemon = RestartingDaemon(ledger, directory, name)
    try:
        yield daemon
    finally:
        daemon.end()
