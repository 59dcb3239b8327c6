"""A program in a guest that writes files, syncs each, and tells every error.

Its files are judged on the host: an acknowledged file is one whose fsync, and that of its
directory, returned without an error.
"""

from __future__ import annotations

import errno
import os
import select
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from vdisklab.errors import GuestError
from vdisklab.guest.machine import Machine
from vdisklab.path.architecture import GUEST
from vdisklab.powercut.guest_clients import (
    MOUNTPOINT,
    PERL,
    GuestProgram,
    guest_program,
    guest_script,
)
from vdisklab.value import Value

FILE_BYTES = 8192

_SHELL = "/usr/bin/sh"
_READY = "ready"
_START_SECONDS = 60.0
_NO_CALL = "-"
_NOT_TRIED = -1


class FileAnswer(Value):
    """What became of one file: `call` failed with `status` (an errno), or nothing did.

    `again` is the errno of a second fsync after one that failed; None if there was none.
    """

    seconds: float
    """The host's time of day when the answer arrived."""
    version: str
    call: str | None = None
    status: int = 0
    again: int | None = None
    said: str = ""
    """What a database said of its failure."""

    @property
    def acknowledged(self) -> bool:
        """True if the program was told that the file is durable."""
        return self.call is None

    @property
    def acknowledged_again(self) -> bool:
        """True if only a second fsync of the file said so."""
        return self.again == 0

    @property
    def error(self) -> str:
        """The call and its error: `fsync: EIO`."""
        if self.said:
            return self.said
        return f"{self.call}: {errno.errorcode.get(self.status, str(self.status))}"

    @classmethod
    def from_line(cls, line: str, seconds: float) -> FileAnswer:
        """The answer in a line. Raises GuestError."""
        parts = line.split()
        try:
            version, call, status, again = parts
            numbers = int(status), int(again)
        except ValueError:
            raise GuestError(f"the client of files in the guest said {line[:200]!r}") from None
        return cls(
            seconds,
            version,
            None if call == _NO_CALL else call,
            numbers[0],
            None if numbers[1] == _NOT_TRIED else numbers[1],
        )


class Kept(Value):
    """Those of the acknowledged versions that are lost, and why a database refuses its file."""

    lost: tuple[str, ...]
    refused: str = ""


@dataclass(slots=True)
class GuestLines:
    """The lines that a program in the guest prints."""

    program: GuestProgram
    _received: bytearray = field(default_factory=bytearray)

    def next_line(self, seconds: float) -> tuple[str, float] | None:
        """The next line, and the host's time of day; None if none arrives in time.

        Raises GuestError.
        """
        end = time.monotonic() + seconds
        while b"\n" not in self._received:
            left = max(0.0, end - time.monotonic())
            if not select.select([self.program.line], [], [], left)[0]:
                return None
            self._received += self.program.receive(4096, 1.0)
        line, _, rest = self._received.partition(b"\n")
        self._received = bytearray(rest)
        return line.decode(errors="replace").strip(), time.time()


@dataclass(slots=True)
class SyncedFiles:
    """The program, with at most one request in flight."""

    program: GuestProgram
    versions: int = 0
    pending: str | None = None
    _lines: GuestLines = field(init=False)

    def __post_init__(self) -> None:
        self._lines = GuestLines(self.program)

    def request_next(self) -> None:
        """Asks for the next file; nothing may be in flight."""
        self.versions += 1
        self.request(str(self.versions))

    def request(self, version: str) -> None:
        """Asks for a file; nothing may be in flight."""
        self.program.send(f"{version}\n".encode())
        self.pending = version

    def answer(self, seconds: float) -> FileAnswer | None:
        """The answer to what is in flight; None if none arrives in time. Raises GuestError."""
        line = self._lines.next_line(seconds)
        if line is None:
            return None
        found = FileAnswer.from_line(*line)
        if found.version != self.pending:
            raise GuestError("the client of files answered a request that vdisklab did not send")
        self.pending = None
        return found

    def quit(self) -> None:
        """Ends the program; there is no answer."""
        self.program.send(b"quit\n")


@contextmanager
def synced_files(machine: Machine, name: str) -> Iterator[SyncedFiles]:
    """The program, in the file system at MOUNTPOINT; `name` must be unique on this host.

    Raises GuestError, and WorkloadError if it fails.
    """
    argv = (
        _SHELL, "-c", guest_script("database.sh"), "database", name,
        PERL, "-e", guest_script("synced.pl"), MOUNTPOINT, str(FILE_BYTES),
        str(GUEST.system_calls.fsync),
    )  # fmt: skip
    with guest_program(machine, name, argv, "the client of files") as program:
        client = SyncedFiles(program)
        client.request(_READY)
        if client.answer(_START_SECONDS) is None:
            raise GuestError("the client of files did not start in the guest")
        yield client
        client.quit()


def lost_files(directory: Path, versions: Collection[str]) -> tuple[str, ...]:
    """Those of these files that are missing in a directory, or do not hold what was written."""
    return tuple(version for version in versions if not _is_there(directory, version))


def _is_there(directory: Path, version: str) -> bool:
    try:
        with (directory / f"f{version}").open("rb") as file:
            found = file.read(FILE_BYTES + 1)
    except OSError as error:
        if error.errno == errno.ENOMEM:
            raise
        return False
    return found == os.fsencode(f"{version}." * FILE_BYTES)[:FILE_BYTES]
