"""The database that the verbs read in a test."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite
from sqlalchemy.engine import Engine
from sqlalchemy.util import immutabledict

from tests.unit.stored import Database


@pytest.fixture(scope="session", autouse=True)
def _queries_are_compiled_once() -> Iterator[None]:
    """SQLAlchemy compiles queries for each database anew, and tests open thousands of files."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SQLiteDialect_pysqlite, "__eq__", lambda one, other: type(one) is type(other))
        patch.setattr(SQLiteDialect_pysqlite, "__hash__", lambda one: hash(type(one)))
        patch.setattr(Engine, "_execution_options", immutabledict(compiled_cache={}))
        yield


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
