"""An open database: connections, transactions and locks, the same for SQLite and PostgreSQL.

SQLite keeps its rollback journal instead of WAL. vdisklab writes one run every few seconds from
one process, so WAL's parallel readers would gain nothing, and WAL would cost what users rely on:
a database at rest is one file that can be copied, lies on NFS or CIFS (WAL needs shared memory
there), and can be read in a directory that the reader may not write. `synchronous=EXTRA` makes a
stored run survive a power cut: FULL leaves the journal's removal unsynced, and the last run could
be rolled back.
"""

from __future__ import annotations

import importlib.util
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
from sqlalchemy import event

from vdisklab.errors import DatabaseError
from vdisklab.results import migrations
from vdisklab.results.address import Address
from vdisklab.results.failure import damage_noticed, told_as_sentences

if TYPE_CHECKING:
    import psycopg  # an optional dependency

PATIENCE_SECONDS = 10.0
_CONNECT_SECONDS = 10


@dataclass(frozen=True, slots=True)
class Database:
    """Short transactions on one database; every failure in them is a DatabaseError."""

    address: Address
    _readers: sa.Engine
    _writers: sa.Engine

    @contextmanager
    def reading(self) -> Iterator[sa.Connection]:
        """One consistent view of the database for as long as the block lasts."""
        with (
            told_as_sentences(self.address),
            damage_noticed(self.address),
            self._readers.connect() as connection,
        ):
            yield connection

    @contextmanager
    def writing(self) -> Iterator[sa.Connection]:
        """One transaction: all of the block is stored, or nothing."""
        with told_as_sentences(self.address), self._writers.begin() as connection:
            yield connection


_SQLITE = b"SQLite format 3\0"
"""How each file of SQLite's begins (fileformat2.html)."""


@contextmanager
def open_database(address: Address, *, create: bool, patience: float) -> Iterator[Database]:
    """The database, brought to the current schema; see `open_store` for what is raised."""
    if address.file is None:
        engine = _postgresql(address, patience)
    else:
        engine = _sqlite(address, address.file, create, patience)
    try:
        database = Database(
            address,
            _readers=engine.execution_options(**_consistent(engine)),
            _writers=engine.execution_options(vdisklab_writes=True),
        )
        _bring_up_to_date(database)
        yield database
    finally:
        engine.dispose()


def _bring_up_to_date(database: Database) -> None:
    with database.reading() as connection:
        current = migrations.is_current(connection)
    if not current:
        with database.writing() as connection:
            migrations.upgrade(connection)


def _consistent(engine: sa.Engine) -> dict[str, Any]:
    """Options for a transaction whose queries all see one state; SQLite's always do."""
    if engine.dialect.name == "postgresql":
        return {"isolation_level": "REPEATABLE READ"}
    return {}


def _sqlite(address: Address, file: Path, create: bool, patience: float) -> sa.Engine:
    if file.is_dir():
        raise DatabaseError(f"the database {file} is a directory", hint="give --db a file in it")
    if not create and not file.exists():
        raise DatabaseError(
            f"there is no database {file}", hint="`vdisklab run` makes one, or give --db another"
        )
    _require_no_other_file(file)
    if create:
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise DatabaseError(
                f"the directory {file.parent} cannot be made: {error.strerror}",
                hint="give --db a file in a directory that can be written",
            ) from error
    engine = sa.create_engine(address.url, connect_args={"timeout": patience}, hide_parameters=True)
    event.listen(engine, "connect", _prepare_sqlite)
    event.listen(engine, "begin", _begin_sqlite)
    return engine


def _require_no_other_file(file: Path) -> None:
    """Refuses what SQLite would overwrite: a file shorter than its header is a new one to it."""
    if not file.is_file():
        return  # SQLite will say what is wrong with a socket or a pipe
    try:
        with file.open("rb") as opened:
            begin = opened.read(len(_SQLITE))
    except OSError:
        return  # it is not there yet, or SQLite will say what is wrong with it
    if begin and begin != _SQLITE:
        raise DatabaseError(f"the database {file} is not a database", hint="give --db another file")


def _prepare_sqlite(connection: sqlite3.Connection, _record: object) -> None:
    # The driver would begin transactions late, and none at all before DDL: we begin them.
    connection.isolation_level = None
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute("PRAGMA synchronous = EXTRA")


def _begin_sqlite(connection: sa.Connection) -> None:
    # A transaction that begins by reading and then writes can fail at once, without waiting for
    # a lock, when another one wrote in between. A writer therefore takes its lock first.
    writes = connection.get_execution_options().get("vdisklab_writes")
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def _postgresql(address: Address, patience: float) -> sa.Engine:
    if importlib.util.find_spec("psycopg") is None:
        raise DatabaseError(
            "PostgreSQL needs the Python package psycopg, which is not installed",
            hint="pip install 'vdisklab[postgresql]'",
        )
    given = address.url.query
    engine = sa.create_engine(
        address.url,
        # A campaign runs for hours, and the server may have been restarted between two cells.
        pool_pre_ping=True,
        connect_args={} if "connect_timeout" in given else {"connect_timeout": _CONNECT_SECONDS},
        hide_parameters=True,
    )

    def prepare(connection: psycopg.Connection, _record: object) -> None:
        milliseconds = str(round(patience * 1000))
        connection.execute("SELECT set_config('lock_timeout', %s, false)", (milliseconds,))
        connection.commit()

    event.listen(engine, "connect", prepare)
    return engine
