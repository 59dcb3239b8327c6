"""Existing guests' disks in groups that one measurement answers for.

Disks of one path on one file system are one group. A group's image is measured as allocated,
because an image in use is; host layers that only hold the image's directory are not built again:
the directory itself is measured.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from vdisklab.answers.disk_context import read_contexts
from vdisklab.errors import PlanError
from vdisklab.host.facts import read_text
from vdisklab.host.mounts import is_visible_directory
from vdisklab.path.disk_path import DiskPath, Image, Layer, Options, parse_path
from vdisklab.path.neighbours import neighbours
from vdisklab.path.platforms import Platform
from vdisklab.path.rules import Impossible
from vdisklab.path.segments import LayerKind
from vdisklab.platforms.configured_disk import (
    AioConflict,
    ConfiguredDisk,
    DiskContext,
    OtherFormat,
    Risk,
    risks,
)
from vdisklab.platforms.drive_arguments import names_device
from vdisklab.platforms.registry import dialect_of

_MACHINES = {"amd64": "x86_64", "i686": "x86_64"}
"""Architectures that a host of another name runs."""


@dataclass(frozen=True, slots=True)
class DiskGroup:
    """Disks with one path on one file system.

    `directory` is where it can be measured, None if only the user knows a place. `problem` says
    why the path cannot be measured here; then `path` may be None.
    """

    disks: tuple[ConfiguredDisk, ...]
    path: DiskPath | None
    directory: Path | None = None
    problem: str | None = None
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
        place = device_of(group.directory)
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
                return str(risk)
            case AioConflict(cache):
                return (
                    f"QEMU does not start with io=native and cache mode {cache}: use cache none, "
                    "or io threads"
                )
            case Impossible(reason, instead):
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


def device_of(directory: Path | None) -> int | None:
    """The number of a directory's file system; None if it cannot be read."""
    try:
        return None if directory is None else os.stat(directory).st_dev  # noqa: PTH116
    except OSError:
        return None


def paths_to_measure(group: DiskGroup) -> tuple[DiskPath, ...]:
    """The group's path, its neighbours, and what its platform gives a new guest."""
    if group.path is None:
        return ()
    default = default_path(group)
    others = neighbours(group.path, dialect_of(group.platform).aio_of)
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
