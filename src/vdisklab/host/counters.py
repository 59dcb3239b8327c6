"""The kernel's counters: transfers of block devices, CPU time, processes, the host's load.

/proc/PID/io (proc(5)) counts a process with all its threads, and its children once it has waited
for them: the kernel then adds their counts to the parent's (kernel/exit.c, wait_task_zombie). So
the sum over the living processes of a tree misses only counts that move at that moment.
"""

from __future__ import annotations

import os
import re
import resource
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from vdisklab.results.model import HostLoad, IoCounters
from vdisklab.value import Value

# /proc/diskstats and struct rusage count sectors of 512 bytes, whatever the device's sector size is
# (include/linux/task_io_accounting_ops.h).
_SECTOR = 512
_TICKS = os.sysconf("SC_CLK_TCK")


_NVME = re.compile(r"nvme(\d+)n(\d+)")
_COUNTED = 8  # guest time, which follows, is in user time already


def device_below(path: Path) -> tuple[int, int] | None:
    """Major and minor number of a block device, or of the one below a file or directory.

    None for file systems without a device (tmpfs, NFS, FUSE).
    """
    status = path.stat()
    number = status.st_rdev if path.is_block_device() else status.st_dev
    major, minor = os.major(number), os.minor(number)
    return (major, minor) if Path(f"/sys/dev/block/{major}:{minor}").exists() else None


def read_device(
    number: tuple[int, int], table: Path = Path("/proc/diskstats")
) -> IoCounters | None:
    """The counters of one device (Documentation/admin-guide/iostats.rst); None when the kernel does
    not list it.

    An NVMe namespace below native multipath may count nothing (Debian's kernel 6.1); then those of
    its paths count, such as nvme0c0n1 of nvme0n1.
    """
    try:
        text = table.read_text()
    except OSError:
        return None  # /proc is mounted with subset=pid
    rows = [line.split() for line in text.splitlines()]
    ours = next((row for row in rows if (int(row[0]), int(row[1])) == number), None)
    if ours is None:
        return None
    namespace = _NVME.fullmatch(ours[2])
    if namespace and not any(map(int, ours[3:])):
        below = re.compile(rf"nvme{namespace[1]}c\d+n{namespace[2]}")
        paths = [row for row in rows if below.fullmatch(row[2])]
        return IoCounters.total(list(map(_counters, paths or [ours])))
    return _counters(ours)


def _counters(row: Sequence[str]) -> IoCounters:
    values = [int(field) for field in row[3:]]
    flushes, flushing = values[15:17] if len(values) > 16 else (None, None)
    return IoCounters(
        values[2] * _SECTOR, values[6] * _SECTOR, values[0], values[4], flushes,
        values[3] / 1000, values[7] / 1000, None if flushing is None else flushing / 1000,
    )  # fmt: skip


def read_devices(
    numbers: Sequence[tuple[int, int]], table: Path = Path("/proc/diskstats")
) -> IoCounters | None:
    """The sum over several devices; None when there are none, or one is not listed."""
    return IoCounters.total([read_device(number, table) for number in numbers])


def discarded_bytes(
    numbers: Sequence[tuple[int, int]], table: Path = Path("/proc/diskstats")
) -> int | None:
    """Bytes that several devices were told to discard, ever; None when there are no devices, one is
    not listed, or the kernel does not count them (before 4.18)."""
    try:
        rows = [line.split() for line in table.read_text().splitlines()]
    except OSError:
        return None  # /proc is mounted with subset=pid
    sectors = {(int(row[0]), int(row[1])): int(row[16]) for row in rows if len(row) > 16}
    if not numbers or not sectors.keys() >= set(numbers):
        return None
    return sum(sectors[number] for number in numbers) * _SECTOR


def process_cpu_seconds(pid: int) -> float | None:
    """User and system time of a process with all its threads; None when it has ended."""
    try:
        fields = stat_fields(Path(f"/proc/{pid}"))
    except OSError:
        return None
    return (int(fields[11]) + int(fields[12])) / _TICKS


def children_cpu_seconds() -> float:
    """User and system time of all children of this process that have ended."""
    times = os.times()
    return times.children_user + times.children_system


def steal_seconds(table: Path = Path("/proc/stat")) -> float | None:
    """Seconds since boot, summed over all CPUs, in which the hypervisor ran something else."""
    try:
        fields = table.read_text().split("\n", 1)[0].split()
    except OSError:
        return None
    return int(fields[8]) / _TICKS if len(fields) > 8 else None


class Activity(Value):
    """I/O of a process tree since it started, and whether it waits now.

    `storage_bytes` is the sum of `read_bytes` and `write_bytes`: it has no reads from the page
    cache, but writes into it. `progress` grows with every system call that transfers data.
    `waits`: a thread is in uninterruptible sleep, as it is while it waits for a disk.
    """

    storage_bytes: int
    progress: int
    waits: bool


def tree_activity(pid: int, processes: Path = Path("/proc")) -> Activity | None:
    """A process and its descendants; None when it has ended or belongs to another user."""
    members = [
        activity
        for member in _tree(pid, processes)
        if (activity := _activity(processes / str(member))) is not None
    ]
    if not members:
        return None
    return Activity(
        sum(activity.storage_bytes for activity in members),
        sum(activity.progress for activity in members),
        any(activity.waits for activity in members),
    )


