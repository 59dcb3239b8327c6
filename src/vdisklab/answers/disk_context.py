"""What this host knows about the source of a configured disk: its image, file system, free space.

A qcow2 image's options are read from its header: a `qemu-img info` for each of thousands of images
would take minutes. The format is always the configured one, never one that the content suggests: a
guest writes what it likes to its raw disk.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from vdisklab.host.blockdevice import device_of
from vdisklab.host.mounts import free_bytes, header_format, is_visible_file, mount_of
from vdisklab.path.disk_path import Image, Layer
from vdisklab.path.options import OptionValue
from vdisklab.path.segments import (
    ImageFormat,
    LayerKind,
)
from vdisklab.platforms.configured_disk import UNKNOWN_CONTEXT, ConfiguredDisk, DiskContext
from vdisklab.powercut.judging.image_reader import (
    HEAD,
    BadImageError,
    Qcow2Header,
    parse_header,
)

_MOST_SNAPSHOTS, _DEEPEST = 100, 200  # of a disk path
_SIZES = {
    ImageFormat.VMDK: (12, 512),
    ImageFormat.QED: (48, 1),
    ImageFormat.VDI: (368, 1),
}
"""Offset of the disk's size in the header, and its unit in bytes: VMDK4Header, QEDHeader and
VdiHeader of QEMU's block drivers. A VHDX has it in a table that is not read."""


def read_contexts(disks: Iterable[ConfiguredDisk]) -> Iterator[DiskContext]:
    """Facts about each disk's source on this host; of a block device only the header's format.

    All are unknown if the source is not on this host, or cannot be read.
    """
    places: dict[tuple[Path, int], DiskContext] = {}
    return (_context(disk, places) for disk in disks)


def _context(disk: ConfiguredDisk, places: dict[tuple[Path, int], DiskContext]) -> DiskContext:
    """`places` has what is the same for all files of a directory."""
    if disk.source is None or disk.path is None or not disk.source.startswith("/"):
        return UNKNOWN_CONTEXT
    source = Path(disk.source)
    if disk.path.shares_directory:
        return DiskContext(layers=_layers(source)) if source.is_dir() else UNKNOWN_CONTEXT
    if not is_visible_file(source):
        return DiskContext(header=header_format(source))
    status = os.stat(source)  # noqa: PTH116 - os.path has just asked in the same way
    place = (source.parent, status.st_dev)
    if place not in places:
        places[place] = _place(source)
    allocated = status.st_blocks * 512
    size, image = _image(disk.path.image, source, status.st_size, allocated)
    return replace(
        places[place],
        header=header_format(source),
        image=image,
        virtual_size=size,
        allocated=allocated,
    )


def _place(source: Path) -> DiskContext:
    """The file system that holds a file, and its free space."""
    layers = _layers(source)
    device = None if layers is None else device_of(source.parent)
    below = device.describe() if device is not None and device.below else None
    return DiskContext(layers=layers, below=below, free=free_bytes(source))


def _layers(source: Path) -> tuple[Layer, ...] | None:
    """The file system that holds a file; None if vdisklab has no layer for it."""
    mount = mount_of(source)
    try:
        return None if mount is None else (Layer(LayerKind(mount.filesystem)),)
    except ValueError:
        return None


def _image(
    configured: Image | None, source: Path, length: int, allocated: int
) -> tuple[int | None, Image | None]:
    """Virtual size in bytes and format options; None if they cannot be read.

    `length` and `allocated` are those of the file, in bytes.
    """
    form = ImageFormat.RAW if configured is None else configured.format
    if form is ImageFormat.RAW:
        thin = _thin(allocated < length)
        return length, Image(form, (*(() if configured is None else configured.options), *thin))
    try:
        with source.open("rb") as file:
            head = file.read(HEAD)
        if form is ImageFormat.QCOW2:
            header = parse_header(head)
            known = () if configured is None else configured.options
            depth, lowest = _chain(header, source)
            thin = _thin(not header.compression and _is_thin(lowest, header))
            return header.size, Image(form, (*known, *thin, ("backing", depth), *_options(header)))
        offset, unit = _SIZES[form]
        return struct.unpack_from("<Q", head, offset)[0] * unit, None
    except (OSError, BadImageError, KeyError, struct.error):
        return None, None


def _chain(header: Qcow2Header, source: Path) -> tuple[int, Path]:
    """The number of images below, and the lowest; those that cannot be read are not counted on."""
    depth = 0
    while header.backing is not None and depth < _DEEPEST:
        depth += 1
        below = source.parent / header.backing
        if not is_visible_file(below):
            break
        source = below
        try:
            with source.open("rb") as file:
                header = parse_header(file.read(HEAD))
        except (OSError, BadImageError):  # raw, or of another user
            break
    return depth, source


def _is_thin(lowest: Path, header: Qcow2Header) -> bool:
    """True if the file that has the data lacks some of it: the lowest of a chain, a data file."""
    name = header.extensions.data_file
    data = lowest if name is None else lowest.parent / name
    return not is_visible_file(data) or data.stat().st_blocks * 512 < header.size


def _thin(is_thin: bool) -> tuple[tuple[str, OptionValue], ...]:
    return (("preallocation", "off"),) if is_thin else ()


def _options(header: Qcow2Header) -> tuple[tuple[str, OptionValue], ...]:
    """The options of a qcow2 image with this header."""
    bitmaps = header.extensions.bitmaps
    return (
        ("cluster_size", header.cluster),
        ("compat", "1.1" if header.version == 3 else "0.10"),
        ("lazy_refcounts", header.lazy_refcounts),
        ("data_file", ("raw" if header.raw_data else "on") if header.external_data else "off"),
        ("extended_l2", header.extended_l2),
        ("compression", "zstd" if header.compression else "off"),
        ("snapshots", min(header.snapshots, _MOST_SNAPSHOTS)),
        ("encrypt", "luks" if header.is_luks else "off"),
        ("bitmaps", 0 if bitmaps is None else min(bitmaps.count, _MOST_SNAPSHOTS)),
    )
