"""Reads libvirt's domain XML: each disk as a disk path. The opposite of `export.libvirt`.

Disks that libvirt passes to QEMU as arguments are read too, if these are JSON as `export.qemu`
writes them. Guests of other hypervisors are recognised, and their disks have no path. The XML is
not trusted: defusedxml refuses document types and entities, so no other file is read and memory use
is bounded.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from typing import Any, TypeVar
from xml.etree.ElementTree import Element, ParseError

from defusedxml.common import DefusedXmlException
from defusedxml.ElementTree import fromstring

from vdisklab.audit.configured_disk import ConfiguredDisk
from vdisklab.errors import PlanError
from vdisklab.export.libvirt import PATH_NAMESPACE, QEMU_NAMESPACE
from vdisklab.path.disk_path import Attachment, DiskPath, Image, parse_path
from vdisklab.path.segments import (
    BUS_OPTIONS,
    Aio,
    Bus,
    CacheMode,
    ImageFormat,
    OptionValue,
    WriteCache,
)

LARGEST = 4 << 20
"""Maximum number of characters of a domain's XML."""

Word = TypeVar("Word", bound=StrEnum)
Settings = Mapping[str, Any]
"""One -blockdev or -device argument."""

_Q = f"{{{QEMU_NAMESPACE}}}"
_V = f"{{{PATH_NAMESPACE}}}"


def read_domain(text: str, origin: str) -> tuple[ConfiguredDisk, ...]:
    """The hard disks of a domain. Raises PlanError if the text is not a domain's XML."""
    if len(text) > LARGEST:
        raise PlanError(
            f"{origin} is larger than any domain's XML",
            hint="create it again: `virsh dumpxml DOMAIN > FILE`",
        )
    try:
        root = fromstring(text, forbid_dtd=True)
    except DefusedXmlException as error:
        raise PlanError(
            f"{origin} declares a document type or entities, which no domain has",
            hint="vdisklab does not read such files; create it again: `virsh dumpxml DOMAIN`",
        ) from error
    except (ParseError, ValueError) as error:  # ValueError: an encoding that the text contradicts
        raise PlanError(
            f"{origin} is not XML: {error}", hint="create it again: `virsh dumpxml DOMAIN`"
        ) from error
    # The XML of a snapshot or a saved state contains the domain.
    domain = root if root.tag == "domain" else root.find(".//domain")
    if domain is None:
        raise PlanError(
            f"{origin} is XML, but not a libvirt domain: its root is <{root.tag}>",
            hint="`virsh dumpxml DOMAIN` prints one",
        )
    return tuple(_disks(domain))


_QEMU_TYPES = ("kvm", "qemu", "hvf")
"""The domain types that run QEMU (libvirt's src/conf/virconftypes.h, virDomainVirtType)."""

_HARD_DISKS = ("disk", "lun")


def _disks(domain: Element) -> Iterator[ConfiguredDisk]:
    name = (domain.findtext("name") or "unnamed").strip()
    notes = dict(_notes(domain))
    for disk in domain.iterfind("./devices/disk"):
        if disk.get("device", "disk") in _HARD_DISKS:
            yield _disk(domain, name, disk, notes)
    words = [word.get("value", "") for word in domain.iterfind(f"./{_Q}commandline/{_Q}arg")]
    for found in disks_of_arguments(words):
        yield ConfiguredDisk(
            name, found.device, found.filename, found.path, notes.get(""), None, found.read_only
        )


def _notes(domain: Element) -> Iterator[tuple[str, DiskPath]]:
    """The paths that vdisklab wrote into the metadata, by target ("": a disk in arguments)."""
    for note in domain.iterfind(f"./metadata/{_V}disks/{_V}disk"):
        try:
            yield note.get("target", ""), parse_path(note.get("path", ""))
        except PlanError:
            continue  # the note was edited; the XML itself still has nearly everything


def _disk(
    domain: Element, name: str, disk: Element, notes: Mapping[str, DiskPath]
) -> ConfiguredDisk:
    target = _attributes(disk, "target").get("dev", "?")
    location = _attributes(disk, "source")
    source = location.get("file") or location.get("dev")
    kind = disk.get("type", "file")
    path, problem = None, None
    try:
        _require_qemus_disk(domain, disk)
        if kind not in ("file", "block"):
            raise ValueError(
                f"its source is of type {kind}: vdisklab measures local files and block devices"
            )
        path = _path(domain, disk, is_block=kind == "block")
    except ValueError as error:
        problem = str(error)
    read_only = disk.find("readonly") is not None
    return ConfiguredDisk(name, target, source, path, notes.get(target), problem, read_only)


