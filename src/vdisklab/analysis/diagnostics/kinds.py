"""Diagnostics: each kind of reason to distrust or qualify a number, as a type.

`views.wording` has a sentence for each kind; mypy reports a kind without one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vdisklab.analysis.observations import MeasureKey, Observations, Round
from vdisklab.analysis.rank_intervals import Ranking, Unranked
from vdisklab.analysis.score import NoScore
from vdisklab.path.cell import MeasuredCell
from vdisklab.plan.guest import RanUnder
from vdisklab.plan.profile import RATE
from vdisklab.results.model import Direction, FailureKind, Origin
from vdisklab.results.outlines import AnyRun


@dataclass(frozen=True, slots=True)
class FromPageCache:
    """Only a `share` (0 to 1) of the bytes read or written reached the device during the run."""

    cell: MeasuredCell
    measurement: str
    direction: Direction
    share: float


@dataclass(frozen=True, slots=True)
class Drift:
    """All cells drifted the same way over the rounds: `change` is last/first - 1."""

    measure: str
    campaign: str
    rounds: int
    change: float
    p: float


@dataclass(frozen=True, slots=True)
class SlowFirstRound:
    """The first round of a campaign is `factor` (below 1) times as good as the others."""

    measure: str
    campaign: str
    factor: float


@dataclass(frozen=True, slots=True)
class Bimodal:
    """A cell's rounds form two groups, the upper one `apart` times as high (None: the lower one has
    zeros)."""

    cell: MeasuredCell
    measure: str
    apart: float | None
    share_high: float


@dataclass(frozen=True, slots=True)
class FitsInMemory:
    """The measured disk fits into the host's memory, and these cells use the page cache."""

    cells: int
    size_bytes: int
    memory_bytes: int


@dataclass(frozen=True, slots=True)
class GuestCeiling:
    """Cells that reach `share` of the guest's speed on the null device, which has no disk."""

    cells: tuple[MeasuredCell, ...]
    measure: str
    ceiling: MeasuredCell
    share: float


@dataclass(frozen=True, slots=True)
class DeviceCeiling:
    """Cells as fast as the same workload on the host: the device is the limit, not the path."""

    cells: tuple[MeasuredCell, ...]
    measure: str
    ceiling: MeasuredCell
    share: float


@dataclass(frozen=True, slots=True)
class ThinImage:
    """Images that grew while they were measured; `bytes_grown` is the largest growth in a run."""

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
    """The processor's frequency was set by a power-saving governor."""

    governor: str


@dataclass(frozen=True, slots=True)
class NoisyNeighbour:
    """The hypervisor took CPU time: `share` of all CPUs in the worst of `measurements`."""

    measurements: int
    share: float
    cell: MeasuredCell


@dataclass(frozen=True, slots=True)
class NotDirect:
    """ZFS accepted O_DIRECT but served it from its cache; `version` is that of ZFS."""

    cells: tuple[MeasuredCell, ...]
    version: str


@dataclass(frozen=True, slots=True)
class HostChanged:
    """Joined campaigns of one machine whose facts differ."""

    fact: str
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class QueueDiffers:
    """A setting of the disk's queue, in the guest or on the host, that no path requests.

    `values` are its values with the number of cells that have each.
    """

    setting: str
    values: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Aged:
    """The campaign aged its images (`--age`): in how many pieces each cell's file was, before the
    rewrites and after them, and the disk in its image, if the rewrites changed that. Without what
    could not be read."""

    age: str
    file: tuple[tuple[MeasuredCell, int, int], ...]
    disk: tuple[tuple[MeasuredCell, int, int], ...]


CellDiagnostic = (
    FromPageCache
    | Drift
    | SlowFirstRound
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
    | QueueDiffers
    | Aged
)


@dataclass(frozen=True, slots=True)
class TooFewRounds:
    """Cells with fewer rounds than a rank needs; `have` is the largest number of rounds."""

    cells: tuple[MeasuredCell, ...]
    have: int
    want: int


@dataclass(frozen=True, slots=True)
class DroppedBySearch:
    """Cells that lack rounds because a search for the best had no need of them."""

    cells: tuple[MeasuredCell, ...]
    want: int


@dataclass(frozen=True, slots=True)
class NoCommonRound:
    """Cells that were never measured in the same round as the ranked ones."""

    cells: tuple[MeasuredCell, ...]


@dataclass(frozen=True, slots=True)
class NothingToCompare:
    """Only one cell: a rank needs two."""

    cell: MeasuredCell


