"""Which disk paths are impossible: why, and what to write instead."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import chain

from vdisklab.path.architecture import GUEST, Architecture
from vdisklab.path.backing import ON, WORK_DIRECTORY, BackingDevices, fewest_disks, in_memory
from vdisklab.path.disk_path import DiskPath, Image, Layer
from vdisklab.path.durability import layers_when_full
from vdisklab.path.segments import Aio, Bus, CacheMode, ImageFormat, LayerKind
from vdisklab.value import Value, replace

_LEAST_SUBCLUSTERED = 16 << 10
"""MIN_CLUSTER_BITS + 5 bits: 32 subclusters of 512 bytes (block/qcow2.h)."""

_RAW = Image(ImageFormat.RAW)
_NOT_FAILABLE = (
    "backing", "data_file", "encrypt", "snapshots", "bitmaps", "compression", "guests", "during",
    "qemu", "cgroup_iops", "cgroup_bps",
)  # fmt: skip
"""Options with which the image is not one file that one QEMU opens, or needs a host disk."""

JUDGED = tuple(kind for kind in LayerKind if kind.facts.recovery is not None)
"""The file systems whose recovery after a power cut vdisklab knows."""


class Impossible(Value):
    """Why a path is impossible, and what to write instead.

    `exists` is True for one that guests may well have, and that vdisklab does not build.
    """

    reason: str
    instead: str
    exists: bool = False

    @property
    def what(self) -> str:
        """What holds of the path, to put between its name and the reason."""
        return "is not built here" if self.exists else "cannot exist"


def _stacking(path: DiskPath, _backing: BackingDevices) -> Iterator[Impossible]:
    for below, above in zip(path.layers, path.layers[1:], strict=False):
        if above.kind.facts.in_memory:
            yield Impossible(
                f"{above.kind} lives in memory, not on another layer",
                f"put {above.kind} first, or leave it out",
            )
        if above.kind.facts.target is not None:
            yield Impossible(
                f"{above.kind} is storage that you name, not a layer on {below.kind}",
                f"put {above.kind} first, or leave {below.kind} out",
            )
        if path.opened_by_qemu:
            yield Impossible(
                f"QEMU's own driver opens {below}, so no host layer can be on it",
                f"leave out {above.kind}",
            )
        if below.kind.facts.holds_files:
            yield Impossible(
                f"{above.kind} needs a block device below, and {below.kind} is a directory",
                f"leave one of them out, or put {above.kind} first",
            )


def _once(path: DiskPath, _backing: BackingDevices) -> Iterator[Impossible]:
    for kind, count in Counter(layer.kind for layer in path.layers).items():
        if count > 1 and kind.facts.twice is not None:
            yield Impossible(f"{kind} on {kind} {kind.facts.twice}", "leave one of them out")


def _top(path: DiskPath) -> str:
    return path.layers[-1].kind if path.layers else "a whole device"


def _something_to_give(path: DiskPath, backing: BackingDevices) -> Iterator[Impossible]:
    if not path.gives_disk or path.image is not None:
        return
    if backing.ends_on_device(path.layers) and not path.may_hold_formats:
        return
    reason = "the work directory is not a block device that a guest could use"
    if path.may_hold_formats:
        reason = f"{path.layers[-1]} may hold any format, and the path names none"
    elif path.layers:
        reason = f"{path.layers[-1].kind} holds files, and the path names no image format"
    yield Impossible(reason, f"add a format: {replace(path, image=Image(ImageFormat.RAW))}")


def _raw_on_block(path: DiskPath, backing: BackingDevices) -> Iterator[Impossible]:
    image = path.image
    if path.may_hold_formats:
        return
    if image is not None and image.driver == "raw" and backing.ends_on_device(path.layers):
        yield Impossible(
            f"raw on {_top(path)} is the block device itself",
            f"leave out the format: {replace(path, image=None)}",
        )


def _shared_directory(path: DiskPath, backing: BackingDevices) -> Iterator[Impossible]:
    bus = path.attachment.bus
    if path.shares_directory and (path.image is not None or path.cache is not CacheMode.DEFAULT):
        yield Impossible(
            f"{bus} gives the guest a directory, which has no image format and no cache mode",
            f"write {replace(path, image=None, cache=CacheMode.DEFAULT)}",
        )
    if path.shares_directory and backing.ends_on_device(path.layers):
        layers = (*path.layers, Layer(LayerKind.EXT4))
        yield Impossible(
            f"{bus} gives the guest a directory, and {_top(path)} is a block device",
            f"put a file system below: {replace(path, layers=layers)}",
        )


def _through_qemu(path: DiskPath, _backing: BackingDevices) -> Iterator[Impossible]:
    """What needs a file or a device of the host's kernel, on a target that QEMU itself opens."""
    if not path.opened_by_qemu:
        return
    layer = path.layers[-1]
    if path.on_host:
        yield Impossible(
            f"QEMU's own driver opens {layer}, so nothing on the host can measure it",
            "measure it in a guest, or mount it and name the directory: --target NAME=DIR",
        )
    if path.shares_directory:
        yield Impossible(
            f"{path.attachment.bus} shares a directory of the host, and QEMU opens {layer} itself",
            "mount it and name the directory: --target NAME=DIR",
        )
    if path.attachment.aio is not Aio.THREADS:
        yield Impossible(
            f"aio is how QEMU's file driver does I/O, and {layer} has a driver of its own",
            "leave out the aio option",
        )
    image = path.image
    if image is not None and not (path.may_hold_formats or path.layers[0].kind.facts.holds_files):
        yield Impossible(
            f"Ceph allows no image format on {layer} but its own",
            f"leave out the format: {replace(path, image=None)}",
        )
    for option, wanted in (
        ("backing", image is not None and image.backing),
        ("data_file", image is not None and image.has_data_file),
        ("preallocation=falloc", image and image.option("preallocation") == "falloc"),
    ):
        if wanted:
            yield Impossible(
                f"{option} needs files on the host, and QEMU's own driver opens {layer}",
                f"leave out {option.partition('=')[0]}",
                exists=True,
            )


