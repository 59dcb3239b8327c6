"""A reflink: a new file that shares the template's blocks until one of them is written."""

from __future__ import annotations

from vdisklab.operations.making import Command, NewDisk, Template, Way, WayKind, needs_image
from vdisklab.path.disk_path import DiskPath, Layer
from vdisklab.path.rules import Impossible
from vdisklab.path.segments import LayerKind

_SHARING = (LayerKind.XFS, LayerKind.BTRFS)


def _linked(_way: Way, template: Template, disk: NewDisk) -> tuple[Command, ...]:
    return (("cp", "--reflink=always", "--", str(template.file), str(disk.place)),)


def _is_directory(layer: Layer) -> bool:
    """True for a directory of the user's that the host's kernel opens."""
    target = layer.kind.facts.target
    return target is not None and layer.kind.facts.holds_files and not target.by_qemu


def _refusal(path: DiskPath) -> Impossible | None:
    top = path.layers[-1] if path.layers else None
    if top is None or _is_directory(top):
        return needs_image(path)  # the file system there is tried: see MakingHere
    if top.kind not in _SHARING:
        return Impossible(f"{top.kind} shares no blocks between files", "write xfs or btrfs")
    if top.kind is LayerKind.XFS and top.option("reflink") is False:
        return Impossible("this XFS is made without reflink", "leave out reflink=off")
    if top.kind is LayerKind.BTRFS and top.option("datacow") is False:
        return Impossible(
            "the kernel shares no blocks on btrfs without copy-on-write", "leave out datacow=off"
        )
    return needs_image(path)


REFLINK = WayKind(
    "reflink",
    "a file that shares the template's blocks (cp --reflink)",
    _linked,
    _refusal,
    shares_blocks=True,
    first_write="a write to a shared block first gets a block of its own",
)
