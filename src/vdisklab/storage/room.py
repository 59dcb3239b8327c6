"""The space that a stack needs, and checks that it is available."""

from __future__ import annotations

from pathlib import Path

from vdisklab.errors import HostError
from vdisklab.host.mounts import free_bytes
from vdisklab.path.disk_path import Layer
from vdisklab.path.segments import LayerKind
from vdisklab.units import MIB, format_bytes

# Logs and metadata of an empty file system, from mkfs programs of 2022 to 2025, rounded up.
# mkfs.xfs refuses less than 300 MiB and writes a 64 MiB log; ext4's journal grows with the device
# to 1 GiB; btrfs keeps two copies of its metadata and a reserve. A thin pool of LVM has metadata
# and a spare copy. ZFS keeps 1/32 of a pool to itself, 128 MiB at least (spa_get_slop_space), and a
# volume reserves room for its own metadata. All others get 16 MiB, the size of a header of LUKS2
# (cryptsetup's luks2_json_format.c).
_FIXED = {
    LayerKind.EXT4: 96 * MIB,
    LayerKind.XFS: 320 * MIB,
    LayerKind.BTRFS: 512 * MIB,
    LayerKind.LVMTHIN: 48 * MIB,
    LayerKind.ZFS: 192 * MIB,
    LayerKind.ZVOL: 192 * MIB,
}
_SHARE = {
    LayerKind.EXT4: 1.06,
    LayerKind.XFS: 1.02,
    LayerKind.BTRFS: 1.08,
    LayerKind.LVMTHIN: 1.02,
    LayerKind.ZFS: 1.10,
    LayerKind.ZVOL: 1.10,
}
# RAID-Z rounds every small block up to a whole number of parity groups: with 8 KiB on sectors of
# 4 KiB it stores one byte for two (vdev_raidz_asize).
_RAIDZ_PADDING = 2.0


def size_for(layers: tuple[Layer, ...], capacity: int, disks: int = 1) -> int:
    """The bytes that each of the lowest devices must have so that the top holds `capacity`."""
    size = float(capacity)
    for layer in reversed(layers[1:]):
        size = size * _SHARE.get(layer.kind, 1.0) + _FIXED.get(layer.kind, 16 * MIB)
    if layers:
        share = _SHARE.get(layers[0].kind, 1.0) / _data_disks(layers[0], disks)
        size = size * share + _FIXED.get(layers[0].kind, 16 * MIB)
    return (int(size) // MIB + 1) * MIB


def capacity_above(layers: tuple[Layer, ...], number: int, capacity: int) -> int:
    """The bytes that layer `number` (from 0) must provide to the layers above it."""
    return size_for(layers[number + 1 :], capacity)


def require_room(directory: Path, needed: int, what: str) -> None:
    """Raises HostError when less than `needed` bytes are free in a directory."""
    free = free_bytes(directory)
    if needed > free:
        raise HostError(
            f"{what} needs {format_bytes(needed)}, and {directory} has {format_bytes(free)} free",
            hint="choose a smaller --size, fewer paths, or another --dir",
        )


def require_memory(needed: int, available: int, what: str) -> None:
    """Raises HostError if `needed` bytes are more than `available`; 0 means unknown."""
    if 0 < available < needed:
        raise HostError(
            f"{what} needs {format_bytes(needed)} of memory for tmpfs, but "
            f"{format_bytes(available)} is available",
            hint="choose a smaller --size, or fewer paths on tmpfs",
        )


def require_guest_memory(needed: int, total: int) -> None:
    """Raises HostError if a guest's memory is more than the host has; `total` 0 is unknown."""
    if 0 < total < needed:
        raise HostError(
            f"a guest with {format_bytes(needed)} of memory does not fit into this host's "
            f"{format_bytes(total)}",
            hint="choose a smaller --guest-memory",
        )


# QEMU's own memory beside its guest's: block layer, device models, translated code.
_QEMU_BYTES = 96 * MIB


def guests_that_fit(memory: int, available: int) -> int:
    """The number of guests with `memory` bytes that fit into the `available` ones."""
    return available // memory_of_guests(memory, 1)


def memory_of_guests(memory: int, guests: int) -> int:
    """The host memory in bytes that `guests` guests of `memory` bytes need, with their QEMUs."""
    return guests * (memory + _QEMU_BYTES)


def require_memory_for_all(memory: int, guests: int, available: int) -> None:
    """Raises HostError if several guests do not fit into `available` bytes; 0 means unknown."""
    fitting = guests_that_fit(memory, available)
    if guests > 1 and available > 0 and fitting < guests:
        raise HostError(
            f"{guests} guests with {format_bytes(memory)} of memory need "
            f"{format_bytes(memory_of_guests(memory, guests))} with their QEMUs, but "
            f"{format_bytes(available)} is available",
            hint=f"measure at most {fitting} guests, or choose a smaller --guest-memory"
            if fitting
            else "choose a smaller --guest-memory",
        )


def _data_disks(layer: Layer, disks: int) -> float:
    """The number of disks whose capacity holds data, of `disks` in the layer."""
    match layer.kind:
        case LayerKind.MD:
            parts = {"0": disks, "1": 1, "5": disks - 1, "10": disks / 2}
            return float(parts[str(layer.option("level"))])
        case LayerKind.ZFS | LayerKind.ZVOL:
            raid = str(layer.option("raid"))
            parts = {"single": disks, "mirror": 1}
            if raid in parts:
                return float(parts[raid])
            return (disks - int(raid.removeprefix("raidz"))) / _RAIDZ_PADDING
        case LayerKind.LVM | LayerKind.LVMTHIN:
            return float(disks)
        case _:
            return 1.0
