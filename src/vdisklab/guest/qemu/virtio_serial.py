"""A further port of virtio-serial: a line between a program in the guest and one on the host."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from typing import Any

from vdisklab.errors import GuestError
from vdisklab.guest.machine import Machine
from vdisklab.guest.qemu.blockdev import QmpCommand

_CONNECT_SECONDS = 10.0
_UNPLUG_SECONDS = 10.0


def port_commands(name: str) -> tuple[QmpCommand, QmpCommand]:
    """The QMP commands that plug a port of that name; its host end is an abstract socket."""
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
def guest_port(machine: Machine, name: str) -> Iterator[socket.socket]:
    """The host's end of a new port, which the guest finds by `name`; both go with the block.

    `name` must be unique on this host. After an error the port stays: such a guest is not used
    again. Raises GuestError.
    """
    for command in port_commands(name):
        machine.monitor.perform(command)
    with closing(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)) as line:
        line.settimeout(_CONNECT_SECONDS)
        try:
            line.connect(f"\0{name}")
        except OSError as error:
            raise GuestError(
                f"the port {name} of the guest cannot be opened: {error}",
                hint="the machine may be too busy: try when it is quiet",
            ) from error
        yield line
    device = f"{name}-port"

    def gone(data: Mapping[str, Any]) -> bool:
        return bool(data.get("device") == device)

    with machine.monitor.expecting("DEVICE_DELETED", gone) as wait:
        machine.monitor.perform(QmpCommand("device_del", {"id": device}))
        wait(_UNPLUG_SECONDS)
    machine.monitor.perform(QmpCommand("chardev-remove", {"id": name}))
