"""The recipes of docs/powercut.md print with QEMU's own programs what the files beside them say."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.host.recipes import require_what_its_file_says

pytestmark = pytest.mark.host


@pytest.mark.parametrize(
    ("program", "recipe"),
    [
        # 4 s of CPU, and the same programs as the next.
        pytest.param("sh", "surviving-disk.sh", marks=pytest.mark.nightly),
        ("sh", "volatile-disk.sh"),
        (sys.executable, "nvme-write-cache.py"),
    ],
    ids=["surviving-disk", "volatile-disk", "nvme-write-cache"],
)
def test_a_recipe_prints_what_its_file_says(program: str, recipe: str, tmp_path: Path) -> None:
    require_what_its_file_says(program, recipe, tmp_path)
