"""SQLite's own shell as the client whose storage fails: errors are told, and it goes on."""

from __future__ import annotations

import shutil
import socket
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from vdisklab.path.power_cut_words import ClientKind
from vdisklab.powercut.guest_clients import GuestProgram, sqlite_settings
from vdisklab.powercut.synced_rows import SyncedRows, kept_rows

SQLITE = shutil.which("sqlite3")
SECONDS = 60.0
NO_MACHINE: Any = None

pytestmark = pytest.mark.skipif(SQLITE is None, reason="sqlite3 is not installed")


@contextmanager
def database(file: Path, kind: ClientKind = ClientKind.SQLITE_WAL) -> Iterator[SyncedRows]:
    """The client, with the shell at the other end of a socket as of a guest's port."""
    near, far = socket.socketpair()
    end = far.fileno()
    argv = (str(SQLITE), "-batch", str(file))
    shell = subprocess.Popen(argv, stdin=end, stdout=end, stderr=end)
    far.close()
    rows = SyncedRows(GuestProgram(NO_MACHINE, near, 0, "SQLite", "port"))
    try:
        rows.ask(sqlite_settings(kind), "settings")
        begun = rows.answer(SECONDS)
        assert begun is not None
        assert begun.acknowledged, begun.said
        yield rows
    finally:
        shell.kill()
        shell.wait()
        near.close()


def commit(rows: SyncedRows) -> str | None:
    """What SQLite said of the next transaction; None if it was committed."""
    rows.request_next()
    answer = rows.answer(SECONDS)
    assert answer is not None
    return None if answer.acknowledged else answer.error


@pytest.mark.parametrize("kind", [ClientKind.SQLITE_WAL, ClientKind.SQLITE_EXTRA])
def test_transactions_fail_while_the_database_is_full_and_succeed_afterwards(
    kind: ClientKind, tmp_path: Path
) -> None:
    file = tmp_path / "promises.db"
    with database(file, kind) as rows:
        assert [commit(rows) for _ in range(3)] == [None, None, None]
        rows.program.send(b"PRAGMA max_page_count=1;\n")
        full = [commit(rows) for _ in range(4)]
        assert "database or disk is full (13)" in full
        assert not any(said and "rollback" in said for said in full)
        rows.program.send(b"PRAGMA max_page_count=100000;\n")
        assert [commit(rows) for _ in range(2)] == [None, None]
    versions = [str(number) for number, said in enumerate([None] * 3 + full, 1) if said is None]
    assert kept_rows(file, [*versions, "8", "9"]).lost == ()
    refused = [str(number) for number, said in enumerate(full, 4) if said is not None]
    assert kept_rows(file, refused).lost == tuple(refused)


def test_a_database_that_is_damaged_or_gone_is_told(tmp_path: Path) -> None:
    file = tmp_path / "promises.db"
    assert kept_rows(file, ["1"]).lost == ("1",)
    with database(file) as rows:
        assert [commit(rows) for _ in range(8)] == [None] * 8
    with sqlite3.connect(file) as opened:
        opened.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    content = bytearray(file.read_bytes())
    content[4096:12288] = bytes(8192)
    file.write_bytes(content)
    assert kept_rows(file, ["1"]).refused
