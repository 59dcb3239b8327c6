"""A small part of bench/faults.py: what fails in an import loses nothing."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CAMPAIGN = ROOT / "docs" / "images" / "campaign.json.gz"


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
@pytest.mark.parametrize("most", [2, pytest.param(12, marks=pytest.mark.nightly)])
def test_a_failed_allocation_in_an_import_loses_nothing(tmp_path: Path, most: int) -> None:
    arguments = ("--import", str(CAMPAIGN), "--only", "allocation", "--most", str(most))
    done = subprocess.run(
        [sys.executable, str(ROOT / "bench" / "faults.py"), *arguments, "--dir", str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f".:src:bench:{os.environ.get('PYTHONPATH', '')}"},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    last = done.stdout.rindex("\n{\n") if "\n{\n" in done.stdout else 0
    kinds = json.loads(done.stdout[last:])
    assert set(kinds) == {"allocation, once", "allocation, from then on"}
    for totals in kinds.values():
        assert totals["injections"] == most
        assert totals["statuses"]["7"] >= 1  # something failed
        assert not any(totals[key] for key in ("lost", "left", "tracebacks", "faults"))
