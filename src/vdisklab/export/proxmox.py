"""Proxmox VE: lines of /etc/pve/qemu-server/VMID.conf (qm.conf(5), qemu-server 7 and later).

Proxmox has its own defaults: cache=none and aio=io_uring. So both are always written. Proxmox opens
a volume of a storage, called `STORAGE` here, which must have the path's host layers.
"""

from __future__ import annotations

from collections.abc import Iterator

from vdisklab.errors import PlanError
from vdisklab.export.configuration import (
    Configuration,
    ExportRequest,
    Gap,
    cache_gaps,
    commented,
    require_configurable,
    require_supported,
)
from vdisklab.path.disk_path import DiskPath
from vdisklab.path.segments import Bus, ImageFormat

_FORMATS = (ImageFormat.RAW, ImageFormat.QCOW2, ImageFormat.VMDK, ImageFormat.QED)
_SLOTS = {Bus.VIRTIO: "virtio0", Bus.SCSI: "scsi0", Bus.IDE: "ide0", Bus.SATA: "sata0"}


def export(request: ExportRequest) -> Configuration:
    """The line of the drive, after the line of its controller if it has one."""
    path, attachment = request.path, request.path.attachment
    require_configurable(path)
    require_supported("Proxmox VE", path, buses=_SLOTS, formats=_FORMATS)
    options = [_volume(request), f"cache={path.cache.spelled_out}", f"aio={attachment.aio}"]
    if path.image is not None:
        options.append(f"format={path.image.format}")
    options.append(f"discard={'on' if attachment.option('discard') == 'unmap' else 'ignore'}")
    if attachment.iothread:
        options.append("iothread=1")
    if attachment.bus is Bus.SCSI and attachment.queues is not None:
        options.append(f"queues={attachment.queues}")
    gaps = tuple(_gaps(path))
    # Only this controller gives each disk its own thread.
    model = "virtio-scsi-single" if attachment.iothread else "virtio-scsi-pci"
    controller = f"scsihw: {model}\n" if attachment.bus is Bus.SCSI else ""
    storage = [f"STORAGE is a storage on {path.stack}"] if path.layers else []
    comments = commented([f"vdisklab {path}", *storage], gaps)
    return Configuration(
        f"{comments}{controller}{_SLOTS[attachment.bus]}: {','.join(options)}\n", gaps
    )


def _volume(request: ExportRequest) -> str:
    volume = request.source or "STORAGE:vm-100-disk-0"
    if "," in volume or volume != volume.strip():
        raise PlanError(
            f"Proxmox VE cannot take the source {volume!r}: commas separate its options",
            hint="rename the file, or give --source STORAGE:VOLUME",
        )
    return volume


def _gaps(path: DiskPath) -> Iterator[Gap]:
    yield from cache_gaps(path)
    if path.attachment.bus is Bus.VIRTIO and path.attachment.queues is not None:
        yield Gap(f"queues={path.attachment.queues}", "QEMU gives one queue for each CPU")
