"""What the tests of guests share, so that each image is made once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab import Lab


@pytest.fixture(scope="session")
def state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The state directory of all campaigns."""
    return tmp_path_factory.mktemp("state")


@pytest.fixture(scope="session")
def cache(state: Path) -> Path:
    """The cache in it, with kernels and images of guests."""
    directory = state / "cache"
    directory.mkdir()
    return directory


@pytest.fixture
def lab(tmp_path: Path, state: Path, cache: Path) -> Iterator[Lab]:
    """A place for campaigns, where nothing may be left at the end."""
    made = Lab(tmp_path, state)
    made.prepare()
    yield made
    assert made.leftovers() == []
