"""A database that is opened for reading alone."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from vdisklab.errors import DatabaseError
from vdisklab.results.store import open_store


@pytest.fixture
def db(tmp_path: Path) -> Path:
    file = tmp_path / "results with ?#% in its name.sqlite"
    with open_store(str(file)):
        return file


def test_the_database_refuses_to_be_changed(db: Path) -> None:
    with (
        open_store(str(db), read_only=True) as store,
        pytest.raises(DatabaseError, match="cannot be written"),
    ):
        store.rename_campaign("a", "b")


def test_an_older_schema_is_left_alone(db: Path) -> None:
    with sqlite3.connect(db) as connection:
        connection.execute("UPDATE vdisklab_schema SET version_num = '0000'")
    before = db.read_bytes()
    with (
        pytest.raises(DatabaseError, match="an older vdisklab"),
        open_store(str(db), read_only=True),
    ):
        pass
    assert db.read_bytes() == before


def test_none_is_created(tmp_path: Path) -> None:
    with (
        pytest.raises(DatabaseError, match="there is no database"),
        open_store(str(tmp_path / "none"), read_only=True),
    ):
        pass
    assert not list(tmp_path.iterdir())
