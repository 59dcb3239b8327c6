"""A private PostgreSQL server in a temporary directory, for as long as a block lasts."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import psycopg
from psycopg.conninfo import conninfo_to_dict

from vdisklab.results.store import open_store

PASSWORD = "only-for-this-test"  # noqa: S105 - of a server that lives for one test session


class ServerMissing(Exception):  # noqa: N818 - a reason to skip, no failure
    """PostgreSQL's server programs are not installed, or cannot be run by this user."""


@dataclass(frozen=True)
class Server:
    socket_directory: Path
    port: int
    _numbers: Iterator[int] = field(default_factory=count)
    _templates: list[str] = field(default_factory=list)

    def url(self, database: str) -> str:
        return f"postgresql://vdisklab@/{database}?host={self.socket_directory}&port={self.port}"

    def tcp_url(self, *, password: str, database: str = "postgres") -> str:
        return f"postgresql://vdisklab:{password}@127.0.0.1:{self.port}/{database}"

    def new_database(self, *, migrated: bool = False) -> str:
        """The URL of an empty database, or of one with the tables, which takes no migration."""
        template = self._migrated() if migrated else "template1"
        return self._new(f"lab{next(self._numbers)}", template)

    def _new(self, name: str, template: str) -> str:
        with psycopg.connect(self.url("postgres"), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name} TEMPLATE {template}".encode())
        return self.url(name)

    def drop(self, url: str) -> None:
        """Removes a database: what is gone before the kernel writes it costs the disk nothing."""
        name = conninfo_to_dict(url)["dbname"]
        with psycopg.connect(self.url("postgres"), autocommit=True) as connection:
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())

    def _migrated(self) -> str:
        if not self._templates:
            with open_store(self._new("migrated", "template1")):
                self._templates.append("migrated")
        return "migrated"


@contextmanager
def private_server() -> Iterator[Server]:
    """Raises ServerMissing if it is not installed."""
    programs = _programs()
    directory = Path(tempfile.mkdtemp(prefix="vdisklab-pg-"))  # short: a socket's path has a limit
    as_user = _as_user(directory)
    try:
        port = _free_port()
        _make(as_user, programs, directory)
        control = [*as_user, os.fspath(programs / "pg_ctl"), "-D", os.fspath(directory / "data")]
        # Autovacuum would visit each of the tests' many databases.
        cheap = "-c fsync=off -c full_page_writes=off -c autovacuum=off"
        options = f"-k {directory} -p {port} -c listen_addresses=127.0.0.1 {cheap}"
        start = ["-w", "-l", os.fspath(directory / "log"), "-o", options, "start"]
        subprocess.run([*control, *start], check=True, stdout=subprocess.DEVNULL, cwd=directory)
        try:
            yield Server(directory, port)
        finally:
            stop = [*control, "-m", "immediate", "stop"]
            subprocess.run(stop, check=True, stdout=subprocess.DEVNULL, cwd=directory)
    finally:
        shutil.rmtree(directory)


def _programs() -> Path:
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if not found:
        raise ServerMissing("no PostgreSQL server is installed (Debian package postgresql)")
    return found[-1].parent


def _as_user(directory: Path) -> list[str]:
    """What to write before a command: PostgreSQL's server refuses to run as root."""
    if os.geteuid() != 0:
        return []
    setpriv = shutil.which("setpriv")
    if setpriv is None:
        raise ServerMissing("PostgreSQL refuses to run as root, and setpriv is not installed")
    user = pwd.getpwnam("nobody")
    os.chown(directory, user.pw_uid, user.pw_gid)
    return [setpriv, f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]


def _make(as_user: list[str], programs: Path, directory: Path) -> None:
    password = directory / "password"
    password.write_text(PASSWORD)
    password.chmod(0o644)
    subprocess.run(
        [
            *as_user, os.fspath(programs / "initdb"), "--pgdata", os.fspath(directory / "data"),
            "--username", "vdisklab", "--pwfile", os.fspath(password), "--no-sync",
            "--auth-local", "trust", "--auth-host", "scram-sha-256", "--encoding", "UTF8",
        ],
        check=True, stdout=subprocess.DEVNULL, cwd=directory,
    )  # fmt: skip


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
