"""`vdisklab recommend`: the path to use, why, and what each need costs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated

import typer

from vdisklab.analysis.diagnostics.findings import Finding, caveats_of, ranking_findings
from vdisklab.analysis.evidence import Workings, workings
from vdisklab.analysis.intervals import MIN_BLOCKS
from vdisklab.analysis.mix import MIX, add_mix
from vdisklab.analysis.observations import (
    MeasureKey,
    Observations,
    cell_label,
    narrowed,
)
from vdisklab.analysis.recommend import candidates, ratio_of
from vdisklab.analysis.recommend import recommend as recommend_cell
from vdisklab.analysis.score import Score, Scored, add_scores
from vdisklab.analysis.summary import summarise
from vdisklab.cli.tables import (
    CampaignOption,
    DbOption,
    Format,
    FormatOption,
    Loaded,
    Results,
    emit,
    find_cells,
    find_measure,
    load,
    open_results,
    require_numbers,
)
from vdisklab.cli.verdicts import stored_verdicts
from vdisklab.errors import PlanError
from vdisklab.path.needs import Need, example_of, parse_need
from vdisklab.render.tables.recommendation import (
    RecommendationAnswer,
    recommendation_document,
    recommendation_table,
)

NeedOption = Annotated[
    list[str] | None,
    typer.Option(
        "--need",
        metavar="NEED",
        help="durable, no-flush-safe, snapshots, discard, live-migration, format=…; may be "
        "given again.",
    ),
]
WeightsOption = Annotated[
    str | None,
    typer.Option(
        "--weights",
        metavar="MEASURE=W,…",
        help="What counts how much: read and write (the scores), or measures such as "
        "randread-4k-q1/read/iops.",
        show_default="the overall score",
    ),
]


def recommend(
    need: NeedOption = None,
    weights: WeightsOption = None,
    campaign: CampaignOption = None,
    db: DbOption = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Recommend a disk path from what was measured here, and say why.

    Examples:

      vdisklab recommend --need durable --need format=qcow2

      vdisklab recommend --weights read=3,write=1 --format json
    """
    needs = tuple(dict.fromkeys(parse_need(text) for text in need or ()))
    with open_results(db) as results:
        answer = answer_recommendation(results, needs, weights, campaign)
    emit(form, [recommendation_table(answer)], lambda: recommendation_document(answer))


def answer_recommendation(
    results: Results, needs: tuple[Need, ...], weights: str | None, names: list[str] | None
) -> RecommendationAnswer:
    """Everything that the verb shows. Raises PlanError where nothing can be recommended."""
    loaded = load(results, names)
    require_numbers(loaded)
    return recommendation_of(results, loaded, needs, weights)


def recommendation_of(
    results: Results,
    loaded: Loaded,
    needs: tuple[Need, ...],
    weights: str | None,
    worked: Mapping[str, Workings] | None = None,
) -> RecommendationAnswer:
    """The recommendation from what is loaded, and from the power cuts of the same machine.

    `worked` is what the counters say by cell, where the caller has it already.
    """
    verdicts = stored_verdicts(results, loaded.campaigns[0].host)
    baseline = _baseline(loaded)
    scored = add_scores(loaded.observations, baseline)
    if not candidates(scored.observations.cells):
        raise _nothing(scored.observations, needs, Score.OVERALL.key)
    observations, measure, shown = _weighted(scored, weights)
    found = recommend_cell(observations, measure, needs, verdicts)
    if found is None:
        raise _nothing(observations, needs, measure)
    order = [row.cell for row in found.ranking.rows] or [found.cell]
    findings: tuple[Finding, ...] = ranking_findings(found.ranking, MIN_BLOCKS)
    return RecommendationAnswer(
        campaigns=loaded.campaigns,
        caveats=caveats_of(loaded.outlines),
        recommendation=found,
        summaries={key: summarise(observations, key) for key in shown},
        ratios={cell: ratio_of(observations, measure, cell, found.cell) for cell in order[1:6]},
        workings=counted_workings(results, loaded) if worked is None else worked,
        findings=findings,
    )