def children_storage_bytes() -> int:
    """`storage_bytes` of this process's ended children and their descendants (getrusage(2))."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (used.ru_inblock + used.ru_oublock) * _SECTOR


def stat_fields(process: Path) -> list[str]:
    """The fields of `stat` of a process or thread, from the state on. Raises OSError.

    The command name before them may contain spaces and brackets.
    """
    text = (process / "stat").read_text()
    return text[text.rindex(")") + 2 :].split()


def _activity(process: Path) -> Activity | None:
    try:
        lines = (process / "io").read_text().splitlines()
        states = [stat_fields(task)[0] for task in (process / "task").iterdir()]
    except OSError:
        return None  # it has just ended, or now runs as another user
    counts = {name: int(value) for name, _, value in (line.partition(": ") for line in lines)}
    storage = counts["read_bytes"] + counts["write_bytes"]
    calls = sum(counts[name] for name in ("rchar", "wchar", "syscr", "syscw"))
    return Activity(storage, storage + calls, "D" in states)


def _tree(pid: int, processes: Path) -> Iterator[int]:
    """The tree's processes, parents before children: a child that ends meanwhile is missed, but
    never counted twice.
    """
    has_list = (processes / str(pid) / "task" / str(pid) / "children").exists()
    parents = {} if has_list else _parents(processes)
    queue = [pid]
    while queue:
        member = queue.pop()
        yield member
        if has_list:
            queue += _children(processes / str(member))
        else:
            queue += [child for child, parent in parents.items() if parent == member]


def _children(process: Path) -> list[int]:
    """The children by the kernel's list, which needs CONFIG_PROC_CHILDREN."""
    children: list[int] = []
    with suppress(OSError):
        for task in (process / "task").iterdir():
            children += [int(word) for word in (task / "children").read_text().split()]
    return children


def _parents(processes: Path) -> dict[int, int]:
    """The parent of each process, for kernels without the list of children."""
    parents = {}
    for process in processes.glob("[0-9]*"):
        with suppress(OSError):
            parents[int(process.name)] = int(stat_fields(process)[1])
    return parents


# Fields of /proc/stat; fields 10 and 11 of a device are its busy milliseconds, and those times its
# requests (Documentation/admin-guide/iostats.rst).
_IDLE, _WAITING, _STEAL = 3, 4, 7


class BusySnapshot(Value):
    """Counters at one moment; empty if the host has no such counter.

    `cpus` are ticks of all CPUs by kind, `devices` are milliseconds with a request and milliseconds
    times requests, `threads` are ticks by the thread's name and number and its process's name.
    """

    seconds: float
    cpus: tuple[int, ...]
    devices: tuple[tuple[int, int], ...]
    threads: Mapping[tuple[str, int, str], int]


def snapshot(
    devices: Sequence[tuple[int, int]], processes: Mapping[str, int], proc: Path = Path("/proc")
) -> BusySnapshot:
    """The counters of the host, of devices by their numbers, and of processes by their names."""
    return BusySnapshot(
        time.monotonic(), _cpus(proc), _devices(devices, proc), _threads(processes, proc)
    )


def load_between(before: BusySnapshot, after: BusySnapshot) -> HostLoad:
    """The host's load between two snapshots."""
    seconds = after.seconds - before.seconds
    cpu = steal = device = queue = None
    ticks = [now - then for then, now in zip(before.cpus, after.cpus, strict=False)]
    if sum(ticks) > 0:
        cpu = 1 - (ticks[_IDLE] + ticks[_WAITING]) / sum(ticks)
        steal = ticks[_STEAL] / sum(ticks)
    pairs = list(zip(before.devices, after.devices, strict=False))
    if pairs and seconds > 0:
        device = min(1.0, max(now[0] - then[0] for then, now in pairs) / 1000 / seconds)
        queue = sum(now[1] - then[1] for then, now in pairs) / 1000 / seconds
    used = {
        key: (ticks_now - before.threads[key]) / _TICKS / seconds
        for key, ticks_now in after.threads.items()
        if key in before.threads and seconds > 0
    }
    busiest = max(used, key=lambda key: used[key], default=None)
    return HostLoad(
        cpu=cpu,
        steal=steal,
        device=device,
        queue=queue,
        thread=None if busiest is None else f"{busiest[0]} of {busiest[2]}",
        thread_cpu=None if busiest is None else used[busiest],
    )


def _cpus(proc: Path) -> tuple[int, ...]:
    with suppress(OSError):
        columns = (proc / "stat").read_text().split("\n", 1)[0].split()[1:]
        if len(columns) >= _COUNTED:
            return tuple(map(int, columns[:_COUNTED]))
    return ()


def _devices(numbers: Sequence[tuple[int, int]], proc: Path) -> tuple[tuple[int, int], ...]:
    """The devices' counters in the order of `numbers`; empty if one device is not listed."""
    with suppress(OSError):
        rows = [line.split() for line in (proc / "diskstats").read_text().splitlines()]
        listed = {(int(row[0]), int(row[1])): (int(row[12]), int(row[13])) for row in rows}
        if all(number in listed for number in numbers):
            return tuple(listed[number] for number in numbers)
    return ()


def _threads(processes: Mapping[str, int], proc: Path) -> dict[tuple[str, int, str], int]:
    ticks: dict[tuple[str, int, str], int] = {}
    for owner, pid in processes.items():
        with suppress(OSError):  # threads come and go
            for task in (proc / str(pid) / "task").iterdir():
                with suppress(OSError):
                    fields = stat_fields(task)
                    name = (task / "comm").read_text().strip()
                    ticks[name, int(task.name), owner] = int(fields[11]) + int(fields[12])
    return ticks
