"""Reads Proxmox VE's guests: /etc/pve/qemu-server/VMID.conf and /etc/pve/storage.cfg.

The opposite of `export.proxmox`. Defaults are those of qemu-server 9.2 (PVE::QemuServer::Drive):
cache=none (writeback on btrfs with checksums), aio=io_uring (not on LVM and CIFS),
detect_zeroes=on (unmap with discard=on), and controller lsi without `scsihw`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from vdisklab.audit.configured_disk import ConfiguredDisk
from vdisklab.audit.limit_words import PROXMOX
from vdisklab.audit.qemu_arguments import MAP_IT, attachment_of, one_of, parsed_options, queues_of
from vdisklab.path.disk_path import DiskPath, Image, Layer
from vdisklab.path.managers import Manager
from vdisklab.path.options import OptionValue
from vdisklab.path.segments import (
    Aio,
    Bus,
    CacheMode,
    ImageFormat,
    LayerKind,
)

_SLOT = re.compile(r"(virtio|scsi|sata|ide)\d+")
_SHARE = re.compile(r"virtiofs\d+")
_LINE = re.compile(r"([a-z][a-z0-9_-]*):\s*(.*)")
_DIRECTORIES = ("dir", "btrfs", "nfs", "cifs", "cephfs", "glusterfs")
_BLOCK_LAYERS = {
    "lvmthin": LayerKind.LVMTHIN, "lvm": LayerKind.LVM, "zfspool": LayerKind.ZVOL,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Storage:
    """A storage of storage.cfg: its name, type and options."""

    name: str
    type: str
    options: Mapping[str, str] = field(default_factory=dict)


def read_storages(text: str) -> Mapping[str, Storage]:
    """The storages of a storage.cfg by name; lines that are not understood are left out."""
    storages: dict[str, Storage] = {}
    options: dict[str, str] = {}
    for line in text.splitlines():
        heading = re.fullmatch(r"(\w+):\s*(\S+)\s*", line)
        if heading:
            options = {}
            storages[heading[2]] = Storage(heading[2], heading[1], options)
        elif line[:1].isspace() and line.strip():
            key, _, value = line.strip().partition(" ")
            options[key] = value.strip()
    return storages


def is_proxmox(text: str) -> bool:
    """True for a text of nothing but `key: value` lines, comments and sections of snapshots."""
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    if lines and lines[0].startswith("["):
        return False
    return bool(lines) and all(line.startswith("[") or _LINE.fullmatch(line) for line in lines)


def read_proxmox(
    text: str, vmid: str, storages: Mapping[str, Storage]
) -> tuple[ConfiguredDisk, ...]:
    """The hard disks of a guest as it is now; sections with snapshots are left out."""
    settings = _settings(text)
    disks = (
        _disk(settings, vmid, key, storages) for key in sorted(settings) if _SLOT.fullmatch(key)
    )
    shares = (_share(settings, vmid, key) for key in sorted(settings) if _SHARE.fullmatch(key))
    return (*(disk for disk in disks if disk is not None), *shares)


def _share(settings: Mapping[str, str], vmid: str, slot: str) -> ConfiguredDisk:
    """A directory; the cluster's mapping, which is not here, says which."""
    options = dict(part.partition("=")[::2] for part in settings[slot].split(","))
    mapping = next((key for key, value in options.items() if not value), options.get("dirid", ""))
    path, problem = None, None
    try:
        words = {"cache": {"never": "none"}.get(options.get("cache", ""), options.get("cache"))}
        parsed = parsed_options(Bus.VIRTIOFS, words)
        path = DiskPath(attachment=attachment_of(Bus.VIRTIOFS, parsed))
    except ValueError as error:
        problem = str(error)
    return ConfiguredDisk(
        domain=settings.get("name", vmid),
        target=slot,
        source=mapping,
        path=path,
        problem=problem,
        manager=Manager.PROXMOX,
        guest=vmid,
        text=settings[slot],
        architecture=settings.get("arch"),
    )


def _settings(text: str) -> dict[str, str]:
    settings: dict[str, str] = {}
    for line in text.splitlines():
        if line.startswith("["):
            break
        match = _LINE.fullmatch(line.rstrip())
        if match:
            settings[match[1]] = match[2]
    return settings


