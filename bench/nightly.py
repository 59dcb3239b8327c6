"""Runs the tests that are marked `nightly`, file by file, and keeps how each file ended.

    python bench/nightly.py                 all of them, and 20 times the examples of each property
    python bench/nightly.py FILE...         these; `properties` are the properties

The record is bench/results/nightly.json: a row for each file, of its last run. `seconds` are those
of the clock, `cpu_seconds` those of pytest and of all programs that it started and waited for. The
exit status is 1 if a test failed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from machine import machine_facts
from pages import RESULTS

ROOT = Path(__file__).parents[1]
RECORD = RESULTS / "nightly.json"
PROPERTIES = "properties"
EXAMPLES = "300"
_NO_TESTS = 5
"""pytest's exit status when it selected none."""


def files_with_nightly_tests() -> Iterator[str]:
    """The test files that name the mark, below the project's directory."""
    for file in sorted((ROOT / "tests").rglob("test_*.py")):
        if "mark.nightly" in file.read_text(encoding="utf-8"):
            yield str(file.relative_to(ROOT))


def arguments_of(name: str) -> list[str]:
    """pytest's arguments for a file, or for the properties."""
    if name == PROPERTIES:
        return ["-m", "hypothesis and not nightly", "tests/unit"]
    return ["-m", "nightly", name]


def run(name: str) -> dict[str, Any]:
    """The row of a file, whose tests are run."""
    load = os.getloadavg()[0]
    before, began = os.times(), time.monotonic()
    with tempfile.TemporaryDirectory() as directory:
        report = Path(directory, "report.xml")
        command = [sys.executable, "-m", "pytest", "-q", f"--junit-xml={report}"]
        environment = {**os.environ, "VDISKLAB_EXAMPLES": EXAMPLES}
        status = subprocess.run(
            [*command, *arguments_of(name)], cwd=ROOT, env=environment, check=False
        ).returncode
        found = ended(report) if report.exists() else {}
    after = os.times()
    cpu = sum(after[2:4]) - sum(before[2:4])
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"), "load_before": round(load, 1),
        "seconds": round(time.monotonic() - began), "cpu_seconds": round(cpu), "status": status,
        **found,
    }  # fmt: skip


def ended(report: Path) -> dict[str, Any]:
    """How many tests ran, and the names of those that failed or were skipped."""
    cases = list(ElementTree.parse(report).getroot().iter("testcase"))  # noqa: S314 - pytest's own
    names = {
        kind: [case.get("name") for case in cases if any(part.tag in tags for part in case)]
        for kind, tags in {"failed": ("failure", "error"), "skipped": ("skipped",)}.items()
    }
    return {"tests": len(cases), **names}


def kept(rows: Mapping[str, Any]) -> dict[str, Any]:
    """The record with these rows in place of those of the same files."""
    earlier = json.loads(RECORD.read_text())["files"] if RECORD.exists() else {}
    files = dict(sorted({**earlier, **rows}.items()))
    return {"bench": "nightly", **machine_facts(ROOT), "files": files}


def main() -> int:
    """Runs the tests and writes the record after each file."""
    names = sys.argv[1:] or [*files_with_nightly_tests(), PROPERTIES]
    statuses = []
    for name in names:
        row = run(name)
        statuses.append(row["status"])
        RECORD.write_text(json.dumps(kept({name: row}), indent=1) + "\n")
        print(f"bench/nightly.py: {name}: {row['seconds']} s, status {row['status']}", flush=True)
    return int(any(status not in (0, _NO_TESTS) for status in statuses))


if __name__ == "__main__":
    sys.exit(main())
