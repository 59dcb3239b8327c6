"""The failures of the storage below a guest's image, a row each, and what can become of a guest."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto

from vdisklab.path.durability import FailureModel
from vdisklab.storage.failing_disk import EVERY_REQUEST, Behaviour, StorageRequest
from vdisklab.value import Value, replace


class FailingPart(Enum):
    """The part of the guest's disk that fails."""

    ALL = auto()
    JOURNAL = auto()
    """The journal of the guest's ext4 alone."""
    NEW_DATA = auto()
    """The blocks of the guest's new ext4 that nothing uses yet: those of files to come."""


class StorageFailure(Value):
    """How the storage answers, and for how many seconds.

    `most`: only so many requests fail, and then the storage is good before its time is over; one
    that is silent leaves that many requests without an answer for all its time.
    """

    behaviour: Behaviour
    seconds: float
    kinds: tuple[StorageRequest, ...] = EVERY_REQUEST
    part: FailingPart = FailingPart.ALL
    most: int | None = None

    def lasting(self, seconds: float | None, requests: int | None = None) -> StorageFailure:
        """The same failure for another time, or for at most so many requests; None leaves its
        own."""
        return replace(
            self,
            seconds=self.seconds if seconds is None else seconds,
            most=self.most if requests is None else requests,
        )

    def is_over(self, failed: int) -> bool:
        """True once that many requests have failed, and no other one will."""
        # Silent storage holds its requests until its time is over.
        ends = self.most is not None and self.behaviour is not Behaviour.SILENT
        return ends and failed >= (self.most or 0)


STORAGE_FAILURES: Mapping[FailureModel, StorageFailure] = {
    FailureModel.STORAGE_ERROR: StorageFailure(Behaviour.ERROR, seconds=1.0),
    FailureModel.STORAGE_FULL: StorageFailure(Behaviour.FULL, seconds=1.0),
    FailureModel.STORAGE_QUOTA: StorageFailure(Behaviour.QUOTA, seconds=1.0),
    FailureModel.STORAGE_SILENT: StorageFailure(Behaviour.SILENT, seconds=35.0),
}
"""35 s are longer than the timeout of SCSI, ATA and NVMe requests in Linux, which is 30 s."""