def _disk(
    settings: Mapping[str, str], vmid: str, slot: str, storages: Mapping[str, Storage]
) -> ConfiguredDisk | None:
    """One disk; None for a CD-ROM, cloud-init's drive and an empty drive."""
    options = dict(part.partition("=")[::2] for part in settings[slot].split(","))
    volume = next((key for key, value in options.items() if not value), options.get("file", ""))
    if options.get("media") == "cdrom" or volume in ("none", "") or "cloudinit" in volume:
        return None
    path, problem, source = None, None, volume
    try:
        layers, image, source = _place(volume, options, storages)
        storage = storages.get(volume.partition(":")[0])
        bus = Bus(slot.rstrip("0123456789"))
        path = _path(bus, settings.get("scsihw", "lsi"), options, (layers, image), storage)
    except ValueError as error:
        problem = str(error)
    return ConfiguredDisk(
        domain=settings.get("name", vmid),
        target=slot,
        source=source,
        path=path,
        problem=problem,
        read_only=options.get("ro") in ("1", "on"),
        manager=Manager.PROXMOX,
        guest=vmid,
        text=settings[slot],
        controller=settings.get("scsihw", "lsi") if slot.startswith("scsi") else "",
        architecture=settings.get("arch"),
        limits=PROXMOX.beyond(options),
    )


def _place(
    volume: str, options: Mapping[str, str], storages: Mapping[str, Storage]
) -> tuple[tuple[Layer, ...], Image | None, str]:
    """The host layers, the image and the file or device of a volume.

    Raises ValueError for a storage whose layers vdisklab does not build.
    """
    if volume.startswith("/"):
        on_device = volume.startswith("/dev/")
        return (), None if on_device else _image(volume, options), volume
    name, _, rest = volume.partition(":")
    storage = storages.get(name)
    if storage is None:
        raise ValueError(
            f"its storage {name!r} is not in storage.cfg, so its layers are not known: put "
            "/etc/pve/storage.cfg beside the guest's file, or name its directory"
        )
    if storage.type in _DIRECTORIES:
        file = f"{storage.options.get('path', f'/mnt/pve/{name}')}/images/{rest}"
        return (), _image(rest, options), file
    kind = _BLOCK_LAYERS.get(storage.type)
    if kind is None:
        raise ValueError(f"its storage {name!r} is of type {storage.type}: {MAP_IT}")
    image = _image(rest, options)
    pool = storage.options.get("pool", name)
    group = storage.options.get("vgname", name)
    device = f"/dev/zvol/{pool}/{rest}" if kind is LayerKind.ZVOL else f"/dev/{group}/{rest}"
    return (Layer(kind),), None if image.format is ImageFormat.RAW else image, device


def _image(volume: str, options: Mapping[str, str]) -> Image:
    """The image by format= or by the volume's extension (PVE::Storage::Plugin, parse_volname)."""
    extension = volume.rpartition(".")[2] if "." in volume.rpartition("/")[2] else "raw"
    if volume.startswith("/") and extension not in tuple(ImageFormat):
        extension = "raw"  # of a file outside the storages
    word = options.get("format", extension)
    return Image(ImageFormat(one_of(word, tuple(ImageFormat), "format")))


def _path(
    bus: Bus,
    controller: str,
    options: Mapping[str, str],
    place: tuple[tuple[Layer, ...], Image | None],
    storage: Storage | None,
) -> DiskPath:
    if bus is Bus.SCSI:
        one_of(controller, ("virtio-scsi-pci", "virtio-scsi-single"), "controller")
    kind = "" if storage is None else storage.type
    checksummed = kind == "btrfs" and not (storage and storage.options.get("nocow"))
    usual = CacheMode.WRITEBACK if checksummed else CacheMode.NONE
    cache = CacheMode(one_of(options.get("cache", usual), tuple(CacheMode), "cache mode"))
    discards = options.get("discard") == "on"
    zeroes = "off" if options.get("detect_zeroes") in ("0", "off") else "on"
    attached: dict[str, OptionValue] = {
        "aio": Aio(one_of(options.get("aio", _usual_aio(kind, cache)), tuple(Aio), "aio")).value,
        "discard": "unmap" if discards else "ignore",
        "detect_zeroes": "unmap" if zeroes == "on" and discards else zeroes,
        # Only virtio disks and a SCSI controller of their own have a thread.
        "iothread": options.get("iothread") in ("1", "on")
        and (bus is Bus.VIRTIO or controller == "virtio-scsi-single"),
    }
    if options.get("queues"):
        attached["queues"] = queues_of(options["queues"])
    words = dict(PROXMOX.of_path(options))
    if "mbps" in options:
        words["throttle_bps"] = _bytes(options["mbps"])
    attachment = attachment_of(bus, attached | parsed_options(bus, words))
    return DiskPath(*place, cache, attachment)


def _bytes(megabytes: str) -> str:
    """MiB, whose fraction Proxmox allows, as bytes. Raises ValueError."""
    number = re.fullmatch(r"\d{1,9}(\.\d{1,9})?", megabytes)
    if number is None:
        raise ValueError(f"its mbps is {megabytes!r}, but must be a number")
    return str(int(float(megabytes) * 2**20))


def _usual_aio(storage: str, cache: CacheMode) -> Aio:
    if storage in ("lvm", "cifs"):
        return Aio.NATIVE if cache.direct else Aio.THREADS
    return Aio.IO_URING
