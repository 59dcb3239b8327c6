"""Reads QEMU's arguments: each disk as a disk path. The opposite of `platforms.qemu.arguments`.

Below a device stands a chain of nodes: filters, the format, the file. QEMU's own rules say which
node decides about which setting (block.c, block/io.c).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice, pairwise

from vdisklab.errors import PlanError
from vdisklab.guest.qemu.block_nodes import CONTROLLER_PROPERTIES, FORMAT_MEMBERS
from vdisklab.path.architecture import X86_64
from vdisklab.path.disk_path import Attachment, DiskPath, Image
from vdisklab.path.options import OptionValue
from vdisklab.path.platforms import Platform
from vdisklab.path.segments import BUS_OPTIONS, Aio, Bus, CacheMode, ImageFormat, WriteCache
from vdisklab.platforms import network, reading
from vdisklab.platforms.configured_disk import ConfiguredDisk
from vdisklab.platforms.drive_arguments import (
    UNKNOWN,
    Arguments,
    Settings,
    arguments_of,
    is_on,
    known_flag,
    plain_driver,
    settings_of,
)
from vdisklab.value import replace

_PREFIXES = ("", "limits.", "throttling.", "x-")
_WAYS = ("-total", "-read", "-write")
_OLD_WAYS = ("", "_rd", "_wr")

LIMITS = reading.limit_words(
    {
        "throttle_iops": (*reading.joined(_PREFIXES, ("iops-total",)), "iops"),
        "throttle_bps": (*reading.joined(_PREFIXES, ("bps-total",)), "bps"),
    },
    reading.joined(_PREFIXES, ("iops", "bps"), _WAYS, ("", "-max", "-max-length")),
    reading.joined(_PREFIXES, ("iops-size",)),
    reading.joined(("iops", "bps"), _OLD_WAYS, ("", "_max", "_max_length")),
    ("iops_size",),
)
"""ThrottleLimits of a throttle-group, also with `x-`; the options of -drive and -fsdev, and the
old ones that drive_new() renames (blockdev.c); BlockDeviceInfo of `query-block`."""


_SERVED = "vhost-user-blk"
_QUEUES = {"virtio-blk-pci": "num-queues", "virtio-scsi-pci": "num_queues", "nvme": "max_ioqpairs"}
_BUSES = {"virtio-blk-pci": Bus.VIRTIO, "scsi-hd": Bus.SCSI, "nvme": Bus.NVME,
          "nvme-ns": Bus.NVME, "usb-storage": Bus.USB, _SERVED: Bus.VHOSTUSER}  # fmt: skip

Served = Mapping[str, ConfiguredDisk]
"""The disks that other processes serve by vhost-user, by the socket's name."""


MOST_DEVICES = 500
"""More than any guest has; each is looked up among all others."""

_MOST_SETTINGS = 2000
"""Values in the nodes of one disk, all of which each of its devices is compared with."""

_NO_DRIVE = re.compile(r"usb-mtp|vhost-(user-)?scsi|vhost-vdpa-device|nvdimm|virtio-pmem")
"""Devices that may hold a disk, and name none of QEMU's block nodes."""

_PASSED = ("scsi-block", "scsi-generic")
_MEDIA = re.compile(r".*-cd|floppy|isa-fdc|.*pflash.*")
"""A CD-ROM and a floppy, and what the firmware keeps its settings in."""

_DEEPEST = 250  # nodes of one disk
_MOST_WORDS = 3
"""Unknown words that are shown."""

_FILTERS = ("throttle", "copy-on-read", "preallocate", "compress")
"""The filters that pass reads, writes and flushes on."""

_FURTHER = {"data-file", "children", "test", "raw"}
"""Members beside `file` whose nodes are written: of qcow2, quorum and blkverify."""