def unnamed_target(path: DiskPath, backing: BackingDevices) -> Impossible | None:
    """Why a path's storage is unknown: no target is called that; None if it is known."""
    target = path.target
    if target is None:
        return None
    kind, name = path.layers[0].kind, path.layers[0].option("at")
    word = name or f"my{kind}"
    example = f"--target {word}={target.example}, and {word} instead of {path.layers[0]} in paths"
    if name is None:
        return Impossible(f"{kind} is storage that you have, which vdisklab never builds", example)
    if any(target.name == name and target.kind is kind for target in backing.targets):
        return None
    return Impossible(f"no target of kind {kind} is called {name}", example)


def _null_stands_alone(path: DiskPath, _backing: BackingDevices) -> Iterator[Impossible]:
    if path.has_storage:
        return
    if path.layers or path.cache is not CacheMode.DEFAULT:
        yield Impossible(
            "null stores nothing: it has no layers below and no cache mode",
            f"write {replace(path, layers=(), cache=CacheMode.DEFAULT)}",
        )
    if path.attachment.aio is not Aio.THREADS:
        yield Impossible("null does no I/O, so aio changes nothing", "leave out the aio option")


def native_without_direct(path: DiskPath) -> bool:
    """True for aio=native without O_DIRECT: QEMU refuses to start with it (block/file-posix.c)."""
    return path.attachment.aio is Aio.NATIVE and not path.cache.direct


def _native_needs_direct(path: DiskPath, _backing: BackingDevices) -> Iterator[Impossible]:
    if native_without_direct(path):
        yield Impossible(
            f"aio=native needs O_DIRECT, which cache mode {path.cache} does not use",
            f"choose {CacheMode.choices(lambda mode: mode.direct)}, or aio=threads or aio=io_uring",
        )


