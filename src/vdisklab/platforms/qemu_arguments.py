"""Reads QEMU's arguments: each disk as a disk path. The opposite of `platforms.qemu.arguments`.

`-blockdev`, `-object` and `-device` may be JSON or `key=value,…`; a `-drive` is read as the nodes
that QEMU makes of it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from vdisklab.guest.qemu.block_nodes import CONTROLLER_PROPERTIES, FORMAT_MEMBERS
from vdisklab.path.disk_path import Attachment, DiskPath, Image
from vdisklab.path.options import OptionValue
from vdisklab.path.platforms import Platform
from vdisklab.path.segments import (
    BUS_OPTIONS,
    Aio,
    Bus,
    CacheMode,
    ImageFormat,
    WriteCache,
)
from vdisklab.platforms.configured_disk import ConfiguredDisk
from vdisklab.platforms.drive_arguments import drives_of_arguments, keyed_settings
from vdisklab.platforms.reading import (
    MAP_IT,
    SERVED_ELSEWHERE,
    attachment_of,
    image_of,
    joined,
    limit_words,
    one_of,
    parsed_options,
    queues_of,
    shared_group,
)

Settings = Mapping[str, Any]
"""One argument in JSON, or a member of it."""


_PREFIXES = ("", "limits.", "throttling.", "x-")
_WAYS = ("-total", "-read", "-write")
_OLD_WAYS = ("", "_rd", "_wr")

LIMITS = limit_words(
    {
        "throttle_iops": (*joined(_PREFIXES, ("iops-total",)), "iops"),
        "throttle_bps": (*joined(_PREFIXES, ("bps-total",)), "bps"),
    },
    joined(_PREFIXES, ("iops", "bps"), _WAYS, ("", "-max", "-max-length")),
    joined(_PREFIXES, ("iops-size",)),
    joined(("iops", "bps"), _OLD_WAYS, ("", "_max", "_max_length")),
    ("iops_size",),
)
"""ThrottleLimits of a throttle-group, also with `x-`; the options of -drive and -fsdev, and the
old ones that drive_new() renames (blockdev.c); BlockDeviceInfo of `query-block`."""


_SERVED = "vhost-user-blk"
_QUEUES = {"virtio-blk-pci": "num-queues", "virtio-scsi-pci": "num_queues", "nvme": "max_ioqpairs"}
_BUSES = {"virtio-blk-pci": Bus.VIRTIO, "scsi-hd": Bus.SCSI, "nvme": Bus.NVME,
          "nvme-ns": Bus.NVME, "usb-storage": Bus.USB, _SERVED: Bus.VHOSTUSER}  # fmt: skip


@dataclass(frozen=True, slots=True)
class DiskArguments:
    """A disk that QEMU's arguments describe: its device id, file name and path.

    `problem` says why it has no path. `probed` is True if QEMU takes the format from the file.
    `limits` are the I/O limits that a path cannot express.
    """

    device: str
    filename: str | None
    path: DiskPath | None
    problem: str | None
    read_only: bool
    probed: bool = False
    limits: tuple[str, ...] = ()
    drops_flushes: bool = False
    transient: bool = False

    def configured(
        self, guest: str, architecture: str | None, noted: DiskPath | None = None, domain: str = ""
    ) -> ConfiguredDisk:
        """The disk as one of a guest."""
        return ConfiguredDisk(
            domain or guest,
            self.device,
            self.filename,
            self.path,
            noted,
            self.problem,
            self.read_only,
            platform=Platform.QEMU,
            guest=guest,
            architecture=architecture,
            probed=self.probed,
            limits=self.limits,
            drops_flushes=self.drops_flushes,
            transient=self.transient,
        )


Served = Mapping[str, DiskArguments]
"""What other processes serve by vhost-user, by the socket's name."""


