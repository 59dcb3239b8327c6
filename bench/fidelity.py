"""Compares vdisklab with measuring by hand: one cell, both ways in turns.

    python bench/fidelity.py [--dir DIR] [--pairs N] > bench/results/fidelity.json

The side by hand uses none of vdisklab's code to start QEMU, attach the disk (with -drive, as people
do), talk to the agent or read fio's result. Both guests boot the same kernel and programs; the
guest that waits is stopped. Each round boots both again; pairs alternate A B, B A.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import json
import os
import socket
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from machine import machine_facts, print_result
from vdisklab.campaign.context import CampaignContext, open_campaign
from vdisklab.campaign.measure_cell import measure_cell
from vdisklab.guest.factory import GuestContext, boot_files
from vdisklab.guest.qemu.command_line import BootFiles
from vdisklab.host.command import LocalHost
from vdisklab.host.ledger import open_ledger, state_directory
from vdisklab.path.cell import PageCacheChoice
from vdisklab.path.segments import Bus
from vdisklab.plan.build import build_plan
from vdisklab.plan.campaign import CampaignPlan
from vdisklab.plan.capabilities import Capabilities
from vdisklab.plan.profile import MeasurementPlan, Profile, Setting
from vdisklab.plan.settings import Request
from vdisklab.progress import silent

PATH = "raw/writeback"
SIZE = 128 << 20
RUNTIME = 2
ROUNDS = 2
JOB: dict[str, Setting] = {"rw": "randread", "bs": "4k", "iodepth": 32}


class HandGuest:
    """A guest as a person would script it: -drive, a serial port for the agent, sockets."""

    def __init__(self, monitor: socket.socket, agent: socket.socket) -> None:
        self._monitor = monitor.makefile("rwb", buffering=0)
        self._agent = agent.makefile("rwb", buffering=0)
        self._monitor.readline()
        self._ask(self._monitor, "qmp_capabilities")

    def wait(self) -> None:
        """Until the guest has opened the agent's port and answers."""
        while b"VSERPORT_CHANGE" not in self._monitor.readline():
            pass
        self._ask(self._agent, "guest-sync", id=7)

    def stop(self) -> None:
        """No processor of the guest runs."""
        self._ask(self._monitor, "stop")

    def cont(self) -> None:
        """They run again."""
        self._ask(self._monitor, "cont")

    def run(self, path: str, *arguments: str) -> str:
        """What a program in the guest printed."""
        started = self._ask(
            self._agent, "guest-exec", path=path, arg=list(arguments), **{"capture-output": True}
        )
        while True:
            state = self._ask(self._agent, "guest-exec-status", pid=started["pid"])
            if state["exited"]:
                assert state["exitcode"] == 0, state
                return base64.b64decode(state.get("out-data", "")).decode()
            time.sleep(0.1)

    @staticmethod
    def _ask(channel: Any, command: str, **arguments: object) -> Any:  # noqa: ANN401
        request = {"execute": command, **({"arguments": arguments} if arguments else {})}
        channel.write(json.dumps(request).encode() + b"\n")
        while True:
            answer = json.loads(channel.readline())
            if "return" in answer:
                return answer["return"]
            assert "error" not in answer, answer


@contextmanager
def hand_guest(boot: BootFiles, image: Path, accelerator: str) -> Iterator[HandGuest]:
    """QEMU with the image as its second virtio disk."""
    near_m, far_m = socket.socketpair()
    near_a, far_a = socket.socketpair()
    near_m.settimeout(120)
    near_a.settimeout(120)
    argv = [
        "qemu-system-x86_64", "-nodefaults", "-display", "none", "-no-reboot",
        "-M", "q35", "-accel", accelerator, "-cpu", "max" if accelerator == "tcg" else "host",
        "-smp", "2", "-m", "1024",
        "-kernel", str(boot.kernel), "-initrd", str(boot.initrd), "-append", boot.append,
        "-serial", "null",
        "-drive", f"file={boot.root},format=raw,if=none,id=system,readonly=on",
        "-device", "virtio-blk-pci,drive=system,serial=vdisklab-image",
        "-drive", f"file={image},format=raw,if=none,id=disk,cache=writeback",
        "-device", "virtio-blk-pci,drive=disk,serial=byhand",
        "-device", "virtio-serial-pci", "-chardev", f"socket,id=ga,fd={far_a.fileno()}",
        "-device", "virtserialport,id=p,chardev=ga,name=org.qemu.guest_agent.0",
        "-chardev", f"socket,id=mon,fd={far_m.fileno()}", "-mon", "chardev=mon,mode=control",
    ]  # fmt: skip
    process = subprocess.Popen(
        argv, pass_fds=(far_m.fileno(), far_a.fileno()), stdin=subprocess.DEVNULL
    )
    try:
        far_m.close()
        far_a.close()
        guest = HandGuest(near_m, near_a)
        guest.wait()
        guest.run("/usr/lib/vdisklab/load-drivers", "60")
        yield guest
    finally:
        process.kill()
        process.wait(30)
        near_m.close()
        near_a.close()