def _require_qemus_disk(domain: Element, disk: Element) -> None:
    """Raises ValueError for the disk of another hypervisor, and for one that QEMU only forwards."""
    kind = domain.get("type", "kvm")
    if kind not in _QEMU_TYPES:
        raise ValueError(f"its guest is of type {kind}: vdisklab judges the disks of QEMU only")
    if disk.get("device") == "lun":
        raise ValueError("the guest's SCSI commands go straight to the device (device='lun')")


def _attributes(element: Element, child: str) -> Mapping[str, str]:
    child_element = element.find(child)
    return {} if child_element is None else child_element.attrib


def _path(domain: Element, disk: Element, *, is_block: bool) -> DiskPath:
    """The path that the disk's element describes. Raises ValueError if no path can express it."""
    driver = _attributes(disk, "driver")
    image = _image(_known(ImageFormat, driver.get("type", "raw"), "format"), is_block=is_block)
    cache = _known(CacheMode, driver.get("cache", "default"), "cache mode")
    return DiskPath((), image, cache, _attachment(domain, disk, driver))


def _image(form: ImageFormat, *, is_block: bool) -> Image | None:
    return None if is_block and form is ImageFormat.RAW else Image(form)


def _attachment(domain: Element, disk: Element, driver: Mapping[str, str]) -> Attachment:
    target = _attributes(disk, "target")
    bus = _known(Bus, target.get("bus") or _bus_by_name(target.get("dev", "")), "bus")
    threading = _threading(domain, disk, bus, driver)
    options: dict[str, OptionValue] = {
        "aio": _known(Aio, driver.get("io", "threads"), "io mode").value,
        "discard": _one_of(driver.get("discard", "ignore"), ("ignore", "unmap"), "discard"),
        "write_cache": _write_cache(domain, disk).value,
    }
    # libvirt 10 may map several threads in an element of their own.
    if "iothread" in threading or disk.find("./driver/iothreads") is not None:
        options["iothread"] = True
    if threading.get("queues"):
        options["queues"] = _queues(threading["queues"], admin=1 if bus is Bus.NVME else 0)
    return _known_options(bus, options)


def _queues(text: str, admin: int = 0) -> OptionValue:
    """The number of queues for data; `admin` of them are for other commands."""
    number = str(int(text) - admin) if text.isdecimal() and len(text) < 9 else text
    try:
        return BUS_OPTIONS[Bus.VIRTIO]["queues"].parse(number)
    except ValueError as error:
        raise ValueError(f"its number of queues is {text!r}, but must be {error}") from None


def _known_options(bus: Bus, options: Mapping[str, OptionValue]) -> Attachment:
    """The attachment, limited to options that the bus has."""
    schema = BUS_OPTIONS[bus]
    return Attachment(bus, tuple((key, options[key]) for key in options if key in schema))


def _bus_by_name(device: str) -> str:
    """libvirt's bus for a disk without one: by the first letter (virDiskNameToBusIndex)."""
    return {"v": "virtio", "h": "ide", "s": "scsi"}.get(device[:1], "ide")


def _threading(
    domain: Element, disk: Element, bus: Bus, driver: Mapping[str, str]
) -> Mapping[str, str]:
    """The settings for threads and queues, which a controller may have instead of the disk."""
    match bus:
        case Bus.SCSI:
            controller = _controller(domain, disk, "scsi")
            model = "virtio-scsi" if controller is None else controller.get("model")
            _one_of(model or "virtio-scsi", ("virtio-scsi", "auto"), "controller")
        case Bus.NVME:
            controller = _controller(domain, disk, "nvme")
        case _:
            return driver
    return {} if controller is None else _attributes(controller, "driver")


def _controller(domain: Element, disk: Element, kind: str) -> Element | None:
    index = _attributes(disk, "address").get("controller", "0")
    for controller in domain.iterfind(f"./devices/controller[@type='{kind}']"):
        if controller.get("index", "0") == index:
            return controller
    return None


