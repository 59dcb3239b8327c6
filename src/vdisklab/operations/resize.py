"""A resize: the guest's disk gets twice its size while the guest writes."""

from __future__ import annotations

from vdisklab.operations.operation import Judging, OperationKind, RunningOperation
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


RESIZE = OperationKind(
    "resize",
    "a resize to twice the disk's size",
    Resize,
    judging=Judging(RESIZED_FORMATS, "the size of a {} image is not read"),
    doubles=True,
)
