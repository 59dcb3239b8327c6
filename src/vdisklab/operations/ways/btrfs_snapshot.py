"""A snapshot of a btrfs subvolume that holds the template."""

from __future__ import annotations

from vdisklab.operations.making import Command, NewDisk, Template, Way, WayKind, needs_image
from vdisklab.path.disk_path import DiskPath
from vdisklab.path.rules import Impossible
from vdisklab.path.segments import LayerKind


def _snapshot(_way: Way, template: Template, disk: NewDisk) -> tuple[Command, ...]:
    directories = (str(template.file.parent), str(disk.place.parent))
    return (("btrfs", "--quiet", "subvolume", "snapshot", *directories),)


def _deleted(disk: NewDisk) -> tuple[Command, ...]:
    return (("btrfs", "--quiet", "subvolume", "delete", str(disk.place.parent)),)


def _refusal(path: DiskPath) -> Impossible | None:
    if not path.layers or path.layers[-1].kind is not LayerKind.BTRFS:
        return Impossible("only btrfs has subvolumes", "write btrfs/raw or btrfs/qcow2")
    return needs_image(path)


BTRFS_SNAPSHOT = WayKind(
    "btrfs-snapshot",
    "a btrfs snapshot of the directory with the template",
    _snapshot,
    _refusal,
    delete=_deleted,
    in_subvolume=True,
    first_write="a write to a shared block first gets a block of its own",
)
