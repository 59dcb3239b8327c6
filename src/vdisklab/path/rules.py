"""Which disk paths are impossible: why, and what to write instead."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from vdisklab.path.backing import WORK_DIRECTORY, BackingDevices, fewest_disks
from vdisklab.path.disk_path import DiskPath, Image, Layer
from vdisklab.path.segments import Aio, Bus, CacheMode, ImageFormat, LayerKind


@dataclass(frozen=True, slots=True)
class Impossible:
    """Why a path is impossible, and what to write instead."""

    reason: str
    instead: str


def _stacking(path: DiskPath, _backing: BackingDevices) -> Impossible | None:
    for below, above in zip(path.layers, path.layers[1:], strict=False):
        if above.kind.is_memory:
            return Impossible(
                f"{above.kind} lives in memory, not on another layer",
                f"put {above.kind} first, or leave it out",
            )
        if below.kind.is_directory:
            return Impossible(
                f"{above.kind} needs a block device below, and {below.kind} is a directory",
                f"leave one of them out, or put {above.kind} first",
            )
    return None


def _something_to_give(path: DiskPath, backing: BackingDevices) -> Impossible | None:
    if path.on_host or path.image is not None or backing.is_block(path.layers) or path.is_share:
        return None
    if not path.layers:
        return Impossible(
            "the work directory is not a block device that a guest could use",
            f"add a format: {replace(path, image=Image(ImageFormat.RAW))}",
        )
    return Impossible(
        f"{path.layers[-1].kind} holds files, and the path names no image format",
        f"add a format: {replace(path, image=Image(ImageFormat.RAW))}",
    )


def _raw_on_block(path: DiskPath, backing: BackingDevices) -> Impossible | None:
    if path.image is None or not backing.is_block(path.layers):
        return None
    if path.image.driver == "raw":
        below = path.layers[-1].kind if path.layers else "a whole device"
        return Impossible(
            f"raw on {below} is the block device itself",
            f"leave out the format: {replace(path, image=None)}",
        )
    return None


def _shared_directory(path: DiskPath, backing: BackingDevices) -> Impossible | None:
    if not path.is_share:
        return None
    bus = path.attachment.bus
    if path.image is not None or path.cache is not CacheMode.DEFAULT:
        return Impossible(
            f"{bus} gives the guest a directory, which has no image format and no cache mode",
            f"write {replace(path, image=None, cache=CacheMode.DEFAULT)}",
        )
    if backing.is_block(path.layers):
        below = path.layers[-1].kind if path.layers else "a whole device"
        filesystem = Layer(LayerKind.EXT4)
        return Impossible(
            f"{bus} gives the guest a directory, and {below} is a block device",
            f"put a file system below: {replace(path, layers=(*path.layers, filesystem))}",
        )
    return None


def _null_stands_alone(path: DiskPath, _backing: BackingDevices) -> Impossible | None:
    if path.has_storage:
        return None
    if path.layers or path.cache is not CacheMode.DEFAULT:
        return Impossible(
            "null stores nothing: it has no layers below and no cache mode",
            f"write {replace(path, layers=(), cache=CacheMode.DEFAULT)}",
        )
    if path.attachment.aio is not Aio.THREADS:
        return Impossible("null does no I/O, so aio changes nothing", "leave out the aio option")
    return None


def native_without_direct(path: DiskPath) -> bool:
    """True for aio=native without O_DIRECT, with which QEMU does not start (block/file-posix.c)."""
    return path.attachment.aio is Aio.NATIVE and not path.cache.direct


def _native_needs_direct(path: DiskPath, _backing: BackingDevices) -> Impossible | None:
    if native_without_direct(path):
        return Impossible(
            f"aio=native needs O_DIRECT, which cache mode {path.cache} does not use",
            f"choose {CacheMode.choices(lambda mode: mode.direct)}, or aio=threads or aio=io_uring",
        )
    return None


def _qcow2_features(path: DiskPath, _backing: BackingDevices) -> Impossible | None:
    """qemu-img's own rules (block/qcow2.c, qcow2_co_create)."""
    image = path.image
    if image is None or image.format is not ImageFormat.QCOW2:
        return None
    modern = [
        name
        for name, wanted in (
            ("lazy_refcounts", image.option("lazy_refcounts")),
            ("extended_l2", image.option("extended_l2")),
            ("data_file", image.has_data_file),
            ("bitmaps", image.bitmaps),
            ("compression=zstd", image.option("compression") == "zstd"),
        )
        if wanted
    ]
    if modern and image.option("compat") == "0.10":
        return Impossible(f"{modern[0]} needs qcow2 compat=1.1", "leave out compat=0.10")
    if image.option("extended_l2") and int(image.option("cluster_size") or 0) < _LEAST_SUBCLUSTERED:
        return Impossible(
            "extended_l2 needs clusters of at least 16k", "write cluster_size=16k or more"
        )
    return None


