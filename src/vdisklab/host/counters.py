"""Counters of the kernel: what a block device moved, what a process and the machine used."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from vdisklab.host.processtree import stat_fields

_SECTOR = 512  # /proc/diskstats counts sectors of 512 bytes whatever the device's own size is
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class DeviceCounters:
    """One line of /proc/diskstats (Documentation/admin-guide/iostats.rst), in bytes."""

    read_bytes: int
    write_bytes: int
    read_operations: int
    write_operations: int
    flush_operations: int | None

    def since(self, before: DeviceCounters) -> DeviceCounters:
        """What was counted between two readings."""
        flushes = None
        if self.flush_operations is not None and before.flush_operations is not None:
            flushes = self.flush_operations - before.flush_operations
        return DeviceCounters(
            self.read_bytes - before.read_bytes,
            self.write_bytes - before.write_bytes,
            self.read_operations - before.read_operations,
            self.write_operations - before.write_operations,
            flushes,
        )


def device_below(path: Path) -> tuple[int, int] | None:
    """Major and minor number of the block device under a file or directory, or of a device itself.

    None for file systems that have no device (tmpfs, NFS, FUSE).
    """
    found = path.stat()
    number = found.st_rdev if path.is_block_device() else found.st_dev
    major, minor = os.major(number), os.minor(number)
    return (major, minor) if Path(f"/sys/dev/block/{major}:{minor}").exists() else None


def read_device(
    number: tuple[int, int], table: Path = Path("/proc/diskstats")
) -> DeviceCounters | None:
    """The counters of one device, or None when the kernel does not list it, or shows no list."""
    try:
        text = table.read_text()
    except OSError:
        return None  # of a /proc that is mounted with subset=pid
    for line in text.splitlines():
        fields = line.split()
        if (int(fields[0]), int(fields[1])) == number:
            values = [int(field) for field in fields[3:]]
            flushes = values[15] if len(values) > 15 else None
            return DeviceCounters(
                values[2] * _SECTOR, values[6] * _SECTOR, values[0], values[4], flushes
            )
    return None


def read_devices(
    numbers: Sequence[tuple[int, int]], table: Path = Path("/proc/diskstats")
) -> DeviceCounters | None:
    """The sum of the counters of several devices; None when there are none or one is not listed."""
    each = [found for number in numbers if (found := read_device(number, table)) is not None]
    if not each or len(each) < len(numbers):
        return None
    flushes = [found.flush_operations for found in each]
    return DeviceCounters(
        sum(found.read_bytes for found in each),
        sum(found.write_bytes for found in each),
        sum(found.read_operations for found in each),
        sum(found.write_operations for found in each),
        None if None in flushes else sum(count or 0 for count in flushes),
    )


def process_cpu_seconds(pid: int) -> float | None:
    """User and system time of a process with all its threads, or None when it is gone."""
    try:
        fields = stat_fields(Path(f"/proc/{pid}"))
    except OSError:
        return None
    return (int(fields[11]) + int(fields[12])) / _TICKS


def children_cpu_seconds() -> float:
    """User and system time of all children of ours that have ended."""
    times = os.times()
    return times.children_user + times.children_system


def steal_seconds(table: Path = Path("/proc/stat")) -> float | None:
    """CPU time that a hypervisor below took from this machine since boot, over all CPUs."""
    try:
        fields = table.read_text().split("\n", 1)[0].split()
    except OSError:
        return None
    return int(fields[8]) / _TICKS if len(fields) > 8 else None