_PLAIN_PROPERTIES = re.compile(
    "driver|id|drive|bus|addr|unit|channel|port|port_.*|scsi-id|lun|nsid|bootindex|loadparm|devno|"
    "serial|wwn|vendor|product|ver|device_id|model|uuid|eui64.*|nguid|l?(cyls|heads|secs)|"
    "bios-chs-trans|removable|rotation_rate|share-rw|shared|acpi-index|multifunction|rom.*|class|"
    "disable-.*|iommu_platform|ats|page-per-vq|failover.*|aer|hotplug|param_change|scsi_version|"
    "migrate-extra|notify_on_empty|any_layout|account-.*|stats-.*|statistics|use-intel-id|"
    "report-discard-granularity|queue_reset|vectors|x-.*|write-cache|werror|rerror|"
    "num-queues|queue-size|num_queues|virtqueue_size|max_ioqpairs|packed|iothread.*|"
    "logical_block_size|physical_block_size|discard_granularity|min_io_size|opt_io_size|"
    "legacy|config-wce|chardev|scsi-id|detached|msos-desc|commandlog|" + re.escape(UNKNOWN)
)
"""The properties of a device that are read, and those that change neither speed nor safety."""

_USUAL = dict.fromkeys(
    ("ioeventfd", "event_idx", "indirect_desc", "request-merging", "discard", "write-zeroes",
     "seg-max-adjust"), True,
) | dict.fromkeys(("scsi", "dpofua"), False)  # fmt: skip
"""The defaults of further properties."""

_NODE_KEYS = re.compile(
    "driver|node-name|file|image|filename|path|cache|aio|discard|detect-zeroes|read-only|"
    "auto-read-only|force-share|locking|backing|encrypt|key-secret|data-file|throttle-group|"
    "l2-cache-size|refcount-cache-size|discard-no-unref|lazy-refcounts|probed|limits|group|snapshot|copy-on-read|throttling|"
    "pr-manager|x-.*|offset|size|fd|boot|trans|" + re.escape(UNKNOWN)
)

_SERVER_KEYS = re.compile(
    "server|host|port|export|tls-creds|tls-hostname|reconnect-delay|open-timeout|transport|portal|"
    "target|lun|user|group|password-secret|initiator-name|header-digest|timeout|pool|namespace|conf|"
    "auth-client-required|host-key-check.*|password|username|cookie.*"
)
"""The members of a protocol node that say where a server's disk is, and who may use it."""

_SCSI_CONTROLLERS = re.compile(
    r"virtio-scsi|lsi|megasas|mptsas|am53c974|dc390|pvscsi|spapr-vscsi|usb-(bot|uas)"
)


_ACCEPTED = {"aio": ("threads", "native", "io_uring")}
"""The words of a file's node (qapi/block-core.json, BlockdevAioOptions)."""


def _found(
    target: str, source: str | None, path: DiskPath | None, problem: str | None = None
) -> ConfiguredDisk:
    """A disk of a guest that the caller names."""
    return ConfiguredDisk("", target, source, path, problem=problem, platform=Platform.QEMU)


def served_disks(argv: Sequence[str]) -> Iterator[tuple[str, ConfiguredDisk]]:
    """The disks that a qemu-storage-daemon's arguments export by vhost-user, each with its
    socket."""
    arguments = arguments_of(argv)
    for export in arguments.all("export"):
        if export.get("type") != _SERVED:
            continue
        device = {
            "driver": _SERVED,
            "drive": export.get("node-name"),
            "write-cache": "off" if is_on(export.get("writethrough")) else "on",
            **({"iothread": export["iothread"]} if "iothread" in export else {}),
        }
        disk = _disk(device, arguments)
        if disk is not None:
            read_only = disk.read_only or not is_on(export.get("writable"))
            socket = str(settings_of(export.get("addr")).get("path"))
            yield socket, replace(disk, read_only=read_only)


