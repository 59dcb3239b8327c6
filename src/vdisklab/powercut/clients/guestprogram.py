"""A program in a guest that the host talks to over a port of its own."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import resources

from vdisklab.errors import GuestError
from vdisklab.guest.machine import Machine
from vdisklab.guest.qemu.virtio_serial import guest_port
from vdisklab.host.deadline import patience

PERL = "/usr/bin/perl"
"""Where the micro guest has the host's perl; our programs need no module of it."""

_END_SECONDS = 30.0


def guest_script(name: str) -> str:
    """The text of a program of ours for the guest."""
    return (resources.files("vdisklab.powercut.clients") / "guestfiles" / name).read_text()


@dataclass(frozen=True, slots=True)
class GuestProgram:
    """A running program; `shown` is how it is called in messages."""

    machine: Machine
    line: socket.socket
    process: int
    shown: str

    def say(self, words: bytes) -> None:
        """Sends it some bytes. Raises GuestError when it is gone."""
        try:
            self.line.sendall(words)
        except OSError as error:
            raise GuestError(f"{self.shown} in the guest was lost: {error}") from error

    def hear(self, most: int, seconds: float) -> bytes:
        """What it says next, at most so many bytes; GuestError after `seconds` of silence."""
        self.line.settimeout(seconds * patience())
        try:
            said = self.line.recv(most)
        except TimeoutError:
            said = b""
        except OSError as error:
            raise GuestError(f"{self.shown} in the guest was lost: {error}") from error
        if not said:
            raise GuestError(
                f"{self.shown} in the guest did not answer within {seconds:.0f} s{self._reason()}"
            )
        return said

    def _reason(self) -> str:
        try:
            ended = self.machine.agent.finish(
                self.process, (self.shown,), timeout=1.0, allowed=range(-64, 256)
            )
        except GuestError:
            return ""  # it still runs
        return f": {ended.stderr.strip() or f'it ended with {ended.status}'}"


@contextmanager
def guest_program(
    machine: Machine, port: str, argv: Sequence[str], shown: str
) -> Iterator[GuestProgram]:
    """A program that finds its end of the line by the name `port`, unique on this host.

    The block must tell it to end, and leaves when it has. Raises GuestError, WorkloadError when
    it ends with an error.
    """
    with guest_port(machine, port) as line:
        process = machine.agent.start(argv)
        yield GuestProgram(machine, line, process, shown)
        machine.agent.finish(process, (shown,), timeout=_END_SECONDS)
