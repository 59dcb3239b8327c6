"""A database that is opened for reading alone."""

from __future__ import annotations

import sqlite3
import threading
from functools import partial
from pathlib import Path

import pytest

from vdisklab.errors import DatabaseError, NoDatabaseError
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


def test_one_that_another_process_is_making_is_waited_for(tmp_path: Path) -> None:
    file = tmp_path / "new.sqlite"
    file.touch()
    maker = threading.Timer(0.2, partial(_make, file))
    maker.start()
    with open_store(str(file), read_only=True) as store:
        assert store.campaigns() == ()
    maker.join()


def _make(file: Path) -> None:
    with open_store(str(file)):
        pass


def test_an_empty_one_is_no_older_one(tmp_path: Path) -> None:
    file = tmp_path / "new.sqlite"
    file.touch()
    with (
        pytest.raises(NoDatabaseError, match="is empty: another process is making it, or ended"),
        open_store(str(file), read_only=True, patience=0.1),
    ):
        pass


def test_none_is_created(tmp_path: Path) -> None:
    with (
        pytest.raises(DatabaseError, match="there is no database"),
        open_store(str(tmp_path / "none"), read_only=True),
    ):
        pass
    assert not list(tmp_path.iterdir())