def disks_exported_by_nbd(
    argv: Sequence[str],
) -> Iterator[tuple[Settings, str, ConfiguredDisk]]:
    """The disks that a qemu-storage-daemon's arguments export by NBD, each with its server's
    address and its name there."""
    arguments = arguments_of(argv)
    servers = [settings_of(server.get("addr")) for server in arguments.all("nbd-server")]
    for export in arguments.all("export"):
        if export.get("type") != "nbd":
            continue
        node = str(export.get("node-name"))
        disk = _disk({"driver": "virtio-blk-pci", "drive": node}, arguments)
        if disk is not None:
            yield from ((server, str(export.get("name", node)), disk) for server in servers)


def shared_directories(argv: Sequence[str]) -> Iterator[tuple[str, ConfiguredDisk]]:
    """The directory that a virtiofsd's arguments share, with its socket; in C the settings follow
    `-o`, in Rust each is an option."""
    spelled = [
        part.partition("=")
        for word, following in pairwise([*argv, ""])
        for part in (following.split(",") if word == "-o" else _long_option(word, following))
    ]
    settings = {name: value for name, _, value in spelled}
    source = settings.get("source", settings.get("shared-dir"))
    cache = {"never": "none"}.get(settings.get("cache", ""), settings.get("cache"))
    path, problem = None, None
    try:
        options = reading.parsed_options(Bus.VIRTIOFS, {"cache": cache})
        path = DiskPath(attachment=reading.attachment_of(Bus.VIRTIOFS, options))
    except ValueError as error:
        problem = str(error)
    yield settings.get("socket-path", ""), _found("?", source, path, problem)


def _long_option(word: str, following: str) -> tuple[str, ...]:
    """`name=value` for the options `--name=value` and `--name value`."""
    if not word.startswith("--"):
        return ()
    return (word[2:] if "=" in word else f"{word[2:]}={following}",)


def _elsewhere(device: Settings, what: str, arguments: Arguments, served: Served) -> ConfiguredDisk:
    """A disk or directory that another process serves, as that process's arguments say."""
    name = str(device.get("id", "?"))
    disk = served.get(arguments.sockets.get(str(device.get("chardev")), ""))
    if disk is not None:
        try:
            path, problem = disk.path and _with_queues(disk.path, device), disk.problem
        except ValueError as error:
            path, problem = None, str(error)
        return replace(disk, target=name, path=path, problem=problem)
    return _found(name, str(device.get(what)), None, reading.SERVED_ELSEWHERE)


def _with_queues(path: DiskPath, device: Settings) -> DiskPath:
    """The path with the device's queues: QEMU's arguments set them, not the daemon's."""
    attachment = path.attachment
    options = dict(attachment.options)
    options |= reading.parsed_options(attachment.bus, {"queue_size": device.get("queue-size")})
    if "num-queues" in device:
        options["queues"] = reading.queues_of(str(device["num-queues"]))
    return replace(path, attachment=reading.attachment_of(attachment.bus, options))


def disks_of_arguments(
    argv: Sequence[str], served: Served | None = None, program: str = ""
) -> Iterator[ConfiguredDisk]:
    """Each hard disk that the arguments after the program describe; the caller names the guest.

    Arguments that may be a disk but are not understood become a disk with a problem: a drive's
    unknown device, a drive without a device, unreadable JSON.
    """
    arguments = arguments_of(argv, program)
    if len(arguments.devices) > MOST_DEVICES:
        raise PlanError(
            f"a command line has more than {MOST_DEVICES} devices",
            hint="give each guest's command a file of its own",
        )
    # of -drive alone (system/vl.c, drive_enable_snapshot)
    thrown_away = any(flag == "snapshot" for flag, _ in arguments.options)
    for device in arguments.devices:
        if str(device.get("driver")).startswith(_SERVED):
            yield _elsewhere(device, "chardev", arguments, served or {})
            continue
        disk = _disk(device, arguments)
        if disk is not None:
            temporary = thrown_away and str(device.get("drive")) in arguments.drives
            yield replace(disk, transient=disk.transient or temporary)
    for name in _unused(arguments):
        chain = _chain(name, arguments.nodes)
        yield replace(
            _found(name, None, None, f"no device here has the node {name!r}"),
            drops_flushes=_drops_flushes(chain, arguments.nodes),
            transient=is_on(chain[0].get("snapshot")) or thrown_away,
        )
    yield from _shares(arguments, served or {})
    of_devices = {_why_not_there(str(each.get("drive")), arguments) for each in arguments.devices}
    for problem in dict.fromkeys(arguments.unread):
        if problem in of_devices:
            continue
        yield replace(_found("?", None, None, problem), refused=arguments.refused.get(problem))


