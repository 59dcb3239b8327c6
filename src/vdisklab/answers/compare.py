"""`compare`: two cells in every measure, or an article's published numbers beside the user's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from vdisklab.actions.missing_claims import MissingCells, request_for, run_command
from vdisklab.analysis.diagnostics.caveats import Caveats
from vdisklab.analysis.diagnostics.diagnostic import Diagnostic
from vdisklab.analysis.diagnostics.ranked import slow_diagnostics
from vdisklab.analysis.diagnostics.recorded import host_diagnostics
from vdisklab.analysis.observations import Observations
from vdisklab.analysis.paired_ratios import Comparison, compare_cells
from vdisklab.analysis.published import (
    Publication,
    PublishedTable,
    ShapeComparison,
    compare_shape,
    find_series,
)
from vdisklab.answers.analysis import Analysis
from vdisklab.answers.loading import Loaded, find_cells, joinable_campaigns, load
from vdisklab.documents import Answer
from vdisklab.errors import PlanError
from vdisklab.path.cell import MeasuredCell
from vdisklab.path.disk_path import DiskPath
from vdisklab.path.durability import Durability, known_durability
from vdisklab.path.segments import PageCache
from vdisklab.plan.guest import without_qemu
from vdisklab.plan.settings import DEFAULT_PROFILE, Request
from vdisklab.results.model import Campaign
from vdisklab.results.store import Store

_QEMU = "qemu="


@dataclass(frozen=True, slots=True)
class ComparedPair:
    """Two cells and all measures that both have."""

    a: MeasuredCell
    b: MeasuredCell
    a_power_cut: Annotated[Durability | None, "null on the host, and for a free name"]
    b_power_cut: Durability | None
    measures: Annotated[tuple[Comparison, ...], "the main ones first"]
    findings: tuple[Diagnostic, ...]


@dataclass(frozen=True, slots=True)
class CompareAnswer(Answer):
    """`vdisklab compare`: one entry for each pair of cells."""

    FORMAT = "vdisklab.compare/2"

    campaigns: tuple[Campaign, ...]
    caveats: Caveats
    pairs: tuple[ComparedPair, ...]


@dataclass(frozen=True, slots=True)
class PublishedAnswer(Answer):
    """`vdisklab compare --published`: an article's series and the numbers measured here."""

    FORMAT = "vdisklab.published/2"

    campaigns: tuple[Campaign, ...]
    caveats: Caveats
    title: Annotated[str, "the article's"]
    table: Annotated[PublishedTable, "the article's first table of the series"]
    comparison: ShapeComparison
    command: Annotated[str | None, "measures what is missing"]
    findings: tuple[Diagnostic, ...]


def compare_pairs(analysis: Analysis, a: str, b: str) -> CompareAnswer:
    """Compares the cells of two names. Raises PlanError for a path that was not measured."""
    return CompareAnswer(
        campaigns=analysis.campaigns,
        caveats=analysis.caveats,
        pairs=tuple(
            ComparedPair(
                a=first,
                b=second,
                a_power_cut=known_durability(first, analysis.verdicts),
                b_power_cut=known_durability(second, analysis.verdicts),
                measures=compare_cells(analysis.observations, first, second),
                findings=(
                    *(one for one in analysis.cached if one.cell in (first, second)),
                    *slow_diagnostics(analysis.loaded.observations, (first, second)),
                    *host_diagnostics(analysis.campaigns, (first, second)),
                ),
            )
            for first, second in match_cells(analysis.loaded.observations, a, b)
        ),
    )


def match_cells(
    observations: Observations, a: str, b: str
) -> tuple[tuple[MeasuredCell, MeasuredCell], ...]:
    """The pairs of cells to compare: in the same page-cache state if possible, else all pairs."""
    if a.startswith(_QEMU) and b.startswith(_QEMU):
        return _of_two_qemus(observations, a.removeprefix(_QEMU), b.removeprefix(_QEMU))
    of_a, of_b = find_cells(observations, a), find_cells(observations, b)
    alike = [(x, y) for x in of_a for y in of_b if x.page_cache is y.page_cache]
    pairs = [(x, y) for x, y in alike or [(x, y) for x in of_a for y in of_b] if x != y]
    if not pairs:
        raise PlanError(f"{a} and {b} are the same cell", hint="name two different paths")
    return tuple(pairs)


def _of_two_qemus(
    observations: Observations, a: str, b: str
) -> tuple[tuple[MeasuredCell, MeasuredCell], ...]:
    """The pairs of cells that differ only in their QEMU."""
    of_a, of_b = (_by_path(observations, name) for name in (a, b))
    pairs = [(of_a[key], of_b[key]) for key in of_a if key in of_b]
    if a == b or not pairs:
        raise PlanError(
            f"no path was measured with both QEMU {a} and QEMU {b}",
            hint="measure both: `vdisklab run PATHS --qemu BIN --qemu BIN`",
        )
    return tuple(pairs)


def _by_path(
    observations: Observations, qemu: str
) -> dict[tuple[DiskPath, PageCache], MeasuredCell]:
    """The cells of one QEMU by their path without it, and their page-cache state."""
    return {
        (without_qemu(path), cell.page_cache): cell
        for cell in observations.cells
        if (path := cell.path) is not None and path.attachment.qemu == qemu
    }


def compare_published(
    results: Store, name: str, publications: Sequence[Publication], names: Sequence[str] | None
) -> PublishedAnswer:
    """Compares a series with the named campaigns. Raises PlanError for an unknown series."""
    ids, _ = joinable_campaigns(results, names)
    return _published(load(results, ids), name, publications)


def all_published(
    loaded: Loaded, publications: Sequence[Publication]
) -> tuple[PublishedAnswer, ...]:
    """Every published series of which at least one ratio was measured here, in their order."""
    series = dict.fromkeys(
        table.series
        for publication in publications
        for table in publication.tables
        if table.baseline
    )
    answers = (_published(loaded, name, publications) for name in series)
    return tuple(
        answer
        for answer in answers
        if any(row.ours.ratio is not None for row in answer.comparison.rows)
    )


def _published(loaded: Loaded, name: str, publications: Sequence[Publication]) -> PublishedAnswer:
    tables = find_series(name, publications)
    (title,) = [one.title for one in publications if one.article == tables[0].article]
    comparison = compare_shape(tables, loaded.observations)
    command = None
    if comparison.missing:
        paths = tuple(dict.fromkeys(cell.path.canonical for cell in comparison.missing))
        cells = MissingCells(DEFAULT_PROFILE, tables[0].page_cache, paths)
        command = run_command(request_for(cells, Request(), loaded.campaigns[0]))
    return PublishedAnswer(
        campaigns=loaded.campaigns,
        caveats=loaded.caveats,
        title=title,
        table=tables[0],
        comparison=comparison,
        command=command,
        findings=(
            *slow_diagnostics(loaded.observations),
            *host_diagnostics(loaded.campaigns, loaded.observations.cells),
        ),
    )
