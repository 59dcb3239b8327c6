"""Finds where a guest's write is when it is acknowledged, and after a flush, for each cache mode.

    python bench/caches.py [--dir DIR] > caches.json

Needs root. Each acknowledged sector is looked up in the log of the host's disk, and the image's
pages in the page cache are counted. A real guest reads how it sees its disk, under emulation where
there is no KVM.
"""

from __future__ import annotations

import argparse
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Any

import numpy as np

from machine import machine_facts, print_result
from vdisklab.guest.guest_context import GuestContext
from vdisklab.guest.qemu.block_nodes import Disk
from vdisklab.host.command import LocalHost
from vdisklab.host.ledger import open_ledger
from vdisklab.host.pagecache import residency
from vdisklab.host.state_directory import state_directory
from vdisklab.path.disk_path import parse_path
from vdisklab.path.power_cut_words import ClientKind, DriverSetting
from vdisklab.path.segments import Bus, CacheMode
from vdisklab.plan.accelerator import Accelerator
from vdisklab.plan.guest import GuestPlan
from vdisklab.powercut.client import ClientDisk, Load, Write
from vdisklab.powercut.client_guests import Guests, open_guests
from vdisklab.powercut.recordings import Recording, RunSpec
from vdisklab.powercut.sectors import make_records
from vdisklab.powercut.session import PowerCutSession, open_session
from vdisklab.progress import silent
from vdisklab.storage.write_log import LogEntry, read_log
from vdisklab.units import MIB

STACK = "ext4/raw:preallocation=off"
WRITES = 40


class Whereabouts(StrEnum):
    """The place of a sector on its way to the medium."""

    HOST_MEMORY = "the host's memory"
    DISK_CACHE = "the disk's write cache"
    MEDIUM = "the medium"


def whereabouts(entries: Sequence[tuple[LogEntry, bytes]], write: Write, place: int) -> Whereabouts:
    """Where the last sector of a write was when the log had `at` entries."""
    sector = write.first + write.count - 1
    record = make_records(np.array([sector], dtype=np.int64), write.version).tobytes()
    arrived = [n for n, (_, data) in enumerate(entries[:place]) if record in data]
    if not arrived:
        return Whereabouts.HOST_MEMORY
    flushed = any(entry.flushes for entry, _ in entries[arrived[0] + 1 : place])
    return Whereabouts.MEDIUM if flushed else Whereabouts.DISK_CACHE


def entries_of(recording: Recording) -> list[tuple[LogEntry, bytes]]:
    with recording.log.open("rb") as log:
        return [
            (each, b"" if each.zeroes else os.pread(log.fileno(), each.length, each.data_at))
            for each in read_log(recording.log).entries
        ]


def record(session: PowerCutSession, mode: CacheMode, kind: ClientKind) -> Mapping[str, Any]:
    """Where the writes of one run were at the moment when they were promised."""
    cached: list[float] = []

    @contextmanager
    def watched(disk: Disk) -> Iterator[ClientDisk]:
        with session.over_nbd(disk) as opened:
            yield opened
            cached.append(residency(Path(disk.filename or "")))

    load = Load(kind, writes=WRITES, max_sectors=8)
    recording = session.record(RunSpec(parse_path(f"{STACK}/{mode}"), load), watched)
    try:
        entries = entries_of(recording)
        found = Counter(
            whereabouts(entries, write, write.durable_at)
            for write in recording.trace.writes
            if write.durable_at is not None
        )
    finally:
        recording.remove()
    return {
        "writes": {place.value: count for place, count in sorted(found.items())},
        "image_in_page_cache": cached[0],
    }


def seen_by_guest(session: PowerCutSession, guests: Guests, mode: CacheMode) -> str:
    """The write cache that a guest's kernel sees."""
    load = Load(ClientKind.NEVER, writes=1)

    @contextmanager
    def opened(disk: Disk) -> Iterator[ClientDisk]:
        with guests.open(disk, load, DriverSetting.AS_FOUND) as client:
            yield client

    recording = session.record(RunSpec(parse_path(f"{STACK}/{mode}/virtio"), load), opened)
    seen = recording.trace.observed["guest.queue.write_cache"]
    recording.remove()
    return seen


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dir", type=Path, default=Path())
    parser.add_argument("--accelerator", type=Accelerator, default=Accelerator.TCG)
    options = parser.parse_args()
    host = LocalHost()
    plan = GuestPlan(memory_bytes=512 * MIB, accelerator=options.accelerator)
    with open_ledger() as ledger, open_session(host, ledger, options.dir.absolute()) as session:
        context = GuestContext(host, ledger, state_directory() / "cache", silent)
        with open_guests(context, plan, frozenset({Bus.VIRTIO}), session.site) as guests:
            modes = {
                mode.value: {
                    "acknowledged": record(session, mode, ClientKind.NEVER),
                    "flushed": record(session, mode, ClientKind.FLUSHES),
                    "guest_sees": seen_by_guest(session, guests, mode),
                }
                for mode in CacheMode
            }
    print_result(
        machine_facts(options.dir)
        | {"stack": STACK, "writes": WRITES, "accelerator": options.accelerator, "modes": modes}
    )


if __name__ == "__main__":
    main()
