"""Proxmox VE: lines of /etc/pve/qemu-server/VMID.conf (qm.conf(5), qemu-server 7 and later).

Proxmox has its own defaults: cache=none (PVE::QemuServer::Drive::drive_uses_cache_direct; on its
btrfs storage writeback), aio=io_uring and detect_zeroes=on. So all are always written. Proxmox
opens a volume of a storage, called `STORAGE` here, which must have the path's host layers; `VMID`
is the number of the guest. A storage of files names volumes `VMID/vm-VMID-disk-N.FORMAT`
(pve-storage-dir.adoc), one of block devices `vm-VMID-disk-N`. LVM may hold qcow2, in a volume whose
name ends so (PVE::Storage::LVMPlugin::parse_volname). A guest does not start if `format` differs
from the volume's (Drive.pm: get_path_and_format).
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path

from vdisklab.errors import PlanError
from vdisklab.export.configuration import (
    Configuration,
    ExportRequest,
    Gap,
    cache_gaps,
    commented,
    image_commands,
    other_gaps,
    require_configurable,
    require_supported,
)
from vdisklab.path.disk_path import DiskPath, Image
from vdisklab.path.managers import Manager
from vdisklab.path.segments import Bus, ImageFormat, LayerKind
from vdisklab.units import GIB

_FORMATS = (ImageFormat.RAW, ImageFormat.QCOW2, ImageFormat.VMDK, ImageFormat.QED)
_FEWEST_QUEUES = 2
"""The least that `queues` accepts (Drive.pm: queues_fmt)."""

_OWNER = re.compile(r"\b(?:vm|base)-(\d+)-|(?::|/images/)(\d+)/")
THROTTLES = {"throttle_iops": "iops", "throttle_bps": "bps"}
"""The drive's option by option of the path."""
_SLOTS = {Bus.VIRTIO: "virtio0", Bus.SCSI: "scsi0", Bus.IDE: "ide0", Bus.SATA: "sata0"}


def export(request: ExportRequest) -> Configuration:
    """The line of the drive, after the line of its controller if it has one."""
    path, attachment = request.path, request.path.attachment
    require_configurable(path)
    require_supported(Manager.PROXMOX, path, buses=_SLOTS, formats=_FORMATS)
    volume = _volume(request)
    options = [f"cache={path.cache.spelled_out}", f"aio={attachment.aio}"]
    if path.image is not None:
        options.append(f"format={path.image.format}")
    options.append(f"discard={'on' if attachment.option('discard') == 'unmap' else 'ignore'}")
    if attachment.iothread:
        options.append("iothread=1")
    if attachment.bus is Bus.SCSI and (attachment.queues or 0) >= _FEWEST_QUEUES:
        options.append(f"queues={attachment.queues}")
    options.append(f"detect_zeroes={int(attachment.detect_zeroes != 'off')}")
    options += (
        f"{name}={value}"
        for option, name in THROTTLES.items()
        if (value := attachment.option(option)) is not None
    )
    # Only this controller gives each disk its own thread.
    model = "virtio-scsi-single" if attachment.iothread else "virtio-scsi-pci"
    controllers = {"scsihw": model} if attachment.bus is Bus.SCSI else {}
    slot = _SLOTS[attachment.bus]
    settings = {**controllers, slot: ",".join([volume, *options])}
    fresh = {**controllers, slot: ",".join([f"STORAGE:{-(-request.size // GIB)}", *options])}
    gaps = tuple(_gaps(path))
    comments = commented(_comments(request, volume, settings, fresh), gaps)
    lines = "".join(f"{key}: {value}\n" for key, value in settings.items())
    return Configuration(comments + lines, gaps)


def _comments(
    request: ExportRequest, volume: str, settings: Mapping[str, str], fresh: Mapping[str, str]
) -> Iterator[str]:
    yield f"vdisklab {request.path}"
    owner = _OWNER.search(volume)
    vmid = "VMID" if owner is None else owner[1] or owner[2]
    if owner is None:
        yield "VMID is the number of the guest"
    if request.path.layers:
        yield f"STORAGE is a storage on {request.path.stack}"
    yield "without cache=, Proxmox VE uses none (writeback on its btrfs storage)"
    image = request.path.image
    if image is not None and any(name != "preallocation" for name, _ in image.options):
        yield f"create the image yourself; FILE is what `pvesm path {volume}` prints"
        yield from image_commands(image, Path("FILE"), request.size)
    elif image is not None and _has_volume_format(request) and not request.on_device:
        yield from _allocation(image, volume)
    yield f"for a volume that exists: {_command(vmid, settings)}"
    if request.source is None and _has_volume_format(request):
        yield f"to create the volume: {_command(vmid, fresh)}"


def _allocation(image: Image, volume: str) -> Iterator[str]:
    """A property of file storages, for raw and qcow2 (PVE::Storage::Plugin: preallocation)."""
    mode, (name, _, rest) = image.option("preallocation"), volume.partition(":")
    if mode is not None:
        storage = name if rest else "STORAGE"
        yield (
            "the storage decides how it allocates new images: "
            f"pvesm set {storage} --preallocation {mode}"
        )


def _command(vmid: str, settings: Mapping[str, str]) -> str:
    options = [word for key, value in settings.items() for word in (f"--{key}", value)]
    return shlex.join(["qm", "set", vmid, *options])


def _volume(request: ExportRequest) -> str:
    volume = request.source or _default_volume(request)
    if "," in volume or volume != volume.strip():
        raise PlanError(
            f"Proxmox VE cannot take the source {volume!r}: commas separate its options",
            hint="rename the file, or give --source STORAGE:VOLUME",
        )
    return volume


def _default_volume(request: ExportRequest) -> str:
    name = "vm-VMID-disk-0"
    if not (request.on_device and request.driver == "raw"):
        name = f"{name}.{request.driver}"
    if not _has_volume_format(request):  # named by its whole path
        return f"/dev/VG/{name}" if request.on_device else f"/var/lib/vz/images/VMID/{name}"
    return f"STORAGE:{name}" if request.on_device else f"STORAGE:VMID/{name}"


def _has_volume_format(request: ExportRequest) -> bool:
    """False for a format that the path's storage does not hold."""
    if not request.on_device:
        return request.driver in ("raw", "qcow2", "vmdk")
    is_lvm = any(layer.kind is LayerKind.LVM for layer in request.path.layers[-1:])
    return request.driver == "raw" or (is_lvm and request.driver == "qcow2")


def _gaps(path: DiskPath) -> Iterator[Gap]:
    yield from cache_gaps(path)
    queues = path.attachment.queues
    if queues is not None and (path.attachment.bus is Bus.VIRTIO or queues < _FEWEST_QUEUES):
        yield Gap(f"queues={queues}", "QEMU gives one queue for each CPU")
    if path.attachment.detect_zeroes == "on" and path.attachment.option("discard") == "unmap":
        yield Gap("detect_zeroes=on", "with discard=on Proxmox VE uses unmap")
    yield from other_gaps(path, ("detect_zeroes", *THROTTLES))
