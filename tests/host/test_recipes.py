"""The recipes of docs/powercut.md show with QEMU's own programs what the page says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.host

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize(
    "command",
    [
        ("sh", "surviving-disk.sh"),
        ("sh", "volatile-disk.sh"),
        (sys.executable, "nvme-write-cache.py"),
    ],
    ids=lambda command: command[1],
)
def test_a_recipe_prints_what_the_page_says(command: tuple[str, str], tmp_path: Path) -> None:
    program, recipe = command
    shown = subprocess.run(
        [program, DOCS / "recipes" / recipe],
        cwd=tmp_path, check=True, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    page = (DOCS / "powercut.md").read_text()
    _, _, after = page.partition(f"(recipes/{recipe})")
    block = [line for line in after.split("\n\n")[1].splitlines() if "…" not in line]
    printed = shown.stdout.splitlines()
    assert block
    assert [line.strip() for line in block] == [
        line for line in printed if f"    {line}" in block
    ], shown.stdout
    assert list(tmp_path.iterdir()) == []
