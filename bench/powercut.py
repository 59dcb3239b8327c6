"""Measures how many states of a power cut are judged per minute, by stage.

    python bench/powercut.py [--model MODEL] [--states N] [--workers N] [--dir DIR] [PATHS...]

Needs root. The prototype is timed in the same run under the model `power`, on a sample of the same
states and with the same number of processes. In the prototype each state is a clone (FICLONE) of
the durable part, on an XFS on a loop device in memory, and its sectors are checked one by one in
Python.
"""

from __future__ import annotations

import argparse
import fcntl
import multiprocessing
import os
import struct
import time
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from machine import machine_facts, print_result
from vdisklab.errors import VdisklabError
from vdisklab.host.command import LocalHost
from vdisklab.host.ledger import Kind, open_ledger
from vdisklab.host.syscalls import (
    attach_loop,
    detach_loop,
    forget_btrfs_devices,
    mount,
    punch_hole,
    unmount,
)
from vdisklab.path.disk_path import Layer, parse_path
from vdisklab.path.durability import FailureModel
from vdisklab.path.power_cut_words import ClientKind
from vdisklab.path.segments import LayerKind
from vdisklab.powercut.client import Load, Trace
from vdisklab.powercut.crash_states import CrashState, Epoch, Expectation, Sampling, epochs_between
from vdisklab.powercut.image_reader import read_image
from vdisklab.powercut.recordings import RunSpec, open_recording
from vdisklab.powercut.recovery import mount_options
from vdisklab.powercut.sectors import Numbers
from vdisklab.powercut.session import PowerCutSession, make_jobs, open_session, select_states
from vdisklab.storage.device import loop_device
from vdisklab.storage.filesystem import filesystem
from vdisklab.storage.site import Site, open_site
from vdisklab.storage.write_log import Flag, LogEntry, read_log
from vdisklab.units import GIB, SECTOR

PATHS = (
    "ext4/raw:preallocation=off/none",
    "xfs/raw:preallocation=off/none",
    "btrfs/raw:preallocation=off/none",
    "ext4/qcow2:preallocation=off/none",
)
_PROTOTYPE_STATES = 100
_FICLONE = 0x40049409
_BENCH_BYTES = 4 * GIB


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--states", type=int, default=400)
    logged = [model.value for model in FailureModel if not model.spares_qemu]
    parser.add_argument("--model", choices=logged, default=FailureModel.POWER.value)
    parser.add_argument("--dir", type=Path, default=Path())
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    parser.add_argument("paths", nargs="*", default=PATHS)
    options = parser.parse_args()
    directory = options.dir.absolute()
    facts = machine_facts(directory)
    with (
        open_ledger() as ledger,
        open_session(LocalHost(), ledger, directory, workers=options.workers) as session,
    ):
        speeds = {
            path: measure(session, path, options.states, FailureModel(options.model))
            for path in options.paths
        }
    print_result(
        {
            "bench": "powercut",
            "model": options.model,
            **facts,
            "load_after": Path("/proc/loadavg").read_text().split()[0],
            "workers": options.workers,
            "paths": speeds,
        }
    )


