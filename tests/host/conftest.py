"""What the tests of servers serve."""

from __future__ import annotations

from pathlib import Path

import pytest

_DISK_BYTES = 64 << 20


@pytest.fixture
def disk(tmp_path: Path) -> Path:
    """An empty file for a server's disk."""
    file = tmp_path / "disk"
    with file.open("wb") as new:
        new.truncate(_DISK_BYTES)
    return file


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """An empty directory for a server's files."""
    directory = tmp_path / "files"
    directory.mkdir()
    return directory
