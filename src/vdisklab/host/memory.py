"""How much memory may still be taken: the kernel's word, and that of the control groups we are in.

In a container or a service with a limit the whole machine's memory says nothing: whoever takes more
than the limit is killed, and it may be us.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from vdisklab.host.facts import memory_bytes
from vdisklab.host.kernelfile import read_text
from vdisklab.host.medium import SYSTEM


@dataclass(frozen=True, slots=True)
class _Files:
    """Names of a version of control groups. What `reclaimable` counts is given back when asked."""

    limit: str
    usage: str
    reclaimable: str


_V1 = _Files("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
_V2 = _Files("memory.max", "memory.current", "inactive_file")


def available_memory(root: Path = SYSTEM) -> int:
    """Bytes that may still be taken; 0 when the kernel does not say."""
    return min((memory_bytes(root, "MemAvailable"), *_left_in_groups(root)))


def _left_in_groups(root: Path) -> Iterator[int]:
    """What each limit above us leaves (cgroups(7): /proc/self/cgroup is ID:CONTROLLERS:PATH)."""
    top = root / "sys/fs/cgroup"
    for line in (read_text(root / "proc/self/cgroup") or "").splitlines():
        number, controllers, path = line.split(":", 2)
        if "memory" in controllers.split(","):
            yield from _left(top / "memory", path, _V1)
        elif number == "0":
            yield from _left(top, path, _V2)


def _left(top: Path, path: str, names: _Files) -> Iterator[int]:
    """The limits of a group and of all those above it."""
    group = PurePosixPath(path.lstrip("/"))
    for each in (group, *group.parents):
        limit, usage = (_number(top / each / name) for name in (names.limit, names.usage))
        if limit is not None and usage is not None:
            yield max(0, limit - usage + _reclaimable(top / each, names))


def _number(file: Path) -> int | None:
    """The number in a file; None where there is none: no such file, or `max` for no limit."""
    text = (read_text(file) or "").strip()
    return int(text) if text.isdigit() else None


def _reclaimable(group: Path, names: _Files) -> int:
    for line in (read_text(group / "memory.stat") or "").splitlines():
        name, _, count = line.partition(" ")
        if name == names.reclaimable and count.isdigit():
            return int(count)
    return 0