def measure(
    session: PowerCutSession, path: str, states: int, model: FailureModel
) -> dict[str, Any]:
    load = Load(ClientKind.FLUSHES, writes=120)
    spec = RunSpec(parse_path(path), load, host_survives=model.spares_the_host)
    recording = session.record(spec)
    try:
        selection = select_states(recording, Sampling(states=states), model)
        jobs = make_jobs(selection.cuts, post_recovery_states=0)
        begun = time.monotonic()
        judged = tuple(session.pool.judge(recording, jobs))
        seconds = time.monotonic() - begun
        stages: Counter[str] = Counter()
        for each in judged:
            stages.update(each.seconds)
        speed: dict[str, Any] = {
            "states": len(judged),
            "losses": sum(each.outcome.is_loss for each in judged),
            "states_per_minute": round(len(judged) * 60 / seconds),
            "milliseconds_of_a_worker_per_state": {
                stage: round(total / len(judged) * 1000, 2) for stage, total in stages.items()
            },
        }
        if model is FailureModel.POWER:  # the only one that the prototype knew
            cuts = [job.cut for job in jobs[:: max(1, len(jobs) // _PROTOTYPE_STATES)]]
            prototype = prototype_speed(session.site, recording.directory, cuts)
            speed["prototype_states_per_minute"] = round(prototype)
        return speed
    finally:
        recording.remove()


def prototype_speed(site: Site, recording: Path, cuts: Sequence[CrashState]) -> float:
    """States per minute of the prototype, with one process per CPU (one in all for btrfs)."""
    on_btrfs = open_recording(recording).trace.filesystem == "btrfs"
    count = 1 if on_btrfs else os.cpu_count() or 1
    parts = [(site.directory, recording, cuts[number::count]) for number in range(count)]
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(count, mp_context=context) as pool:
        return sum(pool.map(judge_part, parts))


def judge_part(part: tuple[Path, Path, Sequence[CrashState]]) -> float:
    """States per minute of one process as the prototype judged them."""
    memory, recording, cuts = part
    with (
        open_ledger() as ledger,
        open_site(LocalHost(), ledger, memory) as site,
        open_clones(site, recording) as clones,
    ):
        begun = time.monotonic()
        for cut in cuts:
            clones.judge(cut)
        return len(cuts) * 60 / (time.monotonic() - begun)


@dataclass
class Clones:
    """The prototype's states: the durable part, and a clone of it for each."""

    trace: Trace
    sectors: Numbers
    entries: Sequence[LogEntry]
    epochs: Sequence[Epoch]
    log: int
    base: int
    state: Path
    mountpoint: Path
    applied: int = 0

    def judge(self, cut: CrashState) -> None:
        """Builds, mounts, reads and checks one state."""
        trace, numbers = self.trace, self.sectors
        self.build(self.epochs[cut.epoch], cut)
        device = attach_loop(self.state)
        try:
            mount(device, self.mountpoint, trace.filesystem, mount_options(trace))
            try:
                image = self.mountpoint / trace.image
                sectors = read_image(image, trace.image_format, numbers).content.tobytes()
                for place, number in enumerate(numbers.tolist()):
                    parse_slowly(sectors[place * SECTOR : (place + 1) * SECTOR], number)
            finally:
                unmount(self.mountpoint)
        finally:
            detach_loop(device)
            if trace.filesystem == "btrfs":
                forget_btrfs_devices()

    def build(self, epoch: Epoch, cut: CrashState) -> None:
        """The state as a clone; a torn change is left out, which costs as much."""
        for entry in self.entries[self.applied : epoch.base]:
            self.apply(self.base, entry)
        self.applied = max(self.applied, epoch.base)
        state = os.open(self.state, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            fcntl.ioctl(state, _FICLONE, self.base)  # ioctl_ficlone(2)
            for bit, index in enumerate(epoch.changes):
                if cut.kept >> bit & 1:
                    self.apply(state, self.entries[index])
        finally:
            os.close(state)

    def apply(self, target: int, entry: LogEntry) -> None:
        """Applies one entry of the log."""
        if entry.zeroes or Flag.DISCARD in entry.flags:
            punch_hole(target, entry.offset, entry.length)
        elif entry.changes_disk:
            os.pwrite(target, os.pread(self.log, entry.length, entry.data_at), entry.offset)


@contextmanager
def open_clones(site: Site, directory: Path) -> Iterator[Clones]:
    recording = open_recording(directory)
    trace, log = recording.trace, read_log(recording.log)
    with ExitStack() as stack:
        device = stack.enter_context(loop_device(site, "bench", _BENCH_BYTES, allocate=False))
        xfs = Layer(LayerKind.XFS)
        bench = stack.enter_context(filesystem(site, device, xfs, "bench.mnt", _BENCH_BYTES)).path
        mountpoint = site.directory / "recovered"
        stack.enter_context(site.tracked(Kind.DIRECTORY, mountpoint))
        mountpoint.mkdir()
        source = os.open(recording.log, os.O_RDONLY)
        stack.callback(os.close, source)
        base = os.open(bench / "base", os.O_RDWR | os.O_CREAT, 0o600)
        stack.callback(os.close, base)
        os.ftruncate(base, trace.disk_size)
        epochs = epochs_between(log.entries, trace.begin, trace.end)
        sectors = Expectation(trace).sectors
        state = bench / "state"
        yield Clones(trace, sectors, log.entries, epochs, source, base, state, mountpoint)


def parse_slowly(sector: bytes, number: int) -> int:
    """The prototype's check of one sector: compare, unpack, checksum."""
    record = sector[:32]
    if sector != record * 16:
        return -1
    _, found, version, _ = struct.unpack("<QQQQ", record)
    return version if found == number and zlib.crc32(record[:24]) else -1


if __name__ == "__main__":
    try:
        main()
    except VdisklabError as error:
        raise SystemExit(f"{error}\n{error.hint or ''}") from error
