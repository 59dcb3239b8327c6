"""What recording costs the guest: the same load with QEMU's trace events on and off, in rounds.

    python bench/record.py [--dir DIR] [--rounds 20] [--seconds 4] > bench/results/record.json

One emulated guest with one virtio disk, a raw file opened with O_DIRECT; fio in the guest reads
4 KiB at random places, one at a time and 32 at a time. A round has each of the ways below once, in
an order drawn by lot. The ratio is that of the rates to that of `off`, its interval from the rounds
(bootstrap). `cpu_us` is what QEMU's main thread, which writes the log, used for each read: a busy
machine changes it less than the rate.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import tempfile
from dataclasses import dataclass
from itertools import product
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
from vdisklab.host.ledger import open_ledger
from vdisklab.host.state_directory import cache_directory
from vdisklab.loads.qemu_trace.trace_log import bus_of, read_trace
from vdisklab.path.disk_path import parse_path
from vdisklab.path.segments import Bus
from vdisklab.plan.accelerator import Accelerator
from vdisklab.plan.guest import GuestPlan
from vdisklab.recording.tracing import switch_off, switch_on

GOAL = 0.97
OFF = "off"
WAYS = (OFF, "as recorded", "in memory", "without the times of flushes")
"""As `vdisklab record` does; with the log on tmpfs; without `virtqueue_pop`, from which alone it
is known when a flush began."""
MEMORY = Path("/dev/shm")  # noqa: S108
SIZE = 512 << 20
DEPTHS = (1, 32)


@dataclass(frozen=True, slots=True)
class Rate:
    """Reads a second in the guest, and seconds of QEMU's main thread for each."""

    iops: float
    cpu: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dir", type=Path, default=Path("/var/tmp"))  # noqa: S108
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seconds", type=int, default=4)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=asked.dir) as name:
        facts = machine_facts(Path(name))
        depths = measured(Path(name), asked.rounds, asked.seconds)
    print_result({**facts, "goal": GOAL, "seconds": asked.seconds, "depths": depths})


def measured(directory: Path, rounds: int, seconds: int) -> list[dict[str, Any]]:
    bus = bus_of("virtio-blk-device")
    assert bus is not None
    every = (*bus.further, *bus.events)
    image_file = directory / "disk.raw"
    with image_file.open("wb") as stream:
        for _ in range(SIZE >> 20):
            stream.write(os.urandom(1 << 20))
    logs = dict.fromkeys(WAYS, directory / "trace.log")
    logs["in memory"] = MEMORY / f"{directory.name}.log"
    events = dict.fromkeys(WAYS, every) | {OFF: (), "without the times of flushes": bus.events}
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
    found: dict[int, list[dict[str, Rate]]] = {depth: [] for depth in DEPTHS}
    logged = 0
    with open_ledger() as ledger, start_machine(config, ledger, directory) as machine:
        machine.await_ready()
        with attached_disk(machine, disk) as seen:
            for depth in DEPTHS:
                rate(machine, seen.device, depth, seconds)  # the first one is warmer afterwards
            for _, depth in product(range(rounds), DEPTHS):
                rates: dict[str, Rate] = {}
                for way in chance.sample(WAYS, len(WAYS)):
                    if events[way]:
                        switch_on(machine.monitor, events[way], logs[way])
                    rates[way] = rate(machine, seen.device, depth, seconds)
                    if events[way]:
                        switch_off(machine.monitor, events[way])
                        with logs[way].open("rb") as stream:
                            logged += read_trace(stream, bus, 512).lines  # without times
                        logs[way].unlink()
                found[depth].append(rates)
    assert logged > 0
    return [summary(depth, way, mine) for depth, mine in found.items() for way in WAYS[1:]]


def rate(machine: Machine, device: str, depth: int, seconds: int) -> Rate:
    """What fio in the guest counts, and the main thread's time."""
    before = main_thread_seconds(machine.pid)
    done = machine.agent.run(
        ["/usr/bin/fio", "--name=x", f"--filename={device}", "--direct=1", "--ioengine=libaio",
         "--rw=randread", "--bs=4k", f"--iodepth={depth}", "--time_based=1",
         f"--runtime={seconds}", "--output-format=json"],
        timeout=seconds + 120,
    )  # fmt: skip
    used = main_thread_seconds(machine.pid) - before
    (job,) = json.loads(done.stdout)["jobs"]
    return Rate(float(job["read"]["iops"]), used / job["read"]["total_ios"])


def main_thread_seconds(pid: int) -> float:
    """Seconds that it ran so far: the first number of schedstat, in ns (proc_pid_schedstat)."""
    return int(Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split()[0]) / 1e9


def summary(depth: int, way: str, rounds: list[dict[str, Rate]]) -> dict[str, Any]:
    ratio = paired([rates[way].iops / rates[OFF].iops for rates in rounds])
    cpu = paired([rates[way].cpu / rates[OFF].cpu for rates in rounds])
    return {
        "depth": depth,
        "way": way,
        "rounds": len(rounds),
        "iops_off": round(float(np.mean([rates[OFF].iops for rates in rounds]))),
        **ratio,
        "cpu_us_off": round(float(np.median([rates[OFF].cpu for rates in rounds])) * 1e6, 1),
        "cpu_us": round(float(np.median([rates[way].cpu for rates in rounds])) * 1e6, 1),
        **{f"cpu_{name}": value for name, value in cpu.items()},
        "within_goal": ratio["ratio"] >= GOAL,
    }


def paired(ratios: list[float]) -> dict[str, float]:
    """Their geometric mean and its 95 % interval."""
    logs = np.log(ratios)
    draws = np.random.default_rng(1).choice(logs, (4000, len(logs))).mean(axis=1)
    low, high = np.percentile(draws, (2.5, 97.5))
    names = ("ratio", "low", "high")
    return dict(
        zip(names, (round(float(np.exp(x)), 4) for x in (logs.mean(), low, high)), strict=True)
    )


if __name__ == "__main__":
    main()
