"""Measures how long an answer from 200 hosts takes: 200 hosts x 100 cells x 5 rounds.

    bench/fleet_analysis.py [--hosts 200] [--cells 100] [--rounds 5] [--database FILE] [--json FILE]

Fills an SQLite database with the campaigns of bench/fleet_data.py (unless --database has them),
then runs `vdisklab rank --hosts all`, `compare` and `recommend` in processes of their own. Prints
seconds on the clock and of the processor, and peak memory; the limits are 20 s of the processor
(one thread's, so the clock's on a quiet machine) and 1 GiB for `rank`.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from fleet_data import Fleet, fill
from machine import machine_facts

SECONDS = 20.0
BYTES = 1 << 30


def measured(database: Path, arguments: list[str]) -> dict[str, Any]:
    """Seconds, memory and size of the answer of one verb."""
    started = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, "-m", "vdisklab", *arguments, "--hosts", "all", "--db", str(database),
         "--format", "json"],
        stdout=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None
    answer = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"vdisklab {' '.join(arguments)} failed")
    return {
        "verb": arguments[0],
        "seconds": round(time.monotonic() - started, 2),
        "processor seconds": round(usage.ru_utime + usage.ru_stime, 2),
        "peak bytes": usage.ru_maxrss * 1024,
        "answer bytes": len(answer),
        "outliers": sorted({
            outlier["host"] for outlier in json.loads(answer)["hosts"]["outliers"]["outliers"]
        }),
    }  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--hosts", type=int, default=200)
    parser.add_argument("--cells", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--database", type=Path, help="keep the database here, or use this one")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        database = given.database or Path(directory) / "fleet.sqlite"
        answer = {**machine_facts(Path(directory)), "hosts": given.hosts, "cells": given.cells,
                  "rounds": given.rounds}  # fmt: skip
        if not database.exists():
            answer["samples"] = fill(database, Fleet(given.hosts, given.cells, given.rounds))
        answer["database bytes"] = database.stat().st_size
        verbs = (["rank"], ["compare", "raw/none", "qcow2/none"], ["recommend", "--unsafe"])
        answer["verbs"] = [measured(database, list(arguments)) for arguments in verbs]
    text = json.dumps(answer, indent=1)
    print(text)
    if given.json:
        given.json.write_text(text + "\n", encoding="utf-8")
    rank = answer["verbs"][0]
    return 0 if rank["processor seconds"] <= SECONDS and rank["peak bytes"] <= BYTES else 1


if __name__ == "__main__":
    sys.exit(main())
