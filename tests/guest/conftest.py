"""What the tests of guests share, so that each image is made once."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab import Lab

_SHARED = "VDISKLAB_TESTS_CACHE"
"""Where script/test lets the lanes that boot guests keep kernels and images, each of which is then
built once in a run instead of once in a lane."""


@pytest.fixture(scope="session")
def state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The state directory of all campaigns."""
    return tmp_path_factory.mktemp("state")


@pytest.fixture(scope="session")
def cache(state: Path) -> Path:
    """The cache in it, with kernels and images of guests, empty when the tests begin."""
    directory, shared = state / "cache", os.environ.get(_SHARED)
    if shared is None:
        directory.mkdir()
    else:
        Path(shared).mkdir(exist_ok=True)
        directory.symlink_to(shared)
    return directory


@pytest.fixture
def lab(tmp_path: Path, state: Path, cache: Path) -> Iterator[Lab]:
    """A place for campaigns, where nothing may be left at the end."""
    made = Lab(tmp_path, state)
    made.prepare()
    yield made
    assert made.leftovers() == []
