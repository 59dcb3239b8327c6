"""The host's PostgreSQL as the judge of a killed server's cluster: kept, and each damage."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from vdisklab.host.command import LocalHost
from vdisklab.path.power_cut_words import StateOutcome
from vdisklab.powercut.client import FIRST_VERSION
from vdisklab.powercut.guest_clients import DueTransactions
from vdisklab.powercut.postgresql import (
    _SETTINGS,
    CLUSTER,
    REACHABLE,
    TABLES,
    ClusterJudge,
    transaction,
)

pytestmark = [
    pytest.mark.host,
    pytest.mark.skipif(os.geteuid() != 0, reason="a server refuses root, so root is needed"),
    pytest.mark.skipif(shutil.which("postgres") is None, reason="PostgreSQL is not installed"),
]

LAST = 27
DUE = DueTransactions(LAST, LAST)
JUDGE = ClusterJudge(LocalHost())


def step(directory: Path, verb: str, *arguments: str, stdin: str = CLUSTER.script) -> None:
    subprocess.run(
        ("sh", "-s", "--", verb, directory, *arguments),
        input=stdin,
        text=True,
        check=True,
        timeout=120,
    )


@pytest.fixture(scope="module")
def killed() -> Iterator[Path]:
    """A directory with the cluster of a server that was killed after the last transaction."""
    directory = REACHABLE / f"vdisklab-test-{os.getpid()}"
    directory.mkdir(mode=0o711)
    try:
        step(directory, "make", "0")
        settings = [f"{name}={value}" for name, value in _SETTINGS.items() if "checks" not in name]
        step(directory, "start", *settings, "max_wal_senders=0")
        arguments = [TABLES, *map(transaction, range(FIRST_VERSION, LAST + 1))]
        command = ("sh", "-c", CLUSTER.script, "psql", "client", directory)
        said = subprocess.run(
            command,
            input="".join(arguments),
            text=True,
            check=True,
            timeout=120,
            capture_output=True,
        ).stdout.split("\n")
        assert said == [f"done {v}" for v in range(FIRST_VERSION, LAST + 1)] + [""]
        # The server's files as they are, before it can write a checkpoint.
        (directory / "cut").mkdir(mode=0o711)
        subprocess.run(("cp", "-a", directory / "data", directory / "cut"), check=True)
        step(directory, "stop")
        (directory / "cut" / "data" / "postmaster.pid").unlink()
        yield directory / "cut"
    finally:
        shutil.rmtree(directory)


@pytest.fixture
def state(killed: Path) -> Iterator[Path]:
    """A copy of it, to be damaged."""
    copy = killed.with_name("state")
    subprocess.run(("cp", "-a", killed, copy), check=True)
    yield copy
    shutil.rmtree(copy)


def test_every_transaction_is_recovered_with_all_its_effects(state: Path) -> None:
    assert JUDGE(state, FIRST_VERSION, DUE) == (StateOutcome.KEPT, "")


def test_a_transaction_that_the_log_does_not_hold_is_lost(state: Path) -> None:
    outcome, said = JUDGE(state, FIRST_VERSION, DueTransactions(LAST + 1, LAST + 1))
    assert outcome is StateOutcome.LOST
    assert f"transaction {LAST + 1} was committed" in said


def test_a_missing_directory_is_a_loss(tmp_path: Path) -> None:
    outcome, said = JUDGE(tmp_path, FIRST_VERSION, DUE)
    assert (outcome, said) == (StateOutcome.LOST, "the database's directory is missing")


def test_a_missing_control_file_is_said_in_postgresqls_words(state: Path) -> None:
    (state / "data" / "global" / "pg_control").unlink()
    outcome, said = JUDGE(state, FIRST_VERSION, DUE)
    assert outcome is StateOutcome.DATABASE
    assert "pg_control" in said


def test_a_lost_log_is_no_state_that_is_kept(state: Path) -> None:
    for segment in (state / "data" / "pg_wal").glob("0*"):
        segment.write_bytes(bytes(segment.stat().st_size))
    assert JUDGE(state, FIRST_VERSION, DUE)[0].is_loss


def test_a_page_of_a_new_table_that_did_not_reach_the_disk_is_found(state: Path) -> None:
    """Rows of a table that was made in the same transaction are in its file alone."""
    files = sorted((state / "data" / "base").glob("*/*"), key=lambda file: file.stat().st_mtime)
    made = [file for file in files if b"26.26.26." in file.read_bytes()[-4096:]]
    assert made
    for file in made:
        file.write_bytes(bytes(file.stat().st_size))
    assert JUDGE(state, FIRST_VERSION, DUE)[0].is_loss
