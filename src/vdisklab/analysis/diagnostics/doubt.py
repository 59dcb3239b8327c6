"""Why a number may not mean what it seems to: each doubt is a type, its sentence in `wording`.

They are found from the values of the blocks in their order (`stability`), from cells that bound
others (`ceilings`), from the evidence beside each measurement (`witness`), and from the facts of
plan and host (`circumstances`).
"""

from __future__ import annotations

from dataclasses import dataclass

from vdisklab.path.cell import MeasuredCell
from vdisklab.results.model import Direction


@dataclass(frozen=True, slots=True)
class FromPageCache:
    """Few of the bytes that were read or written reached the device meanwhile (`share` 0 to 1)."""

    cell: MeasuredCell
    measurement: str
    direction: Direction
    share: float


@dataclass(frozen=True, slots=True)
class Drift:
    """All cells went one way from block to block: `change` is last over first, less one."""

    measure: str
    campaign: str
    blocks: int
    change: float
    p: float


@dataclass(frozen=True, slots=True)
class SlowFirstBlock:
    """The first block of a campaign is `factor` (below 1) times as good as the others."""

    measure: str
    campaign: str
    factor: float


@dataclass(frozen=True, slots=True)
class Bimodal:
    """A cell's blocks fall into two groups, `low` and `high` apart by `high / low`."""

    cell: MeasuredCell
    measure: str
    low: float
    high: float
    share_high: float


@dataclass(frozen=True, slots=True)
class FitsInMemory:
    """The measured disk fits into the host's memory, and these cells use the page cache."""

    cells: int
    size_bytes: int
    memory_bytes: int


@dataclass(frozen=True, slots=True)
class GuestCeiling:
    """Cells that reach `share` of what the guest does with no disk at all below it."""

    cells: tuple[MeasuredCell, ...]
    measure: str
    ceiling: MeasuredCell
    share: float


@dataclass(frozen=True, slots=True)
class DeviceCeiling:
    """Cells as good as the same workload on the host: the device, not the path, is measured."""

    cells: tuple[MeasuredCell, ...]
    measure: str
    ceiling: MeasuredCell
    share: float


@dataclass(frozen=True, slots=True)
class ThinImage:
    """Images that grew while they were measured; `bytes_grown` is the most of one run."""

    cells: tuple[MeasuredCell, ...]
    bytes_grown: int


@dataclass(frozen=True, slots=True)
class ClockTrouble:
    """A program counted more seconds than passed on the host: the guest's clock runs fast."""

    cell: MeasuredCell
    measurement: str
    counted_seconds: float
    host_seconds: float


@dataclass(frozen=True, slots=True)
class FrequencyGovernor:
    """The processor's clock was left to a governor that saves power."""

    governor: str


@dataclass(frozen=True, slots=True)
class NoisyNeighbour:
    """A hypervisor below took CPU time: `share` of all CPUs' in the worst of `measurements`."""

    measurements: int
    share: float
    cell: MeasuredCell


@dataclass(frozen=True, slots=True)
class NotDirect:
    """O_DIRECT was accepted and served from ZFS's cache all the same; `version` is ZFS's."""

    cells: tuple[MeasuredCell, ...]
    version: str


@dataclass(frozen=True, slots=True)
class HostChanged:
    """Joined campaigns of one machine whose facts differ."""

    fact: str
    values: tuple[str, ...]


Doubt = (
    FromPageCache
    | Drift
    | SlowFirstBlock
    | Bimodal
    | FitsInMemory
    | GuestCeiling
    | DeviceCeiling
    | ThinImage
    | ClockTrouble
    | FrequencyGovernor
    | NoisyNeighbour
    | HostChanged
    | NotDirect
)
