"""How many states of a power cut are judged in a minute, by stage; also the prototype's way.

    python bench/powercut.py [--states 400] [--dir DIR] [PATHS...]

Needs root. The prototype's way (one process, sectors checked one by one in Python) is timed in
the same run on the same states.
"""

from __future__ import annotations

import argparse
import os
import struct
import time
import zlib
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from vdisklab.host.command import LocalHost
from vdisklab.host.ledger import open_ledger
from vdisklab.host.syscalls import attach_loop, detach_loop, mount, unmount
from vdisklab.plan.path import parse_path
from vdisklab.powercut.cuts import Wanted
from vdisklab.powercut.examine import Examiner, mount_options, open_examiner
from vdisklab.powercut.imagereader import read_image
from vdisklab.powercut.lab import Lab, choose, jobs_for, open_lab
from vdisklab.powercut.record import Load
from vdisklab.powercut.recording import Asked, Recording
from vdisklab.powercut.sectors import SECTOR
from vdisklab.powercut.trace import ClientKind
from vdisklab.powercut.workers import Job, open_bench

PATHS = (
    "ext4/raw:preallocation=off/none",
    "xfs/raw:preallocation=off/none",
    "btrfs/raw:preallocation=off/none",
    "ext4/qcow2:preallocation=off/none",
)
_OLD_WAY_STATES = 60


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--states", type=int, default=400)
    parser.add_argument("--dir", type=Path, default=Path())
    parser.add_argument("paths", nargs="*", default=PATHS)
    asked = parser.parse_args()
    with open_ledger() as ledger, open_lab(LocalHost(), ledger, asked.dir.absolute()) as lab:
        for path in asked.paths:
            measure(lab, path, asked.states)


def measure(lab: Lab, path: str, states: int) -> None:
    recording = lab.record(Asked(parse_path(path), Load(ClientKind.FLUSHES, writes=120)))
    try:
        selection = choose(recording, Wanted(states=states))
        jobs = jobs_for(selection.cuts, afterlives=0)
        begun = time.monotonic()
        judged = tuple(lab.pool.judge(recording, jobs))
        seconds = time.monotonic() - begun
        stages: Counter[str] = Counter()
        for each in judged:
            stages.update(each.seconds)
        per_state = ", ".join(
            f"{stage} {total / len(judged) * 1000:.1f}" for stage, total in stages.items()
        )
        print(f"{path}: {len(judged) * 60 / seconds:,.0f} states/min with {os.cpu_count()} workers")
        print(f"    ms of one worker per state: {per_state}")
        old = old_way(lab, recording, jobs[:_OLD_WAY_STATES])
        print(f"    the prototype's way, one process: {60 / old:,.0f} states/min")
    finally:
        recording.forget()


def old_way(lab: Lab, recording: Recording, jobs: Sequence[Job]) -> float:
    """Seconds per state as the prototype judged them."""
    with open_bench(lab.site) as bench, open_examiner(lab.site, bench, recording, None) as examiner:
        begun = time.monotonic()
        for job in jobs:
            judge_slowly(examiner, job)
        return (time.monotonic() - begun) / len(jobs)


def judge_slowly(examiner: Examiner, job: Job) -> None:
    trace = examiner.trace
    state = examiner.rebuilder.build(examiner.epochs[job.cut.epoch], job.cut)
    device = attach_loop(state)
    try:
        mount(device, examiner.mountpoint, trace.filesystem, mount_options(trace))
        try:
            numbers = examiner.expectation.sectors
            image = examiner.mountpoint / trace.image
            sectors = read_image(image, trace.image_format, numbers).sectors.tobytes()
            for place, number in enumerate(numbers.tolist()):
                parse_slowly(sectors[place * SECTOR : (place + 1) * SECTOR], number)
        finally:
            unmount(examiner.mountpoint)
    finally:
        detach_loop(device)


def parse_slowly(sector: bytes, number: int) -> int:
    """The prototype's check of one sector: compare, unpack, checksum."""
    record = sector[:32]
    if sector != record * 16:
        return -1
    _, found, version, _ = struct.unpack("<QQQQ", record)
    return version if found == number and zlib.crc32(record[:24]) else -1


if __name__ == "__main__":
    main()