def _unused(arguments: Arguments) -> Iterator[str]:
    """The nodes that no device and no other node names: another program may plug them in."""
    named = {
        word
        for each in (*arguments.nodes.values(), *arguments.devices, *arguments.objects.values())
        for word in _leaves({**each, "node-name": None, "id": None, "limits": None})
    }
    others = (value for flag, value in arguments.options if flag not in ("blockdev", "drive"))
    spelled = {part for value in others for part in re.findall(r"[\w.-]+", value)}
    for name, node in arguments.nodes.items():
        media = name in arguments.drives and "cd" in str(node.get("media"))
        if "node-name" in node and name not in named and name not in spelled and not media:
            yield name


def _is_huge(chain: Sequence[Settings]) -> bool:
    """True for nodes with more values than any disk has."""
    rest: list[object] = list(chain)
    for _ in range(_MOST_SETTINGS):
        if not rest:
            return False
        each = rest.pop()
        if isinstance(each, dict | list):
            rest += each.values() if isinstance(each, dict) else each
    return bool(rest)


def _leaves(value: object) -> Iterator[str]:
    """The texts in a value, which may be nested without end."""
    rest = [value]
    while rest:
        each = rest.pop()
        if isinstance(each, str):
            yield each
        elif isinstance(each, dict | list):
            rest += each.values() if isinstance(each, dict) else each


def _why_not_there(drive: str, arguments: Arguments) -> str:
    """Why no node of the arguments has the name of a device's drive: it was not read, or is not
    there."""
    unread = (each for each in arguments.unread if each.startswith(f"-drive {drive}: "))
    missing = f"its drive {drive!r} is not in the arguments: no -drive or -blockdev has this name"
    return next(unread, missing)


def _disk(device: Settings, arguments: Arguments) -> ConfiguredDisk | None:
    """The hard disk that a device is; None for any other device."""
    driver, drive = str(device.get("driver")), str(device.get("drive"))
    name = str(device.get("id", device.get("drive", "?")))
    if _MEDIA.fullmatch(driver):
        return None
    if "drive" not in device:
        problem = f"vdisklab does not measure the device {driver!r}"
        return _found(name, None, None, problem) if _NO_DRIVE.match(driver) else None
    chain = _chain(drive, arguments.nodes)
    if _is_huge(chain):
        return _found(name, None, None, f"its nodes have more than {_MOST_SETTINGS} settings")
    if not chain:
        problem = _why_not_there(drive, arguments)
        refused = arguments.refused.get(problem)
        return replace(_found(name, None, None, problem), refused=refused)
    bus, groups = _hard_disk(device, arguments), _limit_groups(chain, arguments)
    alone = groups[0] if len(groups) == 1 else {}  # a path cannot express several groups
    path: DiskPath | None = None
    reason: str | None = None
    server: network.ServerDisk | None = None
    limits = [
        *(LIMITS.beyond(alone) if alone else (limit for g in groups for limit in LIMITS.all(g)))
    ]
    limits += _shared(chain, arguments.groups)
    if bus is None:
        reason = f"vdisklab does not know the device {driver!r}, and it has a drive"
        reason = reading.SCSI_PASSED if plain_driver(device) in _PASSED else reason
    else:
        limits += _beyond(device, bus, chain, arguments)
        try:
            path = throttled(_path_of_arguments(device, bus, chain, arguments), alone)
            server = network.server_disk(chain[-1])
            if server is not None and "filename" in chain[-1]:
                given = [value for flag, value in arguments.options if flag == "iscsi"]
                server = network.with_iscsi_options(server, given)
            if server is not None:
                limits += network.beyond_server(path.image)
                path = network.placed(path, server.kind)
        except ValueError as error:
            reason = str(error)
    file = chain[-1]
    owner = _controller_of(device, arguments.devices) if bus is Bus.SCSI else {}
    policy = device.get("werror"), device.get("rerror")
    source = str(file.get("filename", file.get("path", file.get("driver"))))
    return replace(
        _found(
            name, network.without_secret(source) if server is None else server.place, path, reason
        ),
        server=server,
        idle_aio=str(chain[0].get("aio") or "") if server and "limits" in chain[0] else "",
        serial=str(device.get("serial") or ""),
        controller=plain_driver(owner) if owner else "",
        read_only=any(is_on(node.get("read-only")) for node in chain),
        probed=chain[0].get("probed") is True,
        refused=_refused_aio(chain, server),
        limits=tuple(limits),
        drops_flushes=_drops_flushes(chain, arguments.nodes),
        transient=is_on(chain[0].get("snapshot")),
        shareable=is_on(device.get("share-rw")),
        ignored_errors=reading.ignored_errors(*policy),
        by_policy=reading.policy_path(bus, *policy) if path is None and bus is not None else None,
        may_differ=_may_differ(chain, (device, owner), arguments),
    )


