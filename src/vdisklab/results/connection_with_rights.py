"""A connection to SQLite that has another user's rights over files in every call.

SQLite opens, makes and removes journals by their names at any call, and removes the file that a
journal names as its super-journal.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Self

from vdisklab.host.writing import Rights, acting

if TYPE_CHECKING:
    from sqlite3 import _Parameters

_Row = tuple[object, ...]


def connections_with(rights: Rights) -> Callable[..., sqlite3.Connection]:
    """What sqlite3.connect takes as `factory`; its calls also raise HostError if root cannot take
    the rights."""
    return partial(_Connection, rights)


class _Connection(sqlite3.Connection):
    def __init__(self, rights: Rights, database: str, **options: object) -> None:
        self.rights = rights
        with acting(rights):
            super().__init__(database, **options)  # type: ignore[arg-type]

    def cursor(self, *_factory: object) -> _CursorWithRights:  # type: ignore[override]
        return super().cursor(_CursorWithRights)

    def execute(self, sql: str, parameters: _Parameters = (), /) -> _CursorWithRights:
        return self.cursor().execute(sql, parameters)

    def commit(self) -> None:
        with acting(self.rights):
            super().commit()

    def rollback(self) -> None:
        with acting(self.rights):
            super().rollback()

    def close(self) -> None:
        with acting(self.rights):
            super().close()


class _CursorWithRights(sqlite3.Cursor):
    connection: _Connection

    def execute(self, sql: str, parameters: _Parameters = (), /) -> Self:
        with acting(self.connection.rights):
            return super().execute(sql, parameters)

    def executemany(self, sql: str, parameters: Iterable[_Parameters], /) -> Self:
        with acting(self.connection.rights):
            return super().executemany(sql, parameters)

    def executescript(self, sql_script: str, /) -> sqlite3.Cursor:
        with acting(self.connection.rights):
            return super().executescript(sql_script)

    def __next__(self) -> _Row:
        with acting(self.connection.rights):
            row: _Row = super().__next__()
            return row

    def fetchone(self) -> _Row | None:
        with acting(self.connection.rights):
            row: _Row | None = super().fetchone()
            return row

    def fetchmany(self, size: int | None = None) -> list[_Row]:
        with acting(self.connection.rights):
            return super().fetchmany(self.arraysize if size is None else size)

    def fetchall(self) -> list[_Row]:
        with acting(self.connection.rights):
            return super().fetchall()

    def close(self) -> None:
        with acting(self.connection.rights):
            super().close()
