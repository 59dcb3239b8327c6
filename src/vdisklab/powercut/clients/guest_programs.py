"""Programs in a guest that the host controls over a virtio-serial port, such as the client.

The client writes to the guest's disk with O_DIRECT. The host generates the sectors, and the program
answers each request when its system call has returned. So a promise covers the guest's kernel, its
driver and QEMU's device.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import IntEnum
from importlib import resources

import numpy as np

from vdisklab.errors import GuestError
from vdisklab.guest.hotplug import virtio_serial
from vdisklab.guest.machine import Machine
from vdisklab.host.waiting import patience
from vdisklab.powercut.sectors import Extent, make_records
from vdisklab.units import SECTOR

PERL = "/usr/bin/perl"
"""The host's perl in the micro guest; the programs use no Perl modules."""

_END_SECONDS = 30.0
_START_SECONDS = 30.0
_ANSWER_SECONDS = 30.0
_HEAD = struct.Struct("<IIIIQ")
_ANSWER = struct.Struct("<II")
_HELLO = 0
_LARGEST = 128
"""Sectors of the longest request that `writer.pl` has room for."""


def guest_script(name: str) -> str:
    """The text of a script for the guest."""
    return (resources.files("vdisklab.powercut.clients") / "guestfiles" / name).read_text()


@dataclass(slots=True)
class GuestProgram:
    """A running program at its end of a `port`; messages call it `title`."""

    machine: Machine
    line: socket.socket
    process: int
    title: str
    port: str

    def start_again(self, argv: Sequence[str]) -> None:
        """Starts the program after a reset of the guest, which ended it but left the port."""
        self.process = self.machine.agent.start(argv)

    def send(self, data: bytes) -> None:
        """Sends bytes to the program. Raises GuestError if it has ended."""
        try:
            self.line.sendall(data)
        except OSError as error:
            raise self._lost(error) from error

    def receive(self, most: int, seconds: float) -> bytes:
        """The program's next output, up to `most` bytes.

        Raises GuestError after `seconds` without any.
        """
        self.line.settimeout(seconds * patience())
        try:
            data = self.line.recv(most)
        except TimeoutError:
            data = b""
        except OSError as error:
            raise self._lost(error) from error
        if not data:
            raise GuestError(
                f"{self.title} in the guest did not answer within {seconds:.0f} s{self._reason()}"
            )
        return data

    def _lost(self, error: OSError) -> GuestError:
        return GuestError(f"the connection to {self.title} in the guest was lost: {error}")

    def _reason(self) -> str:
        try:
            ended = self.machine.agent.finish(
                self.process, (self.title,), timeout=1.0, allowed=range(-64, 256)
            )
        except GuestError:
            return ""  # it still runs
        return f": {ended.stderr.strip() or f'it ended with {ended.status}'}"


@contextmanager
def guest_program(
    machine: Machine, port: str, argv: Sequence[str], title: str
) -> Iterator[GuestProgram]:
    """Runs a program that opens its end of the port by the name `port`, unique on this host.

    The caller must make the program end. Raises GuestError, and WorkloadError if it fails.
    """
    with virtio_serial(machine, port) as line:
        process = machine.agent.start(argv)
        program = GuestProgram(machine, line, process, title, port)
        yield program
        machine.agent.finish(program.process, (title,), timeout=_END_SECONDS)


class RequestKind(IntEnum):
    """The requests of the client in the guest (`writer.pl`)."""

    QUIT = 0
    WRITE = 1
    WRITE_FUA = 2
    FLUSH = 3
    READ = 4


def writer_request(
    number: int, kind: RequestKind, first: int = 0, count: int = 0, version: int = 0
) -> bytes:
    """A request in the format of `writer.pl`, with one record for each sector to write."""
    head = _HEAD.pack(number, kind, count, 0, first)
    if kind not in (RequestKind.WRITE, RequestKind.WRITE_FUA):
        return head
    return head + make_records(np.arange(first, first + count, dtype=np.int64), version).tobytes()


@dataclass(slots=True)
class GuestClientDisk:
    """A `ClientDisk` in a guest; `seen` holds properties read back there."""

    program: GuestProgram
    seen: Mapping[str, str]
    _requests: int = field(default=0)

    def write(self, first: int, count: int, version: int, *, fua: bool) -> int:
        """Sends a write; FUA is O_DSYNC, which is how a program requests it."""
        kind = RequestKind.WRITE_FUA if fua else RequestKind.WRITE
        return self._send(kind, first, count, version)

    def flush(self) -> int:
        """Sends a flush, which is fdatasync(2)."""
        return self._send(RequestKind.FLUSH)

    def await_one(self) -> int:
        """Waits for an answer. Raises GuestError when the request failed."""
        number, status = self._answer(_ANSWER_SECONDS)
        if status:
            name = errno.errorcode.get(status, str(status))
            raise GuestError(
                f"the guest's disk refused a request: {os.strerror(status)} ({name})",
                hint="the host's file system may be full (`df`); otherwise --debug shows what QEMU "
                "printed",
            )
        return number

    def read(self, extent: Extent) -> bytes:
        """Reads sectors; no other request may be in flight."""
        parts = bytearray()
        for first in range(extent.first, extent.first + extent.count, _LARGEST):
            count = min(_LARGEST, extent.first + extent.count - first)
            number = self._send(RequestKind.READ, first, count)
            if self.await_one() != number:
                raise GuestError("the guest answered a request that vdisklab did not send")
            parts += self._receive(count * SECTOR, _ANSWER_SECONDS)
        return bytes(parts)

    def start_again(self, device: str, depth: int) -> None:
        """Starts the client after a reset of the guest, and waits for its greeting."""
        self.program.start_again(_writer_argv(self.program.port, device, depth))
        self.await_hello()

    def await_hello(self) -> None:
        """Waits for the program's greeting. Raises GuestError for anything else."""
        if self._answer(_START_SECONDS) != (_HELLO, 0):
            raise GuestError(
                "the client in the guest did not send its greeting",
                hint="`vdisklab --debug powercut …` shows the guest's console",
            )

    def quit(self) -> None:
        """Tells the program to end; there is no answer."""
        self.program.send(writer_request(0, RequestKind.QUIT))

    def _send(self, kind: RequestKind, first: int = 0, count: int = 0, version: int = 0) -> int:
        self._requests += 1
        self.program.send(writer_request(self._requests, kind, first, count, version))
        return self._requests

    def _answer(self, seconds: float) -> tuple[int, int]:
        number, status = _ANSWER.unpack(self._receive(_ANSWER.size, seconds))
        return number, status

    def _receive(self, length: int, seconds: float) -> bytes:
        data = bytearray()
        while len(data) < length:
            data += self.program.receive(length - len(data), seconds)
        return bytes(data)


def _writer_argv(port: str, device: str, depth: int) -> tuple[str, ...]:
    return (PERL, "-e", guest_script("writer.pl"), port, device, str(depth))


@contextmanager
def guest_client_disk(
    machine: Machine, device: str, seen: Mapping[str, str], name: str, depth: int
) -> Iterator[GuestClientDisk]:
    """The guest's disk `device`, with up to `depth` requests in flight.

    `name` must be unique on this host. Raises GuestError.
    """
    argv = _writer_argv(name, device, depth)
    with guest_program(machine, name, argv, "the client") as program:
        disk = GuestClientDisk(program, seen)
        disk.await_hello()
        yield disk
        disk.quit()