def _may_differ(
    chain: Sequence[Settings], devices: Sequence[Settings], arguments: Arguments
) -> str:
    """Why a disk may have other settings than its arguments say, as a clause: they have words that
    may be further options. Empty if they have none."""
    thrown = chain[0].get("snapshot")
    if reading.is_variable(thrown):
        return f"snapshot={thrown} may throw its writes away"
    for nodes, what in ((chain, "its cache mode"), (devices, "its write cache")):
        unknown = dict.fromkeys(word for node in nodes for word in node.get(UNKNOWN, ()))
        if unknown:
            return f"{' and '.join(islice(unknown, _MOST_WORDS))} may set {what}"
    return arguments.doubt


def _refused_aio(
    chain: Sequence[Settings], server: network.ServerDisk | None
) -> tuple[str, str] | None:
    """Why QEMU refuses the I/O mode of a chain of nodes, and the way out; None if it does not.

    Only its drivers of files and host devices have the option. That of -drive itself is read and
    ignored (tried with QEMU 7.2.22).
    """
    file = chain[-1]
    if server is not None and file.get("aio") is not None and "limits" not in file:
        return f"QEMU's driver {server.kind} has no option aio", "leave aio out"
    return reading.refused_word("QEMU", _ACCEPTED, {"aio": file.get("aio", chain[0].get("aio"))})


def _chain(name: str, nodes: Mapping[str, Settings]) -> tuple[Settings, ...]:
    """The nodes from a device's down to the file's.

    A node that stands in another inherits its cache flags, and passes discards on (block.c,
    bdrv_inherited_options).
    """
    return _chain_from(nodes.get(name), nodes)


def _chain_from(node: Settings | None, nodes: Mapping[str, Settings]) -> tuple[Settings, ...]:
    chain: list[Settings] = []
    while node is not None and len(chain) < _DEEPEST:
        chain.append(node)
        below = node.get("file", node.get("image"))
        if isinstance(below, dict):
            cache = {**settings_of(node.get("cache")), **settings_of(below.get("cache"))}
            node = {"discard": "unmap", **below, **({"cache": cache} if cache else {})}
        else:
            node = None if below is None else nodes.get(str(below))
    return tuple(chain)


