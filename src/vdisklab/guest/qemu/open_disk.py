"""A disk that a QEMU has open, in the terms of an operation on it."""

from __future__ import annotations

from pathlib import Path

from vdisklab.guest.qemu.block_nodes import Disk, QmpCommand, block_nodes, drive_node
from vdisklab.operations.operation import OpenDisk
from vdisklab.path.segments import Bus


def backend_of(disk: Disk) -> str:
    """The place in QEMU's tree of objects of the device that uses the disk's nodes.

    A virtio disk is a child of its PCI device (hw/virtio/virtio-pci.c).
    """
    device = f"/machine/peripheral/{disk.names.device}"
    return f"{device}/virtio-backend" if disk.attachment.bus is Bus.VIRTIO else device


def open_disk(disk: Disk) -> OpenDisk:
    """The disk with the names of its nodes and files."""
    backing = disk.parts.backing
    return OpenDisk(
        serial=disk.serial,
        size=disk.size,
        driver=disk.driver,
        node=drive_node(disk),
        nodes=block_nodes(disk),
        image=None if disk.filename is None else Path(disk.filename),
        backing=tuple(map(Path, backing)),
        backing_nodes=tuple(map(disk.names.backing_node, range(len(backing)))),
    )


def resize_command(disk: Disk, size: int) -> QmpCommand:
    """Gives a disk another size, in bytes."""
    return QmpCommand("block_resize", {"node-name": drive_node(disk), "size": size})


def use_node_command(disk: Disk, node: str) -> QmpCommand:
    """Gives the guest's device another block node, while it runs (QEMU 6.2 and later)."""
    device = f"/machine/peripheral/{disk.names.device}"
    return QmpCommand("qom-set", {"path": device, "property": "drive", "value": node})
