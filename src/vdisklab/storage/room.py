"""How much room a stack needs, and whether it is there."""

from __future__ import annotations

import os
from pathlib import Path

from vdisklab.errors import HostError
from vdisklab.plan.path import Layer
from vdisklab.plan.segments import LayerKind
from vdisklab.units import MIB, format_bytes

# Logs and metadata of an otherwise empty file system, read off mkfs's of 2022 to 2025 with room
# to spare: mkfs.xfs refuses less than 300 MiB and writes a 64 MiB log, ext4's journal grows with
# the device to 1 GiB, btrfs keeps two copies of its metadata and a reserve.
_FIXED = {LayerKind.EXT4: 96 * MIB, LayerKind.XFS: 320 * MIB, LayerKind.BTRFS: 512 * MIB}
_SHARE = {LayerKind.EXT4: 1.06, LayerKind.XFS: 1.02, LayerKind.BTRFS: 1.08}


def size_for(layers: tuple[Layer, ...], capacity: int) -> int:
    """Bytes that the lowest device must have so that the top of the stack holds `capacity`."""
    size = float(capacity)
    for layer in reversed(layers):
        size = size * _SHARE.get(layer.kind, 1.0) + _FIXED.get(layer.kind, 16 * MIB)
    return (int(size) // MIB + 1) * MIB


def free_bytes(directory: Path) -> int:
    """What may still be written below a directory by us."""
    found = os.statvfs(directory)
    available = found.f_bfree if os.geteuid() == 0 else found.f_bavail
    return available * found.f_frsize


def require_room(directory: Path, needed: int, what: str) -> None:
    """Raises HostError when less than `needed` bytes are free in a directory."""
    free = free_bytes(directory)
    if needed > free:
        raise HostError(
            f"{what} needs {format_bytes(needed)}, and {directory} has {format_bytes(free)} free",
            hint="choose a smaller --size, fewer paths, or another --dir",
        )
