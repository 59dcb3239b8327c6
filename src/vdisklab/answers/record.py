"""`record`: what was recorded of a guest's disk, and where it is."""

from __future__ import annotations

from typing import Annotated

from vdisklab.documents import Answer, Count
from vdisklab.value import Value


class CountedSecondRow(Value):
    """What QEMU counted in about a second."""

    at_seconds: float
    reads: Count
    read_bytes: int
    writes: Count
    written_bytes: int
    flushes: Annotated[Count | None, "null for NVMe, whose flushes QEMU does not count"]


class CountedLatencyRow(Value):
    """How long QEMU's requests of one kind took at most, in seconds, to a factor of two."""

    operation: str
    count: Count
    p50: Annotated[float | None, "null beyond 17 s"]
    p99: float | None


class RecordAnswer(Answer):
    """`vdisklab record GUEST`: a load, or statistics only where requests cannot be traced."""

    FORMAT = "vdisklab.record/1"

    guest: str
    disk: str
    file: Annotated[str | None, "null if there are statistics only"]
    file_bytes: int | None
    sentence: Annotated[str, "what the guest does; empty if there are statistics only"]
    seconds: float
    requests: Annotated[int | None, "null if there are statistics only"]
    lost: int | None
    only_statistics: Annotated[str | None, "why requests could not be traced"]
    statistics: tuple[CountedSecondRow, ...]
    latencies: tuple[CountedLatencyRow, ...]
    notes: tuple[str, ...]
