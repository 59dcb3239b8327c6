"""A disk or directory in QEMU's terms: objects, block nodes, devices, commands. Pure.

QEMU opens a disk itself, or qemu-storage-daemon opens it and serves it to QEMU's device over a
socket (vhost-user): then objects and block nodes belong to the daemon. QEMU itself serves a
directory by 9p. For virtiofs it passes requests to virtiofsd: a C program that comes with QEMU up
to 7.2, and a separate one in Rust for later versions; both take these options.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from vdisklab.path.disk_path import Attachment, Image
from vdisklab.path.segments import Bus, CacheMode
from vdisklab.value import Value

Arguments = Mapping[str, Any]


FORMAT_MEMBERS = {
    "l2_cache": "l2-cache-size", "refcount_cache": "refcount-cache-size",
    "discard_no_unref": "discard-no-unref",
}  # fmt: skip
"""The member of a qcow2 node by option of the path."""

CONTROLLER_PROPERTIES: Mapping[Bus, Mapping[str, str]] = {
    Bus.VIRTIO: {"queues": "num-queues", "queue_size": "queue-size", "packed": "packed"},
    Bus.SCSI: {"queues": "num_queues", "queue_size": "virtqueue_size", "packed": "packed"},
    Bus.NVME: {"queues": "max_ioqpairs"},
    Bus.VHOSTUSER: {"queues": "num-queues", "queue_size": "queue-size"},
}
"""The property of the disk's controller (of the disk itself on virtio and NVMe) by option."""

_ON_PCI: Mapping[Bus, str] = {Bus.VIRTIO: "virtio-blk-pci", Bus.NVME: "nvme"}
_ON_A_BUS: Mapping[Bus, Arguments] = {
    Bus.USB: {"driver": "usb-storage", "bus": "xhci.0"},
    Bus.IDE: {"driver": "ide-hd", "bus": "ide.0", "unit": 0},
    Bus.SATA: {"driver": "ide-hd", "bus": "ide.0"},
}

DAEMON = "qemu-storage-daemon"
_MOST_QUEUES = 64
_CHILDREN = ("file", "data-file")
"""Queues that a served disk offers; the device uses as many as the guest has CPUs."""

HOTPLUG_PORTS = ("hp0", "hp1", "hp2")
"""Empty PCI Express root ports. A SCSI controller and its disk take one."""

VIRTIOFSD = "virtiofsd"


class QmpCommand(Value):
    """One command of QEMU's machine protocol."""

    execute: str
    arguments: Arguments

    def __str__(self) -> str:
        return json.dumps({"execute": self.execute, "arguments": self.arguments})


class ImageParts(Value):
    """The parts of a disk's image beside its file.

    `backing` are the files below, nearest first, in the image's own format, or all in that of
    `backing_format`. `data_file` holds a qcow2 image's data, and
    `key_file` the key of an encrypted one. `format_options` are further members of the format's
    node, by QEMU's names.
    """

    backing: tuple[str, ...] = ()
    data_file: str | None = None
    key_file: str | None = None
    format_options: tuple[tuple[str, int | bool], ...] = ()
    backing_format: str | None = None

    @property
    def files(self) -> tuple[str, ...]:
        """The files besides the image's own that QEMU opens as disks."""
        return (*self.backing, *(() if self.data_file is None else (self.data_file,)))


def format_options(image: Image | None) -> tuple[tuple[str, int | bool], ...]:
    """The members of a format's node that the options of the path set; a switch that is off is
    QEMU's default."""
    return tuple(
        (member, value if isinstance(value, bool) else int(value))
        for option, member in FORMAT_MEMBERS.items()
        if image is not None and (value := image.option(option)) not in (None, False)
    )


class AttachedNames:
    """The ids in QEMU of the parts of one attached disk."""

    def __init__(self, serial: str) -> None:
        self.serial = serial
        self.file_node = f"{serial}-file"  # the protocol node: the open file
        self.node = f"{serial}-node"  # the format node, to which the device is attached
        self.data_node = f"{serial}-data"  # the data of a qcow2 image that has only its tables
        self.key = f"{serial}-key"  # the secret object with the image's key
        self.throttle = f"{serial}-throttle"  # the filter above the format, and its group
        self.device = f"{serial}-dev"
        self.controller = f"{serial}-hba"  # of SCSI, with this one disk
        self.served = f"{serial}-vhost"  # the socket of a daemon, and its chardev in QEMU
        self.iothread = f"{serial}-io"  # the thread that handles the device's requests

    def backing_node(self, number: int) -> str:
        """An image of the chain below; 0 is the nearest."""
        return f"{self.serial}-backing{number}"

    def numbered_iothread(self, number: int) -> str:
        """One of several threads, which share the device's queues."""
        return f"{self.iothread}{number}"


