"""A disk plugged into a running guest for as long as a block lasts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from vdisklab.errors import GuestError
from vdisklab.guest.argv import HOTPLUG_PORTS
from vdisklab.guest.blockdev import Disk, QmpCommand, attach_commands, detach_commands
from vdisklab.guest.machine import Machine
from vdisklab.host.deadline import patience
from vdisklab.plan.segments import Bus

FIND_DISK = "/usr/lib/vdisklab/find-disk"
LOAD_DRIVERS = "/usr/lib/vdisklab/load-drivers"

_FIND_SECONDS = 15
_DRIVER_SECONDS = 60
_UNPLUG_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class GuestDisk:
    """The disk as the guest's kernel sees it: `/dev/vda` and the facts of its queue."""

    device: str
    facts: Mapping[str, str]


def port_for(disk: Disk) -> str | None:
    """The PCI bus that a disk is plugged into, or None where the bus is another one."""
    return HOTPLUG_PORTS[0] if disk.attachment.bus in (Bus.VIRTIO, Bus.SCSI, Bus.NVME) else None


def await_drivers(machine: Machine) -> None:
    """Waits until the guest has loaded every driver, which it does after its agent has answered.

    Until then its second processor is busy, and a measurement would be disturbed.
    """
    command = (LOAD_DRIVERS, str(_DRIVER_SECONDS))
    ended = machine.agent.run(command, timeout=_DRIVER_SECONDS + 15.0, allowed=(0, 1))
    if ended.status != 0:
        raise GuestError(ended.stderr.strip() or "the guest did not load its drivers")


@contextmanager
def attached_disk(machine: Machine, disk: Disk) -> Iterator[GuestDisk]:
    """Plugs a disk into a running guest, and unplugs it at the end.

    Raises GuestError. After any error the disk stays plugged: that guest is not used again, and
    a second error on the way back would hide the first.
    """
    port = port_for(disk)
    with ExitStack() as plugged:
        undoing = reversed(detach_commands(disk, port))
        try:
            for command, undo in zip(attach_commands(disk, port), undoing, strict=True):
                machine.monitor.perform(command)
                plugged.callback(_undo, machine, undo)
            yield find_disk(machine, disk.serial)
        except BaseException:
            plugged.pop_all()
            raise


def find_disk(machine: Machine, serial: str) -> GuestDisk:
    """Waits until the guest's kernel shows a disk with this serial number, and reads its facts."""
    ended = machine.agent.run(
        (FIND_DISK, serial, f"{_FIND_SECONDS * patience():.0f}"),
        timeout=_FIND_SECONDS + 15.0,
        allowed=(0, 1),
    )
    facts = dict(line.split("=", 1) for line in ended.stdout.splitlines() if "=" in line)
    if ended.status != 0 or "device" not in facts:
        said = ended.stderr.strip() or ended.stdout.strip()
        raise GuestError(f"the guest does not see the disk {serial}: {said}")
    return GuestDisk(facts["device"], facts)


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
