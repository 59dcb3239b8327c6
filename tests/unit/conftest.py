"""The database that the verbs read in a test."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest
import sqlalchemy as sa
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite
from sqlalchemy.engine import Engine
from sqlalchemy.util import immutabledict

from tests.unit.stored import Database
from vdisklab.results import migrations

Migrate = Callable[..., None]


@pytest.fixture(scope="session", autouse=True)
def _queries_are_compiled_once() -> Iterator[None]:
    """SQLAlchemy compiles queries for each database anew, and tests open thousands of files."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SQLiteDialect_pysqlite, "__eq__", lambda one, other: type(one) is type(other))
        patch.setattr(SQLiteDialect_pysqlite, "__hash__", lambda one: hash(type(one)))
        patch.setattr(Engine, "_execution_options", immutabledict(compiled_cache={}))
        yield


@pytest.fixture(scope="session", autouse=True)
def migrate() -> Iterator[Migrate]:
    """A new SQLite file gets its tables by the statements that made those of the first one, because
    the migrations take a quarter of a second each time. The fixture is what really migrates.
    """
    migrate = migrations.upgrade
    statements: list[str] = []

    def upgrade(connection: sa.Connection, *scripts: Any, **to: Any) -> None:  # noqa: ANN401
        is_new = not scripts and not to and connection.dialect.name == "sqlite" and not (
            sa.inspect(connection).get_table_names()
        )  # fmt: skip
        for statement in statements if is_new else ():
            connection.exec_driver_sql(statement)
        if not is_new or not statements:
            migrate(connection, *scripts, **to)
        if is_new and not statements:
            driver = cast("sqlite3.Connection", connection.connection.driver_connection)
            _begin, *statements[:], _commit = driver.iterdump()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(migrations, "upgrade", upgrade)
        yield migrate


@pytest.fixture(scope="session")
def _made_up(tmp_path_factory: pytest.TempPathFactory) -> Path:
    database = Database(tmp_path_factory.mktemp("database") / "made-up.sqlite")
    database.write()
    return database.file


@pytest.fixture
def database(_made_up: Path, tmp_path_factory: pytest.TempPathFactory,
             monkeypatch: pytest.MonkeyPatch) -> Database:  # fmt: skip
    """The made-up campaign in a file of the test's own, which VDISKLAB_DB names.

    Tables are 120 characters wide, whatever the terminal of the worker.
    """
    file = tmp_path_factory.mktemp("database") / "results.sqlite"
    shutil.copy(_made_up, file)
    monkeypatch.setenv("VDISKLAB_DB", str(file))
    monkeypatch.setenv("COLUMNS", "120")
    return Database(file)
