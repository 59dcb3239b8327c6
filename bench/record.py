"""What recording costs the guest: the same load with QEMU's trace events on and off, in pairs.

    python bench/record.py [--dir DIR] [--pairs 20] [--seconds 4] > bench/results/record.json

One emulated guest with one virtio disk, a raw file opened with O_DIRECT; fio in the guest reads
4 KiB at random places, one at a time and 32 at a time. Which half of a pair records is drawn by
lot. The ratio is that of the rates with and without, its interval from the pairs (bootstrap).
"""

from __future__ import annotations

import argparse
import json
import os
import random
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from machine import machine_facts, print_result
from vdisklab.guest.hotplug import attached_disk
from vdisklab.guest.image.guest_image import build_guest_image
from vdisklab.guest.image.kernel import find_kernel
from vdisklab.guest.machine import Machine, start_machine
from vdisklab.guest.qemu.block_nodes import Disk
from vdisklab.guest.qemu.command_line import BootFiles, GuestConfig
from vdisklab.host.command import LocalHost
from vdisklab.host.facts import QEMU
from vdisklab.host.ledger import cache_directory, open_ledger
from vdisklab.loads.qemu_trace.trace_log import bus_of, read_trace
from vdisklab.path.disk_path import parse_path
from vdisklab.path.segments import Bus
from vdisklab.plan.guest import Accelerator, GuestPlan
from vdisklab.recording.tracing import switch_off, switch_on

GOAL = 0.97
SIZE = 512 << 20
DEPTHS = (1, 32)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dir", type=Path, default=Path("/var/tmp"))  # noqa: S108
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--seconds", type=int, default=4)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=asked.dir) as name:
        facts = machine_facts(Path(name))
        depths = measured(Path(name), asked.pairs, asked.seconds)
    print_result({**facts, "goal": GOAL, "seconds": asked.seconds, "depths": depths})


def measured(directory: Path, pairs: int, seconds: int) -> list[dict[str, Any]]:
    bus = bus_of("virtio-blk-device")
    assert bus is not None
    events = (*bus.further, *bus.events)
    image_file = directory / "disk.raw"
    with image_file.open("wb") as stream:
        for _ in range(SIZE >> 20):
            stream.write(os.urandom(1 << 20))
    log = directory / "trace.log"
    kernel = find_kernel(LocalHost(), cache_directory(), frozenset({Bus.VIRTIO}))
    image = build_guest_image(LocalHost(), cache_directory(), kernel)
    config = GuestConfig(
        binary=QEMU,
        marker=f"vdisklab-bench-{os.getpid()}",
        machine=Bus.VIRTIO.machine,
        accelerator=Accelerator.TCG,
        plan=GuestPlan(),
        boot=BootFiles(image.kernel, image.initrd, image.root, image.append),
    )
    path = parse_path("raw/none")
    source = {"driver": "file", "filename": str(image_file)}
    disk = Disk("vdlbench", SIZE, source, "raw", path.cache, path.attachment)
    chance = random.Random(1)  # noqa: S311
    found: dict[int, list[tuple[float, float]]] = {depth: [] for depth in DEPTHS}
    logged = 0
    with open_ledger() as ledger, start_machine(config, ledger, directory) as machine:
        machine.await_ready()
        with attached_disk(machine, disk) as seen:
            for depth in DEPTHS:
                rate(machine, seen.device, depth, seconds)  # the first one is warmer afterwards
            for _ in range(pairs):
                for depth in DEPTHS:
                    halves: dict[bool, float] = {}
                    for records in chance.sample([True, False], 2):
                        if records:
                            switch_on(machine.monitor, events, log)
                        halves[records] = rate(machine, seen.device, depth, seconds)
                        if records:
                            switch_off(machine.monitor, events)
                            with log.open("rb") as stream:
                                logged += read_trace(stream, bus, 512).lines  # without times
                            log.unlink()
                    found[depth].append((halves[True], halves[False]))
    assert logged > 0
    return [summary(depth, pairs_of) for depth, pairs_of in found.items()]


def rate(machine: Machine, device: str, depth: int, seconds: int) -> float:
    """Reads a second, as fio in the guest counts them."""
    done = machine.agent.run(
        ["/usr/bin/fio", "--name=x", f"--filename={device}", "--direct=1", "--ioengine=libaio",
         "--rw=randread", "--bs=4k", f"--iodepth={depth}", "--time_based=1",
         f"--runtime={seconds}", "--output-format=json"],
        timeout=seconds + 120,
    )  # fmt: skip
    (job,) = json.loads(done.stdout)["jobs"]
    return float(job["read"]["iops"])


def summary(depth: int, pairs: list[tuple[float, float]]) -> dict[str, Any]:
    logs = np.log([on / off for on, off in pairs])
    draws = np.random.default_rng(1).choice(logs, (4000, len(logs))).mean(axis=1)
    low, high = np.percentile(draws, (2.5, 97.5))
    return {
        "depth": depth,
        "pairs": len(pairs),
        "iops_off": round(float(np.mean([off for _, off in pairs]))),
        "ratio": round(float(np.exp(logs.mean())), 4),
        "low": round(float(np.exp(low)), 4),
        "high": round(float(np.exp(high)), 4),
        "within_goal": bool(np.exp(logs.mean()) >= GOAL),
    }


if __name__ == "__main__":
    main()
