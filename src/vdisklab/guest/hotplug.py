"""Hot-plugs a disk or a virtio-serial port into a running guest while a context is open."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager

from vdisklab.errors import GuestError
from vdisklab.guest.machine import Machine
from vdisklab.guest.qemu.block_nodes import Disk, QmpCommand
from vdisklab.guest.qemu.command_line import HOTPLUG_PORTS
from vdisklab.guest.qemu.plugging import attach_commands, detach_commands
from vdisklab.guest.system.guest_system import GuestDisk
from vdisklab.path.segments import Bus

_UNPLUG_SECONDS = 30.0
_CONNECT_SECONDS = 10.0


def port_for(disk: Disk) -> str | None:
    """The PCI root port for a hot-plugged disk; None for USB, which has a controller."""
    return None if disk.attachment.bus is Bus.USB else HOTPLUG_PORTS[0]


@contextmanager
def attached_disk(machine: Machine, disk: Disk) -> Iterator[GuestDisk]:
    """Plugs a disk into a running guest, and unplugs it at the end.

    Raises GuestError. After an error the disk stays plugged: the guest is not used again, and an
    error of the unplug would hide the first one.
    """
    port = port_for(disk)
    for command in attach_commands(disk, port):
        machine.monitor.perform(command)
    yield machine.find_disk(disk.guest_serial)
    for command in detach_commands(disk, port):
        if command.execute == "device_del":
            _unplug(machine, command.arguments["id"])
        else:
            machine.monitor.perform(command)


def _unplug(machine: Machine, device: str) -> None:
    """Removes a device and waits for QEMU's event, since the command only starts the removal."""
    with machine.monitor.expecting(
        "DEVICE_DELETED", lambda data: data.get("device") == device
    ) as wait:
        machine.monitor.perform(QmpCommand("device_del", {"id": device}))
        wait(_UNPLUG_SECONDS)


def port_commands(name: str) -> tuple[QmpCommand, QmpCommand]:
    """The QMP commands that plug a port of that name; on the host it is an abstract socket."""
    address = {"type": "unix", "data": {"path": name, "abstract": True, "tight": True}}
    backend = {"type": "socket", "data": {"addr": address, "server": True, "wait": False}}
    return (
        QmpCommand("chardev-add", {"id": name, "backend": backend}),
        QmpCommand(
            "device_add",
            {"driver": "virtserialport", "id": f"{name}-port", "chardev": name, "name": name},
        ),
    )


@contextmanager
def virtio_serial(machine: Machine, name: str) -> Iterator[socket.socket]:
    """Plugs a port and yields the host's socket; the guest finds the port by `name`. Both are
    removed.

    `name` must be unique on this host. After an error the port stays, because the guest is not used
    again. Raises GuestError.
    """
    for command in port_commands(name):
        machine.monitor.perform(command)
    with closing(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)) as stream:
        stream.settimeout(_CONNECT_SECONDS)
        try:
            stream.connect(f"\0{name}")
        except OSError as error:
            raise GuestError(
                f"the guest's serial port {name} cannot be opened: {error}",
                hint="the machine may be too busy: try again when it is idle",
            ) from error
        yield stream
    _unplug(machine, f"{name}-port")
    machine.monitor.perform(QmpCommand("chardev-remove", {"id": name}))