def served_disks(words: Sequence[str]) -> Iterator[tuple[str, DiskArguments]]:
    """The disks that a qemu-storage-daemon's arguments export by vhost-user, each with its
    socket."""
    nodes, objects = _nodes(_settings_after(words, "-blockdev")), _objects(words)
    for export in _settings_after(words, "-export"):
        if export.get("type") != _SERVED:
            continue
        through = export.get("writethrough") in (True, "on")
        device = {
            "driver": _SERVED,
            "drive": export.get("node-name"),
            "write-cache": "off" if through else "on",
            **({"iothread": export["iothread"]} if "iothread" in export else {}),
        }
        disk = _disk(device, nodes, objects, ())
        if disk is not None:
            read_only = disk.read_only or export.get("writable") not in (True, "on")
            socket = str(_settings(export.get("addr")).get("path"))
            yield socket, replace(disk, read_only=read_only)


def shared_directories(words: Sequence[str]) -> Iterator[tuple[str, DiskArguments]]:
    """The directory that a virtiofsd's arguments share, with its socket; in C the settings follow
    `-o`, in Rust each is an option."""
    spelled = [
        part.partition("=")
        for word, following in pairwise([*words, ""])
        for part in (following.split(",") if word == "-o" else _long_option(word, following))
    ]
    settings = {name: value for name, _, value in spelled}
    source = settings.get("source", settings.get("shared-dir"))
    cache = {"never": "none"}.get(settings.get("cache", ""), settings.get("cache"))
    path, problem = None, None
    try:
        options = parsed_options(Bus.VIRTIOFS, {"cache": cache})
        path = DiskPath(attachment=attachment_of(Bus.VIRTIOFS, options))
    except ValueError as error:
        problem = str(error)
    if "socket-path" in settings:
        yield settings["socket-path"], DiskArguments("?", source, path, problem, read_only=False)


def _long_option(word: str, following: str) -> tuple[str, ...]:
    """`name=value` for the options `--name=value` and `--name value`."""
    if not word.startswith("--"):
        return ()
    return (word[2:] if "=" in word else f"{word[2:]}={following}",)


def _elsewhere(device: Settings, what: str, words: Sequence[str], served: Served) -> DiskArguments:
    """A disk or directory that another process serves, as that process's arguments say."""
    name = str(device.get("id", "?"))
    for value in _following(words, "-chardev"):
        backend = keyed_settings(value, first="backend")
        disk = served.get(str(backend.get("path")))
        if disk is not None and backend.get("id") == device.get("chardev"):
            try:
                path, problem = disk.path and _with_queues(disk.path, device), disk.problem
            except ValueError as error:
                path, problem = None, str(error)
            return replace(disk, device=name, path=path, problem=problem)
    return DiskArguments(name, str(device.get(what)), None, SERVED_ELSEWHERE, read_only=False)


def _with_queues(path: DiskPath, device: Settings) -> DiskPath:
    """The path with the device's queues: QEMU's arguments set them, not the daemon's."""
    attachment = path.attachment
    options = dict(attachment.options)
    options |= parsed_options(attachment.bus, {"queue_size": device.get("queue-size")})
    if "num-queues" in device:
        options["queues"] = queues_of(str(device["num-queues"]))
    return replace(path, attachment=attachment_of(attachment.bus, options))


def _nodes(blockdevs: Iterable[Settings]) -> Mapping[str, Settings]:
    return {str(node.get("node-name")): node for node in blockdevs}


def _objects(words: Sequence[str]) -> Mapping[str, Settings]:
    return {str(made.get("id")): made for made in _settings_after(words, "-object")}