_LEAST_SUBCLUSTERED = 16 << 10
"""MIN_CLUSTER_BITS + 5 bits: 32 subclusters of 512 bytes (block/qcow2.h)."""


def _image_files(path: DiskPath, backing: BackingDevices) -> Impossible | None:
    """What needs files beside the image's own: a chain, a data file."""
    image = path.image
    if image is None or not backing.is_block(path.layers):
        return None
    for option, wanted in (
        ("backing", image.backing),
        ("data_file", image.has_data_file),
    ):
        if wanted:
            return Impossible(
                f"{option} is built beside the image's file, and this image is on a block device",
                f"put a file system below, or leave out {option}",
            )
    return None


def _what_a_chain_excludes(path: DiskPath, _backing: BackingDevices) -> Impossible | None:
    image = path.image
    if image is None:
        return None
    if not image.backing and image.option("overlay") not in (None, 10):
        return Impossible("overlay describes the images of a chain", "add backing=1 or more")
    for option, wanted in (
        ("data_file", image.has_data_file),
        ("snapshots", image.snapshots),
        ("bitmaps", image.bitmaps),
        ("encrypt", image.encrypted),
    ):
        if image.backing and wanted:
            return Impossible(
                f"a chain of images with {option} is not built", f"leave out backing or {option}"
            )
    for option, wanted in (
        ("data_file", image.has_data_file),
        ("encrypt", image.encrypted),
        (f"preallocation={image.option('preallocation')}", image.is_thin),
    ):
        if image.compressed and wanted:
            return Impossible(
                f"compressed clusters exclude {option}",
                f"leave out compression or {option.partition('=')[0]}",
            )
    if image.snapshots and not image.can_have_snapshots:
        return Impossible(
            "qcow2 with a data file has no internal snapshots", "leave one of them out"
        )
    return None


def _reserved_in_files(path: DiskPath, backing: BackingDevices) -> Impossible | None:
    """qemu-img: "Preallocation mode 'falloc' unsupported for this non-regular file"."""
    image = path.image
    if image is None or not backing.is_block(path.layers):
        return None
    if image.option("preallocation") == "falloc":
        return Impossible(
            "preallocation=falloc reserves file-system blocks, and this image is on a block device",
            "choose preallocation=metadata, or leave it out",
        )
    return None


def _enough_disks(path: DiskPath, backing: BackingDevices) -> Impossible | None:
    for number, layer in enumerate(path.layers):
        fewest = fewest_disks(layer)
        if number and fewest > 1:
            return Impossible(
                f"{layer} needs {fewest} disks, but {path.layers[number - 1].kind} below it is one",
                f"put {layer.kind} first",
            )
        if number == 0 and backing.disks_for(path.layers) < fewest:
            return Impossible(
                f"{layer} needs {fewest} disks, but --disks is {backing.disks}",
                f"write --disks {fewest} or more",
            )
        if number == 0 and backing.on_devices(path.layers):
            required_disks = backing.disks_for(path.layers)
            if required_disks > len(backing.devices):
                return Impossible(
                    f"{layer} needs {required_disks} disks, but --on names {len(backing.devices)}",
                    "name more with --on",
                )
    return None


