"""Measures how long the analysis takes: 10,000 cells × 10 rounds × 12 measures, at three sizes.

    bench/analysis.py [--cells 2500 5000 10000] [--json FILE]
    bench/analysis.py --beside CHECKOUT [--turns 3] --json FILE

Each size runs in its own process, so that its peak memory can be measured. For every measure it
computes ranking, summaries (intervals), ratios to a baseline, the diagnostics of the values and
forty claims. Prints one JSON document with the processor's seconds (of one thread, so the
clock's on a quiet machine), peak memory, and how time grows.

--beside measures the largest size in turns with another checkout of the repository (such as one of
an earlier version), on the same machine at the same time. With --json, the rest of the file stays.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from vdisklab.analysis.claim_verdicts import judge_claims
from vdisklab.analysis.claimfile import Claim, parse_claims
from vdisklab.analysis.diagnostics.values import (
    bimodal_diagnostics,
    drift_diagnostics,
    first_round_diagnostics,
)
from vdisklab.analysis.observations import MeasureKey, Observations, Round
from vdisklab.analysis.paired_ratios import against_baseline
from vdisklab.analysis.rank_intervals import rank
from vdisklab.analysis.summary import summarise
from vdisklab.path.cell import MeasuredCell
from vdisklab.results.model import Direction

ROOT = Path(__file__).parents[1]
ROUNDS = 10
METRICS = ("iops", "bandwidth", "latency_mean", "latency_p50", "latency_p99", "latency_max")


def observations(cells: int) -> Observations:
    """Cells with drift and noise, as columns; the first forty have names that claims can use."""
    rng = np.random.default_rng(1)
    measures = tuple(
        sorted(
            MeasureKey(f"rand{direction}-4k-q1", direction, metric)
            for direction in (Direction.READ, Direction.WRITE)
            for metric in METRICS
        )
    )
    # Distinct options give distinct paths: 20,000 of them are there to be taken.
    paths = [
        f"qcow2:cluster_size={1 << (9 + size)}/none/virtio:iothread=on:queues={queues}"
        for size in range(13)
        for queues in range(1, 65)
    ]
    names = tuple(paths[:cells]) + tuple(f"c{number:06d}" for number in range(len(paths), cells))
    level = rng.normal(0, 0.8, cells)
    drift = np.cumsum(rng.normal(0, 0.15, ROUNDS))
    logs = level[:, None] + drift + rng.normal(0, 0.05, (len(measures), cells, ROUNDS))
    measure, cell, round = np.indices(logs.shape, dtype=np.int32)
    return Observations(
        cell=cell.ravel(),
        round=round.ravel(),
        measure=measure.ravel(),
        value=np.exp(logs).ravel(),
        cells=tuple(map(MeasuredCell, names)),
        rounds=tuple(Round("c", number) for number in range(1, ROUNDS + 1)),
        measures=measures,
    )


def forty_claims(found: Observations) -> list[Claim]:
    text = 'article = "bench"\ntitle = "bench"\n'
    for number in range(40):
        left, right = found.cells[2 * number], found.cells[2 * number + 1]
        text += (
            f'[[claim]]\nname = "c{number}"\nsentence = "s"\nleft = ["{left}"]\n'
            f'right = ["{right}"]\nmeasures = ["{found.measures[number % 12]}"]\nlow = 0.9\n'
        )
    return list(parse_claims(text, "bench").claims)


def measured(cells: int) -> dict[str, Any]:
    found = observations(cells)
    seconds: dict[str, float] = {}

    def timed(name: str, since: float) -> float:
        now = time.process_time()
        seconds[name] = seconds.get(name, 0.0) + now - since
        return now

    start = since = time.process_time()
    for measure in found.measures:
        rank(found, measure)
        since = timed("rank", since)
        summarise(found, measure)
        since = timed("intervals", since)
        against_baseline(found, measure, found.cells[0])
        since = timed("ratios", since)
    timed_claims = time.process_time()
    judge_claims(forty_claims(found), found, ())
    since = timed("claims", timed_claims)
    asked = time.process_time() - start
    for measure in found.measures:
        drift_diagnostics(found, measure)
        first_round_diagnostics(found, measure)
        bimodal_diagnostics(found, measure)
    timed("diagnostics", since)
    return {
        "cells": cells,
        "rounds": ROUNDS,
        "measures": len(found.measures),
        "values": len(found.value),
        "seconds": asked,
        "seconds_with_diagnostics": time.process_time() - start,
        "by_part": seconds,
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def in_checkout(checkout: Path, cells: int) -> dict[str, Any]:
    """What this benchmark of a checkout measures with that checkout's source."""
    done = subprocess.run(
        [sys.executable, str(checkout / "bench" / "analysis.py"), "--one", str(cells)],
        env={**os.environ, "PYTHONPATH": str(checkout / "src")},
        check=True, capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def beside(other: Path, turns: int, cells: int) -> dict[str, Any]:
    """The processor's seconds of both versions' whole processes in each turn, with medians."""
    seconds: dict[str, list[float]] = {"this": [], "other": []}
    for _ in range(turns):
        for name, checkout in (("this", ROOT), ("other", other)):
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            in_checkout(checkout, cells)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
            seconds[name].append(round(spent, 2))
    described = subprocess.run(
        ["git", "-C", str(other), "log", "-1", "--format=%h %s"],
        check=True, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    return {
        "other": described.stdout.strip(),
        "cells": cells,
        "seconds": seconds,
        "medians": {name: float(np.median(each)) for name, each in seconds.items()},
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cells", nargs="+", type=int, default=[2500, 5000, 10000])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--beside", type=Path, metavar="CHECKOUT")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.one:
        print(json.dumps(measured(asked.one)))
        return 0
    if asked.beside:
        earlier = asked.json is not None and asked.json.exists()
        kept = json.loads(asked.json.read_text(encoding="utf-8")) if earlier else {}
        found = (
            {"bench": "analysis"}
            | kept
            | {"beside": beside(asked.beside, asked.turns, max(asked.cells))}
        )
    else:
        rows = [in_checkout(ROOT, cells) for cells in asked.cells]
        growth = np.polyfit(
            np.log([row["cells"] for row in rows]), np.log([row["seconds"] for row in rows]), 1
        )
        found = {
            "bench": "analysis",
            "sizes": rows,
            "seconds_grow_as_cells_to_the": float(growth[0]),
        }
    text = json.dumps(found, indent=1)
    if asked.json:
        asked.json.write_text(text + "\n", encoding="utf-8")
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
