"""A resize: the guest's disk gets twice its size while the guest writes."""

from __future__ import annotations

from vdisklab.operations.operation import Judging, OperationKind, RunningOperation
from vdisklab.operations.relief import none
from vdisklab.path.disk_path import DiskPath
from vdisklab.path.rules import Impossible
from vdisklab.path.segments import ImageFormat

RESIZED_FORMATS = (ImageFormat.RAW, ImageFormat.QCOW2)
"""Formats whose size the power cut's judge reads."""


class Resize(RunningOperation):
    """QMP's `block_resize`."""

    @property
    def size_after(self) -> int:
        """Twice the disk's size."""
        return 2 * self.disk.size

    def finish(self) -> None:
        """Gives the disk its new size."""
        self.resize(self.size_after)


def _refusal(path: DiskPath) -> Impossible | None:
    if path.image is None:
        return Impossible("has no image that could grow", "write raw or qcow2")
    if path.image.format not in RESIZED_FORMATS:
        return Impossible(
            f"is not resized: QEMU gives no {path.image.format} image another size",
            "write raw or qcow2",
        )
    return None


RESIZE = OperationKind(
    "resize",
    "a resize to twice the disk's size",
    Resize,
    _refusal,
    judging=Judging(RESIZED_FORMATS, "the size of a {} image is not read"),
    doubles=True,
    relief=none(
        "QEMU drains the disk and writes the image's new tables in one step: resize it when the "
        "guest is quiet"
    ),
)
