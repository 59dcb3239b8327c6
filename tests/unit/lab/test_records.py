"""What the fast suite says of the lab, which it does not run."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
RECORDS = sorted((ROOT / "bench/results").glob("lab-*.txt"))


def test_script_test_says_in_the_end_that_the_lab_was_not_run() -> None:
    text = (ROOT / "script/test").read_text()
    (said,) = re.findall(r"^lab_not_run\(\) \{.*?^\}$", text, re.MULTILINE | re.DOTALL)
    assert re.search(r"^trap '.*\blab_not_run\b.*' EXIT$", text, re.MULTILINE)
    done = subprocess.run(
        ["bash", "-euc", f"{said}\ntrap lab_not_run EXIT\nexit 3"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 3, "a failure stays one"
    assert "the lab was not run" in done.stdout
    for record in RECORDS:
        assert record.name in done.stdout


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.name)
def test_a_record_says_when_where_and_how_it_ended(record: Path) -> None:
    command, where, *_, end = record.read_text().splitlines()
    assert command.startswith("$ vdisklab lab ")
    assert re.match(r"# 20\d\d-\d\d-\d\d", where)
    assert re.match(r"took \d+ s, ended with \d+|# ended \d+ ", end), "the whole, or its last piece"
