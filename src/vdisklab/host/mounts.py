"""What is mounted, as the kernel tells it."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

_ESCAPE = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True, slots=True)
class Mount:
    """One line of /proc/self/mountinfo; `options` are the mount's and the super block's."""

    mountpoint: Path
    filesystem: str
    source: str
    options: frozenset[str]


def read_mounts(table: Path = Path("/proc/self/mountinfo")) -> tuple[Mount, ...]:
    """All mounts in the order of mounting; the format is that of proc(5), `mountinfo`."""
    return tuple(_parse(line) for line in table.read_text(errors="surrogateescape").splitlines())


def mount_at(mountpoint: Path) -> Mount | None:
    """The topmost mount at exactly this directory, or None."""
    found = [mount for mount in read_mounts() if mount.mountpoint == mountpoint]
    return found[-1] if found else None


def lies_in_memory(directory: Path) -> bool:
    """True for a directory on tmpfs, whose files are the page cache itself."""
    mount = mount_of(directory)
    return mount is not None and mount.filesystem == "tmpfs"


def mount_of(path: Path) -> Mount | None:
    """The mount that a file or directory lies on: the deepest, and of those the topmost."""
    place = path.resolve()
    found = [m for m in read_mounts() if m.mountpoint == place or m.mountpoint in place.parents]
    return max(reversed(found), key=lambda m: len(m.mountpoint.parts), default=None)


def mounts_below(directory: Path) -> tuple[Mount, ...]:
    """Mounts strictly inside a directory."""
    return tuple(mount for mount in read_mounts() if directory in mount.mountpoint.parents)


def mounted_elsewhere(source: str, processes: Path = Path("/proc")) -> tuple[str, ...]:
    """Processes in other mount namespaces in which a device or a server's file is still mounted.

    A namespace that is made while something is mounted gets a copy of that mount
    (mount_namespaces(7)), and where mounts are not shared the copy stays when the original is
    unmounted: the device is in use for as long as that namespace lives, and nothing in ours shows
    it.
    """
    ours = _namespace(processes / "self")
    seen = {ours, None}
    found: list[str] = []
    for process in processes.glob("[0-9]*"):
        if (namespace := _namespace(process)) in seen:
            continue
        seen.add(namespace)
        try:
            mounts = read_mounts(process / "mountinfo")
            name = (process / "comm").read_text(errors="replace").strip()
        except OSError:
            continue  # it ended while we looked
        if any(mount.source == source for mount in mounts):
            found.append(f"{name} ({process.name})")
    return tuple(found)


def _namespace(process: Path) -> str | None:
    try:
        return os.readlink(process / "ns" / "mnt")  # noqa: PTH115 - it names what is no path
    except OSError:
        return None


def _parse(line: str) -> Mount:
    fixed, _, rest = line.partition(" - ")
    fields = fixed.split(" ")
    filesystem, source, super_options = rest.split(" ", 2)
    options = frozenset(fields[5].split(",")) | frozenset(super_options.split(","))
    return Mount(Path(_unescape(fields[4])), filesystem, _unescape(source), options)


def _unescape(text: str) -> str:
    return _ESCAPE.sub(lambda match: chr(int(match[1], 8)), text)
