"""Is the database still what was promised? The guest's file system recovers, then SQLite does.

The disk is read out of its image into a file, mounted as the guest would at its next boot (which
replays the guest's journal), and opened with SQLite (which replays its own).
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from vdisklab.host.ledger import Kind
from vdisklab.host.syscalls import attach_loop, detach_loop, mount, write_whole
from vdisklab.powercut.clients.database import DATABASE, payload
from vdisklab.powercut.judging.judge import FutureVersionError
from vdisklab.powercut.judging.recovery import leave
from vdisklab.powercut.judging.verdict import Outcome
from vdisklab.powercut.recording.trace import Trace
from vdisklab.powercut.sectors import Bytes
from vdisklab.storage.site import Site

_FILESYSTEM = "ext4"


@dataclass(frozen=True, slots=True)
class Committed:
    """Transactions by number: the last that was promised, and the last that may be there."""

    promised: int
    newest: int


def committed_at(trace: Trace, position: int) -> Committed:
    """What a cut at a position of the log must leave; 0 where nothing was committed."""
    promised = (
        w.version for w in trace.writes if w.promised is not None and w.promised <= position
    )
    newest = (w.version for w in trace.writes if w.submitted <= position)
    return Committed(max(promised, default=0), max(newest, default=0))


def judge_database(file: Path, first: int, due: Committed) -> tuple[Outcome, str]:
    """What came of a database whose transactions count from `first`.

    Opening it lets SQLite recover, which writes. Raises FutureVersionError.
    """
    if not file.is_file():
        return Outcome.LOST, "the database's file is missing"
    try:
        address = f"{file.absolute().as_uri()}?mode=rw"
        with closing(sqlite3.connect(address, uri=True, isolation_level=None)) as database:
            (said,) = database.execute("PRAGMA integrity_check(1)").fetchone()
            if said != "ok":
                return Outcome.DATABASE, f"integrity_check: {said}"
            rows = dict(database.execute("SELECT version, payload FROM promise"))
            (newest,) = database.execute("SELECT version FROM newest").fetchone()
    except sqlite3.Error as error:
        return Outcome.DATABASE, f"SQLite: {error}"
    return _compare(rows, newest, first, due)


def _compare(rows: dict[int, str], newest: int, first: int, due: Committed) -> tuple[Outcome, str]:
    last = max(rows, default=0)
    if last > due.newest:
        raise FutureVersionError(
            f"the database holds transaction {last} before it was begun",
            hint="this is a bug in vdisklab; please report it with the recording",
        )
    if last < due.promised:
        return Outcome.LOST, (
            f"transaction {due.promised} was promised, and the last in the database is {last}"
        )
    missing = [version for version in range(first, last + 1) if version not in rows]
    if missing:
        return Outcome.LOST, f"transaction {missing[0]} is missing, and {last} is there"
    if newest != last:
        return Outcome.TORN, f"half of transaction {max(newest, last)} is in the database"
    wrong = [version for version, held in rows.items() if held != payload(version)]
    if wrong:
        return Outcome.GARBAGE, f"row {wrong[0]} holds other than was written"
    return Outcome.KEPT, ""


@dataclass(frozen=True, slots=True)
class GuestFileSystem:
    """Where a guest's disk is put to be mounted here."""

    file: Path
    mountpoint: Path

    def judge(self, content: Bytes, first: int, due: Committed) -> tuple[Outcome, str]:
        """What came of the database on a guest's disk with that content."""
        descriptor = os.open(self.file, os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC)
        try:
            write_whole(descriptor, [content.tobytes()], 0)
        finally:
            os.close(descriptor)
        device = attach_loop(self.file)
        try:
            try:
                mount(device, self.mountpoint, _FILESYSTEM)
            except OSError as error:
                return Outcome.UNMOUNTABLE, f"the guest's file system: {error.strerror}"
            try:
                return judge_database(self.mountpoint / DATABASE, first, due)
            finally:
                leave(self.mountpoint)
        finally:
            detach_loop(device)


@contextmanager
def guest_file_system(site: Site, bench: Path) -> Iterator[GuestFileSystem]:
    """A place for the disks of guests: a file on `bench`, a mount point in the site."""
    file, mountpoint = bench / "guest.disk", site.directory / "guest"
    with (
        site.tracked(Kind.DIRECTORY, mountpoint),
        site.tracked(Kind.LOOP, file),
        site.tracked(Kind.MOUNT, mountpoint),
    ):
        mountpoint.mkdir()
        file.touch()
        try:
            yield GuestFileSystem(file, mountpoint)
        finally:
            os.truncate(file, 0)
