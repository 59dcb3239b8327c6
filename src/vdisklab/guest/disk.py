"""A disk plugged into a running guest for as long as a block lasts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from vdisklab.guest.machine import Machine
from vdisklab.guest.qemu.argv import HOTPLUG_PORTS
from vdisklab.guest.qemu.blockdev import Disk, QmpCommand, attach_commands, detach_commands
from vdisklab.guest.system.base import GuestDisk
from vdisklab.path.segments import Bus

_UNPLUG_SECONDS = 30.0


def port_for(disk: Disk) -> str | None:
    """The PCI bus that a disk is plugged into, or None where the bus is another one."""
    return HOTPLUG_PORTS[0] if disk.attachment.bus in (Bus.VIRTIO, Bus.SCSI, Bus.NVME) else None


@contextmanager
def attached_disk(machine: Machine, disk: Disk) -> Iterator[GuestDisk]:
    """Plugs a disk into a running guest, and unplugs it at the end.

    Raises GuestError. After any error the disk stays plugged: that guest is not used again, and
    a second error on the way back would hide the first.
    """
    port = port_for(disk)
    for command in attach_commands(disk, port):
        machine.monitor.perform(command)
    yield machine.find_disk(disk.serial)
    for command in detach_commands(disk, port):
        _undo(machine, command)


def _undo(machine: Machine, command: QmpCommand) -> None:
    """Runs one command of the way back; a device is gone when QEMU says so, not when asked."""
    if command.execute != "device_del":
        machine.monitor.perform(command)
        return
    device = command.arguments["id"]
    with machine.monitor.expecting(
        "DEVICE_DELETED", lambda data: data.get("device") == device
    ) as wait:
        machine.monitor.perform(command)
        wait(_UNPLUG_SECONDS)
