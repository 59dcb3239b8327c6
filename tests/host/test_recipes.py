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
    """A `sync` of another program's may keep what would be lost, so there are three attempts."""
    program, recipe = command
    said = outcomes(block_below(recipe))
    assert said
    kept_by_others: dict[str, str] = {}
    for _ in range(3):
        shown = subprocess.run(
            [program, DOCS / "recipes" / recipe],
            cwd=tmp_path, check=True, capture_output=True, text=True, timeout=300,
        )  # fmt: skip
        printed = {
            case: said_of for case, said_of in outcomes(shown.stdout).items() if case in said
        }
        assert list(tmp_path.iterdir()) == []
        assert list(printed) == list(said)
        different = {case: found for case, found in printed.items() if found != said[case]}
        kept_by_others = {
            case: found
            for case, found in different.items()
            if (said[case], found) == ("lost", "kept")
        }
        assert different == kept_by_others
        if not different:
            return
    pytest.fail(f"kept three times: {kept_by_others}")


def outcomes(lines: str) -> dict[str, str]:
    """The outcome of each case, from lines like `cache=none, no flush: lost`."""
    cases = [line.strip().rpartition(": ") for line in lines.splitlines()]
    return {case: outcome for case, _, outcome in cases if case}


def block_below(recipe: str) -> str:
    """The first block of lines after the link to a recipe."""
    _, _, after = (DOCS / "powercut.md").read_text().partition(f"(recipes/{recipe})")
    return after.split("\n\n")[1]
