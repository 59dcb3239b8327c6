"""A directory on a disk of a stated speed, and a processor of a stated share, both steady.

The speed of a machine's own disk drifts; the kernel holds that of this one, which is a loop device
over a file on it, with limits for the root group of version 1
(Documentation/admin-guide/cgroup-v1/blkio-controller.rst, "Throttling/Upper limit policy"). It
lets the requests of 0.1 s through at once and then waits (block/blk-throttle.c, `throtl_slice`), so
half a second may see up to a fifth more of them than the stated speed.

Under emulation a guest asks some 2,000 requests a second of a processor that it has for itself, and
takes 33 to 39 % of one for 500. Several guests at a time delay each other: with six on two
processors, 200 requests a second became 110 while three of them wrote to memory. So each gets a
share that it cannot exceed (Documentation/scheduler/sched-bwc.rst), in turns of 0.1 ms (the
scheduler's slice, kernel/sched/fair.c `custom_slice`), and the disk does 150 requests a second, a
hard disk's, and 15 MB/s: a small volume's of a cloud.
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from slow_disk import output_of

BLKIO = Path("/sys/fs/cgroup/blkio")
CPU = Path("/sys/fs/cgroup/cpu")
BDI = Path("/sys/class/bdi")
PERIOD = 10_000
"""Microseconds in which a group may use its share."""
TURN = 100_000
"""Nanoseconds: the shortest turn that the scheduler takes."""
SCHED_SETATTR, SCHED_GETATTR = 314, 315
"""Numbers of system calls on x86-64 (arch/x86/entry/syscalls/syscall_64.tbl)."""
SCHED_ATTR = "<IIQiIQQQ"
"""struct sched_attr (include/uapi/linux/sched/types.h): size, policy, flags, nice, priority,
runtime, deadline, period."""


@dataclass(frozen=True)
class Speed:
    """What the disk does at most, of reads and of writes each."""

    requests: int
    bytes: int


VOLUME = Speed(requests=150, bytes=15_000_000)


def _limit(device: str, speed: Speed) -> None:
    """Limits a disk, or with zeros no longer does; fails if the kernel says otherwise."""
    number = output_of("lsblk", "--noheadings", "--nodeps", "--output", "MAJ:MIN", device)
    for way in ("read", "write"):
        for what, most in (("iops", speed.requests), ("bps", speed.bytes)):
            file = BLKIO / f"blkio.throttle.{way}_{what}_device"
            file.write_text(f"{number} {most}")
            lines = [line for line in file.read_text().splitlines() if line.split()[0] == number]
            if lines != ([f"{number} {most}"] if most else []):
                raise SystemExit(f"{file} says {lines}, not {most}")


@contextmanager
def steady_disk(work: Path, size: int, speed: Speed = VOLUME) -> Iterator[Path]:
    """An ext4 file system on such a disk, mounted below `work`; as root.

    Afterwards nothing is mounted, attached or limited, and the disk's file is gone.
    """
    file, place = work / "steady.img", work / "steady"
    with ExitStack() as undo:
        undo.callback(file.unlink, missing_ok=True)
        output_of("fallocate", "--length", str(size), file)
        device = output_of("losetup", "--find", "--show", "--direct-io=on", file)
        undo.callback(output_of, "losetup", "--detach", device)
        output_of("mkfs.ext4", "-q", "-E", "lazy_itable_init=0", device)
        undo.callback(_limit, device, Speed(0, 0))
        _limit(device, speed)
        place.mkdir(exist_ok=True)
        undo.callback(place.rmdir)
        output_of("mount", device, place)
        undo.callback(output_of, "umount", place)
        yield place


@contextmanager
def dirty_limit(below: Path, most: int) -> Iterator[None]:
    """While it is open, a loop device over a file below a directory has so many dirty bytes at most
    in the page cache; as root. Fails at its end if a device took another limit.

    A control group of version 1 may fill its memory with dirty pages, as only the host's limit
    holds for them; a host and a group of version 2 let a fifth be dirty (Documentation/admin-guide/
    sysctl/vm.rst, `dirty_ratio`; cgroup-v2.rst, "Writeback"). So the device gets the limit
    (Documentation/ABI/testing/sysfs-class-bdi). Devices appear while a campaign builds its stacks.
    """
    limited: dict[Path, str] = {}
    faults: list[str] = []
    ended = threading.Event()

    def limit(device: Path) -> None:
        limited[device] = (device / "max_ratio").read_text()
        (device / "strict_limit").write_text("1")
        (device / "max_bytes").write_text(str(most))
        # It is kept as millionths of what the whole host may have.
        kept = int((device / "max_bytes").read_text())
        is_strict = (device / "strict_limit").read_text().strip() == "1"
        if not (is_strict and 0.9 * most < kept < 1.1 * most):
            faults.append(f"{device} may have {kept} dirty bytes, not {most}")

    def watch() -> None:
        while not ended.wait(0.2):
            for backing in Path("/sys/block").glob("loop*/loop/backing_file"):
                try:
                    is_below = Path(backing.read_text().strip()).is_relative_to(below)
                    device = BDI / (backing.parent.parent / "dev").read_text().strip()
                except OSError:  # it was detached meanwhile
                    continue
                if is_below and device not in limited:
                    try:
                        limit(device)
                    except OSError as error:  # the thread goes on, and the run fails at its end
                        faults.append(f"{device} takes no limit: {error}")

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        watcher.join()
        for device, ratio in limited.items():
            (device / "max_ratio").write_text(ratio)
            (device / "strict_limit").write_text("0")
    print(f"{len(limited)} devices could have {most} dirty bytes each", file=sys.stderr)
    if faults:
        raise SystemExit("; ".join(faults))


def _take_short_turns() -> None:
    """Sets the turn of this process, which children inherit; fails if the kernel says otherwise."""
    system, size = ctypes.CDLL(None), struct.calcsize(SCHED_ATTR)
    attributes = struct.pack(SCHED_ATTR, size, 0, 0, 0, 0, TURN, 0, 0)
    seen = ctypes.create_string_buffer(size)
    failed = system.syscall(SCHED_SETATTR, 0, attributes, 0) or system.syscall(
        SCHED_GETATTR, 0, seen, size, 0
    )
    if failed or struct.unpack(SCHED_ATTR, seen.raw)[5] != TURN:
        raise SystemExit(f"the scheduler does not take turns of {TURN} ns")


@contextmanager
def steady_processor(name: str, share: float) -> Iterator[None]:
    """This process and those that it starts get at most a share of a processor; as root.

    They go before the machine's other processes, and take short turns. Afterwards this process is
    in the root group again.
    """
    group = CPU / name
    group.mkdir()
    with ExitStack() as undo:
        undo.callback(group.rmdir)
        quota = round(share * PERIOD)
        for file, value in (
            ("cpu.shares", 100_000), ("cpu.cfs_period_us", PERIOD), ("cpu.cfs_quota_us", quota)
        ):  # fmt: skip
            (group / file).write_text(str(value))
            if (group / file).read_text().strip() != str(value):
                raise SystemExit(f"{group / file} does not take {value}")
        _take_short_turns()
        undo.callback((CPU / "cgroup.procs").write_text, str(os.getpid()))
        (group / "cgroup.procs").write_text(str(os.getpid()))
        yield