def _files(chain: Sequence[Settings], nodes: Mapping[str, Settings]) -> Iterator[Settings]:
    """The nodes that write the guest's data. The format's node passes each flush on to them
    (block/io.c, bdrv_co_flush).
    """
    rest, seen = [chain], 0
    while rest and seen < _DEEPEST:
        chain, seen = rest.pop(0), seen + 1  # breadth first: a node may hold itself
        yield chain[-1]
        for node in chain:
            for word in _FURTHER & node.keys():
                below = node[word]
                several = below if isinstance(below, list) else [below]
                if isinstance(below, dict) and "driver" not in below:  # children.0=…
                    several = list(below.values())
                chains = (_chain_from({**node, "file": each}, nodes)[1:] for each in several)
                found = (chain or ({"driver": node.get("driver")},) for chain in chains)
                rest += islice(found, max(0, _DEEPEST - len(rest)))


def _drops_flushes(chain: Sequence[Settings], nodes: Mapping[str, Settings]) -> bool:
    """True if a node that writes the guest's data ignores flushes."""
    files = _files(chain, nodes) if chain else ()
    return any(is_on(settings_of(node.get("cache")).get("no-flush")) for node in files)


def _limit_groups(chain: Sequence[Settings], arguments: Arguments) -> list[Settings]:
    """The limits of each throttle filter, and of a -drive."""
    of_drive = [settings_of(chain[0].get("limits"))]
    of_filters = (
        arguments.objects.get(str(node.get("throttle-group")), {})
        for node in chain
        if node.get("driver") == "throttle"
    )
    return [limits for limits in (*of_drive, *of_filters) if LIMITS.all(limits)]


def _shared(chain: Sequence[Settings], groups: Mapping[str, int]) -> Iterator[str]:
    """The throttle groups of the chain that other nodes have, too."""
    for node in chain:
        for word in ("throttle-group", "group"):
            yield from reading.shared_group(word, node.get(word), groups)


def _beyond(
    device: Settings, bus: Bus, chain: Sequence[Settings], arguments: Arguments
) -> Iterator[str]:
    """Settings that no path can express, as written: filters, slices, and unknown ones."""
    owners = [device]
    if bus is Bus.SCSI:
        owners.append(_controller_of(device, arguments.devices))
    for owner in owners:
        for key, value in owner.items():
            usual = key in _USUAL and is_on(value) == _USUAL[key]
            if not _PLAIN_PROPERTIES.fullmatch(key) and not usual:
                yield f"{key}={value}"
    for node in chain:
        if node.get("driver") in _FILTERS[1:]:
            yield str(node["driver"])
        if node.get("driver") == "rbd" and "encrypt" in node:  # by librbd, below QEMU's formats
            yield f"encrypt={settings_of(node['encrypt']).get('format')}"
        if is_on(node.get("copy-on-read")):
            yield "copy-on-read=on"
        for key, value in node.items():
            where = node is chain[-1] and _SERVER_KEYS.fullmatch(key)
            if key in ("offset", "size") or not (where or _NODE_KEYS.fullmatch(key)):
                yield f"{key}={value}"
    yield from reading.beyond_schema(bus, reading.block_words(device))
    blocks = [str(device.get(f"{of}_block_size", "")) for of in ("logical", "physical")]
    if blocks[1] not in ("", "0", blocks[0] or "512"):
        yield f"physical_block_size={blocks[1]}"


def _hard_disk(device: Settings, arguments: Arguments) -> Bus | None:
    """The bus of a hard disk; None for a device that is none.

    A PIIX disk has a unit, which may be left out; each port of an AHCI controller has one disk.
    """
    driver = plain_driver(device)
    if driver != "ide-hd":
        return _BUSES.get(driver)
    owner = str(_controller_of(device, arguments.devices).get("driver", ""))
    ahci = (
        "ahci" in owner
        or arguments.has_virt
        or X86_64.machines["sata"] in arguments.machine
        or not (owner or arguments.machine)
    )
    return Bus.SATA if ahci and "unit" not in device else Bus.IDE


