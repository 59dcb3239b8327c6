"""What a reader must know beside the numbers: typed here, put into words by `report.wording`.

A new kind of doubt is one more class in this file, one function that finds it, and one case in
`wording`, which the type checker asks for.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from vdisklab.analysis.diagnostics.doubt import Doubt
from vdisklab.analysis.rank import Ranking, Unranked
from vdisklab.analysis.score import NoScore
from vdisklab.path.cell import MeasuredCell
from vdisklab.plan.guest import Accelerator
from vdisklab.results.model import Origin
from vdisklab.results.outlines import AnyRun


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


Finding = (
    TooFewBlocks
    | NoCommonBlock
    | NothingToCompare
    | Inconclusive
    | Emulated
    | InLab
    | Doubt
    | FailedCell
    | NoBaseline
    | NoScore
)


@dataclass(frozen=True, slots=True)
class Caveats:
    """What keeps numbers from being a measure of this machine.

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


def ranking_findings(ranking: Ranking, want: int) -> tuple[Finding, ...]:
    """What the ranking itself has to say; `want` is the least number of blocks for a rank."""
    found: list[Finding] = []
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
