"""Full copies of a template: by cp, by dd, and with holes where the template has zeros."""

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
from vdisklab.path.disk_path import DiskPath
from vdisklab.path.rules import Impossible
from vdisklab.path.segments import ImageFormat

_DIRTY = "the copy is still in the host's memory, and the first flush writes it"


def _copied(_way: Way, template: Template, disk: NewDisk) -> tuple[Command, ...]:
    command = ("cp", "--reflink=never", "--sparse=never", "--")
    return ((*command, str(template.file), str(disk.place)),)


def _sparse(_way: Way, template: Template, disk: NewDisk) -> tuple[Command, ...]:
    command = ("cp", "--reflink=never", "--sparse=always", "--")
    return ((*command, str(template.file), str(disk.place)),)


def _dd(_way: Way, template: Template, disk: NewDisk) -> tuple[Command, ...]:
    places = (f"if={template.file}", f"of={disk.place}")
    return (("dd", *places, "bs=1M", "status=none"),)


def _raw_or_file(path: DiskPath) -> Impossible | None:
    if path.image is not None and path.image.format is not ImageFormat.RAW:
        return Impossible("dd copies raw disks only", "write raw, or cp for other images")
    return needs_plain(path)


CP = WayKind("cp", "a full copy by cp", _copied, needs_image, copies=True, first_write=_DIRTY)
SPARSE = WayKind(
    "sparse",
    "a copy by cp with holes for zeros",
    _sparse,
    needs_image,
    copies=True,
    first_write=_DIRTY,
)
DD = WayKind("dd", "a full copy by dd", _dd, _raw_or_file, copies=True, first_write=_DIRTY)