def by_hand(guest: HandGuest, image: Path) -> float:
    """IOPS of one fio run in the hand-made guest, with the image in the page cache."""
    image.read_bytes()
    guest.cont()
    try:
        facts = guest.run("/usr/lib/vdisklab/find-disk", "byhand", "10")
        device = facts.split("device=", 1)[1].split()[0]
        text = guest.run(
            "/usr/bin/fio", "--name=hand", f"--filename={device}", f"--size={SIZE}",
            f"--rw={JOB['rw']}", f"--bs={JOB['bs']}", f"--iodepth={JOB['iodepth']}",
            "--ioengine=libaio", "--direct=1", "--time_based", f"--runtime={RUNTIME}",
            "--group_reporting", "--randrepeat=0", "--norandommap", "--output-format=json",
        )  # fmt: skip
    finally:
        guest.stop()
    return float(json.loads(text[text.index("{") :])["jobs"][0]["read"]["iops"])


def by_vdisklab(bench: CampaignContext) -> float:
    """IOPS of one run of the cell: a fresh attach, state set and read back, evidence taken."""
    (measurement,) = measure_cell(bench, bench.plan.cells[0]).measurements
    (iops,) = (s.value for s in measurement.samples if s.metric == "iops")
    return iops


def make_plan(directory: Path) -> CampaignPlan:
    """The campaign of the one cell."""
    profile = Profile("fidelity", "one job", (MeasurementPlan("randread", "fio", JOB),))
    request = Request(
        paths=(PATH,), blocks=1, runtime=RUNTIME, ramp=0.0, size_bytes=SIZE, directory=directory,
        page_cache=PageCacheChoice.WARM, baseline="none",
    )  # fmt: skip
    return build_plan(request, Capabilities(), profile)


def one_round(directory: Path, pairs: int) -> tuple[list[tuple[float, float]], str]:
    """(vdisklab, by hand) IOPS of each pair with freshly booted guests, and the accelerator."""
    cache = state_directory() / "cache"
    host = LocalHost()
    boot = boot_files(host, cache, frozenset({Bus.VIRTIO}))
    found: list[tuple[float, float]] = []
    with contextlib.ExitStack() as opened:
        place = opened.enter_context(tempfile.TemporaryDirectory(dir=directory))
        image = Path(place) / "byhand.img"
        image.write_bytes(os.urandom(SIZE))
        ledger = opened.enter_context(open_ledger())
        around = GuestContext(host, ledger, cache, silent)
        bench = opened.enter_context(open_campaign(around, make_plan(directory)))
        accelerator = str(bench.accelerator)
        guest = opened.enter_context(hand_guest(boot, image, accelerator))
        guest.stop()
        ways: dict[str, Callable[[], float]] = {
            "vdisklab": lambda: by_vdisklab(bench),
            "hand": lambda: by_hand(guest, image),
        }
        for pair in range(pairs + 1):
            order = ("vdisklab", "hand") if pair % 2 else ("hand", "vdisklab")
            seen = {name: ways[name]() for name in order}
            if pair:  # the first pair warms both guests and does not count
                found.append((seen["vdisklab"], seen["hand"]))
        bench.guests.renew()
    return found, accelerator


def report(directory: Path, pairs: int) -> dict[str, Any]:
    """The ratios of all pairs."""
    facts = machine_facts(directory)
    found: list[tuple[float, float]] = []
    accelerator = ""
    for _ in range(ROUNDS):
        more, accelerator = one_round(directory, pairs)
        found += more
    ratios = [ours / hand for ours, hand in found]
    return {
        "benchmark": "fidelity",
        "machine": facts,
        "accelerator": accelerator,
        "cell": f"{PATH} (warm), 4 KiB random read, queue depth 32, {RUNTIME} s",
        "rounds": ROUNDS,
        "pairs": len(ratios),
        "iops": [{"vdisklab": round(a), "by_hand": round(b)} for a, b in found],
        "median_ratio": round(statistics.median(ratios), 4),
        "quartiles": [round(q, 4) for q in statistics.quantiles(ratios, n=4)],
        "goal": [0.97, 1.03],
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--dir", type=Path, default=Path.cwd())
    parser.add_argument("--pairs", type=int, default=10, help="pairs in each round")
    given = parser.parse_args()
    print_result(report(given.dir.absolute(), given.pairs))
