"""Short forms of bench/fuzz.py and bench/damaged_values.py: no input ends in a traceback.

Every commit tries a hundredth or a twentieth of what the nightly run tries: more inputs find rarer
faults.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[2] / "bench"
FUZZ = BENCH / "fuzz.py"


@pytest.mark.parametrize("inputs", [100, pytest.param(10_000, marks=pytest.mark.nightly)])
def test_damaged_inputs_are_read_or_refused(inputs: int) -> None:
    """bench/results/fuzz.json records a long run."""
    command = [sys.executable, str(FUZZ), "--inputs", str(inputs), "--limit", "5"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert ended.stdout, ended.stderr
    result = json.loads(ended.stdout)
    assert {name: parser["faults"] for name, parser in result["parsers"].items()} == {
        name: {} for name in result["parsers"]
    }
    assert ended.returncode == 0
    parsers = result["parsers"].values()
    assert sum(parser["refused"] for parser in parsers) > inputs / 10
    assert sum(parser["read"] for parser in parsers) > inputs / 10


@pytest.mark.parametrize("every", [800, pytest.param(40, marks=pytest.mark.nightly)])
def test_a_damaged_value_is_named_or_changes_no_answer(every: int) -> None:
    """One case in so many; without `--every` the program tries all."""
    verbs = ("show", "show guests", "rank as JSON", "table", "claims", "export-data")
    command = [
        sys.executable,
        str(BENCH / "damaged_values.py"),
        "--every",
        str(every),
        "--verbs",
        *verbs,
    ]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert ended.stdout, ended.stderr
    result = json.loads(ended.stdout)
    assert result["faults"] == {}
    assert ended.returncode == 0
    assert result["counts"]["damage named"] > 2000 / every
    assert result["counts"]["undamaged answers"] > 800 / every
