"""libvirt's domain XML (formatdomain.html) for libvirt 9.0 and QEMU 7.2.

Cache mode `default` omits the attribute; all other settings are written, because libvirt's defaults
differ from QEMU's (it opens files with discard=unmap). `write-cache` has no attribute: it is a
property override of libvirt 8.2. A disk that libvirt cannot describe (NVMe, vhdx) goes to QEMU as
arguments. The element `metadata` holds the disk path; from it `vdisklab audit` reads what the other
elements cannot express: the host layers and the options of the image.
"""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Iterable

from vdisklab.export.configuration import (
    Configuration,
    ExportRequest,
    Gap,
    preparation,
    require_configurable,
)
from vdisklab.export.qemu import DIRECTORY, arguments
from vdisklab.path.segments import Bus, CacheMode, ImageFormat, WriteCache

QEMU_NAMESPACE = "http://libvirt.org/schemas/domain/qemu/1.0"
PATH_NAMESPACE = "urn:vdisklab:disk-path:1"
ALIAS = "ua-disk0"
TARGETS = {Bus.VIRTIO: "vda", Bus.SCSI: "sda", Bus.IDE: "hda", Bus.SATA: "sda", Bus.USB: "sda"}
"""The target's name by bus; disks on other buses go to QEMU as arguments."""

_UNKNOWN_FORMATS = (ImageFormat.VHDX,)
_FOREIGN = Gap(
    "this disk",
    "libvirt's XML lacks its bus or format, so QEMU gets the disk as arguments; libvirt neither "
    "labels the file nor migrates or snapshots the disk",
)


def export(request: ExportRequest) -> Configuration:
    """A domain that can be defined and started; the disk is its only one."""
    require_configurable(request.path)
    place = request.place(DIRECTORY)
    foreign = _is_foreign(request)
    gaps = (_FOREIGN,) if foreign else ()
    domain = ET.Element("domain", {"type": request.domain_type, "xmlns:qemu": QEMU_NAMESPACE})
    for line in (*preparation(request, place), *(str(gap) for gap in gaps)):
        # "--" may not stand in a comment.
        domain.append(ET.Comment(f" {line.replace('--', '- -')} "))
    ET.SubElement(domain, "name").text = request.name
    _add_metadata(domain, request)
    ET.SubElement(domain, "memory", {"unit": "MiB"}).text = "1024"
    ET.SubElement(domain, "vcpu").text = "2"
    attachment = request.path.attachment
    if attachment.iothread and not foreign:
        ET.SubElement(domain, "iothreads").text = "1"
    system = ET.SubElement(domain, "os")
    machine = attachment.bus.machine
    ET.SubElement(system, "type", {"arch": "x86_64", "machine": machine}).text = "hvm"
    devices = ET.SubElement(domain, "devices")
    if foreign:
        _add_arguments(domain, arguments(request, place))
    else:
        _add_disk(devices, request, place)
        _add_controller(devices, request)
        _add_override(domain, request)
    ET.indent(domain)
    return Configuration(ET.tostring(domain, encoding="unicode") + "\n", gaps)


def _is_foreign(request: ExportRequest) -> bool:
    """True if libvirt's XML has no value for the disk's bus or format."""
    image = request.path.image
    unknown = image is not None and image.format in _UNKNOWN_FORMATS
    return unknown or request.path.attachment.bus not in TARGETS


def _add_metadata(domain: ET.Element, request: ExportRequest) -> None:
    metadata = ET.SubElement(domain, "metadata")
    disks = ET.SubElement(metadata, "vdisklab:disks", {"xmlns:vdisklab": PATH_NAMESPACE})
    target = TARGETS.get(request.path.attachment.bus, "") if not _is_foreign(request) else ""
    ET.SubElement(
        disks, "vdisklab:disk", {"target": target, "path": request.path.canonical}
    )  # fmt: skip


def _add_disk(devices: ET.Element, request: ExportRequest, place: str) -> None:
    attachment = request.path.attachment
    kind = "block" if request.is_block else "file"
    disk = ET.SubElement(devices, "disk", {"type": kind, "device": "disk"})
    driver = {"name": "qemu", "type": request.driver}
    if request.path.cache is not CacheMode.DEFAULT:
        driver["cache"] = request.path.cache.value
    driver |= {"io": attachment.aio.value, "discard": str(attachment.option("discard"))}
    if attachment.bus is Bus.VIRTIO:
        driver |= _threading(request)
    ET.SubElement(disk, "driver", driver)
    ET.SubElement(disk, "source", {"dev" if request.is_block else "file": place})
    bus = attachment.bus
    ET.SubElement(disk, "target", {"dev": TARGETS[bus], "bus": bus.value})
    ET.SubElement(disk, "alias", {"name": ALIAS})


def _threading(request: ExportRequest) -> dict[str, str]:
    attachment = request.path.attachment
    queues = {} if attachment.queues is None else {"queues": str(attachment.queues)}
    return queues | ({"iothread": "1"} if attachment.iothread else {})


def _add_controller(devices: ET.Element, request: ExportRequest) -> None:
    match request.path.attachment.bus:
        case Bus.SCSI:
            attributes = {"type": "scsi", "index": "0", "model": "virtio-scsi"}
            controller = ET.SubElement(devices, "controller", attributes)
            threading = _threading(request)
            if threading:
                ET.SubElement(controller, "driver", threading)
        case Bus.USB:
            ET.SubElement(
                devices, "controller", {"type": "usb", "index": "0", "model": "qemu-xhci"}
            )
        case _:
            pass


def _add_override(domain: ET.Element, request: ExportRequest) -> None:
    write_cache = request.path.attachment.write_cache
    if write_cache is WriteCache.MODE:
        return  # libvirt itself sets the property that -drive would set for the cache mode
    override = ET.SubElement(domain, "qemu:override")
    device = ET.SubElement(override, "qemu:device", {"alias": ALIAS})
    frontend = ET.SubElement(device, "qemu:frontend")
    ET.SubElement(
        frontend,
        "qemu:property",
        {"name": "write-cache", "type": "string", "value": write_cache.value},
    )


def _add_arguments(domain: ET.Element, words: Iterable[str]) -> None:
    line = ET.SubElement(domain, "qemu:commandline")
    for word in words:
        ET.SubElement(line, "qemu:arg", {"value": word})
