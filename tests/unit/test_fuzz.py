"""Short forms of bench/fuzz.py and bench/damaged_values.py: no input ends in a traceback."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

BENCH = Path(__file__).parents[2] / "bench"
FUZZ = BENCH / "fuzz.py"


def test_damaged_inputs_are_read_or_refused() -> None:
    """10,000 inputs; bench/results/fuzz.json records a long run."""
    command = [sys.executable, str(FUZZ), "--inputs", "10000", "--limit", "5"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert ended.stdout, ended.stderr
    result = json.loads(ended.stdout)
    assert {name: parser["faults"] for name, parser in result["parsers"].items()} == {
        name: {} for name in result["parsers"]
    }
    assert ended.returncode == 0
    parsers = result["parsers"].values()
    assert sum(parser["refused"] for parser in parsers) > 1000
    assert sum(parser["read"] for parser in parsers) > 1000


def test_a_damaged_value_is_named_or_changes_no_answer() -> None:
    """One case in 40; without `--every` the program tries all."""
    verbs = ("show", "show guests", "rank as JSON", "table", "claims", "export-data")
    command = [sys.executable, str(BENCH / "damaged_values.py"), "--every", "40", "--verbs", *verbs]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert ended.stdout, ended.stderr
    result = json.loads(ended.stdout)
    assert result["faults"] == {}
    assert ended.returncode == 0
    assert result["counts"]["damage named"] > 50
    assert result["counts"]["undamaged answers"] > 20
