"""The recipe of docs/powercut.md for ZFS prints what the file beside it says."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.host.recipes import require_what_its_file_says

pytestmark = pytest.mark.host


@pytest.mark.usefixtures("zfs")
def test_a_recipe_prints_what_its_file_says(tmp_path: Path) -> None:
    require_what_its_file_says("sh", "zfs.sh", tmp_path)
