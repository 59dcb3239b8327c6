"""Quickstarts from fresh clones: how long until the provisional table and the decision, and which.

    python bench/quickstarts.py [--count 10] [--dir DIR] [--keep]

Each clones this repository, installs, measures with a state and a database of its own, and ends as
a user's would. `--keep` adds to the record, after each.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

from machine import machine_facts, print_result
from pages import RESULTS, keep_record, record_of

RECORD = "quickstarts.json.gz"
_ROOT = Path(__file__).parents[1]
_LONGEST = 3600.0


def quickstart(directory: Path) -> dict[str, Any]:
    """What one quickstart took and said; seconds count from before the clone."""
    facts, began = machine_facts(directory), time.monotonic()
    tree, database = directory / "vdisklab", directory / "results.sqlite"
    environment = {**os.environ, "HOME": str(directory), "XDG_STATE_HOME": str(directory / "state")}
    subprocess.run(["git", "clone", "--quiet", _ROOT, tree], check=True)
    seen: dict[str, float] = {}
    with subprocess.Popen(
        ["timeout", str(_LONGEST), "script/quickstart", "--db", database],
        cwd=tree, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    ) as process:  # fmt: skip
        for line in process.stdout or ():
            passed = round(time.monotonic() - began, 1)
            if line.startswith("script/quickstart: measuring"):
                seen["installed"] = passed
            if line.startswith("PROVISIONAL"):
                seen["provisional"] = passed
    ended = round(time.monotonic() - began, 1)
    said = subprocess.run(
        [tree / ".venv/bin/vdisklab", "recommend", "--db", database, "--format", "json"],
        env=environment, capture_output=True, text=True, check=True,
    )  # fmt: skip
    answer = json.loads(said.stdout)
    race = answer["race"]
    return {
        **facts,
        "revision": _git("rev-parse", "--short", "HEAD"),
        "status": process.returncode,
        "seconds": {**seen, "ended": ended},
        "rounds": race["rounds"],
        "decided": not race["as_good"],
        "best": race["best"],
        "as_good": race["as_good"],
        "behind": race["behind"],
        "first_line": answer["sentences"][0],
    }


def _git(*arguments: str) -> str:
    return subprocess.run(
        ["git", "-C", _ROOT, *arguments], check=True, capture_output=True, text=True
    ).stdout.strip()


def shown(arguments: list[str]) -> str:
    """A table of the record, a row for each quickstart."""
    del arguments
    lines = [
        "| quickstart | installed | provisional table | answer | rounds | it says |",
        "|---|---|---|---|---|---|",
    ]
    for number, row in enumerate(record_of(RECORD), start=1):
        times = (row["seconds"].get(name) for name in ("installed", "provisional", "ended"))
        said = " | ".join("–" if seconds is None else _clock(seconds) for seconds in times)
        lines.append(f"| {number} | {said} | {row['rounds']} | {row['first_line']} |")
    return "\n".join(lines)


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 60} min {int(seconds) % 60:02} s"


def main() -> None:
    """Runs them one after another, and prints what they took."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--count", type=int, default=10)
    parser.add_argument("--dir", type=Path, default=Path())
    parser.add_argument("--keep", action="store_true")
    options = parser.parse_args()
    made = []
    for _ in range(options.count):
        with tempfile.TemporaryDirectory(dir=options.dir) as name:
            made.append(quickstart(Path(name).absolute()))
        if options.keep:
            earlier = record_of(RECORD) if (RESULTS / RECORD).exists() else []
            keep_record(RECORD, [*earlier, made[-1]])
    print_result({"quickstarts": made})


if __name__ == "__main__":
    main()