def _controller_of(device: Settings, devices: Sequence[Settings]) -> Settings:
    """The controller that a device's bus names; QEMU takes the first one if it names none."""
    name = str(device.get("bus", "scsi")).partition(".")[0]
    named = (item for item in devices if item.get("id") == name)
    unnamed = (
        item
        for item in devices
        if name == "scsi" and _SCSI_CONTROLLERS.match(str(item.get("driver")))
    )
    return next(named, next(unnamed, {}))


def _shares(arguments: Arguments, served: Served) -> Iterator[ConfiguredDisk]:
    """The shared host directories; only virtiofsd's own command line has its options.

    `-virtfs` is `-fsdev` with its device.
    """
    exports = {str(export.get("id")): export for export in arguments.all("fsdev")}
    for device in arguments.devices:
        driver, name = str(device.get("driver")), str(device.get("id", "?"))
        if driver.startswith("vhost-user-fs"):
            yield _elsewhere(device, "tag", arguments, served)
        elif driver.startswith("virtio-9p"):
            yield _share(name, exports.get(str(device.get("fsdev")), {}))
    for export in arguments.all("virtfs"):
        yield _share(str(export.get("mount_tag", "?")), export)


def _share(name: str, export: Settings) -> ConfiguredDisk:
    path = DiskPath(attachment=Attachment(Bus.P9))
    read_only, limits = is_on(export.get("readonly")), LIMITS.all(export)
    found = _found(name, str(export.get("path", "?")), path)
    return replace(found, read_only=read_only, limits=limits)


def _image(chain: Sequence[Settings], nodes: Mapping[str, Settings]) -> tuple[Settings, Image]:
    """The format's node, and the image as the arguments describe it. Raises ValueError."""
    formats = [node for node in chain[:-1] if node.get("driver") not in (*_FILTERS, "raw")]
    raw = next((node for node in chain[:-1] if node.get("driver") == "raw"), {"driver": "raw"})
    if len(formats) > 1:
        first, second = (str(node.get("driver")) for node in formats[:2])
        raise ValueError(f"it has {first} on {second}, not one format")
    node = formats[0] if formats else raw
    if node.get("driver") == "luks":
        return node, Image(ImageFormat.RAW, (("encrypt", "luks"),))
    form = ImageFormat(reading.one_of(str(node.get("driver")), tuple(ImageFormat), "format"))
    settings = {
        **{option: node.get(name) for option, name in FORMAT_MEMBERS.items()},
        "discard_no_unref": "on" if is_on(node.get("discard-no-unref")) else None,
        "lazy_refcounts": "on" if is_on(node.get("lazy-refcounts")) else None,
        "encrypt": settings_of(node.get("encrypt")).get("format"),
        "data_file": "on" if "data-file" in node else None,
        "backing": _depth(node, nodes) or None,
    }
    return node, Image(form, tuple(reading.parsed_options(form, settings).items()))


def _depth(node: Settings, nodes: Mapping[str, Settings]) -> int:
    """The number of images below that the arguments state."""
    depth = 0
    while node.get("backing") and depth < _DEEPEST:
        depth += 1
        below = node["backing"]
        node = below if isinstance(below, dict) else nodes.get(str(below), {})
    return min(depth, 200)