def disks_of_arguments(
    words: Sequence[str], served: Served | None = None
) -> Iterator[DiskArguments]:
    """Each hard disk that QEMU's arguments describe; skips disks without a file or device.

    The file may be a node of its own or stand in the format's node. An argument that cannot be read
    is a disk with a problem, because it may describe one.
    """
    drives = list(drives_of_arguments(words))
    blockdevs = [*_settings_after(words, "-blockdev"), *(drive.node for drive in drives)]
    nodes, objects = _nodes(blockdevs), _objects(words)
    write_caches = {str(drive.node["node-name"]): drive.write_cache for drive in drives}
    devices = [
        {**device, **({"write-cache": default} if default and "write-cache" not in device else {})}
        for device in _settings_after(words, "-device")
        for default in (write_caches.get(str(device.get("drive"))),)
    ]
    implied = [drive.device for drive in drives if drive.device]
    thrown_away = any(word in ("-snapshot", "--snapshot") for word in words)
    for device in (*devices, *implied):
        if str(device.get("driver")).startswith(_SERVED):
            yield _elsewhere(device, "chardev", words, served or {})
            continue
        disk = _disk(device, nodes, objects, devices)
        if disk is not None:
            yield replace(disk, transient=disk.transient or thrown_away)
    for file in _following(words, "-readconfig"):
        problem = f"its configuration is in {file} (-readconfig), which is not read: its disks "
        yield DiskArguments("?", None, None, f"{problem}are not known", read_only=False)
    yield from _shares(words, devices, served or {})
    for flag in _FIRST_KEYS:
        for following in _following(words, flag):
            if following.startswith("{") and _json_object(following) is None:
                problem = f"the JSON after {flag} cannot be read, and may describe a disk"
                yield DiskArguments("?", None, None, problem, read_only=False)


def _disk(
    device: Settings,
    nodes: Mapping[str, Settings],
    objects: Mapping[str, Settings],
    devices: Sequence[Settings],
) -> DiskArguments | None:
    """The hard disk of a device; None if it has no file or is none."""
    if "drive" in device and _hard_disk(device) is None and not _holds_media(device):
        name = str(device.get("id", device["drive"]))
        unknown = f"vdisklab does not know the device {device.get('driver')!r}, and it has a drive"
        return DiskArguments(name, None, None, unknown, read_only=False)
    top = nodes.get(str(device.get("drive")))
    limits: Settings = {} if top is None else _settings(top.get("limits"))
    beyond = () if top is None else _shared(top, "group", nodes)
    if top is not None and top.get("driver") == "throttle":
        limits = objects.get(str(top.get("throttle-group")), {})
        beyond = _shared(top, "throttle-group", nodes)
        top = _file_node(top, nodes)
    below = None if top is None else _file_node(top, nodes)
    if top is not None and below is None and _is_protocol(top):  # QEMU opens it as raw
        top, below = {**top, "driver": "raw"}, top
    if top is None or below is None or not _is_protocol(below) or _hard_disk(device) is None:
        return None
    path, problem = None, None
    cache = _settings(_cache_in_effect(top, below))
    try:
        path = throttled(_path_of_arguments(device, top, below, devices, objects), limits)
    except ValueError as error:
        problem = str(error)
    return DiskArguments(
        str(device.get("id", device.get("drive"))),
        str(below.get("filename", below.get("path", below.get("driver")))),
        path,
        problem,
        top.get("read-only") is True,
        top.get("probed") is True,
        (*LIMITS.beyond(limits), *beyond),
        drops_flushes=bool(cache.get("no-flush")),
        transient=top.get("snapshot") is True,
    )


def _is_protocol(node: Settings) -> bool:
    """True for a node that opens a file, a device or a server."""
    return "filename" in node or (
        "file" not in node and node.get("driver") not in (*ImageFormat, "luks", "null-co", None)
    )


def _cache_in_effect(top: Settings, below: Settings) -> object:
    """The flags that decide: those of the file's node, which inherits if it stands in the format's.

    A format's own node passes each flush on to the file's node, and opens nothing
    (block/io.c, bdrv_co_flush; block.c, bdrv_inherited_options).
    """
    own, above = below.get("cache"), top.get("cache")
    if isinstance(top.get("file"), dict) or top.get("node-name") == below.get("node-name"):
        inherited = {**_settings(above), **_settings(own)}
        return inherited if isinstance(own, dict) or isinstance(above, dict) else None
    return own if isinstance(own, dict) or above is None else {}


def _shared(node: Settings, word: str, nodes: Mapping[str, Settings]) -> tuple[str, ...]:
    """The node's throttle group, if other nodes have it too."""
    name = node.get(word)
    groups = (each.get("throttle-group", each.get("group")) for each in nodes.values())
    return shared_group(word, name, groups) if name else ()


