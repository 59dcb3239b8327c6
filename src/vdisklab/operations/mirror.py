"""A mirror: the disk is copied to another place while the guest writes, and the guest moves to it.

It is what moves a guest's disk to another storage.
"""

from __future__ import annotations

from pathlib import Path

from vdisklab.operations.block_jobs import JOB, pivot
from vdisklab.operations.operation import Judging, OperationKind, RunningOperation


class Mirror(RunningOperation):
    """QMP's `drive-mirror` to a new image beside the guest's."""

    @property
    def files_after(self) -> tuple[Path, ...]:
        """The copy alone."""
        return (self.new_file,)

    def start(self) -> None:
        """Copies everything, and what the guest writes meanwhile."""
        target = {"target": str(self.new_file), "format": self.disk.driver, "sync": "full"}
        self.monitor.execute("drive-mirror", {"job-id": JOB, "device": self.disk.node, **target})

    def finish(self) -> None:
        """Makes the guest use the copy."""
        pivot(self.monitor, self.order.kind.name)


MIRROR = OperationKind(
    "mirror",
    "a mirror to another file, to which the guest moves",
    Mirror,
    judging=Judging(),
)