@dataclass(frozen=True, slots=True)
class Inconclusive:
    """No pair of the ranked cells is shown to differ."""

    cells: int


@dataclass(frozen=True, slots=True)
class Emulated:
    """The guests ran under TCG."""


@dataclass(frozen=True, slots=True)
class InEmulatedHost:
    """The guests ran under KVM in a host that is emulated itself, such as the lab."""


@dataclass(frozen=True, slots=True)
class InLab:
    """Measured in the lab: a host in a virtual machine, on temporary disks."""


@dataclass(frozen=True, slots=True)
class FailedCell:
    """A cell that failed in `rounds` rounds; `reason` is that of the last failure."""

    cell: MeasuredCell
    rounds: int
    kind: str
    reason: str


@dataclass(frozen=True, slots=True)
class TooSlow:
    """Cells whose measurement did not end in time in `rounds` rounds (together).

    They were `measured` in others, or in none.
    """

    cells: tuple[MeasuredCell, ...]
    rounds: int
    measured: bool


@dataclass(frozen=True, slots=True)
class SharedRounds:
    """Ranked cells are fast and slow in the same rounds, which makes up `share` of their noise."""

    share: float
    rounds: int


@dataclass(frozen=True, slots=True)
class SetAndRanksDiffer:
    """The set of cells that may be the best, and the ranks, separate different cells.

    The ranks put the cells `behind` after the `leader`, but they may be the best. Without them, the
    leader is the best but shares its rank.
    """

    leader: MeasuredCell
    behind: tuple[MeasuredCell, ...]


@dataclass(frozen=True, slots=True)
class SeveralGuests:
    """Cells were measured in these `numbers` of guests at once: a rate is that of all together."""

    numbers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class OpenLoad:
    """Each guest sent requests at a given rate, so rates show that load."""


@dataclass(frozen=True, slots=True)
class NoBaseline:
    """Scores are missing because the baseline has no numbers.

    `instead` is a measure to rank by if all numbers are imported, so that it cannot be measured.
    """

    baseline: MeasuredCell
    instead: MeasureKey | None = None


Diagnostic = (
    TooFewRounds
    | DroppedBySearch
    | NoCommonRound
    | NothingToCompare
    | Inconclusive
    | TooSlow
    | SharedRounds
    | SetAndRanksDiffer
    | Emulated
    | InEmulatedHost
    | InLab
    | CellDiagnostic
    | FailedCell
    | SeveralGuests
    | OpenLoad
    | NoBaseline
    | NoScore
)


@dataclass(frozen=True, slots=True)
class Caveats:
    """Why numbers are not a measure of this machine.

    `emulated`: a guest ran without KVM. `emulated_host`: under KVM in an emulated host. `lab`:
    everything ran in the lab's virtual machine.
    """

    emulated: bool
    lab: bool
    emulated_host: bool = False

    @property
    def findings(self) -> tuple[Emulated | InEmulatedHost | InLab, ...]:
        """The most serious caveat: numbers from an emulated host cannot even be compared."""
        if self.emulated_host:
            return (InEmulatedHost(),)
        if self.lab:
            return (InLab(),)
        return (Emulated(),) if self.emulated else ()


def has_open_load(plan: Mapping[str, Any]) -> bool:
    """True for a stored plan with a measurement that sends requests at a given rate."""
    return any(RATE in one.get("settings", {}) for one in plan.get("measurements", ()))


def caveats_of(runs: Iterable[AnyRun]) -> Caveats:
    """The caveats that hold for any of these runs."""
    accelerators, origins = set[str | None](), set[Origin]()
    for run in runs:
        accelerators.add(run.accelerator)
        origins.add(run.origin)
    return Caveats(
        RanUnder.TCG in accelerators,
        Origin.LAB in origins,
        RanUnder.KVM_IN_EMULATED_HOST in accelerators,
    )


def too_slow(runs: Iterable[AnyRun]) -> set[tuple[MeasuredCell, Round]]:
    """The cells and rounds with a measurement that never ended in time, not even when repeated."""
    runs = tuple(runs)
    measured = {
        (run.measured_cell, Round(run.campaign, run.round)) for run in runs if run.failure is None
    }
    slow = {
        (run.measured_cell, Round(run.campaign, run.round))
        for run in runs
        if run.failure is not None and run.failure.kind is FailureKind.TOO_SLOW
    }
    return slow - measured


