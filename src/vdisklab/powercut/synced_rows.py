"""SQLite in a guest whose storage fails: each request is a transaction, and each error is told.

A transaction is acknowledged once COMMIT has returned without an error. SQLite's shell goes on
after an error, so the next transaction is tried, as a server program would. At the end SQLite is
killed: what it would still write when it closes its database is no proof of what is on the disk.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from vdisklab.errors import GuestError
from vdisklab.guest.machine import Machine
from vdisklab.path.power_cut_words import ClientKind
from vdisklab.powercut.guest_clients import (
    DATABASE,
    MOUNTPOINT,
    GuestProgram,
    guest_program,
    guest_script,
    payload,
    sqlite_settings,
    transaction,
)
from vdisklab.powercut.synced_files import FileAnswer, GuestLines, Kept

_SHELL = "/usr/bin/sh"
_SQLITE = "/usr/bin/sqlite3"
_START_SECONDS = 60.0
_LONGEST = 80
_ROLLED_BACK = "rolled back"


@dataclass(slots=True)
class SyncedRows:
    """The database, with at most one transaction in flight."""

    program: GuestProgram
    versions: int = 0
    pending: str | None = None
    _lines: GuestLines = field(init=False)
    _said: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._lines = GuestLines(self.program)

    def request_next(self) -> None:
        """Begins and commits the next transaction; nothing may be in flight."""
        self.versions += 1
        self.pending = str(self.versions)
        self.ask(transaction(self.versions), self.pending)

    def ask(self, statements: str, version: str) -> None:
        """Sends statements whose output ends with a line of their own."""
        self.pending, self._said = version, []
        self.program.send(f"{statements}SELECT 'end {version}';\n".encode())

    def answer(self, seconds: float) -> FileAnswer | None:
        """The answer to what is in flight; None if none arrives in time. Raises GuestError."""
        while (line := self._lines.next_line(seconds)) is not None:
            text, moment = line
            if text == _ROLLED_BACK:
                self._said.clear()
                continue
            if text != f"end {self.pending}":
                self._said.append(text)
                continue
            version, self.pending = str(self.pending), None
            errors = [said for said in self._said if "rror" in said]
            if not errors:
                return FileAnswer(moment, version)
            # SQLite has ended the transaction at some errors, and says so; at others not. After
            # an error the shell skips the rest of the line.
            self.program.send(f"ROLLBACK;\nSELECT '{_ROLLED_BACK}';\n".encode())
            return FileAnswer(moment, version, "COMMIT", 1, said=_reason(errors[0]))
        return None


def _reason(line: str) -> str:
    """SQLite's error without its place: `disk I/O error`."""
    return line.rpartition(": ")[2][:_LONGEST]


@contextmanager
def synced_rows(machine: Machine, name: str, kind: ClientKind) -> Iterator[SyncedRows]:
    """A new database in the file system at MOUNTPOINT; `name` must be unique on this host.

    Raises GuestError, and WorkloadError if it fails.
    """
    argv = (
        _SHELL, "-c", guest_script("database.sh"), "database", name,
        _SQLITE, "-batch", f"{MOUNTPOINT}/{DATABASE}",
    )  # fmt: skip
    with guest_program(machine, name, argv, "SQLite", allowed=range(-64, 256)) as program:
        database = SyncedRows(program)
        database.ask(sqlite_settings(kind), "settings")
        begun = database.answer(_START_SECONDS)
        if begun is None or not begun.acknowledged:
            raise GuestError(f"SQLite in the guest did not start: {begun and begun.error}")
        yield database
        kill = f"kill -KILL {program.process}"
        machine.agent.run((_SHELL, "-c", kill), timeout=_START_SECONDS)


def kept_rows(file: Path, versions: Collection[str]) -> Kept:
    """What a database, opened as after a reboot, has of these transactions."""
    try:
        if not file.is_file():
            return Kept(tuple(versions))
        uri = f"{file.absolute().as_uri()}?mode=rw"
        with closing(sqlite3.connect(uri, uri=True, isolation_level=None)) as database:
            (integrity,) = database.execute("PRAGMA integrity_check(1)").fetchone()
            if integrity != "ok":
                return Kept((), f"integrity_check: {integrity}"[:_LONGEST])
            rows = dict(database.execute("SELECT version, payload FROM promise"))
    except (sqlite3.Error, OSError) as error:
        return Kept((), f"SQLite: {error}"[:_LONGEST])
    return Kept(tuple(v for v in versions if rows.get(int(v)) != payload(int(v))))
