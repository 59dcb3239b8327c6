"""What an open page of `vdisklab watch` costs a measurement: the same cell with and without one.

Measures one cell again and again, opens the page's stream of events for every second run (which of
two is drawn by lot), and compares the runs within such pairs:

    python bench/watch.py [--dir DIR] [--minutes 9] [--add bench/results/watch.json]

The record is written after each pair; with --add, pairs of several sessions come together. The page
is read as a browser reads it, but not drawn: a browser runs on another machine. `watch` runs in
both halves, as it does beside a campaign that nobody looks at.

The cell is one that both a busy CPU and little noise distinguish: random reads of 4 KiB from the
host's own disk, 32 at a time, which keep a CPU busy. Cells are short, because most of the noise of
a shared machine is slower than they are. Files in memory vary more: neighbours use its bandwidth.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Thread
from typing import IO, Any
from urllib.request import urlopen

import numpy as np

from machine import machine_facts
from pages import record_of
from vdisklab.actions.measure import measure
from vdisklab.host.progress_file import progress_file
from vdisklab.plan.run_request import RunRequest
from vdisklab.progress import Event, RunStarted
from vdisklab.results.model import Campaign, Run
from vdisklab.results.store import open_store

GOALS = {"ratio": (0.99, 1.01), "events_per_second": 1.0}
PROFILE = Path(__file__).with_name("watched-reads.toml")


class OpenPage:
    """A page that is open while the context is, and counts its events."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._stream: Any = None
        self.events = 0
        self._began = self._ended = 0.0

    def __enter__(self) -> OpenPage:
        self._began = time.monotonic()
        self._stream = urlopen(f"{self._address}events", timeout=600)  # noqa: S310 - our own
        Thread(target=self._read, args=[self._stream], daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stream.fp.raw._sock.shutdown(2)
        self._ended = time.monotonic()

    @property
    def seconds(self) -> float:
        """How long it has been open so far."""
        return (self._ended or time.monotonic()) - self._began

    def _read(self, stream: IO[bytes]) -> None:
        try:
            for line in stream:
                self.events += line.startswith(b"data: ")
        except (OSError, ValueError):
            pass  # closed


class Session:
    """One campaign of a cell, until its time is over; each pair is added to the record."""

    def __init__(self, record: dict[str, Any], file: Path, directory: Path, minutes: float) -> None:
        self._record, self._file, self._directory = record, file, directory
        self._ends = time.monotonic() + 60 * minutes
        self._session: dict[str, Any] = {"machine": machine_facts(directory), "logarithms": []}
        record["sessions"].append(self._session)
        choose = random.Random(46 + len(record["sessions"]))  # noqa: S311 - no secret
        self._halves = [half for _ in range(2000) for half in choose.sample([True, False], 2)]
        self._pages: list[OpenPage] = []
        self._logarithms: list[float] = []
        self._server: subprocess.Popen[str] | None = None
        self._started = 0.0

    def run(self, cell: dict[str, Any]) -> None:
        """Measures for as long as the session may take."""
        with tempfile.TemporaryDirectory() as place, ExitStack() as stack:
            db = str(Path(place) / "bench.sqlite")
            store = stack.enter_context(open_store(db))
            address = stack.enter_context(self._served(db))
            page = stack.enter_context(ExitStack())

            def turn(event: Event, /) -> None:
                if isinstance(event, RunStarted):
                    page.close()
                    if self._halves[event.round - 1]:
                        self._pages.append(page.enter_context(OpenPage(address)))

            request = RunRequest(
                paths=(cell["path"],), baseline=cell["path"], profile=str(PROFILE),
                runtime=cell["runtime_seconds"], ramp=0.0, rounds=len(self._halves), db=db,
                directory=self._directory,
            )  # fmt: skip
            with progress_file(turn) as progress:
                measure(store, request.campaigns()[0], progress, publish=self._add)

    @contextmanager
    def _served(self, db: str) -> Iterator[str]:
        """The address of a `watch` that runs meanwhile."""
        command = [sys.executable, "-m", "vdisklab", "watch", "--db", db, "--listen", "127.0.0.1:0"]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
            assert server.stderr is not None
            self._server = server
            try:
                said = next(line for line in server.stderr if line.startswith("open "))
                self._started = self._cpu_seconds()
                yield said.split()[1]
            finally:
                server.terminate()

    def _add(self, _campaign: Campaign, run: Run) -> None:
        """Takes one stored run, and writes the record at the end of a pair."""
        if run.failure is not None:
            raise SystemExit(f"a cell failed: {run.failure.sentence}")
        (rate,) = (
            sample.value
            for sample in run.measurements[0].samples
            if sample.metric == "bandwidth" and sample.value > 0
        )
        self._logarithms.append(math.log(rate))
        if len(self._logarithms) % 2:
            return
        first, second = self._logarithms[-2:]
        sign = 1 if self._halves[len(self._logarithms) - 2] else -1
        self._session["logarithms"].append(round(sign * (first - second), 4))
        self._session["events"] = sum(page.events for page in self._pages)
        self._session["watched_seconds"] = round(sum(page.seconds for page in self._pages), 1)
        self._session["server_cpu_seconds"] = round(self._cpu_seconds() - self._started, 2)
        self._file.write_text(json.dumps(summed(self._record), indent=1) + "\n")
        if time.monotonic() >= self._ends:
            raise KeyboardInterrupt

    def _cpu_seconds(self) -> float:
        """What the server has used of the CPU (proc(5))."""
        assert self._server is not None
        stat = Path(f"/proc/{self._server.pid}/stat").read_text().rpartition(")")[2].split()
        return sum(map(int, stat[11:13])) / os.sysconf("SC_CLK_TCK")


def summed(record: dict[str, Any]) -> dict[str, Any]:
    """The record with its figures over all sessions."""
    sessions = [row for row in record["sessions"] if row["logarithms"]]
    seconds = sum(session["watched_seconds"] for session in sessions)
    return {
        **record,
        **ratio([each for session in sessions for each in session["logarithms"]]),
        "events_per_second": round(sum(session["events"] for session in sessions) / seconds, 3),
        "server_cpu_share": round(
            sum(session["server_cpu_seconds"] for session in sessions) / seconds, 4
        ),
    }


def ratio(logarithms: Sequence[float]) -> dict[str, float]:
    """The ratio with a page over without: Hodges and Lehmann's estimate with Wilcoxon's 95 %
    interval (Hollander, Wolfe, Chicken: Nonparametric Statistical Methods, 3.2 and 3.3).

    The order of a pair is drawn by lot, so the logarithms are symmetric, as these need.
    """
    values = np.array(logarithms)
    n = len(values)
    rows, columns = np.triu_indices(n)
    means = np.sort((values[rows] + values[columns]) / 2)
    below = n * (n + 1) / 4 - 1.96 * math.sqrt(n * (n + 1) * (2 * n + 1) / 24)
    outside = max(math.floor(below), 0)
    found = {"ratio": np.median(means), "low": means[outside], "high": means[-1 - outside]}
    return {"pairs": n, **{key: round(math.exp(value), 4) for key, value in found.items()}}


def shown(_words: Sequence[str]) -> str:
    """What docs/watch.md says of the record."""
    record = record_of("watch.json")
    return (
        f"Random reads on `{record['path']}`, {record['pairs']} pairs of cells: with an open page "
        f"{record['ratio']:.3f} times the bandwidth without (95 %: {record['low']:.3f} to "
        f"{record['high']:.3f}; the aim is 0.99 to 1.01). The page got "
        f"{record['events_per_second']:.2f} events a second; the server took "
        f"{100 * record['server_cpu_share']:.1f} % of a CPU."
    )


def begun(file: Path, cell: dict[str, Any]) -> dict[str, Any]:
    """The record that a file holds, or a new one; only the same cell is added to."""
    if not file.exists():
        return {"benchmark": "watch", **cell, "goals": GOALS, "sessions": []}
    record: dict[str, Any] = json.loads(file.read_text())
    if any(record[key] != value for key, value in cell.items()):
        raise SystemExit(f"{file} is of another cell")
    return record


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--dir", type=Path, default=Path.cwd())
    parser.add_argument("--minutes", type=float, default=9.0)
    parser.add_argument("--add", type=Path, default=Path("watch.json"), metavar="RECORD")
    parser.add_argument("--path", default="host")
    parser.add_argument("--runtime", type=float, default=2.0)
    given = parser.parse_args()
    cell = {
        "path": given.path,
        "profile": PROFILE.name,
        "runtime_seconds": given.runtime,
    }
    Session(begun(given.add, cell), given.add, given.dir.absolute(), given.minutes).run(cell)
