"""Incus: a disk device of a virtual machine (devices_disk of its documentation).

`io.cache` is none (its default), writeback or unsafe; `io.bus` nvme, virtio-blk, virtio-scsi (its
default) or usb. It chooses aio by itself (io_uring where it works, threads with writeback), passes
discards on, and opens what it is given as raw.
"""

from __future__ import annotations

from vdisklab.export.form import Exported, Gap, NotExpressibleError, Wish, check
from vdisklab.export.kubevirt import Node, to_yaml
from vdisklab.export.preparation import commented
from vdisklab.path.segments import Bus, CacheMode, ImageFormat, WriteCache

_CACHES = (CacheMode.NONE, CacheMode.WRITEBACK, CacheMode.UNSAFE)
_BUSES = {
    Bus.VIRTIO: "virtio-blk", Bus.SCSI: "virtio-scsi", Bus.NVME: "nvme", Bus.USB: "usb",
}  # fmt: skip


def export(wish: Wish) -> Exported:
    """The device for `incus config edit INSTANCE`."""
    check(wish.path)
    path, attachment = wish.path, wish.path.attachment
    cache = CacheMode.WRITEBACK if path.cache is CacheMode.DEFAULT else path.cache
    if cache not in _CACHES:
        raise NotExpressibleError("Incus", f"cache mode {cache}", f"it has {', '.join(_CACHES)}")
    if attachment.bus not in _BUSES:
        raise NotExpressibleError("Incus", f"bus {attachment.bus}", f"it has {', '.join(_BUSES)}")
    if path.image is not None and path.image.format is not ImageFormat.RAW:
        raise NotExpressibleError("Incus", f"format {path.image.format}", "it opens files as raw")
    source = wish.place("/srv/images")
    device: dict[str, Node] = {
        "type": "disk",
        "source": source,
        "io.cache": cache.value,
        "io.bus": _BUSES[attachment.bus],
    }
    gaps = _gaps(wish)
    lines = [f"vdisklab {path}"]
    if path.layers:
        lines.append(f"{source} is on {path.stack}")
    text = commented(iter(lines), gaps) + to_yaml({"devices": {"disk0": device}})
    return Exported(text, gaps)


def _gaps(wish: Wish) -> tuple[Gap, ...]:
    attachment = wish.path.attachment
    gaps = [Gap(f"aio={attachment.aio}", "Incus chooses it by cache mode and kernel")]
    if wish.path.cache is CacheMode.DEFAULT:
        gaps.append(Gap("cache mode default", "written as writeback, which QEMU takes it for"))
    if attachment.write_cache is not WriteCache.MODE:
        gaps.append(Gap(f"write_cache={attachment.write_cache}", "the disk follows its cache mode"))
    if attachment.option("discard") == "ignore":
        gaps.append(Gap("discard=ignore", "Incus passes discards on"))
    if attachment.iothread:
        gaps.append(Gap("iothread=on", "Incus decides on threads by itself"))
    if attachment.queues is not None:
        gaps.append(Gap(f"queues={attachment.queues}", "Incus sets them by the number of CPUs"))
    return tuple(gaps)