def _qcow2_features(path: DiskPath, _backing: BackingDevices) -> Iterator[Impossible]:
    """qemu-img's own rules (block/qcow2.c, qcow2_co_create)."""
    image = path.image
    if image is None or image.format is not ImageFormat.QCOW2:
        return
    modern = {
        "lazy_refcounts": image.option("lazy_refcounts"),
        "extended_l2": image.option("extended_l2"),
        # block/qcow2.c says the same when it opens the image
        "discard_no_unref": image.option("discard_no_unref"),
        "data_file": image.has_data_file,
        "bitmaps": image.bitmaps,
        "compression=zstd": image.option("compression") == "zstd",
    }
    for name, wanted in modern.items():
        if wanted and image.option("compat") == "0.10":
            yield Impossible(f"{name} needs qcow2 compat=1.1", "leave out compat=0.10")
    if image.option("extended_l2") and int(image.option("cluster_size") or 0) < _LEAST_SUBCLUSTERED:
        yield Impossible(
            "extended_l2 needs clusters of at least 16k", "write cluster_size=16k or more"
        )


def _image_files(path: DiskPath, backing: BackingDevices) -> Iterator[Impossible]:
    """Refuses a chain or a data file on a block device: each needs files beside the image's own."""
    image = path.image
    if image is None or not backing.ends_on_device(path.layers):
        return
    for option, wanted in (("backing", image.backing), ("data_file", image.has_data_file)):
        if wanted:
            yield Impossible(
                f"{option} is built beside the image's file, and this image is on a block device",
                f"put a file system below, or leave out {option}",
                exists=True,
            )


def _reserved_in_files(path: DiskPath, backing: BackingDevices) -> Iterator[Impossible]:
    """qemu-img: "Preallocation mode 'falloc' unsupported for this non-regular file"."""
    reserved = path.image is not None and path.image.option("preallocation") == "falloc"
    if reserved and backing.ends_on_device(path.layers):
        yield Impossible(
            "preallocation=falloc reserves file-system blocks, and this image is on a block device",
            "choose preallocation=metadata, or leave it out",
        )


def _what_a_chain_excludes(path: DiskPath, _backing: BackingDevices) -> Iterator[Impossible]:
    image = path.image
    if image is None:
        return
    if not image.backing and image.option("overlay") not in (None, 10):
        yield Impossible("overlay describes the images of a chain", "add backing=1 or more")
    beside_a_chain = {
        "data_file": image.has_data_file,
        "snapshots": image.snapshots,
        "bitmaps": image.bitmaps,
        "encrypt": image.encrypted,
    }
    for option, wanted in beside_a_chain.items():
        if image.backing and wanted:
            yield Impossible(
                f"a chain of images with {option} is not built",
                f"leave out backing or {option}",
                exists=True,
            )
    beside_compression = {
        "data_file": image.has_data_file,
        "encrypt": image.encrypted,
        f"preallocation={image.option('preallocation')}": image.is_thin,
    }
    for option, wanted in beside_compression.items():
        if image.compressed and wanted:
            yield Impossible(
                f"compressed clusters exclude {option}",
                f"leave out compression or {option.partition('=')[0]}",
            )
    if image.snapshots and not image.can_have_snapshots:
        yield Impossible(
            "qcow2 with a data file has no internal snapshots", "leave one of them out"
        )


def _enough_disks(path: DiskPath, backing: BackingDevices) -> Iterator[Impossible]:
    if not path.layers:
        return
    lowest, disks = path.layers[0], backing.disks_for(path.layers)
    if disks < fewest_disks(lowest):
        yield Impossible(
            f"{lowest} needs {fewest_disks(lowest)} disks, but --disks is {backing.disks}",
            f"write --disks {fewest_disks(lowest)} or more",
        )
    if backing.device_below(path.layers) == ON and disks > len(backing.devices):
        yield Impossible(
            f"{lowest} needs {disks} disks, but --on names {len(backing.devices)}",
            "name more with --on",
        )
    for below, layer in zip(path.layers, path.layers[1:], strict=False):
        if fewest_disks(layer) > 1:
            yield Impossible(
                f"{layer} needs {fewest_disks(layer)} disks, but {below.kind} below it is one",
                f"put {layer.kind} first",
            )


