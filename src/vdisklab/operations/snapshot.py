"""An external snapshot: the guest goes on in a new, empty image above its old one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from vdisklab.operations.operation import Judging, OperationKind, RunningOperation
from vdisklab.operations.relief import LIBVIRT, PROXMOX, QEMU, Felt, Relief, qmp
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
    def driver_after(self) -> str:
        """The new image is qcow2, whatever the old one is."""
        return ImageFormat.QCOW2.value

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
                "format": ImageFormat.QCOW2.value,
            },
        )


def _refusal(path: DiskPath) -> Impossible | None:
    if path.image is None or (path.layers and not path.layers[-1].kind.facts.holds_files):
        return Impossible(
            "lies in no file, beside which the new image could be made",
            "put raw or qcow2 on a file system, or order host-snapshot",
        )
    if path.image.encrypted:
        return Impossible(
            "is encrypted, and the new image would not be", "leave out encrypt, or order backup"
        )
    return None


def _relief(felt: Felt) -> Iterator[Relief]:
    """The new image is made before: the disk is drained for the switch alone."""
    form = "raw" if felt.path.image is None else felt.path.image.driver
    create = f"qemu-img create -f qcow2 -b IMAGE -F {form} FILE"
    reuse = "--disk-only --reuse-external --diskspec vda,file=FILE"
    yield Relief(LIBVIRT, f"{create} && virsh snapshot-create-as DOMAIN NAME {reuse}")
    yield Relief(PROXMOX, reason="qm(1) makes no external snapshot before Proxmox VE 9")
    yield Relief(f"{QEMU}, before it", create)
    file = {"driver": "file", "filename": "FILE"}
    above = {"node-name": "above", "driver": "qcow2", "backing": None, "file": file}
    yield Relief(QEMU, qmp("blockdev-add", above))
    yield Relief(QEMU, qmp("blockdev-snapshot", {"node": "NODE", "overlay": "above"}))


SNAPSHOT = OperationKind(
    "snapshot",
    "an external snapshot: the guest goes on in a new image above its own",
    ExternalSnapshot,
    _refusal,
    judging=Judging(
        (ImageFormat.RAW, ImageFormat.QCOW2),
        "no chain with a {} image is read",
        "ext4/qcow2/none",
    ),
    relief=_relief,
    need=NeedKind.SNAPSHOTS,
)
