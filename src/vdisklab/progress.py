"""What a long task tells its watcher; observers are passed in, never looked up."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class CampaignStarted:
    """The campaign knows its cells: how many runs there are, how many are already measured.

    `at_most`: so many runs only if no cell is left out on the way.
    """

    runs: int
    finished: int
    seconds_estimated: float
    label: str
    at_most: bool = False


@dataclass(frozen=True, slots=True)
class RunStarted:
    """A cell begins in a block (both counted from 1)."""

    cell: str
    block: int
    blocks: int
    position: int
    runs: int


@dataclass(frozen=True, slots=True)
class MeasurementStarted:
    """One program of the cell begins; `seconds` is how long it was asked to take, if it was."""

    name: str
    seconds: float | None


@dataclass(frozen=True, slots=True)
class Throughput:
    """What the running measurement moves just now, as QEMU counts it, or on the host the kernel,
    which does not know a program's operations."""

    bytes_per_second: float
    operations_per_second: float | None


@dataclass(frozen=True, slots=True)
class RunFinished:
    """A cell ended; `failure` says why when it failed."""

    cell: str
    failure: str | None
    seconds: float


@dataclass(frozen=True, slots=True)
class Step:
    """Work that is not a measurement: building a stack, booting a guest, writing an image."""

    what: str


@dataclass(frozen=True, slots=True)
class Note:
    """A sentence that the user should read even when it scrolls by."""

    text: str


Event = CampaignStarted | RunStarted | MeasurementStarted | Throughput | RunFinished | Step | Note


class Progress(Protocol):
    """Hears of each event in order; must not raise and must not block."""

    def __call__(self, event: Event, /) -> None:
        """Takes one event."""


def silent(_event: Event, /) -> None:
    """Hears everything and says nothing."""
