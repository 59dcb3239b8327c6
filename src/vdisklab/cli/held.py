"""What articles say and print, held against numbers that are loaded already."""

from __future__ import annotations

from collections.abc import Sequence

from vdisklab.analysis.claimfile import ClaimFile
from vdisklab.analysis.claims import ClaimVerdict, answer_claims
from vdisklab.analysis.diagnostics.circumstances import host_findings
from vdisklab.analysis.diagnostics.findings import caveats_of
from vdisklab.analysis.published import Publication, compare_shape, find_series
from vdisklab.cli.campaign_options import DEFAULT_PROFILE
from vdisklab.cli.missing import Group, missing_groups, request_for, spell
from vdisklab.cli.tables import Loaded
from vdisklab.plan.request import Request
from vdisklab.render.tables.claim_results import ClaimsAnswer
from vdisklab.render.tables.comparison import PublishedAnswer


def held_claims(
    loaded: Loaded,
    files: Sequence[ClaimFile],
    asked: Request | None = None,
    left_out: tuple[str, ...] = (),
) -> ClaimsAnswer:
    """Every claim of the files with its verdict, and what would measure those that were not."""
    every = [claim for file in files for claim in file.claims]
    answers = answer_claims(every, loaded.observations, loaded.outlines)
    like = loaded.campaigns[0] if loaded.campaigns else None
    commands = {
        (answer.claim.article, answer.claim.name): spell(
            request_for(group, asked or Request(), like)
        )
        for answer in answers
        if answer.verdict is ClaimVerdict.NOT_MEASURED
        for group in missing_groups([answer])
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


def held_series(loaded: Loaded, name: str, publications: Sequence[Publication]) -> PublishedAnswer:
    """A series of an article beside what was measured. Raises PlanError for an unknown name."""
    tables = find_series(name, publications)
    (article,) = [each for each in publications if each.article == tables[0].article]
    comparison = compare_shape(tables, loaded.observations)
    command = None
    if comparison.missing:
        paths = tuple(dict.fromkeys(cell.path.canonical for cell in comparison.missing))
        group = Group(DEFAULT_PROFILE, tables[0].page_cache, paths)
        command = spell(request_for(group, Request(), loaded.campaigns[0]))
    return PublishedAnswer(
        campaigns=loaded.campaigns,
        caveats=caveats_of(loaded.outlines),
        comparison=comparison,
        title=article.title,
        command=command,
        findings=host_findings(loaded.campaigns, loaded.observations.cells),
    )


def held_publications(
    loaded: Loaded, publications: Sequence[Publication]
) -> tuple[PublishedAnswer, ...]:
    """Every series of which anything has a counterpart among the numbers, in their order."""
    names = dict.fromkeys(
        table.series for each in publications for table in each.tables if table.baseline
    )
    found = (held_series(loaded, name, publications) for name in names)
    return tuple(
        answer
        for answer in found
        if any(row.ours.ratio is not None for row in answer.comparison.rows)
    )
