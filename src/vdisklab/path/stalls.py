"""For how long operations held a guest's requests, as it was measured on this machine."""

from __future__ import annotations

from collections.abc import Mapping

from vdisklab.path.disk_path import DiskPath
from vdisklab.value import Value, field

DEFAULT_STALL = 1.0
"""Seconds that a guest may wait unless the user says otherwise."""


class OperationStall(Value):
    """The mildest operation of its kind on a path: its longest stall in seconds.

    `of_writes` is True if writes alone waited for so long, and reads went on. `on` is the host
    where it was measured, if numbers of several are looked at.
    """

    operation: str
    seconds: float
    of_writes: bool = False
    on: str = ""


class MeasuredStalls(Value):
    """The stalls by a path's name and by the need that their operation serves.

    `limit` is the longest stall in seconds that a path may have.
    """

    by_path: Mapping[str, Mapping[str, OperationStall]] = field(default_factory=dict)
    limit: float = DEFAULT_STALL

    def mildest(self, path: DiskPath, need: str) -> OperationStall | None:
        """The stall by which a path meets a need or does not; None if none was measured."""
        return self.by_path.get(path.spelled_out.canonical, {}).get(need)

    def too_long(self, path: DiskPath, need: str) -> OperationStall | None:
        """The stall that does not meet a need; None if it does, or was not measured."""
        found = self.mildest(path, need)
        return None if found is None or found.seconds <= self.limit else found
