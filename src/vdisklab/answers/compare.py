"""`compare`: two cells in every measure, or an article's published numbers beside the user's."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated

from vdisklab.analysis.claimfile import CLAIMS_PROFILE
from vdisklab.analysis.diagnostics.caveats import Caveats
from vdisklab.analysis.diagnostics.diagnostic import Diagnostic
from vdisklab.analysis.diagnostics.ranked import slow_diagnostics
from vdisklab.analysis.diagnostics.recorded import (
    diagnostics_of_all,
    has_sustained,
    host_diagnostics,
)
from vdisklab.analysis.fleet.agreement import Agreement, agreement
from vdisklab.analysis.observations import MeasureKey, Observations
from vdisklab.analysis.paired_ratios import Comparison, Verdict, compare_cells
from vdisklab.analysis.published import (
    Publication,
    PublishedTable,
    ShapeComparison,
    compare_shape,
    find_series,
)
from vdisklab.answers.analysis import Analysis
from vdisklab.answers.choice import ChoiceVerdict, Decision, decide, told_apart
from vdisklab.answers.hosts import HostsAnalysis, OverHosts
from vdisklab.answers.loading import Loaded, find_cells, joinable_campaigns, load, load_chosen
from vdisklab.answers.measured_for import runtime_of
from vdisklab.answers.missing_cells import MissingCells, request_for, run_command
from vdisklab.documents import Answer
from vdisklab.errors import PlanError, SeparateCampaignsError
from vdisklab.path.bus_options import without_qemu
from vdisklab.path.cell import MeasuredCell
from vdisklab.path.disk_path import DiskPath
from vdisklab.path.durability import Durability, known_durability
from vdisklab.path.segments import PageCache
from vdisklab.plan.settings import Request
from vdisklab.results.model import Campaign, Origin
from vdisklab.results.store import Store
from vdisklab.units import named
from vdisklab.value import Value, field, replace

_QEMU = "qemu="
_MOST_ASKED = 30
"""In so many of the newest campaigns two paths are looked for that another one does not have."""


class RankedPair(Value):
    """What `rank` shows of a pair by the score: it compares all paths of the campaign at once."""

    paths: Annotated[int, "paths that have a rank"]
    verdict: Annotated[Verdict, "as the ranks show it"]
    close: Annotated[
        MeasuredCell | None, "the one of the pair that is shown to be near the best of all paths"
    ] = None
    behind: Annotated[
        float | None, "by how much the best path is better than `close`, at most: 0.1 is 10 %"
    ] = None


class ComparedPair(Value):
    """Two cells and all measures that both have."""

    a: MeasuredCell
    b: MeasuredCell
    a_power_cut: Annotated[Durability | None, "null on the host, and for a free name"]
    b_power_cut: Durability | None
    paired: Annotated[bool, "false for imports, which share no round with others; then by Welch"]
    measures: Annotated[tuple[Comparison, ...], "the main ones first"]
    findings: tuple[Diagnostic, ...]
    ranked: Annotated[
        RankedPair | None, "null unless both have a rank by the score of the campaign"
    ] = None
    agreements: Annotated[
        tuple[Agreement, ...], "with --hosts: who agrees in each main measure"
    ] = ()
    by_class: Annotated[
        Mapping[str, Agreement],
        "with --hosts: the first measure by the facts that vary; empty if none does",
    ] = field(default_factory=dict)


_OF_THE_WAY = frozenset({"given_back", "unit"})
"""Metrics that follow from how a disk is made, so that more is neither better nor worse: a copy
gives back more because it took more."""


class CompareAnswer(Answer):
    """`vdisklab compare`: one entry for each pair of cells."""

    FORMAT = "vdisklab.compare/2"

    campaigns: tuple[Campaign, ...]
    caveats: Caveats
    pairs: tuple[ComparedPair, ...]
    hosts: Annotated[OverHosts | None, "with --hosts; rounds are hosts then"] = None


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
    """Compares the cells of two names. Raises PlanError for a path that was not measured, with the
    newest other campaign that has both."""
    try:
        matched = match_cells(analysis.loaded.observations, a, b)
    except PlanError as error:
        others = (
            each
            for each in analysis.results.campaigns(with_runs=True)[:_MOST_ASKED]
            if each.id not in analysis.loaded.ids
        )
        found = next((each for each in others if _has_both(analysis.results, [each], a, b)), None)
        if found is None:
            raise
        command = shlex.join(["vdisklab", "compare", a, b, "--campaign", found.id])
        here = named([each.id for each in analysis.campaigns])
        raise PlanError(
            str(error).replace("in this campaign", f"in campaign {here}"),
            hint=f"campaign {found.id} of {found.started:%Y-%m-%d} has both: `{command}`",
        ) from None
    pairs = tuple(_pair(analysis, first, second) for first, second in matched)
    overall = analysis.scored.overall
    if overall is not None:
        decision = decide(analysis, overall)
        pairs = tuple(_as_ranked(pair, overall, _ranked(pair, decision)) for pair in pairs)
    hosts = None
    if isinstance(analysis, HostsAnalysis):
        pairs = tuple(_over_hosts(analysis, pair) for pair in pairs)
        hosts = analysis.named_hosts
    return CompareAnswer(
        campaigns=analysis.campaigns, caveats=analysis.caveats, pairs=pairs, hosts=hosts
    )


def having_both(
    results: Store, error: SeparateCampaignsError, a: str, b: str
) -> SeparateCampaignsError:
    """The error with only the campaigns that have numbers of both names."""

    def only(groups: Sequence[Sequence[str]]) -> list[Sequence[str]]:
        return [ids for ids in groups if _has_both(results, map(results.campaign, ids), a, b)]

    return SeparateCampaignsError(
        str(error),
        together=only(error.together),
        over_hosts=only(error.over_hosts),
        side_by_side=error.side_by_side,
    )


def _has_both(results: Store, campaigns: Iterable[Campaign], a: str, b: str) -> bool:
    """True if `compare` has an answer on two names from each of these campaigns."""
    try:
        for campaign in campaigns:
            match_cells(load_chosen(results, (campaign,)).observations, a, b)
    except PlanError:
        return False
    return True


def _pair(analysis: Analysis, first: MeasuredCell, second: MeasuredCell) -> ComparedPair:
    paired = not any(
        run.origin is Origin.IMPORTED and run.measured_cell in (first, second)
        for run in analysis.loaded.outlines
    )
    return ComparedPair(
        a=first,
        b=second,
        a_power_cut=known_durability(first, analysis.verdicts),
        b_power_cut=known_durability(second, analysis.verdicts),
        paired=paired,
        measures=tuple(
            replace(row, runtime=runtime_of(analysis.campaigns, row.measure.name))
            for row in compare_cells(analysis.all_values, first, second, paired=paired)
            if row.measure.metric not in _OF_THE_WAY
        ),
        findings=(
            *(finding for finding in analysis.cached if finding.cell in (first, second)),
            *slow_diagnostics(analysis.loaded.observations, (first, second)),
            *(
                ()
                if isinstance(analysis, HostsAnalysis)
                else host_diagnostics(
                    analysis.campaigns,
                    (first, second),
                    lasting=has_sustained(analysis.loaded.observations),
                )
            ),
        ),
    )


def _ranked(pair: ComparedPair, decision: Decision) -> RankedPair | None:
    """What a ranking, or the race that decided, shows of a pair; None if one has no rank."""
    apart, ranking, choice = told_apart(pair.a, pair.b, decision.ranking), decision.ranking, None
    if apart is None or not pair.paired or not pair.measures:
        return None
    order = [row.cell for row in ranking.rows]
    verdict = Verdict.NONE_SHOWN
    if apart:
        verdict = Verdict.B_BETTER
        if order.index(pair.a) < order.index(pair.b):
            verdict = Verdict.A_BETTER
    if decision.choice is not None and decision.choice.verdict is ChoiceVerdict.CLOSE:
        choice = decision.choice
    if choice is None or choice.step is not None or choice.cell not in (pair.a, pair.b):
        return RankedPair(len(order), verdict)
    return RankedPair(len(order), verdict, choice.cell, choice.behind)


def _as_ranked(pair: ComparedPair, overall: MeasureKey, ranked: RankedPair | None) -> ComparedPair:
    """The pair with what the ranks show of it. A difference by the score that is likely here, as
    the other measures are tested beside it, is shown where the ranks of all paths show it."""
    likely = {Verdict.A_LIKELY: Verdict.A_BETTER, Verdict.B_LIKELY: Verdict.B_BETTER}
    measures = tuple(
        replace(row, verdict=ranked.verdict)
        if ranked is not None
        and row.measure == overall
        and likely.get(row.verdict) is ranked.verdict
        else row
        for row in pair.measures
    )
    return replace(pair, ranked=ranked, measures=measures)


def _over_hosts(analysis: HostsAnalysis, pair: ComparedPair) -> ComparedPair:
    """The pair with the hosts' agreement on it. Raises PlanError if no host measured both."""
    if not pair.measures:
        raise PlanError(
            f"no host measured both {pair.a} and {pair.b}",
            hint="compare paths of one plan: `vdisklab rank --hosts all`",
        )
    numbers = analysis.all_numbers
    main = [row.measure for row in pair.measures if row.main]
    agreements = {key: agreement(numbers, key, pair.a, pair.b) for key in main}
    first = pair.measures[0].measure
    return replace(
        pair,
        measures=tuple(
            replace(row, a_better_on=agreements[row.measure].a_better_on) if row.main else row
            for row in pair.measures
        ),
        agreements=tuple(agreements.values()),
        by_class={
            name: agreement(numbers.of_hosts(members, analysis.unit_of), first, pair.a, pair.b)
            for name, members in analysis.members.items()
        }
        if analysis.varying
        else {},
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
    loaded, tables = load(results, ids), find_series(name, publications)
    return _published(loaded, tables, compare_shape(tables, loaded.observations), publications)


def all_published(
    loaded: Loaded, publications: Sequence[Publication]
) -> tuple[PublishedAnswer, ...]:
    """Every published series with at least one ratio measured here, in published order."""
    series = dict.fromkeys(
        table.series
        for publication in publications
        for table in publication.tables
        if table.baseline
    )
    compared = (
        (tables, compare_shape(tables, loaded.observations))
        for tables in (find_series(name, publications) for name in series)
    )
    return tuple(
        _published(loaded, tables, comparison, publications)
        for tables, comparison in compared
        if any(row.ours.ratio is not None for row in comparison.rows)
    )


def _published(
    loaded: Loaded,
    tables: Sequence[PublishedTable],
    comparison: ShapeComparison,
    publications: Sequence[Publication],
) -> PublishedAnswer:
    (title,) = [
        publication.title
        for publication in publications
        if publication.article == tables[0].article
    ]
    command = None
    if comparison.missing:
        paths = tuple(dict.fromkeys(cell.path.canonical for cell in comparison.missing))
        cells = MissingCells(CLAIMS_PROFILE, tables[0].page_cache, paths)
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
            *diagnostics_of_all(loaded.campaigns, loaded.observations),
        ),
    )