class Disk(Value):
    """A disk of a guest, which finds it by `serial`.

    `source` is the protocol node that QEMU opens (driver and place); for a shared directory the
    -fsdev, for the null device None. `secrets` are the objects that hold a server's passwords.
    """

    serial: str
    size: int
    source: Mapping[str, Any] | None
    driver: str
    cache: CacheMode
    attachment: Attachment
    parts: ImageParts = ImageParts()
    secrets: tuple[Mapping[str, str], ...] = ()

    @property
    def filename(self) -> str | None:
        """The file or device that QEMU opens; None if it opens none."""
        return None if self.source is None else self.source.get("filename")

    @property
    def directory(self) -> str:
        """The directory that the guest mounts. Raises KeyError for a disk."""
        return str((self.source or {})["path"])

    @property
    def offers_write_cache(self) -> bool:
        """True when the device has a volatile write cache."""
        return self.attachment.write_cache.is_offered(self.cache)

    @property
    def names(self) -> AttachedNames:
        """The ids of its parts in QEMU."""
        return AttachedNames(self.serial)

    @property
    def guest_serial(self) -> str:
        """The serial number that the guest reads: qemu-storage-daemon's disks all have one."""
        return "vhost_user_blk" if self.attachment.bus.is_served else self.serial


def cache_options(mode: CacheMode) -> dict[str, bool] | None:
    """The `cache` member of -blockdev; None for `default`, which leaves it out."""
    if mode is CacheMode.DEFAULT:
        return None
    return {"direct": mode.direct, "no-flush": mode.no_flush}


def block_nodes(disk: Disk) -> tuple[Arguments, ...]:
    """The -blockdev nodes of a disk, lowest first; the device uses the last.

    Every node gets the cache mode: only inline children inherit options, not named nodes (QEMU,
    block.c, bdrv_inherited_options).
    """
    names = disk.names
    if disk.source is None:
        null = {"driver": "null-co", "node-name": names.node, "size": disk.size}
        return ({**null, "read-zeroes": True}, *_throttle_node(disk, {}))
    common: dict[str, Any] = {}
    cache = cache_options(disk.cache)
    if cache is not None:
        common["cache"] = cache
    common["discard"] = str(disk.attachment.option("discard"))
    protocol = {
        "driver": disk.source["driver"],
        "node-name": names.file_node,
        **{member: value for member, value in disk.source.items() if member != "driver"},
        **({} if disk.filename is None else {"aio": disk.attachment.aio.value}),
        **common,
    }
    top = {"driver": disk.driver, "node-name": names.node, "file": names.file_node, **common}
    if disk.attachment.detect_zeroes != "off":
        top["detect-zeroes"] = disk.attachment.detect_zeroes
    top |= disk.parts.format_options
    if disk.parts.key_file is not None:
        luks = {"key-secret": names.key}
        top |= luks if disk.driver == "luks" else {"encrypt": {"format": "luks", **luks}}
    beside: list[Arguments] = []
    if disk.parts.data_file is not None:
        top["data-file"] = names.data_node
        data = {"node-name": names.data_node, "filename": disk.parts.data_file}
        beside.append({**protocol, **data})
    if disk.parts.backing:
        top["backing"] = names.backing_node(0)
        beside += _backing_nodes(disk, protocol, common)
    return (*beside, protocol, top, *_throttle_node(disk, common))


def nested_node(disk: Disk) -> Arguments:
    """The top node of a disk as one nested argument of `blockdev-add`: its children stand inside
    it, and no node has a name."""
    nodes = {str(node["node-name"]): node for node in block_nodes(disk)}

    def nested(name: str) -> dict[str, Any]:
        members = ((key, value) for key, value in nodes[name].items() if key != "node-name")
        return {key: nested(value) if key in _CHILDREN else value for key, value in members}

    return nested(drive_node(disk))


def _backing_nodes(disk: Disk, protocol: Arguments, common: Arguments) -> Iterator[Arguments]:
    """The nodes of the chain below the image, lowest first, which QEMU only reads."""
    names = disk.names
    for number in reversed(range(len(disk.parts.backing))):
        node = names.backing_node(number)
        file = {"node-name": f"{node}-file", "filename": disk.parts.backing[number]}
        yield {**protocol, **file, "read-only": True}
        lowest = number == len(disk.parts.backing) - 1
        below = {} if lowest else {"backing": names.backing_node(number + 1)}
        yield {
            "driver": disk.parts.backing_format or disk.driver, "node-name": node,
            "file": f"{node}-file", **below, **common, "read-only": True,
        }  # fmt: skip


