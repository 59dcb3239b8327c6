"""Gives a running guest its disk (plugged or served), sets the disk's queue, and plugs ports."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from vdisklab.errors import GuestError, VdisklabError, WorkloadError
from vdisklab.guest.machine import Machine
from vdisklab.guest.qemu import block_nodes, daemons, read_back
from vdisklab.guest.systems import Family, GuestDisk
from vdisklab.host.command import Host
from vdisklab.host.ledger import Ledger
from vdisklab.path.segments import Bus
from vdisklab.results.model import Check

_UNPLUG_SECONDS = 30.0
_CONNECT_SECONDS = 10.0


@contextmanager
def attached_disk(machine: Machine, disk: block_nodes.Disk) -> Iterator[GuestDisk]:
    """Plugs a disk into a running guest, and unplugs it at the end.

    Raises GuestError. After an error the disk stays plugged: the guest is not used again, and an
    error of the unplug would hide the first one.
    """
    port = block_nodes.port_for(disk)
    for command in block_nodes.attach_commands(disk, port):
        machine.monitor.perform(command)
    yield machine.find_disk(disk.guest_serial)
    for command in block_nodes.detach_commands(disk, port):
        if command.execute == "device_del":
            _unplug(machine, command.arguments["id"])
        else:
            machine.monitor.perform(command)


def _unplug(machine: Machine, device: str) -> None:
    """Removes a device and waits for QEMU's event, since the command only starts the removal."""
    with machine.monitor.expecting(
        "DEVICE_DELETED", lambda data: data.get("device") == device
    ) as wait:
        machine.monitor.perform(block_nodes.QmpCommand("device_del", {"id": device}))
        wait(_UNPLUG_SECONDS)


def port_commands(name: str) -> tuple[block_nodes.QmpCommand, block_nodes.QmpCommand]:
    """The QMP commands that plug a port of that name; on the host it is an abstract socket."""
    address = {"type": "unix", "data": {"path": name, "abstract": True, "tight": True}}
    backend = {"type": "socket", "data": {"addr": address, "server": True, "wait": False}}
    return (
        block_nodes.QmpCommand("chardev-add", {"id": name, "backend": backend}),
        block_nodes.QmpCommand(
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
    machine.monitor.perform(block_nodes.QmpCommand("chardev-remove", {"id": name}))


@contextmanager
def served(
    ledger: Ledger, directory: Path, disk: block_nodes.Disk
) -> Iterator[read_back.ServingDaemon | None]:
    """The daemon with the disk open; None for a disk that QEMU opens itself.

    If the daemon ends before the context does, an error of the body says so.
    """
    if not disk.attachment.bus.is_served:
        yield None
        return
    with daemons.start_storage_daemon(ledger, directory, disk.serial) as daemon:
        at_start = read_back.read_daemon(daemon)
        try:
            with daemon.export(disk):
                yield read_back.ServingDaemon(daemon, at_start)
        except VdisklabError as error:
            if daemon.alive():
                raise
            raise ended(block_nodes.DAEMON) from error


@contextmanager
def shared(
    host: Host, ledger: Ledger, directory: Path, disk: block_nodes.Disk
) -> Iterator[daemons.VirtiofsDaemon | None]:
    """Runs virtiofsd for a virtiofs, and yields None for 9p, which QEMU serves itself.

    An error in the body says so if virtiofsd has ended."""
    if disk.attachment.bus is not Bus.VIRTIOFS:
        yield None
        return
    with daemons.start_virtiofsd(host, ledger, directory, disk) as daemon:
        try:
            yield daemon
        except VdisklabError as error:
            if daemon.alive():
                raise
            raise ended(block_nodes.VIRTIOFSD) from error


def ended(program: str) -> GuestError:
    """The error for a daemon that is gone."""
    return GuestError(
        f"{program}, which serves the guest, has ended",
        hint="`dmesg` says whether the kernel killed it because memory ran out",
    )


_RECORDED = ("nr_requests", "read_ahead_kb", "wbt_lat_usec")
_SECONDS = 60.0


def with_scheduler(machine: Machine, disk: block_nodes.Disk, guest_disk: GuestDisk) -> GuestDisk:
    """The disk's facts after its I/O scheduler was set, if the path names one.

    Raises GuestError if the guest's kernel does not have it.
    """
    wanted = disk.attachment.guest_scheduler
    if wanted is None:
        return guest_disk
    if machine.system.family is Family.WINDOWS:
        raise GuestError("a Windows guest has no I/O schedulers", hint="leave out guest_scheduler")
    name = guest_disk.facts.get("queues_of", guest_disk.device.removeprefix("/dev/"))
    setting = f"/sys/block/{name}/queue/scheduler"
    try:
        machine.agent.run(("sh", "-c", f"echo {wanted} > {setting}"), timeout=_SECONDS)
    except WorkloadError as error:
        available = machine.agent.run(("cat", setting), timeout=_SECONDS).stdout.strip()
        raise GuestError(
            f"the guest's kernel does not have the I/O scheduler {wanted}: it has {available}",
            hint="choose one of these",
        ) from error
    return machine.find_disk(disk.guest_serial)


def guest_queue_checks(disk: block_nodes.Disk, guest_disk: GuestDisk) -> tuple[Check, ...]:
    """Checks of the requested scheduler and of the queue's other settings, as far as the guest
    shows them.
    """
    facts = {"scheduler": disk.attachment.guest_scheduler, **dict.fromkeys(_RECORDED)}
    return tuple(
        Check(f"guest.{name}", requested, guest_disk.facts.get(name, "unknown"))
        for name, requested in facts.items()
        if requested is not None or name in guest_disk.facts
    )