def _usb_keeps_its_write_cache(path: DiskPath, _backing: BackingDevices) -> Impossible | None:
    """usb-storage accepts write-cache=off and keeps its write cache.

    Observed in the guest and in query-block of QEMU 7.2: usb_msd_storage_realize() does not pass
    the property on to its SCSI disk (hw/usb/dev-storage-classic.c).
    """
    if path.attachment.bus is Bus.USB and not path.offers_write_cache:
        return Impossible(
            "QEMU's usb-storage always has a write cache",
            f"choose {CacheMode.choices(lambda mode: mode.write_cache)}, or another bus",
        )
    return None


def _threads_to_set(path: DiskPath, _backing: BackingDevices) -> Impossible | None:
    """Polling and batching are properties of an iothread; the main loop has other defaults."""
    attachment = path.attachment
    if attachment.iothread and attachment.iothreads is not None:
        return Impossible(
            "iothread=on is one thread, and iothreads names a number of them",
            "leave one of them out",
        )
    if attachment.iothread or attachment.iothreads is not None:
        return None
    for option in ("poll", "aio_max_batch"):
        if attachment.option(option) is not None:
            return Impossible(f"{option} is a setting of an iothread", "add iothread=on")
    return None


def _whole_blocks_to_discard(path: DiskPath, _backing: BackingDevices) -> Impossible | None:
    """QEMU: a discard granularity is a multiple of the logical block (hw/block/block.c)."""
    attachment = path.attachment
    granularity, block = attachment.discard_granularity, attachment.block_size
    if granularity is not None and block is not None and granularity < block:
        return Impossible(
            f"discard_granularity is smaller than the block of {block} bytes",
            f"write discard_granularity={block} or more",
        )
    return None


def _zeroes_to_unmap(path: DiskPath, _backing: BackingDevices) -> Impossible | None:
    """QEMU: "setting detect-zeroes to unmap is not allowed without setting discard operation to
    unmap" (block.c, bdrv_parse_detect_zeroes)."""
    attachment = path.attachment
    if attachment.detect_zeroes == "unmap" and attachment.option("discard") != "unmap":
        return Impossible("detect_zeroes=unmap needs discard=unmap", "add discard=unmap")
    return None


def _a_disk_for_each_guest(path: DiskPath, backing: BackingDevices) -> Impossible | None:
    guests = path.attachment.guests
    if guests is not None and path.is_share:
        return Impossible("a shared directory is measured in one guest alone", "leave out guests")
    if guests is None or guests == 1 or not path.has_storage or not backing.is_block(path.layers):
        return None
    return Impossible(
        f"guests={guests} needs a disk for each guest, and the path ends on one block device",
        "put a file system on it, as in lvm/ext4/raw/none, or leave out guests",
    )


def too_many_queues(path: DiskPath, cpus: int) -> Impossible | None:
    """Why a guest with `cpus` CPUs cannot use all queues of the path; None if it can.

    Linux gives a disk at most one queue per CPU (block/blk-mq.c, blk_mq_alloc_tag_set).
    """
    queues = path.attachment.queues
    if queues is None or queues <= cpus:
        return None
    return Impossible(
        f"queues={queues} is more than the guest's {cpus} CPUs can use",
        f"add --guest-cpus {queues}",
    )


_RULES: tuple[Callable[[DiskPath, BackingDevices], Impossible | None], ...] = (
    _shared_directory, _stacking, _enough_disks, _something_to_give, _raw_on_block,
    _null_stands_alone, _native_needs_direct, _qcow2_features, _reserved_in_files,
    _usb_keeps_its_write_cache, _image_files, _what_a_chain_excludes, _threads_to_set,
    _zeroes_to_unmap, _whole_blocks_to_discard, _a_disk_for_each_guest,
)  # fmt: skip


def impossible(path: DiskPath, backing: BackingDevices = WORK_DIRECTORY) -> Impossible | None:
    """The first reason why no host could build this path, or None."""
    for rule in _RULES:
        verdict = rule(path, backing)
        if verdict is not None:
            return verdict
    return None
