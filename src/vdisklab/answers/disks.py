"""Existing guests' disks: what this host knows of each, groups of them, and which path is better.

A qcow2 image's options are read from its header: a `qemu-img info` for each of thousands of images
would take minutes. The format is always the configured one, never one that the content suggests: a
guest writes what it likes to its raw disk.

Disks of one path on one file system are one group, for which one measurement answers. A group's
image is measured as allocated, because an image in use is; host layers that only hold the image's
directory are not built again: the directory itself is measured.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

from vdisklab.analysis.rank_intervals import Ranking
from vdisklab.errors import PlanError
from vdisklab.host.blockdevice import device_of
from vdisklab.host.facts import read_text
from vdisklab.host.mounts import (
    free_bytes,
    header_format,
    is_visible_directory,
    is_visible_file,
    mount_of,
)
from vdisklab.path.adjacent import adjacent_paths
from vdisklab.path.cell import MeasuredCell
from vdisklab.path.disk_path import DiskPath, Image, Layer, Options, parse_path
from vdisklab.path.needs import distance, other_format
from vdisklab.path.options import OptionValue
from vdisklab.path.platforms import Platform
from vdisklab.path.segments import (
    ImageFormat,
    LayerKind,
)
from vdisklab.platforms.configured_disk import (
    UNKNOWN_CONTEXT,
    AioConflict,
    CannotWork,
    ConfiguredDisk,
    DiskContext,
    OtherFormat,
    Risk,
    risks,
)
from vdisklab.platforms.drive_arguments import names_device
from vdisklab.platforms.registry import dialect_of
from vdisklab.powercut.image_reader import (
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
        places[place] = _file_system(source)
    allocated = status.st_blocks * 512
    size, image = _image(disk.path.image, source, status.st_size, allocated)
    return replace(
        places[place],
        header=header_format(source),
        image=image,
        virtual_size=size,
        allocated=allocated,
    )


def _file_system(source: Path) -> DiskContext:
    """The file system that holds a file, and its free space."""
    layers = _layers(source)
    device = None if layers is None else device_of(source.parent)
    below = device.describe() if device is not None and device.below else None
    return DiskContext(layers=layers, below=below, free=free_bytes(source))


def _layers(source: Path) -> tuple[Layer, ...] | None:
    """The file system that holds a file; None if vdisklab has no layer for it."""
    mount = mount_of(source)
    try:
        if mount is None:
            return None
        kind = LayerKind(mount.filesystem)
        barriers = not mount.options & {"nobarrier", "barrier=0"}
        known = not barriers and "barrier" in kind.facts.options
        return (Layer(kind, (("barrier", False),) if known else ()),)
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


_MACHINES = {"amd64": "x86_64", "i686": "x86_64"}
"""Architectures that a host of another name runs."""


@dataclass(frozen=True, slots=True)
class DiskGroup:
    """Disks with one path on one file system.

    `directory` is None if only the user knows a place.
    """

    disks: tuple[ConfiguredDisk, ...]
    path: Annotated[DiskPath | None, "as it is measured; null if no disk path can express them"]
    directory: Annotated[Path | None, "where they can be measured; null if not on this host"] = None
    problem: Annotated[str | None, "why the path cannot be measured here"] = None
    risks: tuple[Risk, ...] = ()

    @property
    def platform(self) -> Platform:
        """The platform that runs the group's guests."""
        return self.disks[0].platform


_SHARE = "it is a host directory, not a disk: compare both kinds, `vdisklab run virtiofs 9p`"
_READ_ONLY = (
    "it is read-only, and vdisklab measures with writes: keep it, no power cut loses its data"
)


def group_disks(
    disks: Sequence[ConfiguredDisk], machine: str, directory: Path | None = None
) -> tuple[DiskGroup, ...]:
    """The disks grouped by path and file system, the largest groups first.

    `machine` is this host's architecture as uname(2) names it. A named `directory` is the place to
    measure for all.
    """
    groups: dict[tuple[object, ...], list[DiskGroup]] = {}
    for disk, context in zip(disks, read_contexts(disks), strict=True):
        group = _group_of(disk, context, machine, directory)
        place = number_of(group.directory)
        key = (disk.platform, group.path, place, group.problem, disk.limits)
        groups.setdefault(key, []).append(group)
    together = (
        replace(alike[0], disks=tuple(group.disks[0] for group in alike))
        for alike in groups.values()
    )
    return tuple(sorted(together, key=lambda group: -len(group.disks)))


def _group_of(
    disk: ConfiguredDisk, context: DiskContext, machine: str, directory: Path | None
) -> DiskGroup:
    disk_risks = risks(disk, context)
    path = None if disk.path is None else _measured_form(disk, disk.path, context)
    problem = (
        disk.problem
        or (_READ_ONLY if disk.read_only else None)
        or (_SHARE if disk.path is not None and disk.path.shares_directory else None)
        or _problem(disk, path, disk_risks, machine)
    )
    return DiskGroup((disk,), path, directory or _place(disk), problem, disk_risks)


