"""What this host knows of a guest's configured disk: its image, the host layers below, its path.

A qcow2 image's options are read from its header: a `qemu-img info` for each of thousands of images
would take minutes. The format is always the configured one, never one that the content suggests: a
guest writes what it likes to its raw disk.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from pathlib import Path

from vdisklab.errors import HostError
from vdisklab.host import mounts
from vdisklab.host.blockdevice import (
    StackedDevice,
    device_of,
    lost_in,
    stacked_device,
    without_flushes_in,
)
from vdisklab.host.command import LocalHost
from vdisklab.host.image_file import SeenFile, format_of, seen_file
from vdisklab.host.machine import read_text
from vdisklab.inspection.thin_pools import btrfs_quota, has_zfs_quota, lvm_pool, zfs_pool
from vdisklab.path.disk_path import DiskPath, Image, Layer, Options
from vdisklab.path.memory_names import RAM_DISK, memory_below, memory_by_name
from vdisklab.path.options import OptionValue
from vdisklab.path.segments import ImageFormat, LayerKind
from vdisklab.path.volume_names import volume_by_name
from vdisklab.platforms.configured_disk import ConfiguredDisk
from vdisklab.platforms.disk_context import UNKNOWN_CONTEXT, DiskContext
from vdisklab.storage.given import MOUNTED
from vdisklab.storage.qcow2_header import HEAD, BadImageError, Qcow2Header, parse_header
from vdisklab.value import Value, replace

_MOST_SNAPSHOTS = 100  # of a disk path
_SIZES = {ImageFormat.VMDK: (12, 512), ImageFormat.QED: (48, 1), ImageFormat.VDI: (368, 1)}
"""Offset of the disk's size in the header, and its unit in bytes: VMDK4Header, QEDHeader and
VdiHeader of QEMU's block drivers. A VHDX has it in a table that is not read."""


_ZVOLS = "/dev/zvol/"
_BLOCK = Path("/sys/class/block")


def read_contexts(disks: Iterable[ConfiguredDisk]) -> Iterator[DiskContext]:
    """Facts about each disk's source on this host; of a block device only the header's format.

    All are unknown if the source is not on this host, or cannot be read.
    """
    places: dict[tuple[Path, int], DiskContext] = {}
    growth: dict[int, dict[int, int]] = {}
    found: list[tuple[DiskContext, tuple[int, int] | None]] = []
    for disk in disks:
        try:
            found.append(_context(disk, places))
        except OSError:  # it has gone meanwhile
            found.append((UNKNOWN_CONTEXT, None))
            continue
        context, file = found[-1]
        grows = (context.virtual_size or 0) - (context.allocated or 0)
        if file is not None and grows > 0 and not disk.read_only:
            growth.setdefault(file[0], {})[file[1]] = grows
    for context, file in found:
        others = {} if file is None else dict(growth.get(file[0], {}))
        others.pop(file[1] if file else 0, None)
        yield replace(context, others=len(others), others_grow=sum(others.values()))


def _context(
    disk: ConfiguredDisk, places: dict[tuple[Path, int], DiskContext]
) -> tuple[DiskContext, tuple[int, int] | None]:
    """The context of one disk, and device and inode of its file if it is one on this host.

    `places` caches the facts that a directory's files share.
    """
    context = _context_elsewhere(disk)
    if context is not None:
        return context, None
    source = local_source(disk)
    assert source is not None  # noqa: S101 - `_context_elsewhere` has looked
    with seen_file(source, disk.held) as file:
        if file is None or not file.is_regular:
            return _of_device(str(source), file), None
        if disk.path is None:
            return replace(_shared(source), layers=None), None
        status = file.status
        place = (source.parent, status.st_dev)
        if place not in places:
            places[place] = _file_system(source)
        allocated = status.st_blocks * 512
        found = _image(disk.path.image, source, file)
        context = replace(
            places[place],
            header=format_of(file),
            image=found.image,
            not_followed=found.not_followed,
            lost_below=places[place].lost_below or found.lost_below,
            virtual_size=found.size,
            allocated=allocated,
        )
        return context, (status.st_dev, status.st_ino)


def _context_elsewhere(disk: ConfiguredDisk) -> DiskContext | None:
    """The context of a disk that is neither a file nor a device on this host; else None."""
    source = local_source(disk)
    if source is None:
        return _by_name(disk.source or "")
    if disk.path is not None and disk.path.shares_directory:
        is_here = mounts.is_visible_directory(source)
        return _shared(source) if is_here else _by_name(str(source / "FILE"))
    return None


