"""psql, kept running as the client whose storage fails: errors are told, and it connects again."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from vdisklab.host.command import LocalHost
from vdisklab.powercut.guest_clients import PERL, GuestProgram, guest_script
from vdisklab.powercut.postgresql import _SETTINGS, CLUSTER, REACHABLE, TABLES, ClusterJudge
from vdisklab.powercut.synced_transactions import SyncedTransactions, kept_transactions

NO_MACHINE: Any = None
SECONDS = 60.0

pytestmark = [
    pytest.mark.host,
    pytest.mark.skipif(os.geteuid() != 0, reason="a server refuses root, so root is needed"),
    pytest.mark.skipif(shutil.which("postgres") is None, reason="PostgreSQL is not installed"),
]


def step(directory: Path, verb: str, *arguments: str) -> None:
    """A step of the cluster's script."""
    argv = ("sh", "-s", "--", verb, str(directory), *arguments)
    subprocess.run(argv, input=CLUSTER.script, text=True, check=True, timeout=120)


def start(directory: Path) -> None:
    """Starts the server with the settings of the guest's."""
    settings = [f"{name}={value}" for name, value in _SETTINGS.items() if "checks" not in name]
    step(directory, "start", *settings, "max_wal_senders=0")


def kill(directory: Path) -> None:
    """Ends the server as a crash would."""
    server = (directory / "data" / "postmaster.pid").read_text().split()[0]
    subprocess.run(("kill", "-QUIT", server), check=True)
    while Path("/proc", server).exists():
        pass


@contextmanager
def client(directory: Path) -> Iterator[SyncedTransactions]:
    """The program, with psql at the other end of a socket as of a guest's port."""
    near, far = socket.socketpair()
    end = far.fileno()
    argv = (
        PERL, "-e", guest_script("postgresql.pl"),
        "sh", "-c", CLUSTER.script, "psql", "client", str(directory),
    )  # fmt: skip
    process = subprocess.Popen(argv, stdin=end, stdout=end, stderr=end)
    far.close()
    database = SyncedTransactions(GuestProgram(NO_MACHINE, near, 0, "psql", "port"))
    try:
        yield database
        database.quit()
        assert process.wait(SECONDS) == 0
    finally:
        process.kill()
        process.wait()
        near.close()


def commit(database: SyncedTransactions) -> str | None:
    """What PostgreSQL said of the next transaction; None if it was committed."""
    database.request_next()
    answer = database.answer(SECONDS)
    assert answer is not None
    return None if answer.acknowledged else answer.error


def test_a_server_that_crashes_is_told_and_used_again() -> None:
    directory = REACHABLE / f"vdisklab-test-{os.getpid()}"
    directory.mkdir(mode=0o711)
    try:
        step(directory, "make", "0")
        start(directory)
        with client(directory) as database:
            database.ask(" ".join(TABLES.split()), "tables")
            begun = database.answer(SECONDS)
            assert begun is not None
            assert begun.acknowledged, begun.said
            assert [commit(database) for _ in range(3)] == [None, None, None]
            kill(directory)
            said = [commit(database) for _ in range(2)]
            assert all(said), "a server that is gone commits nothing"
            start(directory)
            assert [commit(database) for _ in range(2)] == [None, None]
        kill(directory)
        judged = kept_transactions(
            ClusterJudge(LocalHost()), directory, ["1", "2", "3", "6", "7", "99"]
        )
        assert (judged.refused, judged.lost) == ("", ("99",))
    finally:
        shutil.rmtree(directory)
