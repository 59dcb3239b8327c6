"""How busy the host is: its CPUs, a device, and the threads of some processes.

Sources: /proc/stat (proc(5)), fields 10 and 11 of a device's statistics
(Documentation/admin-guide/iostats.rst), /proc/PID/task/TID/stat.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from vdisklab.host.counters import stat_fields
from vdisklab.results.model import HostLoad

_TICKS = os.sysconf("SC_CLK_TCK")
_IDLE, _WAITING, _STEAL = 3, 4, 7
_COUNTED = 8  # guest time, which follows, is in user time already


@dataclass(frozen=True, slots=True)
class BusySnapshot:
    """Counters at one moment; empty where there is none.

    `cpus` are ticks of all CPUs by kind, `devices` are milliseconds with a request and milliseconds
    times requests, `threads` are ticks by the thread's name and number and its process's name.
    """

    at: float
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
    seconds = after.at - before.at
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
        words = (proc / "stat").read_text().split("\n", 1)[0].split()[1:]
        if len(words) >= _COUNTED:
            return tuple(map(int, words[:_COUNTED]))
    return ()


def _devices(numbers: Sequence[tuple[int, int]], proc: Path) -> tuple[tuple[int, int], ...]:
    """In the order of `numbers`; empty if one of them is not listed."""
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
