"""The overhead of a campaign: seconds per hot-plugged cell, and the share of time spent measuring.

Runs real campaigns through the command line into a new database and reads them back:

    python bench/overhead.py [--dir DIR] > bench/results/overhead.json

`outside_program` is a run's wall time minus the wall time of its fio processes. Where the host's
page cache is used, it includes writing back what fio wrote, before each measurement.
`measuring_share` is fio's own runtime (without ramp and start-up) over the wall time of the
rounds, including guests' boots.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import statistics
import tempfile
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from machine import machine_facts, print_result
from vdisklab.cli.shell.main import main as vdisklab
from vdisklab.results.model import Origin, Run
from vdisklab.results.store import open_store

PATHS = "{raw,qcow2}/{default,none,writeback,writethrough,directsync,unsafe}"
LONG_PATHS = "raw/{none,writeback}/{virtio,scsi,nvme}"


def campaign(directory: Path, paths: str, runtime: float, rounds: int) -> tuple[list[Run], float]:
    """All runs of a new campaign, and the wall seconds of the whole command."""
    with tempfile.TemporaryDirectory() as place:
        database = Path(place) / "bench.sqlite"
        begin = time.monotonic()
        with contextlib.redirect_stdout(io.StringIO()):
            status = vdisklab(
                ["run", paths, "--rounds", str(rounds), "--runtime", str(runtime), "--ramp", "0",
                 "--size", "128M", "--page-cache", "cold", "--baseline", "none",
                 "--dir", str(directory), "--db", str(database)]
            )  # fmt: skip
        wall = time.monotonic() - begin
        if status != 0:
            raise SystemExit(f"the campaign ended with {status}")
        with open_store(str(database)) as store:
            return list(store.runs()), wall


def outside_program(run: Run) -> float:
    """Seconds of a run in which no fio process was alive."""
    return (run.wall_seconds or 0.0) - sum(m.wall_seconds or 0.0 for m in run.measurements)


def measured(runs: Iterable[Run]) -> float:
    """Seconds that fio measured."""
    return sum(m.measured_seconds or 0.0 for run in runs for m in run.measurements)


def span(runs: Sequence[Run]) -> float:
    """Seconds from the start of the first run to the end of the last, boots included."""
    first = min(run.started for run in runs)
    last = max(runs, key=lambda run: run.started)
    return (last.started - first).total_seconds() + (last.wall_seconds or 0.0)


def spread(values: Sequence[float]) -> dict[str, float]:
    """Median and range, in seconds."""
    return {
        "median": round(statistics.median(values), 4),
        "lowest": round(min(values), 4),
        "highest": round(max(values), 4),
        "n": len(values),
    }


def report(directory: Path, paths: str) -> dict[str, Any]:
    """All figures about the overhead, with the facts of the machine."""
    facts = machine_facts(directory)
    short, _ = campaign(directory, paths, runtime=0.5, rounds=3)
    long, wall = campaign(directory, LONG_PATHS, runtime=5, rounds=1)
    plugged = [run for run in (*short, *long) if run.origin is Origin.GUEST]
    starts = [
        (m.wall_seconds or 0.0) - m.measured_seconds
        for run in plugged
        for m in run.measurements
        if m.measured_seconds is not None
    ]
    return {
        "benchmark": "overhead",
        "machine": facts,
        "accelerator": plugged[0].accelerator,
        "paths": paths,
        "measurements_per_run": len(plugged[0].measurements),
        "outside_program_seconds_per_run": spread([outside_program(run) for run in plugged]),
        "of_page_cache": {
            state: spread([outside_program(run) for run in plugged if run.page_cache == state])
            for state in sorted({run.page_cache for run in plugged})
        },
        "program_start_and_end_seconds": spread(starts),
        "measuring_share": {
            "seconds_per_measurement": 5,
            "paths": LONG_PATHS,
            "of_rounds": round(measured(long) / span(long), 4),
            "of_command": round(measured(long) / wall, 4),
        },
        "goals": {"outside_program_median": 0.4, "measuring_share": 0.85},
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--dir", type=Path, default=Path.cwd())
    parser.add_argument("--paths", default=PATHS, help="hot-plugged paths to measure")
    given = parser.parse_args()
    print_result(report(given.dir.absolute(), given.paths))
