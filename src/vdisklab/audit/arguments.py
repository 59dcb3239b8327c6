"""Disks in QEMU's own arguments, as `export.qemu` writes them: -blockdev and -device in JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from vdisklab.path.disk_path import Attachment, DiskPath, Image
from vdisklab.path.options import BUS_OPTIONS, OptionValue
from vdisklab.path.segments import Bus, CacheMode, ImageFormat

Settings = Mapping[str, Any]

_QUEUES = {"virtio-blk-pci": "num-queues", "virtio-scsi-pci": "num_queues", "nvme": "max_ioqpairs"}
_BUSES = {"virtio-blk-pci": Bus.VIRTIO, "scsi-hd": Bus.SCSI, "nvme": Bus.NVME,
          "usb-storage": Bus.USB}  # fmt: skip


@dataclass(frozen=True, slots=True)
class ArgumentDisk:
    """A disk found among arguments."""

    id: str
    filename: str
    path: DiskPath


def disks_of_arguments(words: Sequence[str]) -> Iterator[ArgumentDisk]:
    """The disks whose arguments are spelled in JSON; what is spelled otherwise is passed over."""
    nodes = {str(each.get("node-name")): each for each in _json_after(words, "-blockdev")}
    devices = list(_json_after(words, "-device"))
    for device in devices:
        top = nodes.get(str(device.get("drive")))
        below = nodes.get(str(top.get("file"))) if top else None
        if top is None or below is None or "filename" not in below:
            continue
        try:
            path = _path(device, top, below, devices)
        except ValueError:
            continue
        yield ArgumentDisk(str(device.get("id", "?")), str(below["filename"]), path)


def _json_after(words: Sequence[str], flag: str) -> Iterator[Settings]:
    for word, following in pairwise(words):
        if word == flag and following.startswith("{"):
            try:
                value = json.loads(following)
            except ValueError:
                continue
            if isinstance(value, dict):
                yield value


def _path(
    device: Settings, top: Settings, below: Settings, devices: Sequence[Settings]
) -> DiskPath:
    is_block = below.get("driver") == "host_device"
    form = ImageFormat(str(top.get("driver")))
    image = None if is_block and form is ImageFormat.RAW else Image(form)
    cache, write_cache = _cache(top.get("cache"), device.get("write-cache"))
    bus = _bus(device)
    owner = _controller(device, devices) if bus is Bus.SCSI else device
    asked: dict[str, OptionValue] = {
        "aio": str(below.get("aio", "threads")),
        "discard": str(top.get("discard", "ignore")),
        "write_cache": write_cache,
    }
    if "iothread" in owner:
        asked["iothread"] = True
    queues = owner.get(_QUEUES.get(str(owner.get("driver")), ""))
    if isinstance(queues, int):
        asked["queues"] = queues
    known = BUS_OPTIONS[bus]
    return DiskPath((), image, cache, Attachment(bus, tuple(
        (key, known[key].parse(str(value)) if isinstance(value, str) else value)
        for key, value in asked.items() if key in known
    )))  # fmt: skip


def _bus(device: Settings) -> Bus:
    driver = str(device.get("driver"))
    if driver == "ide-hd":
        # A PIIX disk is given its unit; each port of an AHCI controller has one disk.
        return Bus.IDE if "unit" in device else Bus.SATA
    if driver not in _BUSES:
        raise ValueError(driver)
    return _BUSES[driver]


def _controller(device: Settings, devices: Sequence[Settings]) -> Settings:
    name = str(device.get("bus", "")).partition(".")[0]
    return next((each for each in devices if each.get("id") == name), {})


def _cache(options: object, told: object) -> tuple[CacheMode, str]:
    """The cache mode and the write_cache option that together give these settings."""
    if not isinstance(options, dict):
        return CacheMode.DEFAULT, "mode" if told is None else str(told)
    flags = bool(options.get("direct")), bool(options.get("no-flush"))
    with_cache = {
        (False, False): CacheMode.WRITEBACK,
        (True, False): CacheMode.NONE,
        (False, True): CacheMode.UNSAFE,
    }
    without = {(False, False): CacheMode.WRITETHROUGH, (True, False): CacheMode.DIRECTSYNC}
    if told == "off" and flags in without:
        return without[flags], "mode"
    if flags not in with_cache:
        raise ValueError("no cache mode has O_DIRECT and drops flushes")
    return with_cache[flags], "mode" if told == "on" else ("auto" if told is None else str(told))
