"""Compares vdisklab with measuring by hand: the same fio command lines, in turns.

    python bench/fidelity.py [--dir DIR] [--pairs N] [--guest IMAGE] > bench/results/fidelity.json
    python bench/fidelity.py --parameters [--pairs N] > bench/results/fidelity-parameters.json

There are two references, and neither uses vdisklab to start QEMU, attach the disk (with -drive, as
people do) or read fio's result: `hand` is a guest made by hand (hand_guest.py) with an ordinary
kernel command line, `system` (with --guest) is a Debian that boots by its own GRUB. Both have the
disk at boot. The guest that waits is stopped; the order changes from pair to pair.

With --parameters the guest made by hand is compared with itself, changed in one way: a parameter
that vdisklab's guest has or had, the root port behind which it plugs disks, fio's log over time.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shlex
import statistics
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from hand_guest import COMMAND_LINE, DISK, HandGuest, hand_guest, make_initrd
from machine import machine_facts, print_result
from vdisklab.campaign.context import CampaignContext, open_campaign
from vdisklab.campaign.measure_cell import measure_cell
from vdisklab.guest.factory import GuestContext
from vdisklab.guest.image.kernel import Kernel, find_kernel
from vdisklab.host.command import LocalHost
from vdisklab.host.ledger import open_ledger, state_directory
from vdisklab.path.cell import PageCacheChoice
from vdisklab.path.segments import Bus
from vdisklab.plan.build import build_plan
from vdisklab.plan.campaign import CampaignPlan
from vdisklab.plan.capabilities import Capabilities
from vdisklab.plan.guest import AcceleratorChoice
from vdisklab.plan.profile import MeasurementPlan, Profile, Setting
from vdisklab.plan.settings import Request
from vdisklab.progress import silent

PATH = "raw/writeback"
SIZE = 128 << 20
SMALL_MEMORY_MIB = 384  # so that all changed guests fit into the lab
JOBS: Mapping[str, dict[str, Setting]] = {
    "write-1m-q1": {"rw": "write", "bs": "1M"},
    "randread-4k-q1": {"rw": "randread", "bs": "4k"},
    "randwrite-4k-q1": {"rw": "randwrite", "bs": "4k"},
    "randread-4k-q32": {"rw": "randread", "bs": "4k", "iodepth": 32},
}
GOAL = (0.97, 1.03)

Numbers = dict[str, float]
"""IOPS of each job."""


@dataclass(frozen=True)
class Trial:
    """What all arms have in common: how they run the guest, and the seconds that a job takes."""

    accelerator: str
    cpus: int
    runtime: float
    ramp: float


@dataclass(frozen=True)
class Change:
    """One thing in which a guest made by hand differs: a kernel parameter, devices, fio options."""

    parameter: str = ""
    devices: tuple[str, ...] = ("-device", "virtio-blk-pci,drive=disk")
    fio: tuple[str, ...] = ()


CHANGES = {
    "tsc": Change("tsc=reliable"),
    "root port": Change(
        devices=("-device", "pcie-root-port,id=hp0,slot=1",
                 "-device", "virtio-blk-pci,drive=disk,bus=hp0")
    ),
    "log": Change(fio=("--write_bw_log=/tmp/log", "--log_avg_msec=100", "--per_job_logs=0")),
    # These saved boot time in earlier versions.
    "lpj": Change("lpj=8000000"),
    "no_timer_check": Change("no_timer_check"),
    "cryptomgr": Change("cryptomgr.notests"),
    "ipv6": Change("ipv6.disable=1"),
    "initcalls": Change(
        "initcall_blacklist=init_kprobe_trace,load_system_certificate_list,crypto_kdf108_init,"
        "cubictcp_register,btf_module_init,bpf_rstat_kfunc_init,tcp_congestion_default,"
        "slab_sysfs_init,init_encrypted,init_ima,blake2s_mod_init"
    ),
}  # fmt: skip


def by_hand(guest: HandGuest, image: Path, trial: Trial, more: tuple[str, ...]) -> Numbers:
    """One run of each job in the hand-made guest, with the image in the page cache."""
    image.read_bytes()
    guest.cont()
    try:
        return {name: iops(guest.run(fio_command(job, trial, more))) for name, job in JOBS.items()}
    finally:
        guest.stop()


def fio_command(job: Mapping[str, Setting], trial: Trial, more: tuple[str, ...] = ()) -> str:
    """The options that vdisklab gives fio, but for its log of bandwidth over time, and `more`."""
    options = {
        "name": "hand", "filename": DISK, "size": SIZE, "rw": job["rw"], "bs": job["bs"],
        "iodepth": job.get("iodepth", 1), "ioengine": "libaio", "direct": 1,
        "runtime": trial.runtime, "ramp_time": trial.ramp, "group_reporting": 1, "randrepeat": 0,
        "norandommap": 1, "output-format": "json",
    }  # fmt: skip
    words = [f"--{name}={value}" for name, value in options.items()]
    return shlex.join(("fio", "--time_based", *words, *more))


def iops(text: str) -> float:
    """The operations per second of a report of fio."""
    (job,) = json.loads(text[text.index("{") :])["jobs"]
    return float(job["read"]["iops"]) + float(job["write"]["iops"])


def by_vdisklab(campaign: CampaignContext) -> Numbers:
    """One run of the cell: a fresh attach, state set and read back, evidence taken."""
    measured = measure_cell(campaign, campaign.plan.cells[0]).measurements
    return {
        each.name: sum(s.value for s in each.samples if s.metric == "iops") for each in measured
    }


def make_plan(directory: Path, trial: Trial, guest: Path | None = None) -> CampaignPlan:
    """The campaign of the one cell."""
    jobs = tuple(MeasurementPlan(name, "fio", job) for name, job in JOBS.items())
    request = Request(
        paths=(PATH,), blocks=1, runtime=trial.runtime, ramp=trial.ramp, size_bytes=SIZE,
        directory=directory, page_cache=PageCacheChoice.WARM, baseline="none", guest_image=guest,
        accelerator=AcceleratorChoice(trial.accelerator), guest_cpus=trial.cpus,
    )  # fmt: skip
    return build_plan(request, Capabilities(), Profile("fidelity", "four jobs", jobs))


@contextmanager
def hand_made(
    kernel: Kernel, place: Path, trial: Trial, change: Change, memory_mib: int = 1024
) -> Iterator[Callable[[], Numbers]]:
    """A function that measures once in a hand-made guest, which is stopped otherwise."""
    image = place / f"hand-{len(list(place.iterdir()))}.img"
    image.write_bytes(os.urandom(SIZE))
    initrd = place / "hand.cpio"
    if not initrd.exists():
        make_initrd(kernel.modules.directory, place)
    command_line = f"{COMMAND_LINE} {change.parameter}".rstrip()
    with hand_guest(
        kernel.image, initrd, image, trial.accelerator, command_line, cpus=trial.cpus,
        devices=change.devices, memory_mib=memory_mib,
    ) as guest:  # fmt: skip
        guest.stop()
        yield lambda: by_hand(guest, image, trial, change.fio)


@contextmanager
def through_vdisklab(
    directory: Path, trial: Trial, guest: Path | None = None
) -> Iterator[Callable[[], Numbers]]:
    """A function that measures once with vdisklab, in the micro guest or in a user's."""
    with open_ledger() as ledger:
        context = GuestContext(LocalHost(), ledger, state_directory() / "cache", silent)
        plan = make_plan(directory, trial, guest)
        with open_campaign(context, plan) as campaign:
            yield lambda: by_vdisklab(campaign)


