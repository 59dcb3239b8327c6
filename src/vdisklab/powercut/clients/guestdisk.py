"""The client in a real guest: a program writes to the disk with O_DIRECT what it is told to.

The host makes the sectors, and the guest's program answers each request when its system call has
returned; so the guest's kernel, its driver and QEMU's device are all on the way of a promise.
"""

from __future__ import annotations

import errno
import os
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np

from vdisklab.errors import GuestError
from vdisklab.guest.machine import Machine
from vdisklab.powercut.clients.guestprogram import PERL, GuestProgram, guest_program, guest_script
from vdisklab.powercut.sectors import make_records

_HEAD = struct.Struct("<IIIIQ")
_ANSWER = struct.Struct("<II")
_HELLO = 0
_START_SECONDS = 30.0
_ANSWER_SECONDS = 30.0


class Request(IntEnum):
    """What the guest's program is asked for."""

    QUIT = 0
    WRITE = 1
    WRITE_FUA = 2
    FLUSH = 3


def request(number: int, kind: Request, first: int = 0, count: int = 0, version: int = 0) -> bytes:
    """A request as the guest's program reads it, with one record for each sector to write."""
    head = _HEAD.pack(number, kind, count, 0, first)
    if not count:
        return head
    return head + make_records(np.arange(first, first + count, dtype=np.int64), version).tobytes()


@dataclass(slots=True)
class GuestClientDisk:
    """A `PromisingDisk` in a guest. `seen` is what was read back of it there."""

    program: GuestProgram
    seen: Mapping[str, str]
    _requests: int = field(default=0)

    def write(self, first: int, count: int, version: int, *, fua: bool) -> int:
        """See `PromisingDisk.write`; FUA is O_DSYNC, as a program asks for it."""
        kind = Request.WRITE_FUA if fua else Request.WRITE
        return self._send(kind, first, count, version)

    def flush(self) -> int:
        """See `PromisingDisk.flush`; it is fdatasync(2)."""
        return self._send(Request.FLUSH)

    def await_one(self) -> int:
        """See `PromisingDisk.await_one`."""
        number, status = self._answer(_ANSWER_SECONDS)
        if status:
            said = errno.errorcode.get(status, str(status))
            raise GuestError(
                f"the guest's disk refused a request: {os.strerror(status)} ({said})",
                hint="the host's file system may be full (`df`); else look at what QEMU "
                "printed with --debug",
            )
        return number

    def await_hello(self) -> None:
        """Waits until the program is there."""
        if self._answer(_START_SECONDS) != (_HELLO, 0):
            raise GuestError(
                "the client in the guest said something other than hello",
                hint="run `vdisklab --debug powercut …`, which shows what its console says",
            )

    def quit(self) -> None:
        """Tells the program to end; there is no answer."""
        self.program.say(request(0, Request.QUIT))

    def _send(self, kind: Request, first: int = 0, count: int = 0, version: int = 0) -> int:
        self._requests += 1
        self.program.say(request(self._requests, kind, first, count, version))
        return self._requests

    def _answer(self, seconds: float) -> tuple[int, int]:
        parts = bytearray()
        while len(parts) < _ANSWER.size:
            parts += self.program.hear(_ANSWER.size - len(parts), seconds)
        number, status = _ANSWER.unpack(parts)
        return number, status


@contextmanager
def guest_client_disk(
    machine: Machine, device: str, seen: Mapping[str, str], name: str, depth: int
) -> Iterator[GuestClientDisk]:
    """The disk `device` of a guest, with up to `depth` requests of ours in flight.

    `name` must be unique on this host. Raises GuestError.
    """
    argv = (PERL, "-e", guest_script("writer.pl"), name, device, str(depth))
    with guest_program(machine, name, argv, "the client") as program:
        disk = GuestClientDisk(program, seen)
        disk.await_hello()
        yield disk
        disk.quit()