def _throttle_node(disk: Disk, common: Arguments) -> tuple[Arguments, ...]:
    names = disk.names
    if not throttle_limits(disk.attachment):
        return ()
    node = {"driver": "throttle", "node-name": names.throttle, "throttle-group": names.throttle}
    return ({**node, "file": names.node, **common},)


def drive_node(disk: Disk) -> str:
    """The name of the node that the device uses."""
    return str(block_nodes(disk)[-1]["node-name"])


def throttle_limits(attachment: Attachment) -> dict[str, int]:
    """The members of QEMU's ThrottleLimits that the path sets; empty without throttling."""
    return _numbers(attachment, {"throttle_iops": "iops-total", "throttle_bps": "bps-total"})


def _numbers(attachment: Attachment, options: Mapping[str, str]) -> dict[str, int]:
    """The numbers that the path sets, by QEMU's names; `options` has these by the path's names."""
    return {
        name: int(value)
        for option, name in options.items()
        if (value := attachment.option(option)) is not None
    }


def _controller_properties(disk: Disk) -> dict[str, Any]:
    attachment, names = disk.attachment, disk.names
    properties: dict[str, Any] = {
        name: value
        for option, name in CONTROLLER_PROPERTIES.get(attachment.bus, {}).items()
        if (value := attachment.option(option)) not in (None, False)
    }
    if attachment.iothread and not attachment.bus.is_served:
        properties["iothread"] = names.iothread
    if attachment.iothreads is not None:
        properties["iothread-vq-mapping"] = [
            {"iothread": names.numbered_iothread(number)} for number in range(attachment.iothreads)
        ]
    return properties


def _served_device(disk: Disk, port: str | None) -> Arguments:
    """The device of a disk that qemu-storage-daemon serves.

    The daemon leaves the setting of the write cache at 0, so a guest that could read it would never
    flush (vu_blk_initialize_config in block/export/vhost-user-blk-server.c).
    """
    names = disk.names
    return {
        "driver": "vhost-user-blk-pci",
        "id": names.device,
        "chardev": names.served,
        "config-wce": not disk.offers_write_cache,
        **({} if port is None else {"bus": port}),
        **_controller_properties(disk),
    }


def devices(disk: Disk, port: str | None) -> tuple[Arguments, ...]:
    """The -device arguments of a disk, controller first; `port` is the PCI bus for hot-plug."""
    names = disk.names
    attachment = disk.attachment
    if attachment.bus.is_served:
        return (_served_device(disk, port),)
    controlling = {**({} if port is None else {"bus": port}), **_controller_properties(disk)}
    shared: dict[str, Any] = {
        "id": names.device, "drive": drive_node(disk), "serial": disk.serial,
    }  # fmt: skip
    write_cache = attachment.write_cache.qemu_property(disk.cache)
    if write_cache is not None:
        shared["write-cache"] = write_cache.value
    if attachment.block_size is not None:
        shared["logical_block_size"] = shared["physical_block_size"] = attachment.block_size
    if attachment.discard_granularity is not None:
        shared["discard_granularity"] = attachment.discard_granularity
    shared |= dict(attachment.error_policy)
    if attachment.bus is Bus.SCSI:
        controller = {"driver": "virtio-scsi-pci", "id": names.controller}
        disk_of_controller = {"driver": "scsi-hd", **shared, "bus": f"{names.controller}.0"}
        return ({**controller, **controlling}, disk_of_controller)
    if attachment.bus in _ON_PCI:
        return ({"driver": _ON_PCI[attachment.bus], **shared, **controlling},)
    return ({**shared, **_ON_A_BUS[attachment.bus]},)


def node_objects(disk: Disk) -> tuple[Arguments, ...]:
    """The objects that a disk's nodes name: the key's secret and the throttle group."""
    names, limits = disk.names, throttle_limits(disk.attachment)
    objects: list[Arguments] = list(disk.secrets)
    if disk.parts.key_file is not None:
        objects.append({"qom-type": "secret", "id": names.key, "file": disk.parts.key_file})
    if limits:
        objects.append({"qom-type": "throttle-group", "id": names.throttle, "limits": limits})
    return tuple(objects)


