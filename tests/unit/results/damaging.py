"""Puts values into a database that SQLite would refuse to store, but a damaged page can hold."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path


@contextmanager
def unchecked(file: Path) -> Iterator[sqlite3.Connection]:
    """A connection on which tables take every value; afterwards they have their rules again."""
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        query = "SELECT name, sql FROM sqlite_master WHERE type = 'table'"
        rules = {name: (sql, _without_rules(sql)) for name, sql in connection.execute(query)}
        _set_sql(connection, {name: (sql, loose) for name, (sql, loose) in rules.items()})
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute("PRAGMA ignore_check_constraints = ON")
        yield connection
        _set_sql(connection, {name: (loose, sql) for name, (sql, loose) in rules.items()})


def _without_rules(sql: str) -> str:
    loose = sql.replace("NOT NULL", "").replace("STRICT, WITHOUT", "WITHOUT")
    return loose.removesuffix("STRICT")


def _set_sql(connection: sqlite3.Connection, changes: dict[str, tuple[str, str]]) -> None:
    """Replaces the statement of each table that still has the first one."""
    connection.execute("PRAGMA writable_schema = ON")
    for name, (before, after) in changes.items():
        connection.execute(
            "UPDATE sqlite_master SET sql = ? WHERE name = ? AND sql = ?", (after, name, before)
        )
