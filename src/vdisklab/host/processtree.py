"""What a program and those that it started do, as the kernel accounts for it.

/proc/PID/io (proc(5)) counts for a process with all its threads, and with the children that it has
waited for: the kernel adds a child's counts to its parent's then (kernel/exit.c,
wait_task_zombie), so that the sum over those that live loses nothing but what is just changing
hands.
"""

from __future__ import annotations

import resource
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

# The kernel counts these two in sectors of 512 bytes (include/linux/task_io_accounting_ops.h).
_BLOCK = 512
_WAITING = "D"


@dataclass(frozen=True, slots=True)
class Activity:
    """Counts since the beginning, and what is the matter now.

    `storage_bytes` are those that were fetched from a file system's device or made ready for it
    (`read_bytes` and `write_bytes`: what is served from the page cache is not in it, what goes
    into it to be written is). `progress` grows with whatever the program gets from a system
    call. `waits`: one of its threads is in uninterruptible sleep, as those are that wait for a
    disk.
    """

    storage_bytes: int
    progress: int
    waits: bool


def tree_activity(pid: int, processes: Path = Path("/proc")) -> Activity | None:
    """Of a process and all its descendants; None when it is gone, or not ours to look at."""
    found = [one for each in _tree(pid, processes) if (one := _activity(processes / str(each)))]
    if not found:
        return None
    return Activity(
        sum(one.storage_bytes for one in found),
        sum(one.progress for one in found),
        any(one.waits for one in found),
    )


def children_storage_bytes() -> int:
    """`storage_bytes` of all children of ours that have ended and were waited for, and of theirs.

    From getrusage(2), whose `ru_inblock` and `ru_oublock` come from the same counters.
    """
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (used.ru_inblock + used.ru_oublock) * _BLOCK


def stat_fields(process: Path) -> list[str]:
    """The fields of a process's or a thread's `stat` from the state on. Raises OSError.

    The name before them may hold spaces and brackets.
    """
    text = (process / "stat").read_text()
    return text[text.rindex(")") + 2 :].split()


def _activity(process: Path) -> Activity | None:
    try:
        lines = (process / "io").read_text().splitlines()
        states = [stat_fields(task)[0] for task in (process / "task").iterdir()]
    except OSError:
        return None  # it ended while we looked, or has become another user's
    counts = {name: int(value) for name, _, value in (line.partition(": ") for line in lines)}
    storage = counts["read_bytes"] + counts["write_bytes"]
    calls = sum(counts[name] for name in ("rchar", "wchar", "syscr", "syscw"))
    return Activity(storage, storage + calls, _WAITING in states)


def _tree(pid: int, processes: Path) -> Iterator[int]:
    """Parents before their children: a child that ends in between is missed, never counted
    twice."""
    told = (processes / str(pid) / "task" / str(pid) / "children").exists()
    parents = {} if told else _parents(processes)
    left = [pid]
    while left:
        one = left.pop()
        yield one
        if told:
            left += _children(processes / str(one))
        else:
            left += [child for child, parent in parents.items() if parent == one]


def _children(process: Path) -> list[int]:
    """By the kernel's own list, where it was built with one (CONFIG_PROC_CHILDREN)."""
    found: list[int] = []
    try:
        for task in (process / "task").iterdir():
            found += [int(word) for word in (task / "children").read_text().split()]
    except OSError:
        return found
    return found


def _parents(processes: Path) -> dict[int, int]:
    """The parent of each process, for kernels without that list."""
    found = {}
    for process in processes.glob("[0-9]*"):
        try:
            found[int(process.name)] = int(stat_fields(process)[1])
        except OSError:
            continue
    return found
