"""An external snapshot: the guest goes on in a new, empty image above its old one."""

from __future__ import annotations

from pathlib import Path

from vdisklab.operations.operation import Judging, OperationKind, RunningOperation
from vdisklab.path.disk_path import DiskPath
from vdisklab.path.needs import NeedKind
from vdisklab.path.rules import Impossible
from vdisklab.path.segments import ImageFormat


class ExternalSnapshot(RunningOperation):
    """QMP's `blockdev-snapshot-sync`, which creates the image, too."""

    @property
    def files_after(self) -> tuple[Path, ...]:
        """The new image above all others."""
        return (self.new_file, self.image, *self.disk.backing)

    @property
    def left_files(self) -> tuple[Path, ...]:
        """The new image."""
        return (self.new_file,)

    def finish(self) -> None:
        """Puts the new image above the guest's."""
        self.monitor.execute(
            "blockdev-snapshot-sync",
            {
                "node-name": self.disk.node,
                "snapshot-node-name": f"{self.disk.serial}-above",
                "snapshot-file": str(self.new_file),
                "format": self.disk.driver,
            },
        )


def _refusal(path: DiskPath) -> Impossible | None:
    if path.image is None or path.image.format is not ImageFormat.QCOW2:
        return Impossible(
            "has no format that stands above another image: the new image would be qcow2 above it",
            "write qcow2",
        )
    return None


SNAPSHOT = OperationKind(
    "snapshot",
    "an external snapshot: the guest goes on in a new image above its own",
    ExternalSnapshot,
    _refusal,
    judging=Judging(
        (ImageFormat.QCOW2,), "only a chain of qcow2 images is read", "ext4/qcow2/none"
    ),
    need=NeedKind.SNAPSHOTS,
)
