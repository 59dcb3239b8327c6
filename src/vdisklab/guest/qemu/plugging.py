"""The QMP commands and arguments that give a disk or directory to QEMU and take it away. Pure.

QEMU opens a disk itself, or qemu-storage-daemon opens it and serves it to QEMU's device over a
socket (vhost-user): then objects and block nodes belong to the daemon. QEMU itself serves a
directory by 9p. For virtiofs it passes requests to virtiofsd: a C program that comes with QEMU up
to 7.2, and a separate one in Rust for later versions; both take these options.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vdisklab.guest.qemu.block_nodes import (
    Arguments,
    Disk,
    QmpCommand,
    block_nodes,
    devices,
    drive_node,
    objects,
)
from vdisklab.path.disk_path import Attachment
from vdisklab.path.segments import Bus

DAEMON = "qemu-storage-daemon"

_MOST_QUEUES = 64
"""Queues that a served disk offers; the device uses as many as the guest has CPUs."""


def _address(disk: Disk) -> dict[str, Any]:
    """The socket between the daemon and QEMU's device, in the abstract namespace."""
    return {"path": disk.names.served, "abstract": True, "tight": True}


def served_export(disk: Disk) -> Arguments:
    """The arguments of block-export-add for a disk that QEMU's device gets from the daemon."""
    names, attachment = disk.names, disk.attachment
    thread = {"iothread": names.iothread} if attachment.iothread else {}
    return {
        "type": "vhost-user-blk",
        "id": names.device,
        "node-name": drive_node(disk),
        "addr": {"type": "unix", **_address(disk)},
        "writable": True,
        "writethrough": not attachment.write_cache.is_offered(disk.cache),
        "num-queues": attachment.queues or _MOST_QUEUES,
        **thread,
    }


def daemon_arguments(disk: Disk) -> tuple[str, ...]:
    """A command line of the daemon that serves a disk."""
    return (DAEMON, *_flags("--", disk), "--export", json.dumps(served_export(disk)))


def attach_commands(disk: Disk, port: str | None) -> tuple[QmpCommand, ...]:
    """The QMP commands that plug a disk into a running guest, in order."""
    return (
        *_attach_below(disk),
        *(QmpCommand("device_add", arguments) for arguments in devices(disk, port)),
    )


def _attach_below(disk: Disk) -> tuple[QmpCommand, ...]:
    if disk.attachment.bus.is_served:
        address = {"type": "unix", "data": _address(disk)}
        backend = {"type": "socket", "data": {"addr": address, "server": False}}
        names = disk.names
        return (QmpCommand("chardev-add", {"id": names.served, "backend": backend}),)
    return (
        *(QmpCommand("object-add", arguments) for arguments in objects(disk)),
        *(QmpCommand("blockdev-add", arguments) for arguments in block_nodes(disk)),
    )


def detach_commands(disk: Disk, port: str | None) -> tuple[QmpCommand, ...]:
    """The QMP commands that undo `attach_commands`, in reverse order.

    After each device_del wait for the event DEVICE_DELETED.
    """
    unplug = tuple(
        QmpCommand("device_del", {"id": arguments["id"]})
        for arguments in reversed(devices(disk, port))
    )
    if disk.attachment.bus.is_served:
        served = {"id": disk.names.served}
        return (*unplug, QmpCommand("chardev-remove", served))
    return (
        *unplug,
        *(
            QmpCommand("blockdev-del", {"node-name": arguments["node-name"]})
            for arguments in reversed(block_nodes(disk))
        ),
        *(QmpCommand("object-del", {"id": arguments["id"]}) for arguments in objects(disk)),
    )


def cold_arguments(disk: Disk) -> tuple[str, ...]:
    """The arguments of QEMU's command line for a disk or directory that is present at boot."""
    if disk.attachment.bus.shares_directory:
        return share_arguments(disk)
    return (*_below(disk), *_flagged("-device", devices(disk, None)))


def _below(disk: Disk) -> tuple[str, ...]:
    if not disk.attachment.bus.is_served:
        return _flags("-", disk)
    served = disk.names.served
    return ("-chardev", f"socket,id={served},path={served},abstract=on")


def _flags(dashes: str, disk: Disk) -> tuple[str, ...]:
    """The objects and block nodes of a disk as arguments."""
    return (
        *_flagged(f"{dashes}object", objects(disk)),
        *_flagged(f"{dashes}blockdev", block_nodes(disk)),
    )


def _flagged(flag: str, values: tuple[Mapping[str, Any], ...]) -> tuple[str, ...]:
    return tuple(word for value in values for word in (flag, json.dumps(value)))


def spell_commands(commands: tuple[QmpCommand, ...]) -> tuple[str, ...]:
    """The commands as lines of JSON, to read or to paste into QEMU's qmp-shell."""
    return tuple(str(command) for command in commands)


def spell_arguments(arguments: tuple[str, ...]) -> str:
    """A command line that can be pasted into a shell."""
    return shlex.join(arguments)


VIRTIOFSD = "virtiofsd"


def share_arguments(disk: Disk) -> tuple[str, ...]:
    """QEMU's arguments for a shared directory; the guest mounts it by the serial."""
    names, directory = disk.names, disk.directory.replace(",", ",,")
    if disk.attachment.bus is Bus.P9:
        return (
            "-fsdev", f"local,id={names.node},path={directory},security_model=none",
            "-device",
            f"virtio-9p-pci,id={names.device},fsdev={names.node},mount_tag={disk.serial}",
        )  # fmt: skip
    return (
        "-chardev", f"socket,id={names.served},path={names.served},abstract=on",
        "-device", f"vhost-user-fs-pci,id={names.device},chardev={names.served},tag={disk.serial}",
    )  # fmt: skip


def virtiofsd_arguments(
    program: Path | str, directory: str, attachment: Attachment, at: str
) -> tuple[str, ...]:
    """The daemon's command line; `at` is its option for the socket.

    Its sandbox is a chroot, because one of namespaces needs a second process, which is not there in
    every container. The guest reaches no other directory in either.
    """
    options = (f"source={directory}", f"cache={attachment.option('cache')}", "sandbox=chroot")
    return (str(program), at, *(word for option in options for word in ("-o", option)))


def mount_command(device: str, kind: str, options: tuple[str, ...], at: str) -> tuple[str, ...]:
    """The guest's command that mounts a device, or a directory by its tag."""
    flags = ("-o", ",".join(options)) if options else ()
    return ("mount", "-t", kind, *flags, device, at)
