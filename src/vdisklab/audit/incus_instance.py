"""Reads Incus's virtual machines: `incus list --format yaml`, `incus config show`.

The opposite of `export.incus`. Defaults are those of Incus 7.3 (addDriveConfig in driver_qemu.go):
virtio-scsi, cache none, io_uring, discards passed on; image files on ZFS and btrfs get writeback
and threads. A pool's driver is in `incus storage list --format yaml`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from vdisklab.audit.configured_disk import ConfiguredDisk
from vdisklab.audit.limit_words import INCUS
from vdisklab.audit.qemu_arguments import MAP_IT, attachment_of, one_of
from vdisklab.audit.yaml_documents import Tree, tree, word
from vdisklab.export.incus import BUSES
from vdisklab.path.disk_path import DiskPath, Image, Layer
from vdisklab.path.managers import Manager, incus_aio
from vdisklab.path.options import OptionValue
from vdisklab.path.segments import (
    Bus,
    CacheMode,
    ImageFormat,
    LayerKind,
)

_BUSES = {name: bus for bus, name in BUSES.items()}
_BLOCK_LAYERS = {"zfs": LayerKind.ZVOL, "lvm": LayerKind.LVMTHIN}


def is_incus(document: Tree) -> bool:
    """True for an instance or a storage pool of Incus or LXD, and for an instance's devices alone,
    as `vdisklab export` writes them."""
    devices = document.get("devices", document.get("expanded_devices"))
    return _is_pool(document) or (
        isinstance(devices, dict) and isinstance(document.get("config", {}), dict)
    )


def _is_pool(document: Tree) -> bool:
    return "driver" in document and isinstance(document.get("config"), dict)


def read_incus(documents: tuple[Tree, ...], origin: str) -> Iterator[ConfiguredDisk]:
    """The hard disks of all virtual machines; a text of one instance lacks its name."""
    drivers = {
        word(document, "name") or "default": str(document["driver"])
        for document in documents
        if _is_pool(document)
    }
    for document in documents:
        if not _is_pool(document) and is_incus(document) and not _is_container(document):
            yield from _disks(document, drivers, origin)


def _is_container(document: Tree) -> bool:
    return document.get("type") == "container" or (
        word(document, "config", "image.type") == "squashfs"
    )


def _disks(document: Tree, drivers: Mapping[str, str], origin: str) -> Iterator[ConfiguredDisk]:
    own = tree(document, "devices")
    name = word(document, "name") or origin
    for key, device in {**tree(document, "expanded_devices"), **own}.items():
        if not isinstance(device, dict) or device.get("type") != "disk":
            continue
        source, place = word(device, "source") or "", word(device, "path")
        if ":config" in source or source.startswith("agent:"):  # a configuration drive
            continue
        path, problem = None, None
        try:
            shared = place not in (None, "/")
            path = _share(device) if shared else _path(device, drivers)
        except ValueError as error:
            problem = str(error)
        yield ConfiguredDisk(
            domain=name,
            target=str(key),
            source=source or f"{device.get('pool', '?')}:{name}",
            path=path,
            problem=problem,
            read_only=str(device.get("readonly", "false")).lower() == "true",
            manager=Manager.INCUS,
            guest=name,
            text=json.dumps({"inherited": key not in own, **device}, default=str),
            architecture=word(document, "architecture"),
            limits=INCUS.beyond(device),
        )


def _share(device: Tree) -> DiskPath:
    """A directory. Raises ValueError where Incus decides between virtiofs and 9p."""
    if (word(device, "io.bus") or "auto") == "auto":
        raise ValueError(
            "it is a directory, which Incus offers by virtiofs and by 9p: set io.bus to one"
        )
    bus = Bus(one_of(word(device, "io.bus") or "", (Bus.VIRTIOFS, Bus.P9), "bus"))
    named = one_of(word(device, "io.cache") or "none", ("none", "unsafe"), "cache of a directory")
    cache = "always" if named == "unsafe" else "none"
    return DiskPath(attachment=attachment_of(bus, {"cache": cache}))


def _path(device: Tree, drivers: Mapping[str, str]) -> DiskPath:
    pool = word(device, "pool")
    driver = "" if pool is None else drivers.get(pool, "?")
    if driver == "?":
        raise ValueError(
            f"the driver of its pool {pool!r} is not known: give `incus storage list --format "
            "yaml` too"
        )
    layers: tuple[Layer, ...] = ()
    image = None
    if driver in _BLOCK_LAYERS:
        layers = (Layer(_BLOCK_LAYERS[driver]),)
    elif driver in ("dir", "btrfs") or not (word(device, "source") or "").startswith("/dev/"):
        image = Image(ImageFormat.RAW)
    if driver not in ("", "dir", "btrfs", *_BLOCK_LAYERS):
        raise ValueError(f"its pool {pool!r} is of type {driver}: {MAP_IT}")
    bus = _BUSES[one_of(word(device, "io.bus") or "virtio-scsi", tuple(_BUSES), "bus")]
    usual = CacheMode.WRITEBACK if driver == "btrfs" else CacheMode.NONE
    cache = CacheMode(one_of(word(device, "io.cache") or usual, tuple(CacheMode), "cache mode"))
    options: dict[str, OptionValue] = {
        "aio": incus_aio(cache).value,
        "discard": "unmap",
    }
    return DiskPath(layers, image, cache, attachment_of(bus, options))
