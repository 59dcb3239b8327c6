"""The database as the client: its words, and what is said of it after a cut."""

from __future__ import annotations

import errno
import os
import socket
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import cast
from unittest.mock import Mock

import pytest

from vdisklab.errors import GuestError
from vdisklab.guest.machine import Machine
from vdisklab.path.power_cut_words import ClientKind, StateOutcome
from vdisklab.powercut.client import FIRST_VERSION, Trace, Write
from vdisklab.powercut.crash_states import FutureVersionError
from vdisklab.powercut.guest_clients import (
    DATABASE,
    DueTransactions,
    GuestDatabase,
    GuestProgram,
    due_transactions,
    guest_script,
    judge_database,
    payload,
    transaction,
)

FIRST = FIRST_VERSION


def database(directory: Path, versions: range, *more: str) -> Path:
    file = directory / DATABASE
    with closing(sqlite3.connect(file, isolation_level=None)) as made:
        made.execute("CREATE TABLE promise (version INTEGER PRIMARY KEY, payload TEXT NOT NULL)")
        made.execute("CREATE TABLE newest (version INTEGER)")
        made.execute("INSERT INTO newest VALUES (0)")
        for version in versions:
            made.executescript(transaction(version))
        for arguments in more:
            made.execute(arguments)
    return file


def test_every_committed_transaction_is_there(tmp_path: Path) -> None:
    file = database(tmp_path, range(FIRST, FIRST + 9))
    last = FIRST + 8
    for due in (
        DueTransactions(last, last),
        DueTransactions(last - 3, last + 1),
        DueTransactions(0, last),
    ):
        assert judge_database(file, FIRST, due) == (StateOutcome.KEPT, "")


def test_nothing_committed_and_nothing_there_is_kept(tmp_path: Path) -> None:
    file = database(tmp_path, range(0))
    assert judge_database(file, FIRST, DueTransactions(0, FIRST)) == (StateOutcome.KEPT, "")


@pytest.mark.parametrize(
    ("damage", "outcome", "said"),
    [
        (
            "DELETE FROM promise WHERE version = 10",
            StateOutcome.LOST,
            "last one in the database is 9",
        ),
        ("DELETE FROM promise WHERE version = 5", StateOutcome.LOST, "transaction 5 is missing"),
        ("UPDATE newest SET version = 9", StateOutcome.TORN, "half of transaction 10"),
        ("UPDATE promise SET payload = 'x' WHERE version = 4", StateOutcome.GARBAGE, "row 4"),
        ("DROP TABLE newest", StateOutcome.DATABASE, "no such table"),
    ],
)
def test_what_is_wrong_is_named(
    damage: str, outcome: StateOutcome, said: str, tmp_path: Path
) -> None:
    file = database(tmp_path, range(FIRST, 11), damage)
    found, detail = judge_database(file, FIRST, DueTransactions(10, 10))
    assert (found, found.is_loss) == (outcome, True)
    assert said in detail


def test_a_damaged_file_is_a_verdict(tmp_path: Path) -> None:
    file = database(tmp_path, range(FIRST, 60))
    content = bytearray(file.read_bytes())
    content[4096:12288] = b"\xff" * 8192
    file.write_bytes(content)
    assert judge_database(file, FIRST, DueTransactions(59, 59))[0] is StateOutcome.DATABASE
    file.write_bytes(b"no database at all, but long enough to be looked at" * 100)
    assert judge_database(file, FIRST, DueTransactions(59, 59))[0] is StateOutcome.DATABASE


def test_a_database_without_its_first_row_is_a_verdict(tmp_path: Path) -> None:
    file = tmp_path / DATABASE
    with closing(sqlite3.connect(file)) as database:
        database.execute("CREATE TABLE promise (version INTEGER PRIMARY KEY, payload TEXT)")
        database.execute("CREATE TABLE newest (version INTEGER)")
    outcome, _ = judge_database(file, FIRST, DueTransactions(0, FIRST))
    assert outcome is StateOutcome.KEPT
    outcome, _ = judge_database(file, FIRST, DueTransactions(FIRST, FIRST))
    assert outcome is StateOutcome.LOST


def test_a_file_that_the_file_system_cannot_find_is_a_verdict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    error = OSError(errno.EBADMSG, os.strerror(errno.EBADMSG))
    monkeypatch.setattr(Path, "is_file", Mock(side_effect=error))
    found = judge_database(tmp_path / DATABASE, FIRST, DueTransactions(FIRST, FIRST))
    assert found == (StateOutcome.DATABASE, "its file: Bad message")


def test_a_missing_file_is_a_loss(tmp_path: Path) -> None:
    outcome, said = judge_database(tmp_path / DATABASE, FIRST, DueTransactions(0, 9))
    assert (outcome, said) == (StateOutcome.LOST, "the database's file is missing")


def test_a_transaction_from_the_future_is_our_bug(tmp_path: Path) -> None:
    file = database(tmp_path, range(FIRST, 11))
    with pytest.raises(FutureVersionError, match="transaction 10, which had not begun"):
        judge_database(file, FIRST, DueTransactions(8, 9))


def test_what_is_due_follows_from_the_positions() -> None:
    writes = (Write(2, 0, 0, 5, 9, 9), Write(3, 0, 0, 9, 14, 14), Write(4, 0, 0, 14))
    trace = Trace(
        "ext4/raw/none", ClientKind.SQLITE_WAL, "guest", "ext4", (), "disk.raw", "raw",
        1 << 20, 1 << 22, False, 0, 20, writes, {},
    )  # fmt: skip
    assert due_transactions(trace, 4) == DueTransactions(0, 0)
    assert due_transactions(trace, 8) == DueTransactions(0, 2)
    assert due_transactions(trace, 9) == DueTransactions(2, 3)
    assert due_transactions(trace, 20) == DueTransactions(3, 4)


def test_each_transaction_needs_more_than_one_page_now_and_then() -> None:
    assert len(payload(2)) == len(payload(10**6)) == 1500
    assert payload(12) != payload(13)


def test_sqlite_is_heard_line_by_line_and_believed_only_word_by_word() -> None:
    near, far = socket.socketpair()
    with near, far:
        opened = GuestDatabase(GuestProgram(cast(Machine, None), near, 1, "SQLite", "port"), {})
        far.sendall(b"wa")
        far.sendall(b"l\n2\n20\nready\n")
        opened.prepare("wal", "FULL")
        assert opened.observed["guest.sqlite.synchronous"] == "FULL"
        opened.write(0, 0, 2, fua=False)
        opened.write(0, 0, 3, fua=False)
        far.sendall(b"done 2\ndone 4\n")
        assert opened.await_one() == 2
        with pytest.raises(GuestError, match="instead of 'done 3'"):
            opened.await_one()


def test_that_a_directory_has_no_shared_memory_is_said_with_what_to_choose() -> None:
    near, far = socket.socketpair()
    with near, far:
        opened = GuestDatabase(GuestProgram(cast(Machine, None), near, 1, "SQLite", "port"), {})
        far.sendall(b"wal\n2\n20\nRuntime error near line 4: disk I/O error (10)\r\n")
        with pytest.raises(GuestError, match="said 'Runtime error near line 4: disk") as refused:
            opened.prepare("wal", "FULL")
        assert refused.value.hint is not None
        assert "9p:cache=loose" in refused.value.hint


def test_an_error_of_sqlite_is_an_answer() -> None:
    """Otherwise it would be heard only when the next answer is overdue."""
    assert "2>&0" in guest_script("database.sh")
