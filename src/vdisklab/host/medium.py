"""Which block device a directory lives on, down through partitions, loop, device mapper and md."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from vdisklab.host.kernelfile import read_text

SYSTEM = Path("/")

# A loop device may lie on a loop device, but never this many deep.
_DEEPEST = 16


@dataclass(frozen=True, slots=True)
class BlockDevice:
    """One whole device as the kernel describes it; what is unknown is None."""

    name: str
    kind: str | None
    model: str | None
    rotational: bool | None
    write_cache: str | None
    below: tuple[BlockDevice, ...] = ()

    def leaves(self) -> Iterator[BlockDevice]:
        """The devices at the bottom: those whose counters say what really moved."""
        if not self.below:
            yield self
        for device in self.below:
            yield from device.leaves()

    def describe(self) -> str:
        """`vda virtio, non-rotational, write back`; a stacked device names what it is over."""
        head = " ".join(part for part in (self.name, self.kind, self.model) if part)
        if self.below:
            return f"{head} over {'; '.join(device.describe() for device in self.below)}"
        facts = [head]
        if self.rotational is not None:
            facts.append("rotational" if self.rotational else "non-rotational")
        if self.write_cache is not None:
            facts.append(self.write_cache)
        return ", ".join(facts)


def medium_of(directory: Path, root: Path = SYSTEM) -> str | None:
    """What a directory's data ends up on, in words; None when the kernel does not tell.

    A file system without a block device is named by its type and source, such as `tmpfs`.
    """
    device = device_of(directory, root)
    if device is not None:
        return device.describe()
    mount = _mount_of(directory, root)
    if mount is None or mount.kind == "overlay":
        return None
    return mount.kind if mount.source in ("none", mount.kind) else f"{mount.kind} {mount.source}"


def describe_device(path: Path, root: Path = SYSTEM) -> str | None:
    """What a block device is, in words; None when the kernel does not tell."""
    number = path.stat().st_rdev
    device = _device(f"{os.major(number)}:{os.minor(number)}", root, 0)
    return None if device is None else device.describe()


def device_of(directory: Path, root: Path = SYSTEM, depth: int = 0) -> BlockDevice | None:
    """The block device below a directory, or None (memory, network, ZFS, unknown)."""
    number = directory.stat().st_dev
    found = _device(f"{os.major(number)}:{os.minor(number)}", root, depth)
    if found is not None:
        return found
    # btrfs and overlayfs have device numbers of their own: the mount table knows more.
    mount = _mount_of(directory, root)
    if mount is None or depth >= _DEEPEST:
        return None
    if mount.upper is not None and mount.upper.is_dir() and mount.upper != directory:
        return device_of(mount.upper, root, depth + 1)
    if mount.source.startswith("/dev/"):
        source = read_text(root / "sys/class/block" / Path(mount.source).resolve().name / "dev")
        return _device(source, root, depth) if source else None
    return None


def _device(number: str, root: Path, depth: int) -> BlockDevice | None:
    link = root / "sys/dev/block" / number
    if not link.exists() or depth > _DEEPEST:
        return None
    node = link.resolve()
    if (node / "partition").exists():
        node = node.parent
    rotational = read_text(node / "queue/rotational")
    return BlockDevice(
        name=node.name,
        kind=_kind(node),
        model=read_text(node / "device/model"),
        rotational=None if rotational is None else rotational == "1",
        write_cache=read_text(node / "queue/write_cache"),
        below=tuple(_below(node, root, depth)),
    )


def _below(node: Path, root: Path, depth: int) -> Iterator[BlockDevice]:
    slaves = node / "slaves"
    for slave in sorted(slaves.iterdir()) if slaves.is_dir() else []:
        number = read_text(slave / "dev")
        device = _device(number, root, depth + 1) if number else None
        if device is not None:
            yield device
    backing = read_text(node / "loop/backing_file")
    # The kernel appends " (deleted)" to a file that has no name any more.
    if backing is not None and Path(backing).exists():
        device = device_of(Path(backing).parent, root, depth + 1)
        if device is not None:
            yield device


def _kind(node: Path) -> str | None:
    """The driver's family: `virtio`, `scsi`, `nvme`, `loop`, an md level, a mapper's name."""
    mapped = read_text(node / "dm/name")
    if mapped is not None:
        return f"({mapped})"
    level = read_text(node / "md/level")
    if level is not None:
        return f"({level})"
    subsystem = node / "device/subsystem"
    return subsystem.resolve().name if subsystem.exists() else None


@dataclass(frozen=True, slots=True)
class _Mount:
    kind: str
    source: str
    upper: Path | None


def _mount_of(directory: Path, root: Path) -> _Mount | None:
    """The mount that a directory is in: of those on the way to it, the longest, the last made."""
    best: tuple[int, _Mount] | None = None
    place = directory.resolve()
    for line in (read_text(root / "proc/self/mountinfo") or "").splitlines():
        before, _, after = line.partition(" - ")
        fields, rest = before.split(), after.split()
        if len(fields) < 5 or len(rest) < 2:
            continue
        point = Path(_unescape(fields[4]))
        length = len(point.parts)
        if place.is_relative_to(point) and (best is None or length >= best[0]):
            upper = re.search(r"upperdir=([^,]+)", rest[2] if len(rest) > 2 else "")
            best = length, _Mount(rest[0], _unescape(rest[1]), Path(upper[1]) if upper else None)
    return best[1] if best else None


def _unescape(text: str) -> str:
    """The kernel writes blanks and backslashes in mount tables as octal."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), text)
