"""A short form of bench/fuzz.py: no input of any parser ends in a traceback, or takes a second."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

FUZZ = Path(__file__).parents[2] / "bench" / "fuzz.py"


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