def _usb_keeps_its_write_cache(path: DiskPath, _backing: BackingDevices) -> Iterator[Impossible]:
    """usb-storage accepts write-cache=off and keeps its write cache.

    Observed in the guest and in query-block of QEMU 7.2: usb_msd_storage_realize() does not pass
    the property on to its SCSI disk (hw/usb/dev-storage-classic.c).
    """
    if path.attachment.bus is Bus.USB and not path.offers_write_cache:
        yield Impossible(
            "QEMU's usb-storage always has a write cache",
            f"choose {CacheMode.choices(lambda mode: mode.write_cache)}, or another bus",
            exists=True,
        )


def _threads_to_set(path: DiskPath, _backing: BackingDevices) -> Iterator[Impossible]:
    """Polling and batching are properties of an iothread; the main loop has other defaults."""
    attachment = path.attachment
    if attachment.iothread and attachment.iothreads is not None:
        yield Impossible(
            "iothread=on is one thread, and iothreads names a number of them",
            "leave one of them out",
        )
    for option in ("poll", "aio_max_batch"):
        threads = attachment.iothread or attachment.iothreads is not None
        if not threads and attachment.option(option) is not None:
            yield Impossible(f"{option} is a setting of an iothread", "add iothread=on")


def _discards(path: DiskPath, _backing: BackingDevices) -> Iterator[Impossible]:
    """QEMU: "setting detect-zeroes to unmap is not allowed without setting discard operation to
    unmap" (block.c, bdrv_parse_detect_zeroes); a discard granularity is a multiple of the logical
    block (hw/block/block.c)."""
    attachment = path.attachment
    if attachment.detect_zeroes == "unmap" and attachment.option("discard") != "unmap":
        yield Impossible("detect_zeroes=unmap needs discard=unmap", "add discard=unmap")
    granularity, block = attachment.discard_granularity, attachment.block_size
    if granularity is not None and block is not None and granularity < block:
        yield Impossible(
            f"discard_granularity is smaller than the block of {block} bytes",
            f"write discard_granularity={block} or more",
        )


def _a_bus_of_the_machines(path: DiskPath, guest: Architecture) -> Iterator[Impossible]:
    bus = path.attachment.bus
    if bus not in guest.machines:
        yield Impossible(
            guest.missing_buses.get(bus, f"no machine of {guest.title} has the bus {bus}"),
            f"choose {', '.join(guest.machines)}",
        )


def _a_disk_to_limit(path: DiskPath, _backing: BackingDevices) -> Iterator[Impossible]:
    """The kernel limits a process per disk. tmpfs has no disk, and btrfs and ZFS hide theirs."""
    top = path.layers[-1].kind if path.layers else None
    hidden = top is not None and top.facts.hides_disk
    for option in ("cgroup_iops", "cgroup_bps"):
        if path.attachment.option(option) is not None and (hidden or not path.has_storage):
            yield Impossible(
                f"{option} limits a disk, and {top or 'null'} shows none to the kernel",
                "write throttle_iops or throttle_bps, QEMU's own limit",
            )


def _a_disk_for_each_guest(path: DiskPath, backing: BackingDevices) -> Iterator[Impossible]:
    guests = path.attachment.guests or 1
    if path.attachment.guests is not None and path.shares_directory:
        yield Impossible("a shared directory is measured in one guest alone", "leave out guests")
    divided = bool(path.layers) and path.layers[-1].kind.facts.divides
    if guests > 1 and path.has_storage and backing.ends_on_device(path.layers) and not divided:
        yield Impossible(
            f"guests={guests} needs a disk for each guest, and the path ends on one block device",
            "put volumes or a file system on it, as in lvm/none or ext4/raw/none, or leave out "
            "guests",
        )


