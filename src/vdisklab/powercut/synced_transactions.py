"""PostgreSQL in a guest whose storage fails: each request is a transaction, and each error is told.

A transaction is acknowledged once COMMIT has returned without an error. psql is started again after
an error, as a program connects again. At the end the server is stopped at once, without a
checkpoint: what it still has in memory is no proof of what it has on its disk.
"""

from __future__ import annotations

import errno
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from vdisklab.errors import GuestError
from vdisklab.guest.machine import Machine
from vdisklab.powercut.guest_clients import (
    MOUNTPOINT,
    PERL,
    GuestProgram,
    guest_program,
    guest_script,
    payload,
)
from vdisklab.powercut.postgresql import (
    CLUSTER,
    TABLES,
    ClusterJudge,
    kill_server,
    settings_check,
    start_server,
)
from vdisklab.powercut.synced_files import FileAnswer, GuestLines, Kept

_SHELL = "/usr/bin/sh"
_START_SECONDS = 120.0
_LONGEST = 80


@dataclass(slots=True)
class SyncedTransactions:
    """The database, with at most one transaction in flight."""

    program: GuestProgram
    versions: int = 0
    pending: str | None = None
    _lines: GuestLines = field(init=False)

    def __post_init__(self) -> None:
        self._lines = GuestLines(self.program)

    def request_next(self) -> None:
        """Begins and commits the next transaction; nothing may be in flight."""
        self.versions += 1
        version = self.versions
        self.ask(
            f"BEGIN; INSERT INTO promise VALUES ({version}, '{payload(version)}'); "  # noqa: S608 - numbers
            f"UPDATE newest SET version = {version}; COMMIT;",
            str(version),
        )

    def ask(self, statements: str, version: str) -> None:
        """Sends statements."""
        self.pending = version
        self.program.send(f"{version} {statements}\n".encode())

    def answer(self, seconds: float) -> FileAnswer | None:
        """The answer to what is in flight; None if none arrives in time. Raises GuestError."""
        found = self._lines.next_line(seconds)
        if found is None:
            return None
        line, moment = found
        version, _, said = line.partition(" ")
        if version != self.pending:
            raise GuestError(f"the client of PostgreSQL in the guest said {line[:200]!r}")
        self.pending = None
        if said == "ok":
            return FileAnswer(moment, version)
        reason = said.partition("failed ")[2].rpartition(":  ")[2]
        return FileAnswer(moment, version, "COMMIT", errno.EIO, said=reason[:_LONGEST])

    def quit(self) -> None:
        """Ends psql; there is no answer."""
        self.program.send(b"quit\n")


@contextmanager
def synced_transactions(machine: Machine, name: str) -> Iterator[SyncedTransactions]:
    """A new server in the file system at MOUNTPOINT; `name` must be unique on this host.

    Raises GuestError, and WorkloadError if it fails.
    """
    start_server(machine)
    argv = (
        _SHELL, "-c", guest_script("database.sh"), "database", name,
        PERL, "-e", guest_script("postgresql.pl"),
        _SHELL, "-c", CLUSTER.script, "psql", "client", MOUNTPOINT,
    )  # fmt: skip
    with guest_program(machine, name, argv, "psql") as program:
        database = SyncedTransactions(program)
        database.ask(" ".join(f"{settings_check()} {TABLES}".split()), "tables")
        begun = database.answer(_START_SECONDS)
        if begun is None or not begun.acknowledged:
            raise GuestError(f"PostgreSQL in the guest did not start: {begun and begun.error}")
        # The cluster is a copy, and no checkpoint syncs files that PostgreSQL has not written: XFS
        # loses a PG_VERSION that is a second old when its log fails.
        machine.agent.run(("sync",), timeout=_START_SECONDS)
        yield database
        database.quit()
    kill_server(machine)


def kept_transactions(judge: ClusterJudge, mountpoint: Path, versions: Collection[str]) -> Kept:
    """What a cluster, recovered as after a crash, has of these transactions."""
    # Left by a server that was killed; its process is none of this host's.
    (mountpoint / "data" / "postmaster.pid").unlink(missing_ok=True)
    found = judge.recovered(mountpoint / "data")
    if isinstance(found, str):
        return Kept((), found[:_LONGEST])
    right = {int(version) for version, is_right in found["promise"] or () if is_right}
    return Kept(tuple(version for version in versions if int(version) not in right))
