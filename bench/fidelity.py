"""Compares vdisklab with measuring by hand: the same jobs of fio, in turns.

    python bench/fidelity.py [--dir DIR] [--boots N] [--guest IMAGE] > bench/results/fidelity.json
    python bench/fidelity.py --changes tsc log [--boots N] > bench/results/fidelity-parameters.json

There are two references. `hand` is a guest made by hand (hand_guest.py) with an ordinary kernel
command line: nothing of vdisklab starts its QEMU, attaches its disk (with -drive, as people do) or
reads fio's result. `system` (with --guest) is a Debian that boots by its own GRUB; vdisklab starts
it, attaches its disk and runs its jobs, so only the guest differs.

All guests run at the same time and keep their disks. A round runs each job in each guest, one after
the other, and the order changes from round to round; the guests that wait are stopped. So the two
runs of a ratio are seconds apart, with --changes up to a minute. Two guests that are the same can
differ for as long as they run, so all are booted anew after a few rounds, and a boot counts once.
`control` is a second guest made by hand, the same as the first one: the interval of its ratio is
what the comparison can tell apart. All guests have the same memory. None randomises the addresses
of its programs, and fio's buffer is one piece of the guest's physical memory (PREPARATION).

With --changes there are more guests made by hand, each changed in one way: a parameter that
vdisklab's guest has or had, the root port behind which it plugs disks, options of fio. And
vdisklab's guest is also measured with an ordinary buffer, and another one without a watch.

If the machine is emulated and its QEMU counts instructions (work_counter.c), there is also the work
of a request: the instructions of the guest, of QEMU, and of the machine's kernel and programs
together. Other work below the machine changes the speed of the emulation, but hardly this number.
Not in it is what QEMU's emulator does for an instruction: entering a guest, walking page tables.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import math
import mmap
import os
import secrets
import shlex
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from msgspec import to_builtins

from hand_guest import COMMAND_LINE, DISK, DISK_ARGUMENTS, DRIVE, HandGuest, hand_guest, make_initrd
from machine import machine_facts, print_result
from vdisklab.campaign.attachment import AttachedDisk, GuestPlace, attached, with_files
from vdisklab.campaign.context import CampaignContext, open_campaign
from vdisklab.campaign.measured_evidence import set_page_cache, writing_back
from vdisklab.campaign.watches import TimeSeries, Watch
from vdisklab.errors import VdisklabError
from vdisklab.guest.guest_context import GuestContext
from vdisklab.guest.image.kernel import Kernel, find_kernel
from vdisklab.guest.steps import started_in_steps
from vdisklab.host.command import LocalHost
from vdisklab.host.ledger import open_ledger
from vdisklab.host.state_directory import state_directory
from vdisklab.path.cell import PageCacheChoice
from vdisklab.path.segments import Bus
from vdisklab.plan.accelerator import AcceleratorChoice
from vdisklab.plan.build import build_plan
from vdisklab.plan.campaign import CampaignPlan
from vdisklab.plan.capabilities import Capabilities
from vdisklab.plan.profile import MeasurementPlan, Profile, Setting
from vdisklab.plan.settings import Request
from vdisklab.progress import silent
from vdisklab.value import replace
from vdisklab.workload.fio import Fio
from vdisklab.workload.program import Outputs, Timing, Workload
from vdisklab.workload.registry import workload_for

PATH = "raw/writeback"
SIZE = 64 << 20
MEMORY_MIB = 512  # so that all guests fit into the lab
JOBS: Mapping[str, dict[str, Setting]] = {
    "write-1m-q1": {"rw": "write", "bs": "1M"},
    "randread-4k-q1": {"rw": "randread", "bs": "4k"},
    "randwrite-4k-q1": {"rw": "randwrite", "bs": "4k"},
    "randread-4k-q32": {"rw": "randread", "bs": "4k", "iodepth": 32},
}
GOAL = (0.97, 1.03)
FAILURES = 2  # boots that may fail and are repeated; after one more, the result has fewer boots
SHORT = 0.5  # seconds of a run that shows what starting and ending fio takes


def _set_and_read_back(name: str, value: int) -> str:
    """A command line. `read` reads byte by byte, and such a file of sysctl ends after the first
    byte: so the value has one digit, and `read` itself fails."""
    file = f"/proc/sys/{name}"
    return f'echo {value} >{file} && {{ read -r seen <{file}; [ "$seen" = {value} ]; }}'


# fio starts at the same addresses each time. At random ones, a QEMU that emulates the guest or the
# machine below it would translate fio anew for each run, which was most of what a run measured.
# And its buffer is in a huge page (fio maps two): otherwise chance decides in how many pieces of
# physical memory 1 MiB is, from 1 to 256, which the guest, QEMU and the host handle one by one.
PREPARATION = " && ".join(
    (_set_and_read_back("kernel/randomize_va_space", 0), _set_and_read_back("vm/nr_hugepages", 2))
)
BUFFER = "--mem=mmaphuge"
# Writing and reading JSON+ takes instructions after a run, more after a longer one.
PLAIN = "--output-format=json"


@dataclass(frozen=True)
class Trial:
    """What all guests have in common: how they run, and the seconds that a job takes."""

    accelerator: str
    cpus: int
    runtime: float
    ramp: float


@dataclass(frozen=True)
class Change:
    """What differs in a guest made by hand: a kernel parameter, its disk, options of fio."""

    parameter: str = ""
    disk: tuple[str, ...] = DISK_ARGUMENTS
    fio: tuple[str, ...] = (BUFFER,)

    @property
    def boots(self) -> bool:
        """True for a change that needs a guest of its own."""
        return bool(self.parameter) or self.disk != DISK_ARGUMENTS


@dataclass(frozen=True)
class Report:
    """What fio says of a run: operations per second, and operations in all."""

    iops: float
    requests: int


@dataclass(frozen=True)
class Way:
    """How vdisklab runs a job: under which watch, with which further options of fio."""

    watch: Watch
    fio: tuple[str, ...] = (BUFFER, PLAIN)


@dataclass(frozen=True)
class Arm:
    """How a job is run: in which guest, by whom, with which options."""

    run: Callable[[str, float], Callable[[], Report]]
    """Runs the job of a name for a number of seconds. What it returns reads fio's report: later,
    because reading the longer report of JSON+ takes more instructions."""


@dataclass(frozen=True)
class Run:
    """One run of a job: operations per second, and instructions of the whole machine for each; None
    where they are not counted."""

    iops: float
    work: float | None


Round = Mapping[str, Mapping[str, Run]]
"""The run of each job in each arm."""

CHANGES = {
    "tsc": Change("tsc=reliable"),
    "root-port": Change(
        disk=(*DRIVE, "-device", "pcie-root-port,id=hp0,slot=1",
              "-device", "virtio-blk-pci,drive=disk,bus=hp0")
    ),
    "blockdev": Change(
        disk=("-blockdev", "driver=file,filename=IMAGE,node-name=file",
              "-blockdev", "driver=raw,file=file,node-name=disk",
              "-device", "virtio-blk-pci,drive=disk")
    ),
    "log": Change(
        fio=(BUFFER, "--write_bw_log=/tmp/log", "--log_avg_msec=100", "--per_job_logs=0")
    ),
    "percentiles": Change(
        fio=(BUFFER, "--output-format=json+", "--lat_percentiles=1", "--clat_percentiles=0")
    ),
    "buffer": Change(fio=()),
    # Under KVM the kernel does this by itself; the guest of vdisklab has it for emulation.
    "no_timer_check": Change("no_timer_check"),
    # These saved boot time in earlier versions.
    "lpj": Change("lpj=8000000"),
    "cryptomgr": Change("cryptomgr.notests"),
    "ipv6": Change("ipv6.disable=1"),
    "initcalls": Change(
        "initcall_blacklist=init_kprobe_trace,load_system_certificate_list,crypto_kdf108_init,"
        "cubictcp_register,btf_module_init,bpf_rstat_kfunc_init,tcp_congestion_default,"
        "slab_sysfs_init,init_encrypted,init_ima,blake2s_mod_init"
    ),
}  # fmt: skip


def by_hand(
    guest: HandGuest, more: tuple[str, ...], trial: Trial, job: str, seconds: float
) -> Callable[[], Report]:
    """One run of a job in the guest made by hand."""
    guest.cont()
    try:
        return partial(read_report, guest.run(fio_command(JOBS[job], seconds, trial.ramp, more)))
    finally:
        guest.stop()


def fio_command(
    job: Mapping[str, Setting], seconds: float, ramp: float, more: tuple[str, ...]
) -> str:
    """The options that vdisklab gives fio, without its log and percentiles, and `more`."""
    options = {
        "name": "hand", "filename": DISK, "size": SIZE, "rw": job["rw"], "bs": job["bs"],
        "iodepth": job.get("iodepth", 1), "ioengine": "libaio", "direct": 1,
        # In milliseconds, because fio reads 1.5 as 1.
        "runtime": f"{seconds * 1000:.0f}ms", "ramp_time": f"{ramp * 1000:.0f}ms",
        "group_reporting": 1, "randrepeat": 0, "norandommap": 1, "output-format": "json",
    }  # fmt: skip
    arguments = [f"--{name}={value}" for name, value in options.items()]
    return shlex.join(("fio", "--time_based", *arguments, *more))


def read_report(text: str) -> Report:
    """The one job of a report of fio, which does one of reading and writing."""
    (job,) = json.loads(text[text.index("{") :])["jobs"]
    reads, writes = job["read"], job["write"]
    return Report(reads["iops"] + writes["iops"], reads["total_ios"] + writes["total_ios"])


def by_vdisklab(
    place: GuestPlace, plan: CampaignPlan, way: Way, job: str, seconds: float
) -> Callable[[], Report]:
    """One run of a job as in a campaign."""
    watch = way.watch
    (measurement,) = (each for each in plan.profile.measurements if each.name == job)
    workload = workload_for(measurement)
    subject = replace(place.disk, mark=f"-{secrets.token_hex(4)}")
    steps = place.machine.steps
    if steps is not None:
        subject = replace(subject, stderr_log=None)
    script = workload.script(measurement, subject, Timing(seconds, plan.ramp, plan.scale))
    script = replace(script, command=(*script.command, *way.fio))
    place.machine.thaw()
    watch.begin()
    if steps is None or not isinstance(workload, Fio):
        output = place.run(script, watch)
    else:
        command = workload.together([script])
        with started_in_steps(place.machine.agent, steps, command, 1) as program:
            program.run(1, script.timeout, watch)
            ended = program.finish()
        output = Outputs(ended.stdout, ended.stderr)
    output = with_files(place, script, output)
    watch.end()
    place.machine.freeze()
    return partial(parsed, workload, measurement, output)


def parsed(workload: Workload, measurement: MeasurementPlan, output: Outputs) -> Report:
    """The report that vdisklab's own parser reads; it must not differ from fio's."""
    samples = workload.parse(measurement, output).samples
    report = read_report(output.stdout)
    assert report.iops == sum(sample.value for sample in samples if sample.metric == "iops")
    return report


def make_plan(directory: Path, trial: Trial, guest: Path | None = None) -> CampaignPlan:
    """The campaign of the one cell."""
    jobs = tuple(MeasurementPlan(name, "fio", job) for name, job in JOBS.items())
    request = Request(
        paths=(PATH,), rounds=1, runtime=trial.runtime, ramp=trial.ramp, size_bytes=SIZE,
        directory=directory, page_cache=PageCacheChoice.WARM, baseline="none", guest_image=guest,
        accelerator=AcceleratorChoice(trial.accelerator), guest_cpus=trial.cpus,
        guest_memory=MEMORY_MIB << 20,
    )  # fmt: skip
    return build_plan(request, Capabilities(), Profile("fidelity", "four jobs", jobs))


@contextmanager
def hand_made(kernel: Kernel, initrd: Path, name: str, trial: Trial) -> Iterator[HandGuest]:
    """The guest of this name, made by hand, which is stopped unless it is measured."""
    change = CHANGES.get(name, Change())
    image = initrd.with_name(f"{name}.img")
    image.write_bytes(os.urandom(SIZE))
    command_line = f"{COMMAND_LINE} {change.parameter}".rstrip()
    with hand_guest(
        kernel.image, initrd, image, trial.accelerator, command_line, cpus=trial.cpus,
        disk=change.disk, memory_mib=MEMORY_MIB,
    ) as guest:  # fmt: skip
        guest.run(PREPARATION)
        guest.stop()
        yield guest


class NoWatch:
    """Looks at nothing while a job runs."""

    def begin(self) -> None:
        """Does nothing."""

    def __call__(self, process: int | None = None) -> None:
        """Does nothing."""

    def end(self) -> TimeSeries:
        """Of nothing."""
        return TimeSeries((), (), None)


@contextmanager
def through_vdisklab(
    directory: Path, trial: Trial, guest: Path | None = None
) -> Iterator[dict[str, Arm]]:
    """The micro guest or a user's, with its disk attached by vdisklab. In `unwatched`
    nothing asks QEMU what the disk has done, in `ordinary` fio's buffer is ordinary.
    """
    plan = make_plan(directory, trial, guest)
    with contextlib.ExitStack() as opened:
        ledger = opened.enter_context(open_ledger())
        context = GuestContext(LocalHost(), ledger, state_directory() / "cache", silent)
        campaign = opened.enter_context(open_campaign(context, plan))
        disk, place = opened.enter_context(attached_to_guest(campaign))
        place.machine.agent.run(("/bin/sh", "-c", PREPARATION), timeout=60)
        place.machine.freeze()
        ways = {
            "vdisklab": Way(disk.watch),
            "unwatched": Way(NoWatch()),
            "ordinary": Way(disk.watch, (PLAIN,)),
        }
        yield {name: Arm(partial(by_vdisklab, place, plan, way)) for name, way in ways.items()}
        place.machine.thaw()


@contextmanager
def attached_to_guest(campaign: CampaignContext) -> Iterator[tuple[AttachedDisk, GuestPlace]]:
    """The disk of the campaign's one cell, all of its states read back, and its guest."""
    (cell,) = campaign.plan.cells
    with (
        campaign.stacks.image_for(cell.path) as image,
        writing_back(image) as write_back,
        attached(campaign, cell, image, write_back, fresh=False) as disk,
    ):
        assert isinstance(disk.place, GuestPlace)
        set_page_cache(cell.page_cache, image)
        yield disk, disk.place


