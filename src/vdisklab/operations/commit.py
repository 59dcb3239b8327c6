"""A commit: what the guest's overlay holds is copied into the image below, while it writes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from vdisklab.operations.block_jobs import JOB, JobOperation
from vdisklab.operations.operation import Judging, OperationKind
from vdisklab.operations.relief import LIBVIRT, PROXMOX, Felt, Relief, job_speed
from vdisklab.path.disk_path import DiskPath
from vdisklab.path.rules import Impossible


class Commit(JobOperation):
    """QMP's `block-commit` of the guest's own image into the one below."""

    pivots = True

    @property
    def files_after(self) -> tuple[Path, ...]:
        """The chain without the guest's overlay."""
        return self.disk.backing

    def start(self) -> None:
        """Copies into the image below, which QEMU had opened to read."""
        below = self.disk.backing_nodes[0]
        self.monitor.execute("blockdev-reopen", {"options": [self._writable(f"{below}-file")]})
        job = {"job-id": JOB, "device": self.disk.node, "base-node": below}
        self.monitor.execute("block-commit", {**job, "auto-dismiss": False})

    def _writable(self, node_name: str) -> Mapping[str, Any]:
        (node,) = (node for node in self.disk.nodes if node["node-name"] == node_name)
        return {**node, "read-only": False}


def _refusal(path: DiskPath) -> Impossible | None:
    if path.image is None or not path.image.backing:
        return Impossible(
            "has nothing to commit to: it is not an overlay", "add backing=1 to the format"
        )
    return None


def _relief(felt: Felt) -> Iterator[Relief]:
    limit = f"--bandwidth {felt.limit_mib}"
    yield felt.limited(LIBVIRT, f"virsh blockcommit DOMAIN vda --active {limit} --wait --pivot")
    yield Relief(PROXMOX, reason="qm(1) has no command that does it")
    yield job_speed(felt)


COMMIT = OperationKind(
    "commit",
    "a commit of the guest's overlay into the image below",
    Commit,
    _refusal,
    follows=True,
    relief=_relief,
    judging=Judging(control="ext4/qcow2:backing=1/none"),
)
