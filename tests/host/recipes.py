"""Runs a recipe of docs/powercut.md and compares what it prints with the file beside it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
_ATTEMPTS = 5


def require_what_its_file_says(program: str, recipe: str, directory: Path) -> None:
    """Runs a recipe in an empty directory. Fails if a case has another outcome than in that file.

    Another program's `sync`, or a timer on a busy machine, may keep what would be lost. So each
    loss must be seen in one of several attempts.
    """
    said = outcomes((DOCS / "recipes" / recipe).with_suffix(".txt").read_text())
    assert said
    kept = list(said)
    for _ in range(_ATTEMPTS):
        shown = subprocess.run(
            [program, DOCS / "recipes" / recipe],
            cwd=directory, check=True, capture_output=True, text=True, timeout=400,
        )  # fmt: skip
        assert list(directory.iterdir()) == []
        printed = {case: found for case, found in outcomes(shown.stdout).items() if case in said}
        assert list(printed) == list(said)
        different = [case for case in said if printed[case] != said[case]]
        assert {said[case] for case in different} <= {"lost"}
        kept = [case for case in kept if case in different]
        if not kept:
            return
    pytest.fail(f"kept {_ATTEMPTS} times: {kept}")


def outcomes(lines: str) -> dict[str, str]:
    """The outcome of each case, from lines like `cache=none, no flush: lost`."""
    cases = [line.strip().rpartition(": ") for line in lines.splitlines()]
    return {case: outcome for case, _, outcome in cases if case}
