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
from vdisklab.powercut.sectors import make_records

PERL = "/usr/bin/perl"
"""The host's perl in the micro guest; the programs use no Perl modules."""

_END_SECONDS = 30.0
_START_SECONDS = 30.0
_ANSWER_SECONDS = 30.0
_HEAD = struct.Struct("<IIIIQ")
_ANSWER = struct.Struct("<II")
_HELLO = 0


def guest_script(name: str) -> str:
    """The text of a script for the guest."""
    return (resources.files("vdisklab.powercut.clients") / "guestfiles" / name).read_text()


@dataclass(frozen=True, slots=True)
class GuestProgram:
    """A running program; messages call it `title`."""

    machine: Machine
    line: socket.socket
    process: int
    title: str

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
        yield GuestProgram(machine, line, process, title)
        machine.agent.finish(process, (title,), timeout=_END_SECONDS)


class RequestKind(IntEnum):
    """The requests of the client in the guest (`writer.pl`)."""

    QUIT = 0
    WRITE = 1
    WRITE_FUA = 2
    FLUSH = 3


def writer_request(
    number: int, kind: RequestKind, first: int = 0, count: int = 0, version: int = 0
) -> bytes:
    """A request in the format of `writer.pl`, with one record for each sector to write."""
    head = _HEAD.pack(number, kind, count, 0, first)
    if not count:
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
        answer = bytearray()
        while len(answer) < _ANSWER.size:
            answer += self.program.receive(_ANSWER.size - len(answer), seconds)
        number, status = _ANSWER.unpack(answer)
        return number, status


@contextmanager
def guest_client_disk(
    machine: Machine, device: str, seen: Mapping[str, str], name: str, depth: int
) -> Iterator[GuestClientDisk]:
    """The guest's disk `device`, with up to `depth` requests in flight.

    `name` must be unique on this host. Raises GuestError.
    """
    argv = (PERL, "-e", guest_script("writer.pl"), name, device, str(depth))
    with guest_program(machine, name, argv, "the client") as program:
        disk = GuestClientDisk(program, seen)
        disk.await_hello()
        yield disk
        disk.quit()
