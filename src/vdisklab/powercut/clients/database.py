"""A real program as the client: SQLite in a guest, on the guest's ext4 on the path's disk.

Each transaction is acknowledged to the host when COMMIT has returned. Transaction v inserts row v,
whose content follows from v, and writes v into another table: half a transaction shows itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from vdisklab.errors import GuestError
from vdisklab.guest.machine import Machine
from vdisklab.powercut.clients.guestprogram import GuestProgram, guest_program, guest_script
from vdisklab.powercut.recording.trace import ClientKind

DATABASE = "promises.db"
"""The file in the guest's file system."""

_SHELL = "/usr/bin/sh"
_SQLITE = "/usr/bin/sqlite3"
_MOUNTPOINT = "/mnt"
_PREPARE_SECONDS = 60.0
_ANSWER_SECONDS = 60.0
_LEVELS = {"FULL": "2", "EXTRA": "3"}  # https://sqlite.org/pragma.html#pragma_synchronous
_CHECKPOINT_PAGES = 20
_PAYLOAD = 1500

_MODES = {
    ClientKind.SQLITE_WAL: ("wal", "FULL"),
    ClientKind.SQLITE_DELETE: ("delete", "FULL"),
    # FULL does not sync the directory after the journal was removed, which is the commit.
    ClientKind.SQLITE_EXTRA: ("delete", "EXTRA"),
}


def payload(version: int) -> str:
    """What row `version` holds: a good third of a page, so that transactions need several."""
    return (f"{version}." * _PAYLOAD)[:_PAYLOAD]


def transaction(version: int) -> str:
    """The words of one transaction; the last of them answers when COMMIT has returned."""
    return (
        f"BEGIN IMMEDIATE; INSERT INTO promise VALUES ({version}, '{payload(version)}'); "  # noqa: S608 - numbers
        f"UPDATE newest SET version = {version}; COMMIT; SELECT 'done {version}';\n"
    )


@dataclass(slots=True)
class GuestDatabase:
    """A `PromisingDisk` of which each write is one transaction; it decides itself where."""

    program: GuestProgram
    seen: dict[str, str]
    _asked: list[int] = field(default_factory=list)
    _heard: bytearray = field(default_factory=bytearray)

    def write(self, first: int, count: int, version: int, *, fua: bool) -> int:
        """See `PromisingDisk.write`: begins and commits transaction `version`."""
        del first, count, fua
        self._say(transaction(version))
        self._asked.append(version)
        return version

    def flush(self) -> int:
        """A database flushes when it must; there is nothing to ask for."""
        raise GuestError("a database is not flushed by its client")

    def await_one(self) -> int:
        """See `PromisingDisk.await_one`."""
        version = self._asked.pop(0)
        self._expect(f"done {version}")
        return version

    def prepare(self, mode: str, level: str) -> None:
        """Sets how it keeps its promises, reads that back, and makes the tables."""
        self._say(f"PRAGMA journal_mode={mode};\n")
        self._expect(mode)
        self._say(f"PRAGMA synchronous={level}; PRAGMA synchronous;\n")
        self._expect(_LEVELS[level])
        if mode == "wal":
            self._say(f"PRAGMA wal_autocheckpoint={_CHECKPOINT_PAGES};\n")
            self._expect(str(_CHECKPOINT_PAGES))
        self._say(
            "CREATE TABLE promise (version INTEGER PRIMARY KEY, payload TEXT NOT NULL); "
            "CREATE TABLE newest (version INTEGER); INSERT INTO newest VALUES (0); "
            "SELECT 'ready';\n"
        )
        self._expect("ready")
        self.seen |= {"guest.sqlite.journal_mode": mode, "guest.sqlite.synchronous": level}

    def quit(self) -> None:
        """Ends the program in the guest."""
        self._say(".quit\n")

    def _say(self, words: str) -> None:
        self.program.say(words.encode())

    def _expect(self, wanted: str) -> None:
        while b"\n" not in self._heard:
            self._heard += self.program.hear(4096, _ANSWER_SECONDS)
        said, _, rest = self._heard.partition(b"\n")
        self._heard = bytearray(rest)
        if said != wanted.encode():
            raise GuestError(f"SQLite said {said!r} instead of {wanted!r}")


@contextmanager
def database_in_guest(
    machine: Machine, device: str, seen: Mapping[str, str], name: str, kind: ClientKind
) -> Iterator[GuestDatabase]:
    """A new database on a new ext4 on the guest's disk `device`, all of it synced when yielded.

    `name` must be unique on this host. Raises GuestError and WorkloadError.
    """
    agent = machine.agent
    agent.run(("/usr/sbin/mkfs.ext4", "-q", "-F", device), timeout=_PREPARE_SECONDS)
    mount = ("/usr/bin/mount", "-t", "ext4", device, _MOUNTPOINT)
    agent.run(mount, timeout=_PREPARE_SECONDS)
    version = agent.run((_SQLITE, "--version"), timeout=_PREPARE_SECONDS).stdout.split()[0]
    argv = (
        _SHELL, "-c", guest_script("database.sh"), "database", name, f"{_MOUNTPOINT}/{DATABASE}",
    )  # fmt: skip
    with guest_program(machine, name, argv, "SQLite") as program:
        database = GuestDatabase(program, {**seen, "guest.sqlite": version})
        database.prepare(*_MODES[kind])
        agent.run(("/usr/bin/sync",), timeout=_PREPARE_SECONDS)
        yield database
        database.quit()
    agent.run(("/usr/bin/umount", _MOUNTPOINT), timeout=_PREPARE_SECONDS)
