"""Diagnostics: each kind of reason to distrust or qualify a number, as a type.

`render.wording` has a sentence for each kind; the type checker demands one for a new kind.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from vdisklab.analysis.rank_intervals import Ranking, Unranked
from vdisklab.analysis.score import NoScore
from vdisklab.path.cell import MeasuredCell
from vdisklab.plan.guest import Accelerator
from vdisklab.results.model import Direction, Origin
from vdisklab.results.outlines import AnyRun


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


CellDiagnostic = (
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


@dataclass(frozen=True, slots=True)
class TooFewBlocks:
    """Cells that were measured in fewer blocks than a rank needs; `have` is the most of them."""

    cells: tuple[MeasuredCell, ...]
    have: int
    want: int


@dataclass(frozen=True, slots=True)
class NoCommonBlock:
    """Cells that were never measured in a block with the ranked ones."""

    cells: tuple[MeasuredCell, ...]


@dataclass(frozen=True, slots=True)
class NothingToCompare:
    """A single cell, which has no rank among itself."""

    cell: MeasuredCell


@dataclass(frozen=True, slots=True)
class Inconclusive:
    """No pair of the ranked cells is shown to differ."""

    cells: int


@dataclass(frozen=True, slots=True)
class Emulated:
    """The guests ran under TCG."""


@dataclass(frozen=True, slots=True)
class InLab:
    """It was measured in the lab, a host in a virtual machine, on disks that are thrown away."""


@dataclass(frozen=True, slots=True)
class FailedCell:
    """A cell that failed in `blocks` blocks; `reason` is the last one's."""

    cell: MeasuredCell
    blocks: int
    kind: str
    reason: str


@dataclass(frozen=True, slots=True)
class NoBaseline:
    """Scores are missing because the baseline has no numbers."""

    baseline: MeasuredCell


Diagnostic = (
    TooFewBlocks
    | NoCommonBlock
    | NothingToCompare
    | Inconclusive
    | Emulated
    | InLab
    | CellDiagnostic
    | FailedCell
    | NoBaseline
    | NoScore
)


@dataclass(frozen=True, slots=True)
class Caveats:
    """Why numbers are not a measure of this machine.

    `emulated`: a guest ran without KVM. `lab`: it all happened in the lab's virtual machine.
    """

    emulated: bool
    lab: bool

    @property
    def findings(self) -> tuple[Emulated | InLab, ...]:
        """The one that matters more: what is worthless as a speed compares nothing either."""
        if self.lab:
            return (InLab(),)
        return (Emulated(),) if self.emulated else ()


def caveats_of(runs: Iterable[AnyRun]) -> Caveats:
    """The caveats that hold for any of these runs."""
    seen = {(run.accelerator == Accelerator.TCG, run.origin == Origin.LAB) for run in runs}
    return Caveats(any(emulated for emulated, _ in seen), any(lab for _, lab in seen))


def failed_cells(runs: Iterable[AnyRun]) -> tuple[FailedCell, ...]:
    """The cells with failed blocks that were not measured later, by label."""
    ordered = sorted(runs, key=lambda run: (run.started, run.id))
    measured = {
        (run.measured_cell, run.campaign, run.block) for run in ordered if run.failure is None
    }
    found: dict[MeasuredCell, FailedCell] = {}
    counted: dict[MeasuredCell, set[tuple[str, int]]] = {}
    for run in ordered:
        cell = run.measured_cell
        if run.failure is None or (cell, run.campaign, run.block) in measured:
            continue
        blocks = counted.setdefault(cell, set())
        blocks.add((run.campaign, run.block))
        found[cell] = FailedCell(cell, len(blocks), run.failure.kind.value, run.failure.sentence)
    return tuple(found[cell] for cell in sorted(found))


def ranking_diagnostics(ranking: Ranking, want: int) -> tuple[Diagnostic, ...]:
    """What the ranking itself has to say; `want` is the least number of blocks for a rank."""
    found: list[Diagnostic] = []
    few = [each for each in ranking.unranked if each.reason is Unranked.TOO_FEW_BLOCKS]
    apart = [each for each in ranking.unranked if each.reason is Unranked.NO_COMMON_BLOCK]
    if few:
        cells = tuple(each.cell for each in few)
        found.append(TooFewBlocks(cells, max(each.blocks for each in few), want))
    if apart:
        found.append(NoCommonBlock(tuple(each.cell for each in apart)))
    found += [
        NothingToCompare(each.cell)
        for each in ranking.unranked
        if each.reason is Unranked.NOTHING_TO_COMPARE
    ]
    if ranking.inconclusive:
        found.append(Inconclusive(len(ranking.rows)))
    return tuple(found)
