"""A guest of another architecture than this host's, under emulation: one cell, from end to end."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from vdisklab.path.architecture import ARCHITECTURES, HOST

(FOREIGN,) = (row for row in ARCHITECTURES if row is not HOST)

pytestmark = [
    pytest.mark.guest,
    pytest.mark.nightly,  # 200 MB of packages and 80 s; unit tests hold the row and its packages
    pytest.mark.skipif(
        shutil.which(FOREIGN.emulator) is None, reason=f"{FOREIGN.emulator} is not installed"
    ),
]


def vdisklab(*arguments: str, state: Path, cwd: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "vdisklab", *arguments],
        capture_output=True, text=True, check=False, timeout=900, cwd=cwd,
        env={**os.environ, "VDISKLAB_STATE": str(state), "COLUMNS": "200"},
    )  # fmt: skip
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout + done.stderr


def test_it_is_measured_and_every_answer_says_so(cache: Path, tmp_path: Path) -> None:
    state, database = cache / "foreign", str(tmp_path / "runs.sqlite")
    run = vdisklab(
        "run", "raw/none", "--guest-arch", FOREIGN.name, "--profile", "quick", "--rounds", "1",
        "--runtime", "1", "--size", "64M", "--db", database, state=state, cwd=tmp_path,
    )  # fmt: skip
    assert f"guests of {FOREIGN.name}" in run
    runs = json.loads(
        vdisklab("runs", "--db", database, "--format", "json", state=state, cwd=tmp_path)
    )
    assert runs
    table = vdisklab("table", "--db", database, state=state, cwd=tmp_path)
    assert f"in guests of {FOREIGN.name}, under emulation (TCG)" in table
