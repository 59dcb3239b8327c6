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

_XZ = 'xz --decompress --stdout -- "$1"'
_DD = "dd iflag=fullblock bs=1M status=none"


def _unpacked(_way: Way, template: Template, disk: NewDisk) -> tuple[Command, ...]:
    if disk.is_device:  # nobody knows what would stay where zeros are left out
        return (_shell(f'set -o pipefail; {_XZ} | {_DD} of="$2"', template, disk),)
    if disk.size == template.size:
        return (_shell(f'{_XZ} > "$2"', template, disk),)  # xz makes holes for zeros
    # The file gets its length first: XFS writes the data to the disk when a file is made longer
    # after them (xfs_setattr_size), and the first flush would have nothing left to write.
    lengthen = ("truncate", "--size", str(disk.size), "--", str(disk.place))
    script = f'set -o pipefail; {_XZ} | {_DD} of="$2" conv=sparse,notrunc'
    return (lengthen, _shell(script, template, disk))


def _shell(script: str, template: Template, disk: NewDisk) -> Command:
    return ("bash", "-c", script, "unpack", str(template.file), str(disk.place))


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
