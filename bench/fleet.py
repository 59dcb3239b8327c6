"""What a worker costs the campaign beside it: fio with a worker and with a stopped one, in turns.

    bench/fleet.py [--pairs 20] [--seconds 2] [--json FILE]

Starts a scheduler and a worker on this machine. Each pair runs the same random reads twice, in
random order: once beside both, once with both stopped (SIGSTOP). Prints the ratio of the IOPS
within pairs with its 95 % interval, the worker's share of one processor, and the load of the
machine, which decides how narrow that interval is.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import psutil

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.unit.fleet.nodes import Fleet, fleet_in

from machine import machine_facts
from vdisklab.analysis.paired_ratios import paired_ratios
from vdisklab.fleet.coordinator import connected, members
from vdisklab.host.waiting import wait_until


def iops(file: Path, seconds: float) -> float:
    """One run of 4 KiB random reads, one at a time."""
    done = subprocess.run(
        ["fio", "--name=x", f"--filename={file}", "--rw=randread", "--bs=4k", "--size=256M",
         "--time_based", f"--runtime={seconds}", "--output-format=json", "--direct=1"],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    return float(json.loads(done.stdout)["jobs"][0]["read"]["iops"])


def there(fleet: Fleet) -> bool:
    with connected(fleet.address, fleet.security()) as client:
        return bool(members(client))


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    rng = random.Random(1)  # noqa: S311 - repeatable
    values: dict[bool, list[float]] = {True: [], False: []}
    with tempfile.TemporaryDirectory(dir=Path.home()) as name:
        with fleet_in(Path(name)) as fleet:
            fleet.scheduler()
            fleet.worker("kvm1")
            time.sleep(5)
            wait_until(lambda: there(fleet), timeout=60, what="worker")
            worker = psutil.Process(fleet.nodes["kvm1"].pid)
            iops(Path(name) / "file", 0.5)
            used, running = 0.0, 0.0
            for _ in range(given.pairs):
                for beside in rng.sample([True, False], 2):
                    for node in fleet.nodes.values():
                        node.send_signal(signal.SIGCONT if beside else signal.SIGSTOP)
                    before, started = sum(worker.cpu_times()[:2]), time.monotonic()
                    values[beside].append(iops(Path(name) / "file", given.seconds))
                    if beside:
                        used += sum(worker.cpu_times()[:2]) - before
                        running += time.monotonic() - started
            for node in fleet.nodes.values():
                node.send_signal(signal.SIGCONT)
        answer = machine_facts(Path(name))
    (ratio,) = paired_ratios(np.array(values[True]), np.array(values[False]))
    answer |= {
        "pairs": given.pairs,
        "seconds": given.seconds,
        "ratio": ratio.ratio,
        "low": ratio.low,
        "high": ratio.high,
        "worker's share of a processor": round(used / running, 5),
        "load": os.getloadavg()[0],
    }
    text = json.dumps(answer, indent=1)
    print(text)
    if given.json:
        given.json.write_text(text + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