def counted_workings(results: Results, loaded: Loaded) -> dict[str, Workings]:
    """What the observers counted, added up for each cell."""
    labels = {run.cell: cell_label(run.path, run.page_cache) for run in loaded.outlines}
    return workings(results.tallies([each.id for each in loaded.campaigns]), labels)


def _baseline(loaded: Loaded) -> str:
    planned = str(loaded.campaigns[0].plan.get("baseline", "host"))
    try:
        return find_cells(loaded.observations, planned)[0]
    except PlanError:
        return planned


def _weighted(
    scored: Scored, weights: str | None
) -> tuple[Observations, MeasureKey, tuple[MeasureKey, ...]]:
    """The measure to decide by, and the columns to show beside it."""
    if weights is None:
        if scored.roles is None:
            raise PlanError(
                "this campaign's profile has no scores, so nothing says what counts",
                hint="say it: --weights MEASUREMENT/DIRECTION/METRIC=1,…",
            )
        return scored.observations, Score.OVERALL.key, tuple(score.key for score in Score)
    chosen = parse_weights(scored, weights)
    if scored.baseline not in scored.observations.cells:
        raise PlanError(
            f"weights relate to the baseline {scored.baseline}, which was not measured",
            hint="measure it in the same campaign",
        )
    mixed = add_mix(scored.observations, scored.baseline, chosen)
    return mixed, MIX, (MIX, *chosen)


def parse_weights(scored: Scored, text: str) -> Mapping[MeasureKey, float]:
    """`read=3,write=1` as measures with weights. Raises PlanError."""
    names = {"read": Score.READ.key, "write": Score.WRITE.key, "overall": Score.OVERALL.key}
    found: dict[MeasureKey, float] = {}
    for part in text.split(","):
        name, equals, number = part.strip().rpartition("=")
        try:
            weight = float(number)
        except ValueError:
            weight = -1.0
        if not equals or not name or not 0 <= weight < math.inf:
            raise PlanError(f"{part!r} is no weight", hint="write them like read=3,write=1")
        key = names[name] if name in names else find_measure(scored.observations, name)
        found[key] = found.get(key, 0.0) + weight
    if not sum(found.values()) > 0:
        raise PlanError("all weights are zero", hint="write them like read=3,write=1")
    return {key: weight for key, weight in found.items() if weight}


def _nothing(observations: Observations, needs: tuple[Need, ...], measure: MeasureKey) -> PlanError:
    paths = candidates(observations.cells)
    if not paths:
        return PlanError(
            "no path that a guest could use was measured",
            hint="measure some: `vdisklab run ext4/{raw,qcow2}/{none,writeback}`",
        )
    blocks = narrowed(observations, paths).blocks_of()
    if not needs and int(blocks.max(initial=0)) < MIN_BLOCKS:
        return PlanError(
            f"{int(blocks.max(initial=0))} of {MIN_BLOCKS} blocks are measured that a rank needs",
            hint=f"continue the campaign with --blocks {MIN_BLOCKS} or more",
        )
    if not needs:
        return PlanError(
            f"no path has the measure {measure} in {MIN_BLOCKS} blocks",
            hint="see `vdisklab rank` for what is missing",
        )
    if not (narrowed(observations, paths).grid(measure) > 0).any():
        return PlanError(
            f"no path has the measure {measure}: what it is made of, or the baseline, is missing",
            hint="see `vdisklab rank`, or say what counts: --weights "
            "MEASUREMENT/DIRECTION/METRIC=1,…",
        )
    asked = ", ".join(map(str, needs))
    example = example_of(needs)
    if example is None:
        return PlanError(
            f"none of the {len(paths)} measured paths can be ranked and meets: {asked}",
            hint="these needs exclude one another: leave one out",
        )
    return PlanError(
        f"none of the {len(paths)} measured paths can be ranked and meets: {asked}",
        hint=f"leave out a --need, or measure a path that has it: `vdisklab run {example} host`",
    )
