"""Snapshots and clones of volumes and datasets: LVM's thin snapshot, ZFS's clones."""

from __future__ import annotations

from vdisklab.operations.making import (
    Command,
    NewDisk,
    Template,
    Way,
    WayKind,
    needs_image,
    needs_plain,
)
from vdisklab.operations.volume_commands import (
    GOLDEN,
    thin_snapshot,
    volume_removed,
    zfs_clone,
    zfs_destroyed,
)
from vdisklab.path.disk_path import DiskPath
from vdisklab.path.rules import Impossible
from vdisklab.path.segments import ImageFormat, LayerKind


def _snapshot(_way: Way, template: Template, disk: NewDisk) -> tuple[Command, ...]:
    return (thin_snapshot(template.volume, disk.volume.partition("/")[2]),)


def _removed(disk: NewDisk) -> tuple[Command, ...]:
    return (volume_removed(disk.volume),)


def _clone(_way: Way, template: Template, disk: NewDisk) -> tuple[Command, ...]:
    return (zfs_clone(template.volume, GOLDEN, disk.volume),)


def _destroyed(disk: NewDisk) -> tuple[Command, ...]:
    return (zfs_destroyed(disk.volume),)


def _on_top(path: DiskPath, kind: LayerKind, what: str) -> Impossible | None:
    if not path.layers or path.layers[-1].kind is not kind:
        return Impossible(f"{what} needs {kind}", f"write {kind} as the last host layer")
    return None


def _volume(path: DiskPath) -> Impossible | None:
    if path.image is not None and path.image.format is not ImageFormat.RAW:
        return Impossible("the volume itself is the disk", "leave out the image format")
    return needs_plain(path)


THIN_SNAPSHOT = WayKind(
    "thin-snapshot",
    "a thin snapshot of the logical volume with the template",
    _snapshot,
    lambda path: _on_top(path, LayerKind.LVMTHIN, "a thin snapshot") or _volume(path),
    delete=_removed,
    clones=LayerKind.LVMTHIN,
    first_write="a write to a shared chunk of the thin pool first copies the whole chunk",
)
ZVOL_CLONE = WayKind(
    "zvol-clone",
    "a clone of the ZFS volume with the template",
    _clone,
    lambda path: _on_top(path, LayerKind.ZVOL, "a clone of a ZFS volume") or _volume(path),
    delete=_destroyed,
    clones=LayerKind.ZVOL,
    first_write="a write to a part of a volblocksize reads the rest of it from the template",
)
ZFS_CLONE = WayKind(
    "zfs-clone",
    "a clone of the ZFS dataset with the template",
    _clone,
    lambda path: _on_top(path, LayerKind.ZFS, "a clone of a ZFS dataset") or needs_image(path),
    delete=_destroyed,
    clones=LayerKind.ZFS,
    first_write="a write to a part of a record reads the rest of it from the template",
)
