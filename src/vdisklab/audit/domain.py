"""Reads libvirt's domain XML: each disk as a path. The opposite of `export.libvirt`.

The XML is a stranger's: it is read by defusedxml, which refuses document types with entities, so
that nothing is read from elsewhere and nothing grows without bound.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import TypeVar
from xml.etree.ElementTree import Element, ParseError

from defusedxml.common import DefusedXmlException
from defusedxml.ElementTree import fromstring

from vdisklab.audit.arguments import disks_of_arguments
from vdisklab.audit.disk import ConfiguredDisk
from vdisklab.errors import PlanError
from vdisklab.export.libvirt import PATH_NAMESPACE, QEMU_NAMESPACE
from vdisklab.path.disk_path import Attachment, DiskPath, Image, parse_path
from vdisklab.path.options import BUS_OPTIONS, OptionValue
from vdisklab.path.segments import Aio, Bus, CacheMode, ImageFormat, WriteCache

Word = TypeVar("Word", bound=StrEnum)

LARGEST = 4 << 20
"""More bytes than this are no domain."""


def read_domain(text: str, origin: str) -> tuple[ConfiguredDisk, ...]:
    """The hard disks of a domain. Raises PlanError saying what is wrong with the document."""
    if len(text) > LARGEST:
        raise PlanError(f"{origin} is larger than any domain's XML")
    try:
        root = fromstring(text, forbid_dtd=True)
    except ParseError as error:
        raise PlanError(
            f"{origin} is no XML: {error}", hint="write it anew: `virsh dumpxml DOMAIN`"
        ) from error
    except DefusedXmlException as error:
        raise PlanError(
            f"{origin} declares a document type or entities, which no domain has",
            hint="it is not read; write it anew: `virsh dumpxml DOMAIN`",
        ) from error
    except ValueError as error:  # an encoding that contradicts the text
        raise PlanError(f"{origin} is no XML: {error}") from error
    return tuple(_disks(_domain(root, origin)))


def _domain(root: Element, origin: str) -> Element:
    # A snapshot's and a saved state's XML hold the domain.
    found = root if root.tag == "domain" else root.find(".//domain")
    if found is None:
        raise PlanError(
            f"{origin} is XML, but no libvirt domain: its root is <{root.tag}>",
            hint="`virsh dumpxml DOMAIN` prints one",
        )
    return found


def _disks(domain: Element) -> Iterator[ConfiguredDisk]:
    name = (domain.findtext("name") or "unnamed").strip()
    notes = _notes(domain)
    for disk in domain.iterfind("./devices/disk"):
        if disk.get("device", "disk") == "disk":
            yield _disk(domain, name, disk, notes)
    words = [
        argument.get("value", "")
        for argument in domain.iterfind(
            f"./{{{QEMU_NAMESPACE}}}commandline/{{{QEMU_NAMESPACE}}}arg"
        )
    ]
    for found in disks_of_arguments(words):
        yield ConfiguredDisk(name, found.id, found.filename, found.path, _of_arguments(notes))


def _notes(domain: Element) -> list[tuple[str, DiskPath]]:
    found = []
    for note in domain.iterfind(f"./metadata/{{{PATH_NAMESPACE}}}disks/{{{PATH_NAMESPACE}}}disk"):
        try:
            found.append((note.get("target", ""), parse_path(note.get("path", ""))))
        except PlanError:
            continue  # somebody edited it; the XML itself still says nearly everything
    return found


def _of_arguments(notes: list[tuple[str, DiskPath]]) -> DiskPath | None:
    return next((path for target, path in notes if not target), None)


def _disk(
    domain: Element, name: str, disk: Element, notes: list[tuple[str, DiskPath]]
) -> ConfiguredDisk:
    target = disk.find("target")
    device = "?" if target is None else target.get("dev", "?")
    noted = next((path for at, path in notes if at == device), None)
    kind = disk.get("type", "file")
    source = disk.find("source")
    place = None if source is None else (source.get("file") or source.get("dev"))
    try:
        if kind not in ("file", "block"):
            raise ValueError(f"its source is of type {kind}: vdisklab measures local files and "
                             "block devices")  # fmt: skip
        path = _path(domain, disk, kind == "block")
    except ValueError as error:
        return ConfiguredDisk(name, device, place, None, noted, str(error))
    return ConfiguredDisk(name, device, place, path, noted)


def _path(domain: Element, disk: Element, is_block: bool) -> DiskPath:
    """The path that the disk's own element says. Raises ValueError for what has no name here."""
    driver = disk.find("driver")
    said = {} if driver is None else dict(driver.attrib)
    form = _known(ImageFormat, said.get("type", "raw"), "format")
    image = None if is_block and form is ImageFormat.RAW else Image(form)
    cache = _known(CacheMode, said.get("cache", "default"), "cache mode")
    return DiskPath((), image, cache, _attachment(domain, disk, said))


