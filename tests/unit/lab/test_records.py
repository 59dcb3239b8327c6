"""What the fast suite says of the lab, which it does not run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.pages import bench

ROOT = Path(__file__).parents[3]
LAB = bench("lab_records.py")
TEXTS: dict[str, str] = LAB["texts"](bench("pages.py")["record_of"](LAB["NAME"]))
PARTS = [name for name in TEXTS if name.startswith("lab-")]


def test_script_test_says_in_the_end_that_the_lab_was_not_run() -> None:
    text = (ROOT / "script/test").read_text()
    (said,) = re.findall(r"^lab_not_run\(\) \{.*?^\}$", text, re.MULTILINE | re.DOTALL)
    assert re.search(r"^trap '.*\blab_not_run\b.*' EXIT$", text, re.MULTILINE)
    done = subprocess.run(
        ["bash", "-euc", f"{said}\ntrap lab_not_run EXIT\nexit 3"],
        cwd=ROOT, capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHON": sys.executable},
    )  # fmt: skip
    assert done.returncode == 3, "a failure stays one"
    assert "the lab was not run" in done.stdout
    for part in PARTS:
        assert f" {part}: " in done.stdout


@pytest.mark.parametrize("part", PARTS)
def test_a_record_says_when_where_and_how_it_ended(part: str) -> None:
    command, where, *_, end = TEXTS[part].splitlines()
    assert command.startswith("$ vdisklab lab ")
    assert re.match(r"# 20\d\d-\d\d-\d\d", where)
    assert re.match(r"took \d+ s, ended with \d+|# ended \d+ ", end), "the whole, or its last piece"


def test_a_part_replaces_its_record(tmp_path: Path) -> None:
    (tmp_path / "numbers").write_text('{"a": 1}')
    (tmp_path / "text").write_text("$ vdisklab lab job x\n# 2026\ntook 1 s, ended with 0\n")
    records = LAB["kept"]({"b": "old", "c": "other"}, "b", tmp_path / "text")
    records = LAB["kept"](records, "a", tmp_path / "numbers")
    assert list(records) == ["a", "b", "c"]
    assert records["a"] == {"a": 1}
    assert list(LAB["table"]({"b": records["b"]})) == ["b: 2026; took 1 s, ended with 0"]