def _operation_of_one_guest(path: DiskPath, _backing: BackingDevices) -> Iterator[Impossible]:
    if path.attachment.during is None:
        return
    if path.attachment.guests is not None:
        yield Impossible("an operation is measured in one guest alone", "leave out guests")
    if path.attachment.bus.is_served:
        yield Impossible(
            "operations are ordered from QEMU, and qemu-storage-daemon has this disk",
            "write another bus, such as virtio",
        )
    if not path.has_storage:
        yield Impossible("the null device holds nothing that an operation could copy", "write raw")


def _made_from_a_template(path: DiskPath, _backing: BackingDevices) -> Iterator[Impossible]:
    if path.attachment.made is None:
        return
    if path.attachment.during is not None:
        yield Impossible("an operation is measured on a settled disk", "leave out made or during")
    if path.shares_directory:
        yield Impossible("a shared directory is no disk that is made", "write another bus")
    if not path.has_storage:
        yield Impossible("the null device is not made from a template", "write raw")


def too_many_queues(path: DiskPath, cpus: int) -> Impossible | None:
    """Why a guest with `cpus` CPUs cannot use all queues and threads of the path; None if it can.

    Linux gives a disk at most one queue per CPU (block/blk-mq.c, blk_mq_alloc_tag_set), and QEMU as
    many queues as the guest has CPUs. QEMU gives the queues to the threads in turn
    (hw/virtio/iothread-vq-mapping.c), so surplus threads would get no queue.
    """
    queues, threads = path.attachment.queues, path.attachment.iothreads or 0
    if queues is not None and queues > cpus:
        return Impossible(
            f"queues={queues} is more than the guest's {cpus} CPUs can use",
            f"add --guest-cpus {queues}",
        )
    if threads > (queues or cpus):
        more = f"add --guest-cpus {threads}" if queues is None else f"write queues={threads}"
        return Impossible(
            f"iothreads={threads} share the disk's queues, and there are only {queues or cpus}",
            more,
        )
    return None


_RULES: tuple[Callable[[DiskPath, BackingDevices], Iterator[Impossible]], ...] = (
    _through_qemu, _shared_directory, _stacking, _once, _enough_disks, _something_to_give,
    _raw_on_block, _null_stands_alone, _native_needs_direct, _qcow2_features, _reserved_in_files,
    _usb_keeps_its_write_cache, _image_files, _what_a_chain_excludes, _threads_to_set, _discards,
    _a_disk_for_each_guest, _operation_of_one_guest, _a_disk_to_limit, _made_from_a_template,
)  # fmt: skip


def impossible(
    path: DiskPath,
    backing: BackingDevices = WORK_DIRECTORY,
    guest: Architecture | None = GUEST,
) -> Impossible | None:
    """Why no host could build this path, or None.

    What is only not built by vdisklab is the reason if there is no other. `guest` is the
    architecture of the path's guest; None leaves out what depends on it, for a guest that exists.
    """
    not_built = None
    found = (verdict for rule in _RULES for verdict in rule(path, backing))
    of_guest = () if guest is None else _a_bus_of_the_machines(path, guest)
    for verdict in chain(found, of_guest):
        if not verdict.exists:
            return verdict
        not_built = not_built or verdict
    return not_built


def where_judged(path: DiskPath, below: str | None) -> DiskPath | None:
    """The path on which a power cut of this path is judged; None if none can be.

    A cut needs a file system below, whose disk is logged: for a path without a host layer that of
    its directory (`below`), or ext4 where no cut can be simulated on that.
    """
    if not_judgeable(path) is None:
        return path
    for kind in () if path.layers else dict.fromkeys((below, LayerKind.EXT4)):
        if kind in set(LayerKind):
            on_it = replace(path, layers=(Layer(LayerKind(kind)),))
            if not_judgeable(on_it) is None and impossible(on_it) is None:
                return on_it
    return None