def local_source(disk: ConfiguredDisk) -> Path | None:
    """The disk's file, device or directory on this host, to be looked at; None for one elsewhere.

    A name among a process's arguments is none, unless the process has that file open.
    """
    if disk.source is None or not disk.source.startswith("/"):
        return None
    source = Path(disk.source)
    shares = disk.path is not None and disk.path.shares_directory
    if disk.held is not None and not shares:
        with seen_file(source, disk.held) as file:
            return None if file is None else source
    return source


def _of_device(source: str, device: SeenFile | None) -> DiskContext:
    """A block device, or a file that is not on this host."""
    if source.startswith(_ZVOLS):
        sync = _sync(source.removeprefix(_ZVOLS))
        volume = (Layer(LayerKind.ZVOL, sync),) if sync else None
        flushes = mounts.zfs_without_flushes()
        pool = zfs_pool(LocalHost(), source.removeprefix(_ZVOLS))
        return DiskContext(format_of(device), volume, without_flushes=flushes, pool=pool)
    if device is not None and mounts.is_visible_device(Path(source)):
        below = _below(stacked_device(Path(source)))
        return replace(below, header=format_of(device), pool=lvm_pool(LocalHost(), Path(source)))
    return _by_name(source)


def _by_name(source: str) -> DiskContext:
    """What the name alone tells of a file or device."""
    memory = memory_by_name(source)
    if memory is None:
        return DiskContext(named_volume=volume_by_name(source))
    layers = None if memory == RAM_DISK else (Layer(LayerKind(memory)),)
    return DiskContext(layers=layers, lost_below=f"{source} is memory ({memory})")


def _below(device: StackedDevice | None) -> DiskContext:
    """What a device of this host and those below it lose in a power cut."""
    if device is None:
        return UNKNOWN_CONTEXT
    return DiskContext(lost_below=lost_in(device), without_flushes=without_flushes_in(device))


def _file_system(source: Path) -> DiskContext:
    """The file system that holds a file, and its free space."""
    shared, free = _shared(source), mounts.free_bytes(source)
    device = None if shared.layers is None else device_of(source.parent)
    below = device.describe() if device is not None and device.below else None
    lost = _below(device)
    return replace(
        shared,
        below=below,
        free=free if shared.free is None else min(free, shared.free),
        lost_below=lost.lost_below,
        without_flushes=shared.without_flushes or lost.without_flushes,
    )


def _shared(source: Path) -> DiskContext:
    mount = mounts.mount_of(source)
    return replace(
        _limited(source, mount),
        layers=_layers(mount),
        without_flushes=mounts.without_flushes(mount),
        soft_mount=mounts.soft_mount(mount),
    )


def _limited(source: Path, mount: mounts.Mount | None) -> DiskContext:
    """The quotas of a file system; `free` is what they leave where statvfs(2) does not know it."""
    if mount is None:
        return UNKNOWN_CONTEXT
    if mount.filesystem == LayerKind.ZFS:
        return DiskContext(has_quota=has_zfs_quota(LocalHost(), mount.source))
    if mount.filesystem == LayerKind.BTRFS:
        left = btrfs_quota(LocalHost(), source if source.is_dir() else source.parent)
        return DiskContext(free=left, has_quota=left is not None)
    return UNKNOWN_CONTEXT


def _layers(mount: mounts.Mount | None) -> tuple[Layer, ...] | None:
    """The mounted file system; None if vdisklab has no layer for it, or if it is not known what
    that does at a flush."""
    if mount is None:
        return None
    if mount.filesystem in MOUNTED:
        return (Layer(MOUNTED[mount.filesystem]),)
    if mount.filesystem not in tuple(LayerKind):
        return None
    kind = LayerKind(mount.filesystem)
    options: Options | None = ()
    if "barrier" in kind.facts.options and mounts.without_flushes(mount):
        options = (("barrier", False),)
    if kind is LayerKind.ZFS:
        options = _sync(mount.source)
    return None if options is None else (Layer(kind, options),)


def _sync(dataset: str) -> Options | None:
    """A ZFS dataset's behaviour at a flush; None if `zfs` does not tell."""
    try:
        answer = LocalHost().run("zfs", "get", "-H", "-o", "value", "sync", dataset).stdout.split()
    except HostError:
        return None
    return tuple(("sync", word) for word in answer if word in ("standard", "always", "disabled"))


