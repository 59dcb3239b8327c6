"""qemu-img create alone: an empty disk, without a template."""

from __future__ import annotations

from vdisklab.operations.making import (
    Command,
    NewDisk,
    Template,
    TemplateForm,
    Way,
    WayKind,
    created,
    needs_image,
)
from vdisklab.path.disk_path import EMPTY


def _created(_way: Way, _template: Template, disk: NewDisk) -> tuple[Command, ...]:
    return (created(disk, disk.size),)


CREATE = WayKind(
    EMPTY,
    "an empty disk by qemu-img create, without the template",
    _created,
    needs_image,
    TemplateForm.NONE,
    first_write="the file system and the format first find a place for the block",
)
