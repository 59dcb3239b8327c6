"""A raw template that is compressed by xz, as distributions publish theirs, written to the disk."""

from __future__ import annotations

from vdisklab.operations.making import (
    Command,
    NewDisk,
    Template,
    TemplateForm,
    Way,
    WayKind,
    needs_plain,
)
from vdisklab.path.disk_path import DiskPath
from vdisklab.path.rules import Impossible
from vdisklab.path.segments import ImageFormat

_SCRIPT = 'set -o pipefail; xz --decompress --stdout -- "$1" | dd of="$2" {} bs=1M status=none'


def _unpacked(_way: Way, template: Template, disk: NewDisk) -> tuple[Command, ...]:
    # A file gets holes for zeros; on a device nobody knows what would stay there.
    script = _SCRIPT.format("iflag=fullblock" if disk.is_device else "iflag=fullblock conv=sparse")
    unpack = ("bash", "-c", script, "unpack", str(template.file), str(disk.place))
    if disk.is_device:
        return (unpack,)
    return (unpack, ("truncate", "--size", str(disk.size), "--", str(disk.place)))


def _refusal(path: DiskPath) -> Impossible | None:
    if path.image is not None and path.image.format is not ImageFormat.RAW:
        return Impossible("what is unpacked is raw", "write raw")
    return needs_plain(path)


UNPACK = WayKind(
    "unpack",
    "a raw template compressed by xz, unpacked to the disk",
    _unpacked,
    _refusal,
    TemplateForm.XZ,
    copies=True,
    first_write="what was unpacked is still in the host's memory, and the first flush writes it",
)