class _SeenImage(Value):
    """What a file's header says beside the configuration."""

    size: int | None = None
    """The virtual size in bytes; None if it cannot be read."""
    image: Image | None = None
    """The format's options; None if they cannot be read."""
    not_followed: str | None = None
    """A backing file that the configuration does not name. It is not opened: its name is the
    guest's, if its owner ever read the image as raw."""
    lost_below: str | None = None
    """Why a power cut takes a file below the image: its name says that it is memory."""


def _image(configured: Image | None, source: Path, file: SeenFile) -> _SeenImage:
    """What the file's header says. What the configuration says of a chain, a data file or
    encryption holds, too."""
    configured = configured or Image(ImageFormat.RAW)
    form, options = configured.format, dict(configured.options)
    if form is ImageFormat.RAW:
        length = file.status.st_size
        is_thin = file.status.st_blocks * 512 < length
        return _SeenImage(length, Image(form, tuple((options | _thin(is_thin)).items())))
    head = file.first(HEAD)
    if head is None:
        return _SeenImage()
    try:
        if form is ImageFormat.QCOW2:
            header = parse_header(head)
            alone = header.backing is None
            found = {
                **_thin(alone and not header.compression and _is_thin(source, header)),
                **_options(header),
                "backing": max(int(not alone), configured.backing),
            }
            not_followed = None if configured.backing else header.backing
            names = filter(None, (header.backing, header.extensions.data_file))
            lost = memory_below(str(source.parent / name) for name in names)
            image = Image(form, tuple((options | found).items()))
            return _SeenImage(header.size, image, not_followed, lost)
        offset, unit = _SIZES[form]
        return _SeenImage(struct.unpack_from("<Q", head, offset)[0] * unit)
    except (OSError, BadImageError, KeyError, struct.error):
        return _SeenImage()


def _is_thin(source: Path, header: Qcow2Header) -> bool:
    """True if the file that has the data lacks some of it: the image, or its data file."""
    name = header.extensions.data_file
    data = source if name is None else source.parent / name
    return not mounts.is_visible_file(data) or data.stat().st_blocks * 512 < header.size


def _thin(is_thin: bool) -> dict[str, OptionValue]:
    return {"preallocation": "off"} if is_thin else {}


def _options(header: Qcow2Header) -> dict[str, OptionValue]:
    """The options of a qcow2 image with this header."""
    bitmaps = header.extensions.bitmaps
    return {
        "cluster_size": header.cluster,
        "compat": "1.1" if header.version == 3 else "0.10",
        "lazy_refcounts": header.lazy_refcounts,
        "data_file": ("raw" if header.raw_data else "on") if header.external_data else "off",
        "extended_l2": header.extended_l2,
        "compression": "zstd" if header.compression else "off",
        "snapshots": min(header.snapshots, _MOST_SNAPSHOTS),
        "encrypt": "luks" if header.is_luks else "off",
        "bitmaps": 0 if bitmaps is None else min(bitmaps.count, _MOST_SNAPSHOTS),
    }


def measured_form(disk: ConfiguredDisk, path: DiskPath, context: DiskContext) -> DiskPath:
    """The path as it is measured: the image allocated, with the options that its header shows. What
    the name of a device that is not here says is a guess, and builds no layer."""
    image = path.image
    if image is not None and context.image is not None and context.image.format is image.format:
        options = [option for option in context.image.options if option[0] != "preallocation"]
        image = Image(image.format, tuple(options))
    layers = () if is_mounted(path) else path.layers or _device_layers(disk.source)
    return replace(path, image=image, layers=layers)


def is_mounted(path: DiskPath) -> bool:
    """True for an image in a directory that the host's kernel mounts from a server: its directory
    is measured."""
    return (
        path.target is not None
        and path.layers[0].kind.facts.holds_files
        and not (path.opened_by_qemu)
    )


def _device_layers(source: str | None) -> tuple[Layer, ...]:
    """The layer of a host's block device, and whether it passes discards on if it may not."""
    if source is None or not source.startswith("/dev/"):
        return ()
    if source.startswith(_ZVOLS):
        return (Layer(LayerKind.ZVOL),)
    device = _BLOCK / Path(source).resolve().name
    owner = read_text(device / "dm/uuid") or device.name
    kind = next((layer for layer in LayerKind if layer.facts.owns(owner)), None)
    if kind is None:
        return ()
    discards = read_text(device / "queue/discard_max_bytes") not in (None, "0")
    options: Options = (("discard", True),) if discards and "discard" in kind.facts.options else ()
    return (Layer(kind, options),)
