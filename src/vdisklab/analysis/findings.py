"""What a reader must know beside the numbers: typed here, put into words by `report.wording`.

A new kind of doubt is one more class in this file, one function that finds it, and one case in
`wording`, which the type checker asks for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from vdisklab.analysis.observations import cell_label
from vdisklab.analysis.rank import Ranking, Unranked
from vdisklab.analysis.score import NoScore
from vdisklab.plan.guest import Accelerator
from vdisklab.result.model import Counted, Direction, Failure, Origin, Run

FROM_CACHE_BELOW = 0.5
"""When less than this share of the bytes reached the device, the number is the page cache's."""


@dataclass(frozen=True, slots=True)
class TooFewBlocks:
    """Cells that were measured in fewer blocks than a rank needs; `have` is the most of them."""

    cells: tuple[str, ...]
    have: int
    want: int


@dataclass(frozen=True, slots=True)
class NoCommonBlock:
    """Cells that were never measured in a block with the ranked ones."""

    cells: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NothingToCompare:
    """A single cell, which has no rank among itself."""

    cell: str


@dataclass(frozen=True, slots=True)
class Inconclusive:
    """No pair of the ranked cells is shown to differ."""

    cells: int


@dataclass(frozen=True, slots=True)
class Emulated:
    """The guests ran under TCG."""


@dataclass(frozen=True, slots=True)
class FromPageCache:
    """Few of the bytes that were read or written reached the device meanwhile (`share` 0 to 1)."""

    cell: str
    measurement: str
    direction: Direction
    share: float


@dataclass(frozen=True, slots=True)
class FailedCell:
    """A cell that failed in `blocks` blocks; `reason` is the last one's."""

    cell: str
    blocks: int
    kind: str
    reason: str


@dataclass(frozen=True, slots=True)
class NoBaseline:
    """Scores are missing because the baseline has no numbers."""

    baseline: str


Finding = (
    TooFewBlocks
    | NoCommonBlock
    | NothingToCompare
    | Inconclusive
    | Emulated
    | FromPageCache
    | FailedCell
    | NoBaseline
    | NoScore
)


class Outline(Protocol):
    """What is asked of a run that is listed without its numbers; every Run is one."""

    @property
    def id(self) -> str: ...  # noqa: D102

    @property
    def campaign(self) -> str: ...  # noqa: D102

    @property
    def path(self) -> str: ...  # noqa: D102

    @property
    def page_cache(self) -> str: ...  # noqa: D102

    @property
    def block(self) -> int: ...  # noqa: D102

    @property
    def origin(self) -> Origin: ...  # noqa: D102

    @property
    def started(self) -> datetime: ...  # noqa: D102

    @property
    def accelerator(self) -> str | None: ...  # noqa: D102

    @property
    def failure(self) -> Failure | None: ...  # noqa: D102


def emulated(runs: Iterable[Outline]) -> bool:
    """True when any guest ran without KVM."""
    return any(run.accelerator == Accelerator.TCG for run in runs)


def failed_cells(runs: Iterable[Outline]) -> tuple[FailedCell, ...]:
    """The cells with failed blocks that were not measured later, by label."""
    ordered = sorted(runs, key=lambda run: (run.started, run.id))
    measured = {
        (cell_label(run.path, run.page_cache), run.campaign, run.block)
        for run in ordered
        if run.failure is None
    }
    found: dict[str, FailedCell] = {}
    counted: set[tuple[str, str, int]] = set()
    for run in ordered:
        label = cell_label(run.path, run.page_cache)
        place = (label, run.campaign, run.block)
        if run.failure is None or place in measured:
            continue
        counted.add(place)
        blocks = sum(1 for each in counted if each[0] == label)
        found[label] = FailedCell(label, blocks, run.failure.kind.value, run.failure.message)
    return tuple(found[label] for label in sorted(found))


def page_cache_findings(runs: Iterable[Run]) -> tuple[FromPageCache, ...]:
    """Measurements, over all blocks of a cell, whose bytes mostly did not touch the device."""
    totals: dict[tuple[str, str, Direction], list[int]] = {}
    for run in runs:
        if run.failure is None and not _is_null(run.path):
            for key, (asked, reached) in _bytes(run):
                total = totals.setdefault(key, [0, 0])
                total[0] += asked
                total[1] += reached
    return tuple(
        FromPageCache(*key, share=reached / asked)
        for key, (asked, reached) in sorted(totals.items())
        if asked and reached < FROM_CACHE_BELOW * asked
    )


def _bytes(run: Run) -> Iterator[tuple[tuple[str, str, Direction], tuple[int, int]]]:
    """For each measurement and direction: the bytes asked of the host, and those at the device."""
    label = cell_label(run.path, run.page_cache)
    for measurement in run.measurements:
        evidence = measurement.evidence
        above = evidence.qemu or evidence.guest
        if above is None or evidence.device is None:
            continue
        for direction in {sample.direction for sample in measurement.samples}:
            asked, reached = _side(above, direction), _side(evidence.device, direction)
            if asked:
                yield (label, measurement.name, direction), (asked, reached)


def _side(counted: Counted, direction: Direction) -> int:
    bytes_by_direction: Mapping[Direction, int] = {
        Direction.READ: counted.read_bytes,
        Direction.WRITE: counted.write_bytes,
    }
    return bytes_by_direction.get(direction, 0)


def _is_null(path: str) -> bool:
    """A null-co disk has no device below; nothing can reach it."""
    return any(segment.partition(":")[0] == "null" for segment in path.split("/"))


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