def _path_of_arguments(
    device: Settings, bus: Bus, chain: Sequence[Settings], arguments: Arguments
) -> DiskPath:
    file, nodes, objects = chain[-1], arguments.nodes, arguments.objects
    for each in _files(chain, nodes):
        storage = str(each.get("driver", "file"))
        if storage in (*ImageFormat, "luks", *_FILTERS):
            raise ValueError("the node of its file is not in the arguments")
        is_local = storage in ("file", "host_device")
        if not is_local and (each is not file or network.server_disk(each) is None):
            raise ValueError(f"its storage is {storage!r}: {reading.MAP_IT}")
    top, image = _image(chain, nodes)
    whole = file.get("driver") == "host_device" and image == Image(ImageFormat.RAW)
    cache = file.get("cache")
    if cache is None and any("cache" in node for node in chain):
        cache = {}
    mode, write_cache = cache_of_arguments(cache, device.get("write-cache"))
    owner = device
    if bus is Bus.SCSI or plain_driver(device) == "nvme-ns":
        owner = _controller_of(device, arguments.devices)
    if bus is Bus.SCSI:
        reading.one_of(plain_driver(owner), ("virtio-scsi-pci",), "controller")
    discards = [str(node.get("discard", "ignore")) for node in chain]
    zeroes = (str(node.get("detect-zeroes", "off")) for node in chain)
    options: dict[str, OptionValue] = {
        "aio": Aio(
            reading.one_of(str(file.get("aio", top.get("aio", "threads"))), tuple(Aio), "aio")
        ).value,
        # Each node drops discards by default (block/io.c, bdrv_co_pdiscard).
        "discard": next(
            (
                reading.one_of(word, ("ignore", "unmap"), "discard")
                for word in discards
                if word != "unmap"
            ),
            "unmap",
        ),
        "write_cache": write_cache.value,
    }
    if "iothread" in owner:
        options["iothread"] = True
    queues = owner.get(_QUEUES.get(plain_driver(owner), ""))
    if queues is not None:
        options["queues"] = reading.queues_of(str(queues))
    mapping = owner.get("iothread-vq-mapping")
    entries = mapping if isinstance(mapping, list) else []
    threads = [settings_of(entry).get("iothread") for entry in entries]
    thread = objects.get(str(threads[0] if threads else owner.get("iothread")), {})
    settings = {
        "detect_zeroes": next((word for word in zeroes if word != "off"), None),
        "queue_size": owner.get(CONTROLLER_PROPERTIES.get(bus, {}).get("queue_size", "")),
        "packed": "on" if is_on(owner.get("packed")) else None,
        **reading.block_words(device),
        **reading.error_words(device.get("werror"), device.get("rerror")),
        "iothreads": len(threads) or None,
        "aio_max_batch": thread.get("aio-max-batch"),
    }
    options |= reading.parsed_options(bus, settings)
    if "poll-max-ns" in thread:
        options["poll"] = BUS_OPTIONS[Bus.VIRTIO]["poll"].parse(str(thread["poll-max-ns"]))
    return DiskPath((), None if whole else image, mode, reading.attachment_of(bus, options))


def throttled(path: DiskPath, limits: Settings) -> DiskPath:
    """The path with the limits that it can say, and no others. Raises ValueError."""
    bus, settings = path.attachment.bus, LIMITS.of_path(limits)
    others = {key: value for key, value in path.attachment.options if key not in settings}
    options = tuple((others | reading.parsed_options(bus, settings)).items())
    return replace(path, attachment=Attachment(bus, options))


def cache_of_arguments(cache: object, property_value: object) -> tuple[CacheMode, WriteCache]:
    """The cache mode and write_cache option that give these settings. Raises ValueError.

    Without the property a device takes its node's setting, which is on for every node of -blockdev.
    """
    word = {True: "on", False: "off"}.get(property_value, property_value)  # type: ignore[call-overload] # any object
    if not isinstance(cache, dict):
        return CacheMode.DEFAULT, WriteCache.MODE if word is None else WriteCache(str(word))
    flags = tuple(known_flag(cache, name, f"cache.{name}") for name in ("direct", "no-flush"))
    modes = [
        mode
        for mode in CacheMode
        if mode is not CacheMode.DEFAULT and (mode.direct, mode.no_flush) == flags
    ]
    wanted = WriteCache.ON if word is None else WriteCache(str(word))
    exact = next((mode for mode in modes if WriteCache.MODE.qemu_property(mode) is wanted), None)
    if exact is not None:
        return exact, WriteCache.MODE
    return next(mode for mode in modes if mode.write_cache), wanted
