"""A stream: what the images below hold is copied into the guest's own, which then stands alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from vdisklab.operations.block_jobs import JOB, JobOperation
from vdisklab.operations.operation import OperationKind
from vdisklab.operations.relief import LIBVIRT, PROXMOX, Felt, Relief, job_speed
from vdisklab.path.disk_path import DiskPath
from vdisklab.path.options import Size
from vdisklab.path.rules import Impossible


class Stream(JobOperation):
    """QMP's `block-stream` of the whole chain into the guest's image."""

    @property
    def files_after(self) -> tuple[Path, ...]:
        """The guest's image alone."""
        return (self.image,)

    def start(self) -> None:
        """Begins to copy."""
        speed = self.order.option("speed")
        job = {"job-id": JOB, "device": self.disk.node, "auto-dismiss": False}
        self.monitor.execute("block-stream", {**job, **({} if speed is None else {"speed": speed})})


def _refusal(path: DiskPath) -> Impossible | None:
    if path.image is None or not path.image.backing:
        return Impossible(
            "has nothing to stream from: it is not an overlay", "add backing=1 to the format"
        )
    return None


def _relief(felt: Felt) -> Iterator[Relief]:
    yield felt.limited(LIBVIRT, f"virsh blockpull DOMAIN vda --bandwidth {felt.limit_mib} --wait")
    yield Relief(PROXMOX, reason="qm(1) has no command that does it")
    yield job_speed(felt)


STREAM = OperationKind(
    "stream",
    "what the images below hold is copied into the guest's own",
    Stream,
    _refusal,
    options={"speed": Size(1, 1 << 50, power_of_two=False)},
    relief=_relief,
)
