"""A qcow2 overlay: an empty image that reads from the template what was not written."""

from __future__ import annotations

from pathlib import Path

from vdisklab.operations.making import Command, NewDisk, Template, Way, WayKind, needs_image
from vdisklab.path.disk_path import DiskPath
from vdisklab.path.options import Number
from vdisklab.path.rules import Impossible
from vdisklab.path.segments import ImageFormat

_MOST = 16


def _between(way: Way, disk: Path) -> tuple[Path, ...]:
    """The overlays between the disk and the template, the nearest to the disk first."""
    depth = int(way.option("depth") or 1)
    numbers = range(depth - 1, 0, -1)
    return tuple(disk.with_name(f"{disk.name}.{number}") for number in numbers)


def _made(way: Way, template: Template, disk: NewDisk) -> tuple[Command, ...]:
    chain = (*reversed(_between(way, disk.place)), disk.place)
    below, driver = template.file, template.driver
    commands: list[Command] = []
    for file in chain:
        create = ("qemu-img", "create", "-q", "-f", disk.driver, *disk.format_options)
        commands.append((*create, "-b", str(below), "-F", driver, str(file), str(disk.size)))
        below, driver = file, disk.driver
    return tuple(commands)


def _refusal(path: DiskPath) -> Impossible | None:
    if path.image is None or path.image.format is not ImageFormat.QCOW2:
        return Impossible("only a qcow2 image stands above another one", "write qcow2")
    return needs_image(path)


OVERLAY = WayKind(
    "overlay",
    "an empty qcow2 image above the template; depth=2 is an overlay of an overlay",
    _made,
    _refusal,
    options={"depth": Number(1, _MOST, default=1)},
    beneath=_between,
    reads_template=True,
    first_write="a write to a part of a cluster copies the whole cluster from the template",
)
