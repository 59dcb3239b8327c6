"""What an open page of `vdisklab watch` costs a measurement: the same cell with and without one.

Runs a real campaign of one path, opens the page's stream of events for every second run (which of
two is drawn by lot), and compares each measurement within such pairs:

    python bench/watch.py [--dir DIR] [--path raw/none] [--pairs 20] > bench/results/watch.json

The page is read as a browser reads it, but not drawn: a browser runs on another machine. `watch`
runs in both halves, as it does beside a campaign that nobody looks at.
"""

from __future__ import annotations

import argparse
import math
import random
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from contextlib import ExitStack
from pathlib import Path
from threading import Thread
from typing import IO, Any
from urllib.request import urlopen

from machine import machine_facts, print_result
from vdisklab.actions.measure import measure
from vdisklab.host.progress_file import progress_file
from vdisklab.plan.run_request import RunRequest
from vdisklab.progress import Event, RunStarted
from vdisklab.results.model import Run
from vdisklab.results.store import open_store

GOAL = (0.99, 1.01)


class OpenPage:
    """A page that is open while the context is, and counts its events."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._stream: Any = None
        self.events = 0

    def __enter__(self) -> OpenPage:
        self._stream = urlopen(f"{self._address}events", timeout=600)  # noqa: S310 - our own
        Thread(target=self._read, args=[self._stream], daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stream.fp.raw._sock.shutdown(2)

    def _read(self, stream: IO[bytes]) -> None:
        try:
            for line in stream:
                self.events += line.startswith(b"data: ")
        except (OSError, ValueError):
            pass  # closed


def with_page(pairs: int) -> list[bool]:
    """For each run, whether a page is open: once in each pair, in random order."""
    choose = random.Random(46)  # noqa: S311 - no secret
    return [half for _ in range(pairs) for half in choose.sample([True, False], 2)]


def campaign(directory: Path, path: str, pairs: int, runtime: float) -> tuple[list[Run], int]:
    """The runs in their order, and the number of events that pages got."""
    halves = with_page(pairs)
    with tempfile.TemporaryDirectory() as place, ExitStack() as stack:
        db = str(Path(place) / "bench.sqlite")
        store = stack.enter_context(open_store(db))
        command = [sys.executable, "-m", "vdisklab", "watch", "--db", db, "--listen", "127.0.0.1:0"]
        server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        stack.callback(server.wait)
        stack.callback(server.terminate)
        assert server.stderr is not None
        said = next(line for line in server.stderr if line.startswith("open "))
        pages: list[OpenPage] = []
        page = stack.enter_context(ExitStack())

        def turn(event: Event, /) -> None:
            if isinstance(event, RunStarted):
                page.close()
                if halves[event.round - 1]:
                    pages.append(page.enter_context(OpenPage(said.split()[1])))

        request = RunRequest(
            paths=(path,), rounds=2 * pairs, runtime=runtime, directory=directory,
            baseline=path, db=db,
        )  # fmt: skip
        with progress_file(turn) as progress:
            measured = measure(store, request.campaigns()[0], progress)
        if measured.failed or measured.campaign is None:
            raise SystemExit("cells failed")
        runs = sorted(store.runs(measured.campaign), key=lambda run: run.round)
        return runs, sum(one.events for one in pages)


def ratios(runs: list[Run], halves: list[bool]) -> dict[str, Any]:
    """By measurement, the mean ratio with a page over without, and its 95 % interval."""
    logs: dict[str, dict[int, float]] = defaultdict(dict)
    for run, half in zip(runs, halves, strict=True):
        for measurement in run.measurements:
            for sample in measurement.samples:
                if sample.metric == "bandwidth" and sample.value > 0:
                    name, pair = measurement.name, (run.round - 1) // 2
                    signed = math.log(sample.value) * (1 if half else -1)
                    logs[name][pair] = logs[name].get(pair, 0.0) + signed
    return {name: interval(list(of.values())) for name, of in logs.items()} | {
        "all": interval([one for of in logs.values() for one in of.values()])
    }


def interval(differences: list[float]) -> dict[str, float]:
    """The mean of logarithmic ratios as a ratio, with a normal 95 % interval."""
    mean = statistics.fmean(differences)
    error = 1.96 * statistics.stdev(differences) / math.sqrt(len(differences))
    return {
        "ratio": round(math.exp(mean), 4),
        "low": round(math.exp(mean - error), 4),
        "high": round(math.exp(mean + error), 4),
        "pairs": len(differences),
    }


def report(directory: Path, path: str, pairs: int, runtime: float) -> dict[str, Any]:
    """All figures, with the facts of the machine."""
    facts = machine_facts(directory)
    runs, events = campaign(directory, path, pairs, runtime)
    halves = with_page(pairs)
    watched = sum(run.wall_seconds or 0.0 for run, half in zip(runs, halves, strict=True) if half)
    return {
        "benchmark": "watch",
        "machine": facts,
        "accelerator": runs[0].accelerator,
        "path": path,
        "runtime_seconds": runtime,
        "ratios": ratios(runs, halves),
        "events": events,
        "events_per_second": round(events / watched, 3),
        "goals": {"ratio": GOAL, "events_per_second": 1.0},
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--dir", type=Path, default=Path.cwd())
    parser.add_argument("--path", default="raw/none")
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--runtime", type=float, default=3.0)
    given = parser.parse_args()
    print_result(report(given.dir.absolute(), given.path, given.pairs, given.runtime))
