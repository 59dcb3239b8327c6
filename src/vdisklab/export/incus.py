"""Incus: a disk device of a virtual machine (devices_disk in its documentation).

`io.cache` is none (its default), writeback or unsafe; `io.bus` nvme, virtio-blk, virtio-scsi (its
default) or usb. It chooses aio itself (io_uring if it works, threads with writeback), passes
discards on, and opens every file as raw.
"""

from __future__ import annotations

from collections.abc import Iterator

from vdisklab.export.configuration import (
    Configuration,
    ExportRequest,
    Gap,
    cache_gaps,
    commented,
    other_gaps,
    preparation,
    require_configurable,
    require_supported,
    to_yaml,
)
from vdisklab.export.proxmox import THROTTLES
from vdisklab.path.disk_path import DiskPath
from vdisklab.path.managers import Manager
from vdisklab.path.segments import Bus, ImageFormat

BUSES = {
    Bus.VIRTIO: "virtio-blk", Bus.SCSI: "virtio-scsi", Bus.NVME: "nvme", Bus.USB: "usb",
}  # fmt: skip


def export(request: ExportRequest) -> Configuration:
    """The device for `incus config edit INSTANCE`."""
    path = request.path
    require_configurable(path)
    require_supported(Manager.INCUS, path, buses=BUSES, formats=(ImageFormat.RAW,))
    source = request.place("/srv/images")
    device = {
        "type": "disk",
        "source": source,
        "io.cache": path.cache.spelled_out.value,
        "io.bus": BUSES[path.attachment.bus],
    }
    gaps = tuple(_gaps(path))
    lines = preparation(request, source)
    return Configuration(commented(lines, gaps) + to_yaml({"devices": {"disk0": device}}), gaps)


def _gaps(path: DiskPath) -> Iterator[Gap]:
    attachment = path.attachment
    yield Gap(f"aio={attachment.aio}", "Incus chooses it by cache mode and kernel")
    yield from cache_gaps(path)
    yield from other_gaps(path, THROTTLES)
    for option in THROTTLES:
        if (limit := attachment.option(option)) is not None:
            yield Gap(f"{option}={limit}", "Incus limits reads and writes each, with limits.max")
    if attachment.option("discard") == "ignore":
        yield Gap("discard=ignore", "Incus passes discards on")
    if attachment.iothread:
        yield Gap("iothread=on", "Incus itself decides on threads")
    if attachment.queues is not None:
        yield Gap(f"queues={attachment.queues}", "Incus sets them by the number of CPUs")