def _shares(
    words: Sequence[str], devices: Sequence[Settings], served: Served
) -> Iterator[DiskArguments]:
    """The shared host directories; only virtiofsd's own command line has its options.

    `-virtfs` is `-fsdev` with its device.
    """
    exports = {str(export.get("id")): export for export in _settings_after(words, "-fsdev")}
    for device in devices:
        driver, name = str(device.get("driver")), str(device.get("id", "?"))
        if driver.startswith("vhost-user-fs"):
            yield _elsewhere(device, "tag", words, served)
        elif driver.startswith("virtio-9p"):
            yield _share(name, exports.get(str(device.get("fsdev")), {}))
    for export in _settings_after(words, "-virtfs"):
        yield _share(str(export.get("mount_tag", "?")), export)


def _share(name: str, export: Settings) -> DiskArguments:
    path = DiskPath(attachment=Attachment(Bus.P9))
    read_only = export.get("readonly") in (True, "on")
    limits = LIMITS.all(export)
    return DiskArguments(name, str(export.get("path", "?")), path, None, read_only, limits=limits)


def _hard_disk(device: Settings) -> Bus | None:
    """The bus of a hard disk; None for a device that is none."""
    driver = _plain_driver(device)
    if driver == "ide-hd":
        # A PIIX disk has a unit; each port of an AHCI controller has one disk.
        return Bus.IDE if "unit" in device else Bus.SATA
    return _BUSES.get(driver)


def _plain_driver(device: Settings) -> str:
    """The driver without what says how the guest sees it: `virtio-blk-pci-non-transitional`."""
    driver = re.sub(r"-(non-)?transitional$", "", str(device.get("driver")))
    driver = re.sub(r"^(virtio-(?:blk|scsi))-(?:device|ccw)$", r"\1-pci", driver)
    return {"scsi-disk": "scsi-hd", "virtio-blk": "virtio-blk-pci"}.get(driver, driver)


def _holds_media(device: Settings) -> bool:
    """True for a CD-ROM and a floppy, and for what the firmware keeps its settings in."""
    return (
        re.search(r"-cd$|^floppy$|^isa-fdc$|pflash|^nvdimm", str(device.get("driver"))) is not None
    )


def _file_node(top: Settings, nodes: Mapping[str, Settings]) -> Settings | None:
    below = top.get("file")
    return below if isinstance(below, dict) else nodes.get(str(below))


def _settings_after(words: Sequence[str], flag: str) -> Iterator[Settings]:
    for following in _following(words, flag):
        if not following.startswith("{"):
            yield keyed_settings(following, first=_FIRST_KEYS[flag])
        elif (value := _json_object(following)) is not None:
            yield value


def _following(words: Sequence[str], flag: str) -> Iterator[str]:
    """The values of all options `flag`, which may have one hyphen or two."""
    for word, following in pairwise(words):
        if word.removeprefix("-") == flag or word == flag:
            yield following


