"""How many examples of a property are tried, and the database that the verbs read in a test."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from tests.unit.stored import Database

# No deadline: a busy machine takes longer for an example. script/nightly tries more examples.
_EXAMPLES = int(os.environ.get("VDISKLAB_EXAMPLES", "15"))
settings.register_profile("vdisklab", deadline=None, max_examples=_EXAMPLES)
settings.load_profile("vdisklab")


@pytest.fixture(scope="session", autouse=True)
def _no_database_of_the_shell() -> Iterator[None]:
    """Who works with vdisklab beside its tests may have set a database of their own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("VDISKLAB_DB", raising=False)
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