def counter() -> Callable[[], int] | None:
    """Reads how many instructions the machine has executed, from the memory of its ivshmem device.
    None if it has no such device, or something else is in its memory (work_counter.c)."""
    devices = Path("/sys/bus/pci/devices")
    for device in devices.iterdir() if devices.is_dir() else ():
        identity = [(device / name).read_text().strip() for name in ("vendor", "device")]
        if identity == ["0x1af4", "0x1110"]:
            (device / "enable").write_text("1")
            with (device / "resource2").open("r+b") as memory:
                mapped = mmap.mmap(memory.fileno(), mmap.PAGESIZE)
            if mapped[8:16] == b"vdl-work":
                return lambda: int.from_bytes(mapped[:8], "little")
    return None


def in_turns(
    arms: Mapping[str, Arm], jobs: Sequence[str], rounds: range,
    one_run: Callable[[Arm, str], Run],
) -> list[Round]:  # fmt: skip
    """The runs of each round, after one of each arm that warms it and does not count. The numbers
    of the rounds decide the order of the arms: it turns by a third of them, and is reversed each
    second time."""
    for arm in arms.values():
        one_run(arm, jobs[0])
    done: list[Round] = []
    for number in rounds:
        names = list(arms)
        first = number // 2 * max(1, len(names) // 3) % len(names)
        names = (names[first:] + names[:first])[:: -1 if number % 2 else 1]
        done.append({job: {name: one_run(arms[name], job) for name in names}
                     for job in jobs})  # fmt: skip
    return done