def _write_cache(domain: Element, disk: Element) -> WriteCache:
    """The property override of the disk's device; without one the cache mode decides."""
    name = _attributes(disk, "alias").get("name")
    for device in domain.iterfind(f"./{_Q}override/{_Q}device"):
        if name is None or device.get("alias") != name:
            continue
        for setting in device.iterfind(f"./{_Q}frontend/{_Q}property"):
            if setting.get("name") == "write-cache" and setting.get("type") != "remove":
                value = _one_of(setting.get("value", ""), ("on", "off", "auto"), "write-cache")
                return WriteCache(value)
    return WriteCache.MODE


def _known(kind: type[Word], word: str, what: str) -> Word:
    return kind(_one_of(word, tuple(kind), what))


def _one_of(word: str, words: tuple[str, ...], what: str) -> str:
    if word not in words:
        raise ValueError(f"vdisklab does not measure its {what} {word!r}")
    return word


_QUEUES = {"virtio-blk-pci": "num-queues", "virtio-scsi-pci": "num_queues", "nvme": "max_ioqpairs"}
_BUSES = {"virtio-blk-pci": Bus.VIRTIO, "scsi-hd": Bus.SCSI, "nvme": Bus.NVME,
          "usb-storage": Bus.USB}  # fmt: skip


@dataclass(frozen=True, slots=True)
class DiskArguments:
    """A disk that QEMU's arguments describe: its device id, file name and path."""

    device: str
    filename: str
    path: DiskPath
    read_only: bool


def disks_of_arguments(words: Sequence[str]) -> Iterator[DiskArguments]:
    """Each disk whose QEMU arguments are JSON; skips others, also those that no path can express.

    The file may be a node of its own or stand in the format's node.
    """
    nodes = {str(node.get("node-name")): node for node in _json_after(words, "-blockdev")}
    devices = list(_json_after(words, "-device"))
    for device in devices:
        top = nodes.get(str(device.get("drive")))
        below = None if top is None else _file_node(top, nodes)
        if top is None or below is None or "filename" not in below:
            continue
        try:
            path = _path_of_arguments(device, top, below, devices)
        except ValueError:
            continue
        read_only = top.get("read-only") is True
        yield DiskArguments(str(device.get("id", "?")), str(below["filename"]), path, read_only)


def _file_node(top: Settings, nodes: Mapping[str, Settings]) -> Settings | None:
    below = top.get("file")
    return below if isinstance(below, dict) else nodes.get(str(below))


def _json_after(words: Sequence[str], flag: str) -> Iterator[Settings]:
    for word, following in pairwise(words):
        if word == flag and following.startswith("{"):
            try:
                value = json.loads(following)
            except (ValueError, RecursionError):  # RecursionError: nested without end
                continue
            if isinstance(value, dict):
                yield value


def _path_of_arguments(
    device: Settings, top: Settings, below: Settings, devices: Sequence[Settings]
) -> DiskPath:
    is_block = below.get("driver") == "host_device"
    image = _image(ImageFormat(str(top.get("driver"))), is_block=is_block)
    cache, write_cache = _cache_of_arguments(top.get("cache"), device.get("write-cache"))
    bus = _bus_of_device(device)
    owner = _controller_of(device, devices) if bus is Bus.SCSI else device
    options: dict[str, OptionValue] = {
        "aio": Aio(str(below.get("aio", "threads"))).value,
        "discard": _one_of(str(top.get("discard", "ignore")), ("ignore", "unmap"), "discard"),
        "write_cache": write_cache.value,
    }
    if "iothread" in owner:
        options["iothread"] = True
    queues = owner.get(_QUEUES.get(str(owner.get("driver")), ""))
    if queues is not None:
        options["queues"] = _queues(str(queues))
    return DiskPath((), image, cache, _known_options(bus, options))


def _bus_of_device(device: Settings) -> Bus:
    driver = str(device.get("driver"))
    if driver == "ide-hd":
        # A PIIX disk has a unit; each port of an AHCI controller has one disk.
        return Bus.IDE if "unit" in device else Bus.SATA
    if driver not in _BUSES:
        raise ValueError(driver)
    return _BUSES[driver]


def _controller_of(device: Settings, devices: Sequence[Settings]) -> Settings:
    name = str(device.get("bus", "")).partition(".")[0]
    return next((item for item in devices if item.get("id") == name), {})


def _cache_of_arguments(cache: object, property_value: object) -> tuple[CacheMode, WriteCache]:
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