def _measured_form(disk: ConfiguredDisk, path: DiskPath, context: DiskContext) -> DiskPath:
    """The path as it is measured: the image allocated, with the options that its header shows."""
    image = path.image
    if image is not None and context.image is not None and context.image.format is image.format:
        options = [option for option in context.image.options if option[0] != "preallocation"]
        image = Image(image.format, tuple(options))
    return replace(path, image=image, layers=path.layers or _device_layers(disk.source))


_BLOCK = Path("/sys/class/block")


def _device_layers(source: str | None) -> tuple[Layer, ...]:
    """The layer of a host's block device, and whether it passes discards on if it may not."""
    if source is None or not source.startswith("/dev/"):
        return ()
    if source.startswith("/dev/zvol/"):
        return (Layer(LayerKind.ZVOL),)
    device = _BLOCK / Path(source).resolve().name
    owner = read_text(device / "dm/uuid") or device.name
    kind = next((one for one in LayerKind if one.facts.owns(owner)), None)
    if kind is None:
        return ()
    discards = read_text(device / "queue/discard_max_bytes") not in (None, "0")
    options: Options = (("discard", True),) if discards and "discard" in kind.facts.options else ()
    return (Layer(kind, options),)


def _problem(
    disk: ConfiguredDisk, path: DiskPath | None, disk_risks: Iterable[Risk], machine: str
) -> str | None:
    """Why a disk cannot be measured here, as a clause; None if it can."""
    arch = disk.architecture
    if arch is not None and _MACHINES.get(arch, arch) != _MACHINES.get(machine, machine):
        return f"its guest is {arch} and this host is {machine}: ask on a host of its architecture"
    for risk in disk_risks:
        match risk:
            case OtherFormat():
                return risk.clause
            case AioConflict(cache):
                return (
                    f"QEMU does not start with io=native and cache mode {cache}: use cache none, "
                    "or io threads"
                )
            case CannotWork(reason, instead):
                return f"it cannot work: {reason}; {instead}"
            case _:
                pass
    if path is not None and path.image is None and not path.layers:
        return (
            "it is a block device whose layers are not known: measure it on a spare device of the "
            f"same kind, `vdisklab run {path} --on DEVICE`"
        )
    return None


def _place(disk: ConfiguredDisk) -> Path | None:
    """The directory of a disk's image; None if the image is not on this host."""
    if disk.source is None or not disk.source.startswith("/") or names_device(disk.source):
        return None
    directory = Path(disk.source).parent
    return directory if is_visible_directory(directory) else None


def number_of(directory: Path | None) -> int | None:
    """The number of a directory's file system; None if it cannot be read."""
    try:
        return None if directory is None else os.stat(directory).st_dev  # noqa: PTH116
    except OSError:
        return None


def paths_to_measure(group: DiskGroup) -> tuple[DiskPath, ...]:
    """The group's path, the adjacent paths, and the default of its platform."""
    if group.path is None:
        return ()
    default = default_path(group)
    others = adjacent_paths(group.path, dialect_of(group.platform).aio_of)
    return tuple(dict.fromkeys((group.path, *others, *(() if default is None else (default,)))))


def default_path(group: DiskGroup) -> DiskPath | None:
    """The platform's default on the group's host layers."""
    disk = group.platform.new_guest
    if disk is None or group.path is None:
        return None
    path = parse_path(disk.path)
    if not group.path.layers:
        return path
    return replace(path, layers=group.path.layers, image=None)


def parsed_path(name: str) -> DiskPath | None:
    """The path of a stored name; None if it is none."""
    try:
        return parse_path(name)
    except PlanError:
        return None


def looks_alike(group: DiskGroup, measured: DiskPath) -> bool:
    """True for a measured path with the group's guest side and the group's host layers."""
    path = group.path
    if path is None or measured.on_host or measured.guest_side != path.guest_side:
        return False
    return measured.layers == path.layers or (
        not path.layers and all(layer.kind.facts.holds_files for layer in measured.layers[-1:])
    )


def unlikeness(path: DiskPath, measured: DiskPath) -> tuple[bool, bool, bool, int]:
    """Orders measured paths by how little they differ from a path, the guest's side first.

    Then comes the format: a device and a raw image hold the same bytes, and qcow2 costs more than
    another cache mode.
    """
    return (
        measured != path,
        measured.guest_side != path.guest_side,
        other_format(path, measured),
        distance(path, measured),
    )


def shown_better(
    cell: MeasuredCell,
    ranking: Ranking,
    eligible: Collection[MeasuredCell],
    best: MeasuredCell | None,
) -> MeasuredCell | None:
    """The eligible cell that is shown to be better: `best` if it is, else the first in the ranking;
    None if none is."""
    rows = {row.cell: row for row in ranking.rows}
    if cell not in rows:
        return None
    better = [
        row.cell for row in ranking.rows if row.cell in eligible and row.worst < rows[cell].best
    ]
    return best if best in better else next(iter(better), None)