def counted_run(seconds: float, count: Callable[[], int] | None, arm: Arm, job: str) -> Run:
    """One run of a job. A short run before it has the same start and end of fio, which cancel in
    the difference of the two. Raises ArithmeticError if the longer one did not do more."""
    if count is None:
        return Run(arm.run(job, seconds)().iops, None)
    begin = count()
    short = arm.run(job, SHORT)
    between = count()
    long = arm.run(job, seconds)
    work = (count() - between) - (between - begin)
    requests = long().requests - short().requests
    if work <= 0 or requests <= 0:
        raise ArithmeticError(f"{requests} requests more took {work} instructions more")
    return Run(long().iops, work / requests)


def ratios(boots: list[list[Round]], over: str, *under: str) -> dict[str, Any]:
    """What is typical of over ÷ under, for each job: one ratio for each boot, the geometric mean of
    its rounds; several `under` are their geometric mean. If no instructions were counted, there is
    only the ratio of IOPS."""
    counted = all(
        run.work is not None for rounds in boots for each in rounds
        for runs in each.values() for run in runs.values()
    )  # fmt: skip
    return {
        job: {
            name: typical([
                statistics.geometric_mean(
                    getattr(each[job][over], name)
                    / statistics.geometric_mean(getattr(each[job][row], name) for row in under)
                    for each in rounds
                )
                for rounds in boots
            ])
            for name in ("iops", *(("work",) if counted else ()))
        }
        for job in boots[0][0]
    }  # fmt: skip