def _json_object(text: str) -> Settings | None:
    """The JSON object in a text; None if the text is not one."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):  # RecursionError: nested without end
        return None
    return value if isinstance(value, dict) else None


_FIRST_KEYS = {
    "-blockdev": "driver", "-object": "qom-type", "-device": "driver", "-fsdev": "fsdriver",
    "-virtfs": "fsdriver", "-export": "type",
}  # fmt: skip
"""The key of a first value without one."""


def _path_of_arguments(
    device: Settings,
    top: Settings,
    below: Settings,
    devices: Sequence[Settings],
    objects: Mapping[str, Settings],
) -> DiskPath:
    if (storage := str(below.get("driver", "file"))) not in ("file", "host_device"):
        raise ValueError(f"its storage is {storage!r}: {MAP_IT}")
    on_device = below.get("driver") == "host_device"
    driver = str(top.get("driver"))
    if driver != "luks":
        one_of(driver, tuple(ImageFormat), "format")
    if driver == "luks":
        image: Image | None = Image(ImageFormat.RAW, (("encrypt", "luks"),))
    else:
        image = image_of(ImageFormat(driver), on_device=on_device)
    if image is not None:
        sizes = {option: top.get(name) for option, name in FORMAT_MEMBERS.items()}
        words = {**sizes, "encrypt": _settings(top.get("encrypt")).get("format")}
        parsed = parsed_options(image.format, words)
        image = Image(image.format, (*image.options, *parsed.items()))
    cache, write_cache = cache_of_arguments(_cache_in_effect(top, below), device.get("write-cache"))
    bus = _hard_disk(device)
    assert bus is not None  # noqa: S101 - the caller has looked
    owner = _controller_of(device, devices) if bus is Bus.SCSI else device
    if bus is Bus.SCSI and owner:
        one_of(_plain_driver(owner), ("virtio-scsi-pci", "virtio-scsi"), "controller")
    options: dict[str, OptionValue] = {
        "aio": Aio(str(below.get("aio", "threads"))).value,
        "discard": one_of(str(top.get("discard", "ignore")), ("ignore", "unmap"), "discard"),
        "write_cache": write_cache.value,
    }
    if "iothread" in owner:
        options["iothread"] = True
    queues = owner.get(_QUEUES.get(_plain_driver(owner), ""))
    if queues is not None:
        options["queues"] = queues_of(str(queues))
    mapping = owner.get("iothread-vq-mapping")
    entries = mapping if isinstance(mapping, list) else []
    threads = [_settings(entry).get("iothread") for entry in entries]
    thread = objects.get(str(threads[0] if threads else owner.get("iothread")), {})
    size = CONTROLLER_PROPERTIES.get(bus, {}).get("queue_size", "")
    words = {
        "detect_zeroes": top.get("detect-zeroes"),
        "queue_size": owner.get(size),
        "packed": "on" if owner.get("packed") in (True, "on") else None,
        "block_size": device.get("logical_block_size"),
        "discard_granularity": device.get("discard_granularity"),
        "iothreads": len(threads) or None,
        "aio_max_batch": thread.get("aio-max-batch"),
    }
    options |= parsed_options(bus, words)
    if "poll-max-ns" in thread:
        options["poll"] = BUS_OPTIONS[Bus.VIRTIO]["poll"].parse(str(thread["poll-max-ns"]))
    return DiskPath((), image, cache, attachment_of(bus, options))


def _settings(value: object) -> Settings:
    return value if isinstance(value, dict) else {}


def throttled(path: DiskPath, limits: Settings) -> DiskPath:
    """The path with the limits that it can say, and no others. Raises ValueError."""
    bus, words = path.attachment.bus, LIMITS.of_path(limits)
    others = {key: value for key, value in path.attachment.options if key not in words}
    options = tuple((others | parsed_options(bus, words)).items())
    return replace(path, attachment=Attachment(bus, options))


def _controller_of(device: Settings, devices: Sequence[Settings]) -> Settings:
    name = str(device.get("bus", "")).partition(".")[0]
    return next((item for item in devices if item.get("id") == name), {})


def cache_of_arguments(cache: object, property_value: object) -> tuple[CacheMode, WriteCache]:
    """The cache mode and write_cache option that give these settings. Raises ValueError."""
    if not isinstance(cache, dict):
        write_cache = WriteCache.MODE if property_value is None else WriteCache(str(property_value))
        return CacheMode.DEFAULT, write_cache
    flags = bool(cache.get("direct")), bool(cache.get("no-flush"))
    modes = [
        mode
        for mode in CacheMode
        if mode is not CacheMode.DEFAULT and (mode.direct, mode.no_flush) == flags
    ]
    write_cache = WriteCache.AUTO if property_value is None else WriteCache(str(property_value))
    for mode in modes:
        if WriteCache.MODE.qemu_property(mode) is write_cache:
            return mode, WriteCache.MODE
    for mode in modes:
        if mode.write_cache:
            return mode, write_cache
    raise ValueError("no cache mode has O_DIRECT and drops flushes")