def not_judgeable(path: DiskPath) -> Impossible | None:
    """Why a path cannot be judged, as what follows its name; None if it can."""
    if path.target is not None:
        return Impossible(
            "is on storage that you have, and no disk below it is logged"
            + (": the server answers for it" if path.target.promise else ""),
            "judge the same image on a file system of this host: "
            f"{replace(path, layers=(Layer(LayerKind.EXT4),), image=path.image or _RAW)}",
        )
    if path.on_host:
        return Impossible(
            "has no guest disk, so no write is acknowledged to a guest",
            "write a path with a format",
        )
    if not path.layers:
        image = path.image or (None if path.shares_directory else Image(ImageFormat.RAW))
        return Impossible(
            "has no host layer, so there is no place for the logged disk",
            f"add a file system: ext4/{replace(path, image=image)}",
        )
    for option, reason, instead in (
        ("guests", "names several guests, but a power cut is judged for one", "leave out guests"),
        ("made", "says how the disk was made, and here every disk is filled", "leave out made"),
        ("during", "names an operation, for which `powercut` has an option", "write --during"),
    ):
        if path.attachment.option(option) is not None:
            return Impossible(reason, instead)
    if path.attachment.qemu is not None:
        return Impossible(
            "names a QEMU, but a power cut is judged with the installed one", "leave out qemu"
        )
    return _unknown_recovery(path) or _unknown_image(path)


def not_failable(path: DiskPath) -> Impossible | None:
    """Why the storage of a path cannot be made to fail, as what follows its name; None if it can.

    The image's own file fails, so host layers have no part in it.
    """
    image = path.image
    if path.target is not None:
        return Impossible(
            "is on storage that you have, which vdisklab does not make fail",
            f"judge the same image: {replace(path, layers=(), image=image or _RAW)}",
        )
    if path.on_host or path.shares_directory or image is None:
        return Impossible(
            "has no image whose file could fail", "write a format: raw:preallocation=off/none"
        )
    if image.format not in (ImageFormat.RAW, ImageFormat.QCOW2) or path.attachment.bus.is_served:
        return Impossible(
            "cannot be judged when its storage fails: only raw and qcow2 opened by QEMU can",
            "write raw or qcow2, on another bus than vhostuser",
        )
    for option, value in (*image.options, *path.attachment.options):
        if option in _NOT_FAILABLE or (option == "guest_fs" and value in ("ext2", "ext3")):
            return Impossible(
                f"cannot be judged when its storage fails: {option} is not supported there",
                f"leave out {option}",
            )
    return None


def not_fillable(path: DiskPath) -> Impossible | None:
    """Why the storage of a path cannot be made full, as what follows its name; None if it can."""
    if not (layers := layers_when_full(path)):
        return None
    name = ", ".join(dict.fromkeys(layer.kind.value for layer in layers))
    return Impossible(
        f"cannot be judged on full storage: {name} answers in its own way when it is full, and the "
        "test's storage refuses at once",
        f"judge the image alone: {replace(path, layers=())}",
    )


def _unknown_recovery(path: DiskPath) -> Impossible | None:
    (layer, *above) = path.layers
    filesystems = ", ".join(JUDGED)
    if in_memory(path.layers):
        return Impossible(
            "is in memory: nothing is left after a power cut, so nothing can be judged",
            f"write one of {filesystems} instead of {layer.kind}",
        )
    if above or layer.kind not in JUDGED:
        unknown = layer if layer.kind not in JUDGED else above[0]
        return Impossible(
            f"cannot be judged: vdisklab does not know how {unknown} recovers after a power cut",
            f"write one of {filesystems} as the only host layer",
        )
    if layer.option("raid") not in (None, "single"):
        return Impossible(
            f"cannot be judged: only one disk is logged, but {layer} uses several", "leave out raid"
        )
    return None


def _unknown_image(path: DiskPath) -> Impossible | None:
    if path.shares_directory:
        return None
    if path.image is None or not path.image.format.is_file:
        return Impossible(
            "has no image on its host layer, so no data survives",
            f"name a format: {path.stack}/raw/{path.cache}",
        )
    if path.image.compressed:
        return Impossible(
            "cannot be judged: the judge does not read compressed clusters", "leave out compression"
        )
    return None
