"""A mirror: the disk is copied to another place while the guest writes, and the guest moves to it.

It is what moves a guest's disk to another storage.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from vdisklab.operations.block_jobs import JOB, JobOperation
from vdisklab.operations.operation import (
    TARGET,
    Judging,
    OperationKind,
    no_new_image,
)
from vdisklab.operations.relief import LIBVIRT, PROXMOX, QEMU, Felt, Relief, job_speed, qmp
from vdisklab.path.options import Choice, Size

_TARGET_NODE = "during-target"


class Mirror(JobOperation):
    """QMP's `blockdev-mirror` to another place, or `drive-mirror` to a file beside the guest's.

    With copy-mode=write-blocking a guest's write is answered once the target has it, too; else the
    job copies what changed again and again until nothing is left.
    """

    pivots = True

    @property
    def files_after(self) -> tuple[Path, ...]:
        """The copy alone."""
        return (self.new_file,)

    @property
    def left_nodes(self) -> tuple[str, ...]:
        """The copy, which the guest uses."""
        return () if self._beside else (_TARGET_NODE,)

    @property
    def _beside(self) -> bool:
        return self.access.new_image is no_new_image

    def prepare(self) -> None:
        """Makes and opens the target, unless it is a file beside the guest's."""
        if not self._beside:
            made = self.access.new_image(TARGET, self.order.copy_driver(self.disk.driver))
            self.monitor.execute("blockdev-add", {**made, "node-name": _TARGET_NODE})

    def start(self) -> None:
        """Copies everything, and what the guest writes meanwhile."""
        job = {
            "job-id": JOB,
            "device": self.disk.node,
            "sync": "full",
            "copy-mode": self.order.option("copy-mode"),
            "auto-dismiss": False,
        }
        speed = self.order.option("speed")
        if speed is not None:
            job["speed"] = speed
        if self._beside:
            target = {"target": str(self.new_file), "format": self.disk.driver}
            self.monitor.execute("drive-mirror", {**job, **target})
            return
        self.monitor.execute("blockdev-mirror", {**job, "target": _TARGET_NODE})


def _relief(felt: Felt) -> Iterator[Relief]:
    mode = felt.order.option("copy-mode")
    copy = "virsh blockcopy DOMAIN vda --dest FILE --transient-job --wait --pivot"
    move = f"qm disk move VMID scsi0 STORAGE --bwlimit {felt.limit_kib}"
    yield felt.limited(LIBVIRT, f"{copy} --bandwidth {felt.limit_mib}")
    yield felt.limited(PROXMOX, move)
    if mode != "background":
        job = {"job-id": "mirror", "device": "NODE", "target": "TARGET", "sync": "full"}
        speed = felt.order.option("speed")
        limited = {} if speed is None else {"speed": speed}
        milder = {**job, **limited, "copy-mode": "background"}
        yield Relief(QEMU, qmp("blockdev-mirror", milder))
    yield job_speed(felt)


MIRROR = OperationKind(
    "mirror",
    "a mirror to another file, to which the guest moves",
    Mirror,
    options={
        "copy-mode": Choice(("background", "write-blocking"), default="background"),
        "speed": Size(1, 1 << 50, power_of_two=False),
    },
    judging=Judging(),
    copies=True,
    keeps_format=True,
    follows=True,
    relief=_relief,
)
