"""`vdisklab rank`: which path is best, and how sure that is."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Annotated

import typer

from vdisklab.analysis.compare import against_baseline
from vdisklab.analysis.diagnostics.ceilings import ceiling_findings
from vdisklab.analysis.diagnostics.circumstances import host_findings
from vdisklab.analysis.diagnostics.doubt import FromPageCache
from vdisklab.analysis.diagnostics.findings import (
    Finding,
    NoBaseline,
    caveats_of,
    failed_cells,
    ranking_findings,
)
from vdisklab.analysis.diagnostics.stability import (
    bimodal_findings,
    drift_findings,
    first_block_findings,
)
from vdisklab.analysis.intervals import MIN_BLOCKS
from vdisklab.analysis.observations import MeasureKey, Observations
from vdisklab.analysis.rank import rank as rank_cells
from vdisklab.analysis.score import NoScore, Score, Scored, add_scores
from vdisklab.analysis.summary import summarise
from vdisklab.cli.tables import (
    CampaignOption,
    DbOption,
    Format,
    FormatOption,
    Loaded,
    Results,
    direct_doubts,
    emit,
    evidence_doubts,
    find_cells,
    find_measure,
    load,
    open_results,
    require_numbers,
)
from vdisklab.cli.verdicts import stored_verdicts
from vdisklab.errors import PlanError
from vdisklab.render.tables.ranking import (
    RankingAnswer,
    ranking_bars,
    ranking_document,
    ranking_table,
)

DEFAULT_METRIC = "overall"
SCORES = {DEFAULT_METRIC: Score.OVERALL, "read": Score.READ, "write": Score.WRITE}


def rank(
    metric: Annotated[
        str,
        typer.Option(
            "--metric",
            metavar="MEASURE",
            help="What to rank by: overall, read, write (the weighted scores), or a measure such "
            "as randread-4k-q1/read/latency_p99.",
        ),
    ] = DEFAULT_METRIC,
    campaign: CampaignOption = None,
    baseline: Annotated[
        str | None,
        typer.Option(
            metavar="PATH",
            help="The path that scores and ratios relate to.",
            show_default="the campaign's",
        ),
    ] = None,
    bars: Annotated[bool, typer.Option("--bars", help="Draw the ranked numbers as bars.")] = False,
    db: DbOption = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Rank what was measured, with ties where nothing is shown to differ.

    A rank such as 1–3 says: one of the first three, and more blocks are needed to tell which.
    Cells with fewer than three blocks are listed without a rank.

    Examples:

      vdisklab rank

      vdisklab rank --bars

      vdisklab rank --metric write --baseline ext4/host

      vdisklab rank --metric randread-4k-q1/read/latency_p99 --format csv
    """
    with open_results(db) as results:
        answer = answer_ranking(results, metric, campaign, baseline)
    drawn = bars and form is Format.TABLE
    table = ranking_bars(answer) if drawn else ranking_table(answer)
    emit(form, [table], lambda: ranking_document(answer))


def answer_ranking(
    results: Results, metric: str, names: list[str] | None, baseline: str | None
) -> RankingAnswer:
    """Everything that the verb shows. Raises PlanError and DatabaseError."""
    loaded = load(results, names)
    require_numbers(loaded)
    base, base_finding = _baseline(loaded, baseline)
    scored = add_scores(loaded.observations, base)
    measure, shown = _measures(scored, metric)
    observations = scored.observations
    ranking = rank_cells(observations, measure)
    used = _used(scored, measure)
    caveats = caveats_of(loaded.outlines)
    findings: list[Finding] = [*caveats.findings]
    findings += base_finding
    evidence = evidence_doubts(results, loaded)
    cached = [each for each in evidence if isinstance(each, FromPageCache)]
    findings += [each for each in evidence if not isinstance(each, FromPageCache)]
    findings += host_findings(loaded.campaigns, loaded.observations.cells)
    findings += direct_doubts(results, loaded)
    findings += value_doubts(observations, shown, measure, {each.cell for each in cached})
    findings += ranking_findings(ranking, MIN_BLOCKS)
    if not base_finding and measure.name == "score":
        findings += missing_scores(scored, measure)
    return RankingAnswer(
        campaigns=loaded.campaigns,
        caveats=caveats,
        ranking=ranking,
        baseline=base,
        roles=scored.roles if measure.name == "score" else None,
        summaries={key: summarise(observations, key) for key in shown},
        ratios=against_baseline(observations, measure, base),
        cached=tuple(each for each in cached if each.measurement in used),
        failed=failed_cells(loaded.outlines),
        findings=tuple(findings),
        blocks=loaded.blocks,
        verdicts=stored_verdicts(results, loaded.campaigns[0].host),
    )


def value_doubts(
    observations: Observations,
    shown: Sequence[MeasureKey],
    measure: MeasureKey,
    memory: Collection[str],
) -> Iterator[Finding]:
    """What the values of the blocks give away, of the ranked measure and of what it is made of.

    `memory` are the cells whose numbers are the page cache's.
    """
    yield from drift_findings(observations, measure)
    yield from first_block_findings(observations, measure)
    for key in shown:
        yield from bimodal_findings(observations, key)
    yield from ceiling_findings(observations, measure, memory)


def _baseline(loaded: Loaded, asked: str | None) -> tuple[str, list[Finding]]:
    """The baseline's label; a finding instead of an error where the plan's was not measured."""
    if asked is not None:
        return find_cells(loaded.observations, asked)[0], []
    planned = str(loaded.campaigns[0].plan.get("baseline", "host"))
    try:
        return find_cells(loaded.observations, planned)[0], []
    except PlanError:
        return planned, [NoBaseline(planned)]


def missing_scores(scored: Scored, measure: MeasureKey) -> list[NoScore]:
    """Who lacks the ranked score; said once where the fault is the baseline's."""
    missing = [each for each in scored.missing if each.score.key == measure]
    if missing and missing[0].baseline_lacking:
        return [each for each in missing if each.cell == scored.baseline] or missing[:1]
    return missing


def _measures(scored: Scored, metric: str) -> tuple[MeasureKey, tuple[MeasureKey, ...]]:
    """What to rank by, and the columns of numbers to show."""
    if metric not in SCORES:
        measure = find_measure(scored.observations, metric)
        return measure, (measure,)
    if scored.roles is None:
        raise PlanError(
            "this campaign's profile has no scores",
            hint="name a measure: `vdisklab rank --metric MEASUREMENT/DIRECTION/METRIC`",
        )
    return SCORES[metric].key, (Score.READ.key, Score.WRITE.key, Score.OVERALL.key)


def _used(scored: Scored, measure: MeasureKey) -> set[str]:
    """The names of the measurements that the ranked numbers are made of."""
    if measure.name != "score" or scored.roles is None:
        return {measure.name}
    return {key.name for key in scored.roles.measures.values()}