def typical(values: Sequence[float]) -> dict[str, Any]:
    """The ratio by Hodges and Lehmann with its interval of 95 % or a little more, by Wilcoxon's
    signed ranks. The ratios of two equal guests are as often x as 1/x, so their logarithms are
    symmetric, as this needs. Fewer than six values have no such interval: theirs is None."""
    logs = [math.log(value) for value in values]
    pairs = itertools.combinations_with_replacement(logs, 2)
    means = sorted((first + other) / 2 for first, other in pairs)
    outside = signed_ranks_outside(len(values))
    interval = None
    if outside is not None:
        interval = [round(math.exp(means[place]), 3) for place in (outside, -1 - outside)]
    return {
        "ratio": round(math.exp(statistics.median(means)), 3),
        "interval_95": interval,
    }


def signed_ranks_outside(count: int) -> int | None:
    """How many means of pairs may lie outside on each side of an interval that covers 95 %: the
    largest rank sum k with P(sum <= k) <= 2.5 % when each rank counts or not by the toss of a coin
    (Hollander, Wolfe, Chicken, Nonparametric Statistical Methods, 3.3). None if there is none."""
    ways = [1] + [0] * (count * (count + 1) // 2)
    for rank in range(1, count + 1):
        for total in range(len(ways) - 1, rank - 1, -1):
            ways[total] += ways[total - rank]
    limit = 0.025 * 2**count
    below = itertools.takewhile(lambda reached: reached <= limit, itertools.accumulate(ways))
    return sum(1 for _ in below) - 1 if ways[0] <= limit else None


def rounded(rounds: list[Round]) -> list[dict[str, dict[str, tuple[int, int | None]]]]:
    """IOPS, and instructions for each request, of each run."""
    return [
        {
            job: {
                arm: (round(run.iops), None if run.work is None else round(run.work))
                for arm, run in runs.items()
            }
            for job, runs in each.items()
        }
        for each in rounds
    ]


@contextmanager
def all_guests(
    options: argparse.Namespace, trial: Trial, kernel: Kernel, initrd: Path
) -> Iterator[dict[str, Arm]]:
    """What is compared, by name. The guests are running or stopped."""
    with contextlib.ExitStack() as opened:
        guests: dict[str, HandGuest] = {}
        arms: dict[str, Arm] = {}
        for name in ("hand", "control", *options.changes):
            change = CHANGES.get(name, Change())
            if name not in CHANGES or change.boots:
                made = hand_made(kernel, initrd, name, trial)
                guests[name] = opened.enter_context(made)
            guest = guests.get(name, guests["hand"])
            arms[name] = Arm(partial(by_hand, guest, change.fio, trial))
        directory = options.dir.absolute()
        ours = opened.enter_context(through_vdisklab(directory, trial))
        arms["vdisklab"] = ours["vdisklab"]
        if options.changes:
            # In a guest of its own: an agent remembers how long it takes to look.
            more = opened.enter_context(through_vdisklab(directory, trial))
            arms |= {"ordinary": ours["ordinary"], "unwatched": more["unwatched"]}
        if options.guest is not None:
            user = through_vdisklab(directory, trial, options.guest)
            arms["system"] = opened.enter_context(user)["vdisklab"]
        yield arms


def compared(boots: list[list[Round]]) -> dict[str, Any]:
    """The ratios of all pairs that answer something."""
    arms = list(next(iter(boots[0][0].values())))
    pairs = [(name, "hand") for name in arms if name not in ("hand", "system")]
    pairs += [("vdisklab", name) for name in arms if name in ("control", "system", "unwatched")]
    if "buffer" in arms:
        pairs.append(("ordinary", "buffer"))
    found = {f"{over} over {under}": ratios(boots, over, under) for over, under in pairs}
    return {**found, "vdisklab over both by hand": ratios(boots, "vdisklab", "hand", "control")}


def report(options: argparse.Namespace) -> dict[str, Any]:
    """The ratios, and all runs."""
    directory = options.dir.absolute()
    trial = Trial(options.accelerator, options.cpus, options.runtime, options.ramp)
    count = counter()
    run = partial(counted_run, trial.runtime, count)
    kernel = find_kernel(LocalHost(), state_directory() / "cache", frozenset({Bus.VIRTIO}))
    result: dict[str, Any] = {
        "benchmark": "fidelity",
        "machine": machine_facts(directory),
        "kernel": kernel.release,
        "cell": f"{PATH} (warm)",
        "trial": to_builtins(trial),
        "guest_memory_mib": MEMORY_MIB,
        "buffer": BUFFER,
        "short_run": None if count is None else SHORT,
        "boots": options.boots,
        "rounds_of_a_boot": options.rounds,
        **({"below": options.below} if options.below else {}),
    }
    if options.changes:
        result["changes"] = {name: to_builtins(CHANGES[name]) for name in options.changes}
    boots: list[list[Round]] = []
    failures: list[str] = []
    with tempfile.TemporaryDirectory(dir=directory) as name:
        initrd = make_initrd(kernel.modules.directory, Path(name))
        while len(boots) < options.boots and len(failures) <= FAILURES:
            print(f"boot {len(boots) + 1} of {options.boots}", file=sys.stderr, flush=True)
            try:
                with all_guests(options, trial, kernel, initrd) as arms:
                    first = len(boots) * options.rounds
                    rounds = range(first, first + options.rounds)
                    boots.append(in_turns(arms, options.jobs, rounds, run))
            except (VdisklabError, AssertionError, ArithmeticError, LookupError, OSError,
                    ValueError, subprocess.SubprocessError) as error:  # fmt: skip
                failures.append(f"after {len(boots)} boots: {type(error).__name__}: {error}")
                print(failures[-1], file=sys.stderr, flush=True)
                if not boots and len(failures) > FAILURES:
                    raise
    load_after = Path("/proc/loadavg").read_text().split()[0]
    return {
        **result, "failures": failures, "goal": GOAL, "load_after": load_after, **compared(boots),
        "iops_and_work": [rounded(rounds) for rounds in boots],
    }  # fmt: skip


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--dir", type=Path, default=Path.cwd())
    parser.add_argument("--boots", type=int, default=8, help="six or more give intervals")
    parser.add_argument("--rounds", type=int, default=2, help="rounds of each boot")
    parser.add_argument("--runtime", type=float, default=2, help="seconds of a job")
    parser.add_argument("--ramp", type=float, default=1, help="seconds before it that do not count")
    parser.add_argument("--cpus", type=int, default=2, help="virtual CPUs of each guest")
    parser.add_argument("--accelerator", choices=("kvm", "tcg"), default="tcg")
    parser.add_argument("--guest", type=Path, help="the image of a Debian, the second reference")
    parser.add_argument("--changes", nargs="+", choices=list(CHANGES), default=[])
    parser.add_argument("--jobs", nargs="+", choices=list(JOBS), default=list(JOBS))
    parser.add_argument("--below", help="in the lab: the machine below it, and how busy it is")
    arguments = parser.parse_args()
    if arguments.runtime < 2 * SHORT:
        parser.error(f"--runtime needs {2 * SHORT:g} s or more")
    print_result(report(arguments))
