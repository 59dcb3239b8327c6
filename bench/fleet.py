"""What a worker costs the campaign beside it: fio beside a worker, and beside a stopped one.

    bench/fleet.py [--pairs 400] [--seconds 0.25] [--dir DIR] [--json FILE]

Starts a scheduler and a worker on this machine, and one fio that reads at random all the time. Each
pair is two windows of it in random order: one beside both, one with both stopped (SIGSTOP). Prints
the ratio of the IOPS within pairs with its 95 % interval, the worker's share of one processor, and
the load of the machine, which decides how narrow that interval is. `--dir /dev/shm` reads a file in
memory: its speed drifts less than a disk's, and depends more on the processors.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import psutil

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.unit.fleet.nodes import Fleet, fleet_in

from machine import machine_facts
from vdisklab.analysis.observations import Floats
from vdisklab.analysis.paired_ratios import paired_ratios
from vdisklab.fleet.coordinator import connected, members
from vdisklab.host.waiting import wait_until

SLICE_MS = 20
"""fio's log has a line for so many milliseconds."""

SETTLE = 0.05
"""Seconds after a change that do not count."""


@contextmanager
def reading(directory: Path, seconds: float) -> Iterator[Path]:
    """Random reads of 4 KiB, one at a time, for so long; gives fio's log of their rate."""
    argv = [
        "fio", "--name=x", f"--filename={directory / 'file'}", "--rw=randread", "--bs=4k",
        "--size=256M", "--direct=1", "--time_based", f"--runtime={seconds}", "--output=/dev/null",
        f"--write_iops_log={directory / 'log'}", f"--log_avg_msec={SLICE_MS}", "--log_unix_epoch=1",
    ]  # fmt: skip
    subprocess.run([*argv, "--create_only=1"], check=True)
    with subprocess.Popen(argv) as fio:
        time.sleep(1)
        yield directory / "log_iops.1.log"
        fio.wait(timeout=60)


def mean_rates(log: str, windows: Sequence[tuple[int, int]]) -> Floats:
    """The mean of the log's slices that lie wholly in each window; shape `(windows,)`.

    A window is its first and last millisecond since 1970; a slice's line has the time of its end.
    """
    lines = [line.split(",") for line in log.splitlines()]
    ends = np.array([int(line[0]) for line in lines])
    rates = np.array([float(line[1]) for line in lines])
    return np.array(
        [rates[(ends - SLICE_MS >= first) & (ends <= last)].mean() for first, last in windows]
    )


def there(fleet: Fleet) -> bool:
    with connected(fleet.address, fleet.security()) as client:
        return bool(members(client))


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pairs", type=int, default=400)
    parser.add_argument("--seconds", type=float, default=0.25)
    parser.add_argument("--dir", type=Path, default=Path.home())
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    rng = random.Random(1)  # noqa: S311 - repeatable
    orders = [rng.sample([True, False], 2) for _ in range(given.pairs)]
    windows: dict[bool, list[tuple[int, int]]] = {True: [], False: []}
    used = 0.0
    with tempfile.TemporaryDirectory(dir=given.dir) as name:
        with fleet_in(Path(name)) as fleet:
            fleet.scheduler()
            fleet.worker("kvm1")
            time.sleep(5)
            wait_until(lambda: there(fleet), timeout=60, what="worker")
            worker = psutil.Process(fleet.nodes["kvm1"].pid)
            whole = 2 * given.pairs * (given.seconds + SETTLE) + 3
            with reading(Path(name), whole) as log:
                for beside in itertools.chain.from_iterable(orders):
                    for node in fleet.nodes.values():
                        node.send_signal(signal.SIGCONT if beside else signal.SIGSTOP)
                    time.sleep(SETTLE)
                    before, started = sum(worker.cpu_times()[:2]), time.time_ns() // 1_000_000
                    time.sleep(given.seconds)
                    windows[beside].append((started, time.time_ns() // 1_000_000))
                    used += sum(worker.cpu_times()[:2]) - before
                load = os.getloadavg()[0]
            for node in fleet.nodes.values():
                node.send_signal(signal.SIGCONT)
        answer = machine_facts(Path(name))
        text = log.read_text(encoding="utf-8")
    values = {beside: mean_rates(text, spans) for beside, spans in windows.items()}
    (ratio,) = paired_ratios(values[True], values[False])
    answer |= {
        "pairs": given.pairs,
        "seconds": given.seconds,
        "ratio": ratio.ratio,
        "low": ratio.low,
        "high": ratio.high,
        "worker's share of a processor": round(used / (given.pairs * given.seconds), 5),
        "load": load,
    }
    text = json.dumps(answer, indent=1)
    print(text)
    if given.json:
        given.json.write_text(text + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