def _attachment(domain: Element, disk: Element, said: dict[str, str]) -> Attachment:
    target = disk.find("target")
    device = "" if target is None else target.get("dev", "")
    spelled = None if target is None else target.get("bus")
    bus = _known(Bus, spelled or _bus_by_name(device), "bus")
    threading = _controller_driver(domain, disk) if bus is Bus.SCSI else said
    asked: dict[str, OptionValue] = {
        "aio": _known(Aio, said.get("io", "threads"), "io mode").value,
        "discard": _one_of(said.get("discard", "ignore"), ("ignore", "unmap"), "discard"),
        "write_cache": _write_cache(domain, disk).value,
    }
    if "iothread" in threading or _has_iothreads(disk):
        asked["iothread"] = True
    queues = threading.get("queues", "")
    if queues:
        asked["queues"] = BUS_OPTIONS[Bus.VIRTIO]["queues"].parse(queues)
    return Attachment(bus, tuple((k, v) for k, v in asked.items() if k in BUS_OPTIONS[bus]))


def _bus_by_name(device: str) -> str:
    """What libvirt takes when the bus is left out: by the first letter (virDiskNameToBusIndex)."""
    return {"v": "virtio", "h": "ide", "s": "scsi"}.get(device[:1], "ide")


def _has_iothreads(disk: Element) -> bool:
    """libvirt 10 may map several threads in an element of their own."""
    return disk.find("./driver/iothreads") is not None


def _controller_driver(domain: Element, disk: Element) -> dict[str, str]:
    """The settings of the SCSI controller that a disk hangs on."""
    address = disk.find("address")
    index = "0" if address is None else address.get("controller", "0")
    for controller in domain.iterfind("./devices/controller[@type='scsi']"):
        if controller.get("index", "0") == index:
            if (controller.get("model") or "virtio-scsi") not in ("virtio-scsi", "auto"):
                raise ValueError(f"its controller {controller.get('model')} is none that "
                                 "vdisklab measures")  # fmt: skip
            driver = controller.find("driver")
            return {} if driver is None else dict(driver.attrib)
    return {}


def _write_cache(domain: Element, disk: Element) -> WriteCache:
    alias = disk.find("alias")
    name = None if alias is None else alias.get("name")
    q = f"{{{QEMU_NAMESPACE}}}"
    for device in domain.iterfind(f"./{q}override/{q}device"):
        if name is None or device.get("alias") != name:
            continue
        for setting in device.iterfind(f"./{q}frontend/{q}property"):
            if setting.get("name") == "write-cache" and setting.get("type") != "remove":
                value = setting.get("value", "")
                return WriteCache(_one_of(value, ("on", "off", "auto"), "write-cache"))
    return WriteCache.MODE


def _known(kind: type[Word], word: str, what: str) -> Word:
    try:
        return kind(word)
    except ValueError:
        raise ValueError(f"its {what} {word!r} is none that vdisklab measures") from None


def _one_of(word: str, words: tuple[str, ...], what: str) -> str:
    if word not in words:
        raise ValueError(f"its {what} {word!r} is none that vdisklab measures")
    return word
