"""Evaluates claims, and articles' published numbers, against what was measured."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from vdisklab.analysis.claimfile import ClaimFile
from vdisklab.analysis.claims import ClaimAnswer, ClaimVerdict, answer_claims
from vdisklab.analysis.diagnostics.circumstances import host_findings
from vdisklab.analysis.diagnostics.findings import Caveats, Finding, caveats_of
from vdisklab.analysis.published import Publication, ShapeComparison, compare_shape, find_series
from vdisklab.plan.settings import DEFAULT_PROFILE, Request
from vdisklab.results.model import Campaign
from vdisklab.services.answers import Loaded, Results, joinable_campaigns, load
from vdisklab.services.missing_claims import MissingCells, missing_cells, request_for, run_command


@dataclass(frozen=True, slots=True)
class ClaimsAnswer:
    """All claims with their verdicts and the campaigns that decided.

    `commands` holds, by article and name, the command that measures a claim that was not.
    """

    campaigns: tuple[Campaign, ...]
    caveats: Caveats
    answers: tuple[ClaimAnswer, ...]
    titles: Mapping[str, str]
    commands: Mapping[tuple[str, str], str]
    findings: tuple[Finding, ...]
    left_out: tuple[str, ...]

    @property
    def counts(self) -> Mapping[str, int]:
        """Number of claims by status."""
        return Counter(status(answer) for answer in self.answers)


def status(answer: ClaimAnswer) -> str:
    """One of holds, fails, inconclusive, not-measured, void."""
    settled = answer.verdict in (ClaimVerdict.HOLDS, ClaimVerdict.FAILS)
    return "void" if settled and answer.void is not None else answer.verdict.value


@dataclass(frozen=True, slots=True)
class PublishedAnswer:
    """An article's series beside what was measured. `command` would measure what is missing."""

    campaigns: tuple[Campaign, ...]
    caveats: Caveats
    comparison: ShapeComparison
    title: str
    command: str | None
    findings: tuple[Finding, ...] = ()


def evaluate_claims(
    loaded: Loaded,
    files: Sequence[ClaimFile],
    requested: Request | None = None,
    left_out: tuple[str, ...] = (),
) -> ClaimsAnswer:
    """Each claim of the files with its verdict, and the command that measures an unmeasured one.

    The commands use the options of `requested`, and else those of the loaded campaigns.
    """
    claims = [claim for file in files for claim in file.claims]
    answers = answer_claims(claims, loaded.observations, loaded.outlines)
    like = loaded.campaigns[0] if loaded.campaigns else None
    commands = {
        (answer.claim.article, answer.claim.name): run_command(
            request_for(cells, requested or Request(), like)
        )
        for answer in answers
        if answer.verdict is ClaimVerdict.NOT_MEASURED
        for cells in missing_cells([answer])
    }
    return ClaimsAnswer(
        campaigns=loaded.campaigns,
        caveats=caveats_of(loaded.outlines),
        answers=answers,
        titles={file.article: file.title for file in files},
        commands=commands,
        findings=host_findings(loaded.campaigns, loaded.observations.cells),
        left_out=left_out,
    )


def answer_published(
    results: Results,
    name: str,
    publications: Sequence[Publication],
    names: list[str] | None,
) -> PublishedAnswer:
    """A published series beside the named campaigns. Raises PlanError for an unknown series."""
    find_series(name, publications)  # before anything is loaded
    ids, _ = joinable_campaigns(results, names)
    return evaluate_series(load(results, ids), name, publications)


def evaluate_series(
    loaded: Loaded, name: str, publications: Sequence[Publication]
) -> PublishedAnswer:
    """A published series beside what was measured. Raises PlanError for an unknown series."""
    tables = find_series(name, publications)
    (article,) = [each for each in publications if each.article == tables[0].article]
    comparison = compare_shape(tables, loaded.observations)
    command = None
    if comparison.missing:
        paths = tuple(dict.fromkeys(cell.path.canonical for cell in comparison.missing))
        cells = MissingCells(DEFAULT_PROFILE, tables[0].page_cache, paths)
        command = run_command(request_for(cells, Request(), loaded.campaigns[0]))
    return PublishedAnswer(
        campaigns=loaded.campaigns,
        caveats=caveats_of(loaded.outlines),
        comparison=comparison,
        title=article.title,
        command=command,
        findings=host_findings(loaded.campaigns, loaded.observations.cells),
    )


def evaluate_publications(
    loaded: Loaded, publications: Sequence[Publication]
) -> tuple[PublishedAnswer, ...]:
    """Every published series of which at least one ratio was measured here, in their order."""
    series = dict.fromkeys(
        table.series for each in publications for table in each.tables if table.baseline
    )
    answers = (evaluate_series(loaded, name, publications) for name in series)
    return tuple(
        answer
        for answer in answers
        if any(row.ours.ratio is not None for row in answer.comparison.rows)
    )