def in_turns(arms: Mapping[str, Callable[[], Numbers]], pairs: int) -> list[dict[str, Numbers]]:
    """The numbers of each arm in each pair; the first pair warms the guests and does not count."""
    rounds = []
    for pair in range(pairs + 1):
        names = list(arms)[:: 1 if pair % 2 else -1]
        rounds.append({name: arms[name]() for name in names})
    return rounds[1:]


def ratios(rounds: list[dict[str, Numbers]], over: str, under: str) -> dict[str, Any]:
    """Median and quartiles of over ÷ under, for each job."""
    result = {}
    for job in JOBS:
        values = [each[over][job] / each[under][job] for each in rounds]
        low, _, high = statistics.quantiles(values, n=4)
        result[job] = {
            "median_ratio": round(statistics.median(values), 3),
            "quartiles": [round(low, 3), round(high, 3)],
        }
    return result


def parameters(
    options: argparse.Namespace, trial: Trial, kernel: Kernel, place: Path
) -> dict[str, Any]:
    """What each change of the guest made by hand does. All guests run, one at a time."""
    chosen = {name: change for name, change in CHANGES.items() if name in options.only}
    changes = {"plain": Change(), **chosen}
    with contextlib.ExitStack() as opened:
        arms = {
            name: opened.enter_context(hand_made(kernel, place, trial, change, SMALL_MEMORY_MIB))
            for name, change in changes.items()
        }
        rounds = in_turns(arms, options.pairs)
    with_change = {
        name: {
            "parameter": change.parameter, "devices": change.devices, "fio": change.fio,
            **ratios(rounds, name, "plain"),
        }
        for name, change in chosen.items()
    }  # fmt: skip
    return {"with_change_over_plain": with_change, "iops": rounded(rounds)}


