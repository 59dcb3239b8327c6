"""libvirt's bare `<disk>`, for `virsh attach-device` and a guest that exists already.

The element has no place for settings of the guest or of a controller. They become requirements
(an I/O thread) or gaps (`write_cache`, which is a property override of the whole domain).
"""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Iterator

from vdisklab.export.configuration import (
    Configuration,
    ExportRequest,
    Gap,
    NotExpressibleError,
    preparation,
    require_configurable,
)
from vdisklab.export.libvirt import TARGETS, add_comments, add_disk, foreign_reason, threading
from vdisklab.export.qemu import DIRECTORY
from vdisklab.path.segments import Bus, WriteCache

_COLD_BUSES = (Bus.IDE, Bus.SATA, Bus.NVME)
"""Disks on these buses cannot be attached while the guest runs (qemu_hotplug.c)."""


def export(request: ExportRequest) -> Configuration:
    """The `<disk>` element. Its target is the name of a second disk, because the guest already has
    a first one."""
    require_configurable(request.path)
    reason = foreign_reason(request)
    if reason is not None:
        raise NotExpressibleError(
            "libvirt's <disk>",
            f"form for this disk: {reason}",
            "use --to libvirt, which gives it to QEMU as arguments",
        )
    bus, place = request.path.attachment.bus, request.place(DIRECTORY)
    target = "nvme0n2" if bus is Bus.NVME else f"{TARGETS[bus][:2]}b"
    gaps, requirements = tuple(_gaps(request)), tuple(_requirements(request, target))
    container = ET.Element("devices")
    add_comments(container, (*preparation(request, place), *map(str, gaps), *requirements))
    add_disk(container, request, place, target)
    ET.indent(container)
    lines = ET.tostring(container, encoding="unicode").splitlines()[1:-1]
    return Configuration("".join(f"{line[2:]}\n" for line in lines), gaps, requirements)


def _gaps(request: ExportRequest) -> Iterator[Gap]:
    write_cache = request.path.attachment.write_cache
    if write_cache is not WriteCache.MODE:
        yield Gap(
            f"write_cache={write_cache}",
            "the disk's write cache follows the cache mode; --to libvirt writes the override",
        )


def _requirements(request: ExportRequest, target: str) -> Iterator[str]:
    attachment = request.path.attachment
    when = "--config" if attachment.bus in _COLD_BUSES else "--live --config"
    later = "; the guest sees it after its next start" if attachment.bus in _COLD_BUSES else ""
    yield f"attach it with: virsh attach-device GUEST FILE {when}{later}"
    yield f"if the guest already has {target}, change the target in the file"
    if attachment.bus is Bus.SCSI:
        words = "".join(f' {name}="{value}"' for name, value in threading(request).items())
        driver = f"<driver{words}/>" if words else ""
        yield (
            "the guest's SCSI controller must be "
            f'<controller type="scsi" model="virtio-scsi">{driver}</controller>'
        )
    else:
        for number in range(1, 1 + (attachment.iothreads or int(attachment.iothread))):
            needed = f"virsh iothreadadd GUEST {number} --live --config"
            yield f"the guest needs the I/O thread {number}: {needed}"
    if attachment.bus is Bus.NVME:
        yield "the guest's NVMe controller needs a <serial>, and decides on the number of queues"
