"""Snapshots and clones of volumes: LVM's thin snapshot, ZFS's clones. Not made yet."""

from __future__ import annotations

from collections.abc import Callable

from vdisklab.operations.making import Command, NewDisk, Template, Way, WayKind
from vdisklab.path.disk_path import DiskPath
from vdisklab.path.rules import Impossible
from vdisklab.path.segments import LayerKind


def _never(_way: Way, _template: Template, _disk: NewDisk) -> tuple[Command, ...]:
    raise AssertionError("no path is possible with this way")


def _only_on(kind: LayerKind, what: str) -> Callable[[DiskPath], Impossible | None]:
    def refusal(path: DiskPath) -> Impossible | None:
        if not path.layers or path.layers[-1].kind is not kind:
            return Impossible(f"{what} needs {kind}", f"write {kind} as the last host layer")
        return Impossible(
            f"vdisklab does not make {what} yet: it needs a kernel with {kind}, and was not tried "
            "there",
            "compare reflink and overlay instead",
        )

    return refusal


THIN_SNAPSHOT = WayKind(
    "thin-snapshot",
    "a thin snapshot of a logical volume (not made yet)",
    _never,
    _only_on(LayerKind.LVMTHIN, "a thin snapshot"),
)
ZVOL_CLONE = WayKind(
    "zvol-clone",
    "a clone of a ZFS volume (not made yet)",
    _never,
    _only_on(LayerKind.ZVOL, "a clone of a ZFS volume"),
)
ZFS_CLONE = WayKind(
    "zfs-clone",
    "a clone of the ZFS dataset with the template (not made yet)",
    _never,
    _only_on(LayerKind.ZFS, "a clone of a ZFS dataset"),
)