def rounded(rounds: list[dict[str, Numbers]]) -> list[dict[str, dict[str, int]]]:
    """The same in whole numbers."""
    return [
        {
            arm: {job: round(value) for job, value in numbers.items()}
            for arm, numbers in each.items()
        }
        for each in rounds
    ]


def report(options: argparse.Namespace) -> dict[str, Any]:
    """The ratios of all pairs."""
    directory = options.dir.absolute()
    trial = Trial(options.accelerator, options.cpus, options.runtime, options.ramp)
    kernel = find_kernel(LocalHost(), state_directory() / "cache", frozenset({Bus.VIRTIO}))
    result: dict[str, Any] = {
        "benchmark": "fidelity",
        "machine": machine_facts(directory),
        "kernel": kernel.release,
        "cell": f"{PATH} (warm)",
        "trial": asdict(trial),
        "pairs": options.pairs,
        **({"below": options.below} if options.below else {}),
    }
    with contextlib.ExitStack() as opened, tempfile.TemporaryDirectory(dir=directory) as name:
        place = Path(name)

        if options.parameters:
            return {**result, **parameters(options, trial, kernel, place)}
        made = hand_made(kernel, place, trial, Change())
        arms = {"hand": opened.enter_context(made)}
        arms["vdisklab"] = opened.enter_context(through_vdisklab(directory, trial))
        if options.guest is not None:
            user = through_vdisklab(directory, trial, options.guest)
            arms["system"] = opened.enter_context(user)
        rounds = in_turns(arms, options.pairs)
        opened.close()
    compared = {f"vdisklab_over_{name}": ratios(rounds, "vdisklab", name) for name in arms
                if name != "vdisklab"}  # fmt: skip
    load_after = Path("/proc/loadavg").read_text().split()[0]
    return {**result, "goal": GOAL, **compared, "load_after": load_after, "iops": rounded(rounds)}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--dir", type=Path, default=Path.cwd())
    parser.add_argument("--pairs", type=int, default=8)
    parser.add_argument("--runtime", type=float, default=2, help="seconds of a job")
    parser.add_argument("--ramp", type=float, default=0, help="seconds before it that do not count")
    parser.add_argument("--cpus", type=int, default=2, help="virtual CPUs of each guest")
    parser.add_argument("--accelerator", choices=("kvm", "tcg"), default="tcg")
    parser.add_argument("--guest", type=Path, help="the image of a Debian, the second reference")
    parser.add_argument("--parameters", action="store_true")
    parser.add_argument("--only", nargs="+", choices=list(CHANGES), default=list(CHANGES))
    parser.add_argument("--below", help="in the lab: the machine below it, and how busy it is")
    print_result(report(parser.parse_args()))
