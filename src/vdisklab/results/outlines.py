"""Values for queries on many runs: outlines, sums, examples, series over time."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from vdisklab.path.cell import MeasuredCell
from vdisklab.path.segments import PageCache
from vdisklab.results.model import Failure, Origin, RanUnder, Run, Series


@dataclass(frozen=True, slots=True)
class RunOutline:
    """A measured or failed run without its numbers: cheap to load for a whole campaign.

    `cell` is the fingerprint.
    """

    id: str
    campaign: str
    cell: str
    path: str
    page_cache: PageCache
    round: int
    position: int
    origin: Origin
    started: datetime
    accelerator: str | None
    medium: str | None
    failure: Failure | None
    wall_seconds: float | None
    emulated: bool = False

    @property
    def ran_under(self) -> RanUnder | None:
        """What ran the guest; None without one."""
        if self.accelerator is None:
            return None
        return RanUnder.of(self.accelerator, emulated=self.emulated)

    @property
    def measured_cell(self) -> MeasuredCell:
        """Path and page-cache state as one value."""
        return MeasuredCell(self.path, self.page_cache)


AnyRun = Run | RunOutline


@dataclass(frozen=True, slots=True)
class CellSums:
    """Counts summed over all runs of a cell in one measurement; None if nothing counted them.

    `cell` is the fingerprint. `operations`, `flushes`, `requested_bytes` and `*_requested` (bytes)
    are QEMU's counts, or the program's own where there was no guest; `device_*` and `*_reached` are
    the host device's. `*_requested` and `*_reached` are of measurements with both counts, and
    `*_reached` only of those that requested anything. `grown` is the most that an image grew in one
    measurement, in bytes.
    """

    cell: str
    measurement: str
    operations: int | None
    flushes: int | None
    device_flushes: int | None
    requested_bytes: int | None
    device_bytes: int | None
    cpu_seconds: float | None
    read_requested: int | None = None
    read_reached: int | None = None
    write_requested: int | None = None
    write_reached: int | None = None
    grown: int | None = None


@dataclass(frozen=True, slots=True)
class RunSums:
    """The host's CPU seconds and the operations of one run; `cell` is the fingerprint."""

    campaign: str
    round: int
    cell: str
    cpu_seconds: float
    operations: int


@dataclass(frozen=True, slots=True)
class TimedMeasurement:
    """How long a measurement took, was counted by its program, and had CPU time stolen.

    All in seconds; `cell` is the fingerprint.
    """

    cell: str
    measurement: str
    wall_seconds: float | None
    measured_seconds: float | None
    steal_seconds: float | None


@dataclass(frozen=True, slots=True)
class Example:
    """The newest measured run of a cell (a fingerprint), with its commands and checked states."""

    cell: str
    run: str
    round: int
    started: datetime
    ran_under: RanUnder | None
    medium: str | None
    commands: tuple[str, ...]
    checks: tuple[tuple[str, str | None, str], ...]
    measurements: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class RunSeries:
    """The bandwidth over time of one measurement of one run; `cell` is the fingerprint."""

    campaign: str
    cell: str
    round: int
    measurement: str
    series: Series
