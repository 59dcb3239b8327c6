"""The QMP commands and arguments that add a disk to QEMU and remove it. Pure."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from vdisklab.path.disk_path import Attachment
from vdisklab.path.segments import Bus, CacheMode

Arguments = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class QmpCommand:
    """One command of QEMU's machine protocol."""

    execute: str
    arguments: Arguments

    def __str__(self) -> str:
        return json.dumps({"execute": self.execute, "arguments": self.arguments})


@dataclass(frozen=True, slots=True)
class Disk:
    """A disk of a guest, which finds it by `serial`. `filename` is None for the null device."""

    serial: str
    size: int
    filename: str | None
    is_block: bool
    driver: str
    cache: CacheMode
    attachment: Attachment


@dataclass(frozen=True, slots=True)
class AttachedNames:
    """The ids in QEMU of the parts of one attached disk."""

    serial: str

    @property
    def file_node(self) -> str:
        """The protocol node: the open file."""
        return f"{self.serial}-file"

    @property
    def node(self) -> str:
        """The format node, to which the device is attached."""
        return f"{self.serial}-node"

    @property
    def device(self) -> str:
        """The disk device."""
        return f"{self.serial}-dev"

    @property
    def controller(self) -> str:
        """The SCSI controller, which has this one disk."""
        return f"{self.serial}-hba"

    @property
    def iothread(self) -> str:
        """The thread that handles the device's requests."""
        return f"{self.serial}-io"


def cache_options(mode: CacheMode) -> dict[str, bool] | None:
    """The `cache` member of -blockdev; None for `default`, which leaves it out."""
    if mode is CacheMode.DEFAULT:
        return None
    return {"direct": mode.direct, "no-flush": mode.no_flush}


def block_nodes(disk: Disk) -> tuple[Arguments, ...]:
    """The -blockdev nodes of a disk, lowest first.

    Both nodes get the cache mode: only inline children inherit options, not named nodes (QEMU,
    block.c, bdrv_inherited_options).
    """
    names = AttachedNames(disk.serial)
    common: dict[str, Any] = {}
    cache = cache_options(disk.cache)
    if cache is not None:
        common["cache"] = cache
    common["discard"] = str(disk.attachment.option("discard"))
    if disk.filename is None:
        null = {
            "driver": "null-co",
            "node-name": names.node,
            "size": disk.size,
            "read-zeroes": True,
        }
        return (null,)
    protocol = {
        "driver": "host_device" if disk.is_block else "file",
        "node-name": names.file_node,
        "filename": disk.filename,
        "aio": disk.attachment.aio.value,
        **common,
    }
    top = {"driver": disk.driver, "node-name": names.node, "file": names.file_node, **common}
    return (protocol, top)


def devices(disk: Disk, port: str | None) -> tuple[Arguments, ...]:
    """The -device arguments of a disk, controller first; `port` is the PCI bus for hot-plug."""
    names = AttachedNames(disk.serial)
    place = {} if port is None else {"bus": port}
    shared: dict[str, Any] = {"id": names.device, "drive": names.node, "serial": disk.serial}
    write_cache = disk.attachment.write_cache.qemu_property(disk.cache)
    if write_cache is not None:
        shared["write-cache"] = write_cache.value
    attachment = disk.attachment
    match attachment.bus:
        case Bus.VIRTIO:
            queues = {} if attachment.queues is None else {"num-queues": attachment.queues}
            threads = {"iothread": names.iothread} if attachment.iothread else {}
            return ({"driver": "virtio-blk-pci", **shared, **place, **queues, **threads},)
        case Bus.SCSI:
            queues = {} if attachment.queues is None else {"num_queues": attachment.queues}
            threads = {"iothread": names.iothread} if attachment.iothread else {}
            controller = {"driver": "virtio-scsi-pci", "id": names.controller}
            return (
                {**controller, **place, **queues, **threads},
                {"driver": "scsi-hd", **shared, "bus": f"{names.controller}.0"},
            )
        case Bus.NVME:
            queues = {} if attachment.queues is None else {"max_ioqpairs": attachment.queues}
            return ({"driver": "nvme", **shared, **place, **queues},)
        case Bus.USB:
            return ({"driver": "usb-storage", **shared, "bus": "xhci.0"},)
        case Bus.IDE:
            return ({"driver": "ide-hd", **shared, "bus": "ide.0", "unit": 0},)
        case Bus.SATA:
            return ({"driver": "ide-hd", **shared, "bus": "ide.0"},)


def iothreads(disk: Disk) -> tuple[Arguments, ...]:
    """The -object arguments of a disk."""
    if not disk.attachment.iothread:
        return ()
    return ({"qom-type": "iothread", "id": AttachedNames(disk.serial).iothread},)


def attach_commands(disk: Disk, port: str | None) -> tuple[QmpCommand, ...]:
    """The QMP commands that plug a disk into a running guest, in order."""
    return (
        *(QmpCommand("object-add", arguments) for arguments in iothreads(disk)),
        *(QmpCommand("blockdev-add", arguments) for arguments in block_nodes(disk)),
        *(QmpCommand("device_add", arguments) for arguments in devices(disk, port)),
    )


def detach_commands(disk: Disk, port: str | None) -> tuple[QmpCommand, ...]:
    """The QMP commands that undo `attach_commands`, in reverse order.

    After each device_del wait for the event DEVICE_DELETED.
    """
    return (
        *(
            QmpCommand("device_del", {"id": arguments["id"]})
            for arguments in reversed(devices(disk, port))
        ),
        *(
            QmpCommand("blockdev-del", {"node-name": arguments["node-name"]})
            for arguments in reversed(block_nodes(disk))
        ),
        *(QmpCommand("object-del", {"id": arguments["id"]}) for arguments in iothreads(disk)),
    )


def cold_arguments(disk: Disk) -> tuple[str, ...]:
    """The arguments of QEMU's command line for a disk that is present at boot."""
    arguments: list[str] = []
    for flag, values in (
        ("-object", iothreads(disk)),
        ("-blockdev", block_nodes(disk)),
        ("-device", devices(disk, None)),
    ):
        for value in values:
            arguments += (flag, json.dumps(value))
    return tuple(arguments)


def spell_commands(commands: tuple[QmpCommand, ...]) -> tuple[str, ...]:
    """The commands as lines of JSON, to read or to paste into QEMU's qmp-shell."""
    return tuple(str(command) for command in commands)


def spell_arguments(arguments: tuple[str, ...]) -> str:
    """A command line that can be pasted into a shell."""
    return shlex.join(arguments)
