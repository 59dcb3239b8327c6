from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from vdisklab.results.store import Store, open_store

from .postgresql_server import Server, ServerMissing, private_server


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    try:
        with private_server() as running:
            yield running
    except ServerMissing as reason:
        pytest.skip(str(reason))


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """An empty database of each kind; one with tables for a test that takes `store`."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'lab.sqlite'}"
        return
    running: Server = request.getfixturevalue("server")
    made = running.new_database(migrated="store" in request.fixturenames)
    yield made
    running.drop(made)


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    with open_store(url) as opened:
        yield opened


@pytest.fixture
def open_directory() -> Iterator[Path]:
    """A directory that other users reach; pytest's own are closed to them."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        directory.chmod(0o755)
        yield directory