def slow_diagnostics(
    observations: Observations, among: Collection[MeasuredCell] | None = None
) -> tuple[TooSlow, ...]:
    """A diagnostic for cells that were too slow in some rounds, and one for those too slow in all.

    `among` limits the cells; None takes all.
    """
    counts = observations.rounds_of()
    never = {cell for cell, at in observations.place.items() if not counts[at]}
    slow = [cell for cell, _ in observations.too_slow if among is None or cell in among]
    return _too_slow(slow, never)


def _too_slow(slow: Sequence[MeasuredCell], never: Collection[MeasuredCell]) -> tuple[TooSlow, ...]:
    """`slow` has a cell once for each round, `never` those without a measured round."""
    return tuple(
        TooSlow(tuple(sorted(set(cells))), len(cells), measured)
        for measured in (True, False)
        if (cells := [cell for cell in slow if (cell not in never) is measured])
    )


def dropped_by_search(runs: Iterable[AnyRun]) -> frozenset[MeasuredCell]:
    """The cells that a campaign left out of a round that was not its last one.

    Only a search for the best (`run --find`) does that.
    """
    rounds: dict[str, set[int]] = {}
    tried: dict[tuple[str, MeasuredCell], set[int]] = {}
    for run in runs:
        rounds.setdefault(run.campaign, set()).add(run.round)
        tried.setdefault((run.campaign, run.measured_cell), set()).add(run.round)
    return frozenset(
        cell
        for (campaign, cell), of_cell in tried.items()
        if rounds[campaign] - of_cell - {max(rounds[campaign])}
    )


def failed_cells(runs: Iterable[AnyRun]) -> tuple[FailedCell, ...]:
    """The cells with failed rounds that no later run measured, by label."""
    ordered = sorted(runs, key=lambda run: (run.started, run.id))
    measured = {
        (run.measured_cell, run.campaign, run.round) for run in ordered if run.failure is None
    }
    failures: dict[MeasuredCell, FailedCell] = {}
    counted: dict[MeasuredCell, set[tuple[str, int]]] = {}
    for run in ordered:
        cell = run.measured_cell
        if run.failure is None or (cell, run.campaign, run.round) in measured:
            continue
        rounds = counted.setdefault(cell, set())
        rounds.add((run.campaign, run.round))
        failures[cell] = FailedCell(cell, len(rounds), run.failure.kind.value, run.failure.sentence)
    return tuple(failures[cell] for cell in sorted(failures))


def ranking_diagnostics(
    ranking: Ranking, want: int, dropped: Collection[MeasuredCell] = ()
) -> tuple[Diagnostic, ...]:
    """Diagnostics of the ranking itself; `want` is the least number of rounds for a rank.

    A search has `dropped` some cells.
    """
    diagnostics: list[Diagnostic] = []
    short = [cell for cell in ranking.unranked if cell.reason is Unranked.TOO_FEW_ROUNDS]
    few = [cell for cell in short if cell.cell not in dropped]
    apart = [cell for cell in ranking.unranked if cell.reason is Unranked.NO_COMMON_ROUND]
    if few:
        cells = tuple(cell.cell for cell in few)
        diagnostics.append(TooFewRounds(cells, max(cell.rounds for cell in few), want))
    if len(few) < len(short):
        left = tuple(cell.cell for cell in short if cell.cell in dropped)
        diagnostics.append(DroppedBySearch(left, want))
    if apart:
        diagnostics.append(NoCommonRound(tuple(cell.cell for cell in apart)))
    diagnostics += [
        NothingToCompare(cell.cell)
        for cell in ranking.unranked
        if cell.reason is Unranked.NOTHING_TO_COMPARE
    ]
    if ranking.inconclusive:
        diagnostics.append(Inconclusive(len(ranking.rows)))
    never = {row.cell for row in ranking.rows if not row.rounds}
    never |= {row.cell for row in ranking.unranked if not row.rounds}
    diagnostics += _too_slow([cell for cell, _ in ranking.too_slow], never)
    if ranking.best is not None and ranking.best.shared:
        diagnostics.append(SharedRounds(ranking.best.shared, ranking.best.rounds))
    return (*diagnostics, *_differences(ranking))


def _differences(ranking: Ranking) -> Iterator[SetAndRanksDiffer]:
    """Where the ranks and the set of cells that may be the best do not agree."""
    best = ranking.best
    if best is None or best.competitors < 2:
        return
    rows = {row.cell: row for row in ranking.rows}
    leader = rows[best.leader]
    behind = tuple(cell for cell in best.cells if rows[cell].best > leader.worst)
    if behind or (best.alone and leader.tied):
        yield SetAndRanksDiffer(best.leader, behind)
