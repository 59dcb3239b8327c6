"""The failures of the storage below a guest's image, a row each, and what can become of a guest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from vdisklab.path.durability import FailureModel
from vdisklab.storage.failing_disk import EVERY_REQUEST, Behaviour, StorageRequest


@dataclass(frozen=True, slots=True)
class StorageFailure:
    """How the storage answers, and for how many seconds.

    `journal_only`: only requests to the journal of the guest's ext4 fail. `most`: only so many
    requests fail.
    """

    behaviour: Behaviour
    seconds: float
    kinds: tuple[StorageRequest, ...] = EVERY_REQUEST
    journal_only: bool = False
    most: int | None = None

    def lasting(self, seconds: float | None) -> StorageFailure:
        """The same failure for another time; None leaves its own."""
        return self if seconds is None else replace(self, seconds=seconds)


STORAGE_FAILURES: Mapping[FailureModel, StorageFailure] = {
    FailureModel.STORAGE_ERROR: StorageFailure(Behaviour.ERROR, seconds=1.0),
    FailureModel.STORAGE_FULL: StorageFailure(Behaviour.FULL, seconds=1.0),
    FailureModel.STORAGE_QUOTA: StorageFailure(Behaviour.QUOTA, seconds=1.0),
    FailureModel.STORAGE_SILENT: StorageFailure(Behaviour.SILENT, seconds=35.0),
}
"""35 s are longer than the timeout of SCSI, ATA and NVMe requests in Linux, which is 30 s."""
