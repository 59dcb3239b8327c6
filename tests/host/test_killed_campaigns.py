"""A few kills of bench/killed.py: its record has hundreds of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RECORD = ROOT / "bench" / "results" / "killed.json"


def killed(directory: Path, *arguments: str) -> dict[str, object]:
    done = subprocess.run(
        [sys.executable, "bench/killed.py", "--dir", str(directory), *arguments],
        cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    totals: dict[str, object] = json.loads(done.stdout)["totals"]
    return totals


@pytest.mark.host
@pytest.mark.parametrize("kills", [1, pytest.param(4, marks=pytest.mark.nightly)])
def test_killed_at_random_moments_nothing_is_lost_or_left(kills: int, tmp_path: Path) -> None:
    totals = killed(tmp_path, "--kills", str(kills), "--guests", "0")
    assert totals["kills"] == kills
    assert totals["faults"] == []
    assert list(tmp_path.iterdir()) == []


def test_the_record_holds_no_fault() -> None:
    totals = json.loads(RECORD.read_text())["totals"]
    assert totals["faults"] == []
    assert totals["kills"] == sum(totals["by_kind"].values())
    assert totals["kills"] >= 300