def objects(disk: Disk) -> tuple[Arguments, ...]:
    """The -object arguments of a disk: those of its nodes, and its threads."""
    attachment, names = disk.attachment, disk.names
    threads = [names.iothread] if attachment.iothread else []
    threads += [names.numbered_iothread(number) for number in range(attachment.iothreads or 0)]
    settings = iothread_settings(attachment)
    made = ({"qom-type": "iothread", "id": thread, **settings} for thread in threads)
    return (*made, *node_objects(disk))


def iothread_settings(attachment: Attachment) -> dict[str, int]:
    """The properties of each thread that the path sets, by QEMU's names."""
    return _numbers(attachment, {"poll": "poll-max-ns", "aio_max_batch": "aio-max-batch"})


def _address(disk: Disk) -> dict[str, Any]:
    """The socket between the daemon and QEMU's device, in the directory that is current to both."""
    return {"path": disk.names.served}


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
        "writethrough": not disk.offers_write_cache,
        "num-queues": attachment.queues or _MOST_QUEUES,
        **thread,
    }


def daemon_arguments(disk: Disk) -> tuple[str, ...]:
    """A command line of the daemon that serves a disk."""
    return (DAEMON, *_flags("--", disk), "--export", json.dumps(served_export(disk)))


def port_for(disk: Disk) -> str | None:
    """The PCI root port for a hot-plugged disk; None for USB, which has a controller."""
    return None if disk.attachment.bus is Bus.USB else HOTPLUG_PORTS[0]


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
    served = disk.names.served
    chardev = ("-chardev", f"socket,id={served},path={served}")
    below = chardev if disk.attachment.bus.is_served else _flags("-", disk)
    return (*below, *_flagged("-device", devices(disk, None)))


def _flags(dashes: str, disk: Disk) -> tuple[str, ...]:
    """The objects and block nodes of a disk as arguments."""
    return (
        *_flagged(f"{dashes}object", objects(disk)),
        *_flagged(f"{dashes}blockdev", block_nodes(disk)),
    )


def _flagged(flag: str, values: tuple[Mapping[str, Any], ...]) -> tuple[str, ...]:
    return tuple(word for value in values for word in (flag, json.dumps(value)))


def spell_arguments(arguments: tuple[str, ...]) -> str:
    """A command line that can be pasted into a shell."""
    return shlex.join(arguments)


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
        "-chardev", f"socket,id={names.served},path={names.served}",
        "-device", f"vhost-user-fs-pci,id={names.device},chardev={names.served},tag={disk.serial}",
    )  # fmt: skip


def virtiofsd_arguments(
    program: Path | str, directory: str, attachment: Attachment, socket_option: str
) -> tuple[str, ...]:
    """The daemon's command line; `socket_option` is its option for the socket.

    Its sandbox is a chroot: a sandbox of namespaces needs a second process, which some containers
    do not allow. Either sandbox keeps the guest inside `directory`.
    """
    options = (f"source={directory}", f"cache={attachment.option('cache')}", "sandbox=chroot")
    return (str(program), socket_option, *(word for option in options for word in ("-o", option)))


def mount_command(
    device: str, kind: str, options: tuple[str, ...], mountpoint: str
) -> tuple[str, ...]:
    """The guest's command that mounts a device, or a directory by its tag."""
    flags = ("-o", ",".join(options)) if options else ()
    return ("mount", "-t", kind, *flags, device, mountpoint)


def daemon_commands(disk: Disk) -> tuple[str, ...]:
    """The command line of the daemon that serves a disk or directory; none if QEMU does."""
    bus = disk.attachment.bus
    if bus.is_served:
        return (spell_arguments(daemon_arguments(disk)),)
    if bus is Bus.VIRTIOFS:
        socket_option = f"--socket-path={disk.names.served}"
        argv = virtiofsd_arguments(VIRTIOFSD, disk.directory, disk.attachment, socket_option)
        return (spell_arguments(argv),)
    return ()


def plug_commands(disk: Disk) -> tuple[str, ...]:
    """The QMP commands that plug a disk as lines of JSON; none for a bus that needs a boot."""
    if not disk.attachment.bus.hot_pluggable:
        return ()
    return tuple(map(str, attach_commands(disk, port_for(disk))))


def export_arguments(disk: Disk) -> dict[str, object]:
    """The arguments of block-export-add for a disk."""
    names = disk.names
    return {
        "type": "nbd",
        "id": names.device,
        "node-name": drive_node(disk),
        "name": disk.serial,
        "writable": True,
        "writethrough": not disk.offers_write_cache,
    }
