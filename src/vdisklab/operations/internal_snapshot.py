"""Snapshots inside a qcow2 image, made and deleted while the guest runs."""

from __future__ import annotations

from collections.abc import Iterator

from vdisklab.operations.operation import OperationKind, RunningOperation
from vdisklab.operations.relief import LIBVIRT, PROXMOX, QEMU, Felt, Relief, qmp
from vdisklab.path.disk_path import DiskPath
from vdisklab.path.needs import NeedKind
from vdisklab.path.rules import Impossible
from vdisklab.path.segments import ImageFormat

_NAME = "during"
_SECONDS = 600.0


class InternalSnapshot(RunningOperation):
    """QMP's `blockdev-snapshot-internal-sync`: QEMU answers no request until it is made."""

    def finish(self) -> None:
        """Makes it."""
        self.monitor.execute("blockdev-snapshot-internal-sync", self._snapshot, timeout=_SECONDS)

    @property
    def _snapshot(self) -> dict[str, str]:
        return {"device": self.disk.node, "name": _NAME}

    def undo(self) -> None:
        """Deletes it."""
        self.monitor.execute(
            "blockdev-snapshot-delete-internal-sync", self._snapshot, timeout=_SECONDS
        )


class DeletedSnapshot(InternalSnapshot):
    """QMP's `blockdev-snapshot-delete-internal-sync` of one that was made before."""

    def prepare(self) -> None:
        """Makes the snapshot, before the load begins."""
        super().finish()

    def finish(self) -> None:
        """Deletes the snapshot."""
        super().undo()

    def undo(self) -> None:
        """Nothing to do: `finish` has deleted the snapshot."""


def _refusal(path: DiskPath) -> Impossible | None:
    image = path.image
    if image is None or image.format is not ImageFormat.QCOW2:
        return Impossible(
            "has no place for a snapshot inside: only qcow2 images have one", "write qcow2"
        )
    if image.has_data_file:
        return Impossible(
            "has no snapshots inside: its data is in another file", "leave out data_file"
        )
    return None


def _relief(_felt: Felt) -> Iterator[Relief]:
    """A snapshot in a new file writes no table of the old one, and its deletion is a commit."""
    yield Relief(
        f"{LIBVIRT}, a snapshot in a new file", "virsh snapshot-create-as DOMAIN NAME --disk-only"
    )
    yield Relief(f"{PROXMOX}, to snapshots by the storage", "qm disk move VMID scsi0 local-lvm")
    new = {"snapshot-node-name": "above", "snapshot-file": "FILE", "format": "qcow2"}
    yield Relief(
        f"{QEMU}, in a new file", qmp("blockdev-snapshot-sync", {"node-name": "NODE", **new})
    )


INTERNAL = OperationKind(
    "snapshot:internal",
    "a snapshot inside the qcow2 image",
    InternalSnapshot,
    _refusal,
    relief=_relief,
    need=NeedKind.SNAPSHOTS,
)
DELETE_INTERNAL = OperationKind(
    "snapshot:delete-internal",
    "a snapshot inside the qcow2 image is deleted",
    DeletedSnapshot,
    _refusal,
    relief=_relief,
)
