"""libvirt's domain XML (formatdomain.html), as libvirt 9.0 and QEMU 7.2 were seen to take it.

A cache mode `default` is an attribute left out; all else is written, as libvirt's own defaults
are not QEMU's (it opens files with discard=unmap). `write-cache` has no attribute: it is a
property override of libvirt 8.2. What libvirt cannot say at all (an NVMe disk, vhdx) is handed to
QEMU as arguments. The element `metadata` keeps the disk path, of which `vdisklab audit` reads
what XML cannot hold: the host layers and the options of the image.
"""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Iterable

from vdisklab.export.form import Exported, Gap, Wish, check
from vdisklab.export.preparation import preparation
from vdisklab.export.qemu import DIRECTORY, arguments
from vdisklab.path.segments import Bus, CacheMode, ImageFormat, WriteCache

QEMU_NAMESPACE = "http://libvirt.org/schemas/domain/qemu/1.0"
PATH_NAMESPACE = "urn:vdisklab:disk-path:1"
ALIAS = "ua-disk0"
TARGETS = {Bus.VIRTIO: "vda", Bus.SCSI: "sda", Bus.IDE: "hda", Bus.SATA: "sda", Bus.USB: "sda"}
"""The target's name by bus; a bus that is missing has to go by QEMU's arguments."""

_UNKNOWN_FORMATS = (ImageFormat.VHDX,)


def export(wish: Wish) -> Exported:
    """A domain that can be defined and started, with the disk as its only one."""
    check(wish.path)
    place = wish.place(DIRECTORY)
    foreign = _is_foreign(wish)
    gaps = _gaps(foreign)
    domain = ET.Element("domain", {"type": wish.domain_type, "xmlns:qemu": QEMU_NAMESPACE})
    for line in (*preparation(wish, place), *(str(gap) for gap in gaps)):
        # "--" may not stand in a comment.
        domain.append(ET.Comment(f" {line.replace('--', '- -')} "))
    ET.SubElement(domain, "name").text = wish.name
    _add_metadata(domain, wish)
    ET.SubElement(domain, "memory", {"unit": "MiB"}).text = "1024"
    ET.SubElement(domain, "vcpu").text = "2"
    attachment = wish.path.attachment
    if attachment.iothread and not foreign:
        ET.SubElement(domain, "iothreads").text = "1"
    system = ET.SubElement(domain, "os")
    machine = attachment.bus.machine
    ET.SubElement(system, "type", {"arch": "x86_64", "machine": machine}).text = "hvm"
    devices = ET.SubElement(domain, "devices")
    if foreign:
        _add_arguments(domain, arguments(wish, place))
    else:
        _add_disk(devices, wish, place)
        _add_controller(devices, wish)
        _add_override(domain, wish)
    ET.indent(domain)
    return Exported(ET.tostring(domain, encoding="unicode") + "\n", gaps)


def _is_foreign(wish: Wish) -> bool:
    image = wish.path.image
    unknown = image is not None and image.format in _UNKNOWN_FORMATS
    return unknown or wish.path.attachment.bus not in TARGETS


def _gaps(foreign: bool) -> tuple[Gap, ...]:
    if not foreign:
        return ()
    return (
        Gap(
            "this disk",
            "libvirt's XML lacks its bus or format, so QEMU gets it as arguments; "
            "libvirt neither labels the file nor migrates or snapshots the disk",
        ),
    )


def _add_metadata(domain: ET.Element, wish: Wish) -> None:
    metadata = ET.SubElement(domain, "metadata")
    disks = ET.SubElement(metadata, "vdisklab:disks", {"xmlns:vdisklab": PATH_NAMESPACE})
    target = TARGETS.get(wish.path.attachment.bus, "") if not _is_foreign(wish) else ""
    ET.SubElement(
        disks, "vdisklab:disk", {"target": target, "path": wish.path.canonical}
    )  # fmt: skip


def _add_disk(devices: ET.Element, wish: Wish, place: str) -> None:
    attachment = wish.path.attachment
    kind = "block" if wish.is_block else "file"
    disk = ET.SubElement(devices, "disk", {"type": kind, "device": "disk"})
    driver = {"name": "qemu", "type": wish.driver}
    if wish.path.cache is not CacheMode.DEFAULT:
        driver["cache"] = wish.path.cache.value
    driver |= {"io": attachment.aio.value, "discard": str(attachment.option("discard"))}
    if attachment.bus is Bus.VIRTIO:
        driver |= _threading(wish)
    ET.SubElement(disk, "driver", driver)
    ET.SubElement(disk, "source", {"dev" if wish.is_block else "file": place})
    bus = attachment.bus
    ET.SubElement(disk, "target", {"dev": TARGETS[bus], "bus": bus.value})
    ET.SubElement(disk, "alias", {"name": ALIAS})


def _threading(wish: Wish) -> dict[str, str]:
    attachment = wish.path.attachment
    queues = {} if attachment.queues is None else {"queues": str(attachment.queues)}
    return queues | ({"iothread": "1"} if attachment.iothread else {})


def _add_controller(devices: ET.Element, wish: Wish) -> None:
    match wish.path.attachment.bus:
        case Bus.SCSI:
            attributes = {"type": "scsi", "index": "0", "model": "virtio-scsi"}
            controller = ET.SubElement(devices, "controller", attributes)
            threading = _threading(wish)
            if threading:
                ET.SubElement(controller, "driver", threading)
        case Bus.USB:
            ET.SubElement(
                devices, "controller", {"type": "usb", "index": "0", "model": "qemu-xhci"}
            )
        case _:
            pass


def _add_override(domain: ET.Element, wish: Wish) -> None:
    asked = wish.path.attachment.write_cache
    if asked is WriteCache.MODE:
        return  # libvirt itself sets the property that -drive would set for the cache mode
    override = ET.SubElement(domain, "qemu:override")
    device = ET.SubElement(override, "qemu:device", {"alias": ALIAS})
    frontend = ET.SubElement(device, "qemu:frontend")
    ET.SubElement(
        frontend,
        "qemu:property",
        {"name": "write-cache", "type": "string", "value": asked.value},
    )


def _add_arguments(domain: ET.Element, words: Iterable[str]) -> None:
    line = ET.SubElement(domain, "qemu:commandline")
    for word in words:
        ET.SubElement(line, "qemu:arg", {"value": word})
