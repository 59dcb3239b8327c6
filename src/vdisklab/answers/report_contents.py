"""Gathers the contents of a report, for all formats."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

import numpy as np

from vdisklab.analysis.claimfile import builtin_claims
from vdisklab.analysis.diagnostics.caveats import Caveats
from vdisklab.analysis.diagnostics.diagnostic import Diagnostic
from vdisklab.analysis.diagnostics.ranked import (
    FailedCell,
    failed_cells,
)
from vdisklab.analysis.diagnostics.recorded import (
    FROM_CACHE_BELOW,
    FromPageCache,
    age_diagnostics,
    direct_diagnostics,
    host_diagnostics,
    queue_diagnostics,
)
from vdisklab.analysis.observations import MeasureKey
from vdisklab.analysis.paired_ratios import Ratio, against_baseline
from vdisklab.analysis.published import builtin_publications
from vdisklab.analysis.rank_intervals import Ranking
from vdisklab.analysis.rank_intervals import rank as rank_cells
from vdisklab.analysis.score import MEAN, RoleSet, Score, Scored
from vdisklab.analysis.summary import Summaries, Summary, summarise
from vdisklab.analysis.sums import BandwidthSeries, RelativeSums, bandwidth_series
from vdisklab.answers.analysis import Analysis
from vdisklab.answers.claim_answers import (
    ClaimsAnswer,
    evaluate_claims,
)
from vdisklab.answers.compare import PublishedAnswer, all_published
from vdisklab.answers.density import DensityAnswer, density_of, searched_capacity
from vdisklab.answers.loading import (
    Loaded,
    baseline_of,
    choose_campaigns,
    first_measure,
    load_chosen,
    load_evidence_diagnostics,
    require_numbers,
    stored_verdicts,
)
from vdisklab.answers.pareto import ParetoAnswer, usual_front
from vdisklab.answers.recommend import RecommendAnswer, recommend
from vdisklab.errors import PlanError
from vdisklab.path.cell import MeasuredCell
from vdisklab.path.durability import CrashVerdicts, HostDisk
from vdisklab.path.needs import with_default
from vdisklab.results.model import Campaign
from vdisklab.results.outlines import CellSums, Example
from vdisklab.results.store import Store

FEATURED = 4
"""Number of cells in charts with few lines: more cannot be distinguished."""

TRADE_OFF_CELLS = 1000
"""With more cells than this, trade-offs are not drawn; `vdisklab rank --pareto` lists them."""

MOST_TIME_SERIES = 4
"""Number of measurements drawn over time: those that the score uses, else the first."""


@dataclass(frozen=True, slots=True)
class Contents:
    """Everything that a report shows. `summaries` has every measure, the scores first.

    `recommendation` is for the default needs; if it is None, `why_none` says why, or the campaign
    is a search of how many guests each path carries, `density`.
    `cached` has, by cell, the measurements whose bytes mostly came from the page cache. `verdicts`
    are from power cuts on the same host.
    """

    campaigns: tuple[Campaign, ...]
    caveats: Caveats
    rounds: int
    baseline: MeasuredCell
    roles: RoleSet | None
    measure: MeasureKey
    ranking: Ranking
    ratios: Mapping[MeasuredCell, Ratio]
    summaries: Mapping[MeasureKey, Summaries]
    recommendation: RecommendAnswer | None
    why_none: str
    relative_sums: Mapping[MeasuredCell, RelativeSums]
    cached: Mapping[MeasuredCell, tuple[str, ...]]
    examples: Mapping[MeasuredCell, Example]
    failed: tuple[FailedCell, ...]
    findings: tuple[Diagnostic, ...]
    verdicts: CrashVerdicts = field(default_factory=CrashVerdicts)
    bandwidth_series: tuple[BandwidthSeries, ...] = ()
    claims: ClaimsAnswer | None = None
    published: tuple[PublishedAnswer, ...] = ()
    trade_offs: ParetoAnswer | None = None
    density: DensityAnswer | None = None
    rates: tuple[MeasureKey, ...] = ()
    """The measures whose mean is the score, for a profile without the score's measurements."""

    @property
    def featured(self) -> tuple[MeasuredCell, ...]:
        """The cells of charts with few lines: the answer, the baseline, the next best."""
        answer = None if self.recommendation is None else self.recommendation.recommendation.cell
        ranked = (row.cell for row in self.ranking.rows)
        chosen = dict.fromkeys(cell for cell in (answer, self.baseline, *ranked) if cell)
        return tuple(chosen)[:FEATURED]

    @property
    def order(self) -> tuple[MeasuredCell, ...]:
        """All measured cells: the ranked ones, best first, then the others by name."""
        ranked = dict.fromkeys(row.cell for row in self.ranking.rows)
        rest = [cell for cell, rounds in self.measured.items() if rounds and cell not in ranked]
        return (*ranked, *sorted(rest))

    def of(self, measure: MeasureKey) -> Mapping[MeasuredCell, Summary]:
        """The summaries of a measure by cell; empty if it was not measured."""
        return self.summaries.get(measure) or {}

    @property
    def measured(self) -> dict[MeasuredCell, int]:
        """For each cell, the largest number of rounds of any one measure."""
        summaries = list(self.summaries.values())
        most = (
            np.max([summary.rounds for summary in summaries], axis=0).tolist() if summaries else []
        )
        return dict(zip(summaries[0].cells if summaries else (), most, strict=True))


def gather(results: Store, names: list[str] | None, disk: HostDisk | None = None) -> Contents:
    """The contents of a report on the named campaigns (None: the newest).

    Raises PlanError if they hold no numbers.
    """
    campaigns = choose_campaigns(results, names)
    loaded = load_chosen(results, campaigns)
    require_numbers(loaded)
    analysis = Analysis(results, loaded, disk)
    with ThreadPoolExecutor(1) as pool:
        # The database aggregates in a thread while this one computes, without the database: one
        # connection does for both.
        summing = pool.submit(lambda: analysis.sums)
        baseline, base_findings = baseline_of(loaded)
        scored = analysis.scored
        observations = scored.observations
        measure = _measure(scored)
        ranking = rank_cells(observations, measure)
        summaries = {key: summarise(observations, key) for key in _scores_first(scored)}
    sums, cells = summing.result(), loaded.cells
    searched = next((one.id for one in campaigns if searched_capacity(one.plan)), None)
    density = None if searched is None else density_of(results, searched)
    answer, why_none = None, ""
    if density is None:
        answer, why_none = _recommendation(analysis)
    caveats, examples = loaded.caveats, results.examples(loaded.ids)
    cached = from_page_cache(sums, cells)
    contents = Contents(
        campaigns=loaded.campaigns,
        caveats=caveats,
        rounds=loaded.rounds,
        baseline=baseline,
        roles=scored.roles,
        rates=scored.rates,
        measure=measure,
        ranking=ranking,
        ratios=against_baseline(observations, measure, baseline),
        summaries=summaries,
        recommendation=answer,
        why_none=why_none,
        relative_sums=analysis.relative_sums,
        cached=cached,
        examples={cells[example.cell]: example for example in examples},
        failed=failed_cells(loaded.outlines),
        findings=(
            *caveats.findings,
            *base_findings,
            *_evidence_diagnostics(results, loaded, examples, sums),
            *analysis.value_findings(_checked_measures(scored, measure), measure, cached),
            *analysis.ranking_findings(ranking),
            *(() if base_findings or measure.name != "score" else analysis.missing_scores(measure)),
        ),
        claims=evaluate_claims(loaded, builtin_claims()),
        published=all_published(loaded, builtin_publications()),
        verdicts=stored_verdicts(results, loaded.campaigns[0].host, disk),
        trade_offs=usual_front(analysis) if len(observations.cells) <= TRADE_OFF_CELLS else None,
        density=density,
    )
    return replace(
        contents, bandwidth_series=_time_series(results, loaded, contents.featured, scored)
    )


def from_page_cache(
    sums: Iterable[CellSums], cells: Mapping[str, MeasuredCell]
) -> dict[MeasuredCell, tuple[str, ...]]:
    """For each cell, the measurements whose bytes mostly did not reach the device."""
    cached: dict[MeasuredCell, list[str]] = {}
    for one in sums:
        requested, reached = one.requested_bytes, one.device_bytes
        if requested and reached is not None and reached < FROM_CACHE_BELOW * requested:
            cell = cells[one.cell]
            if not cell.is_null:
                cached.setdefault(cell, []).append(one.measurement)
    return {cell: tuple(sorted(names)) for cell, names in cached.items()}


def _measure(scored: Scored) -> MeasureKey:
    """The overall score if any cell has it, else the first bandwidth, else the first measure."""
    used = scored.observations.used
    if scored.overall in used:
        return scored.overall
    return first_measure(scored.observations)


def _scores_first(scored: Scored) -> list[MeasureKey]:
    return sorted(scored.observations.used, key=lambda key: (key.name != "score", key))


def _checked_measures(scored: Scored, measure: MeasureKey) -> tuple[MeasureKey, ...]:
    """The measures whose single values are checked: those that the ranking shows."""
    if measure.name != "score":
        return (measure,)
    used = set(scored.observations.used)
    scores = [MEAN] if scored.overall == MEAN else [score.key for score in Score]
    return tuple(key for key in scores if key in used)


def _evidence_diagnostics(
    results: Store, loaded: Loaded, examples: Sequence[Example], sums: Iterable[CellSums]
) -> Iterator[Diagnostic]:
    """Diagnostics from evidence and host; the page cache has its own column in the table."""
    yield from direct_diagnostics(examples, loaded.cells)
    yield from queue_diagnostics(examples)
    yield from age_diagnostics(examples, loaded.cells)
    yield from host_diagnostics(loaded.campaigns, loaded.observations.cells)
    for diagnostic in load_evidence_diagnostics(results, loaded, sums):
        if not isinstance(diagnostic, FromPageCache):
            yield diagnostic


def _time_series(
    results: Store, loaded: Loaded, cells: tuple[MeasuredCell, ...], scored: Scored
) -> tuple[BandwidthSeries, ...]:
    """The bandwidth over time of some cells, in their order."""
    measured = loaded.cells
    fingerprints = [fingerprint for fingerprint, cell in measured.items() if cell in cells]
    series = results.bandwidth_series(loaded.ids, fingerprints)
    roles = () if scored.roles is None else [key.name for key in scored.roles.measures.values()]
    names = dict.fromkeys(run.measurement for run in series)
    chosen = [name for name in dict.fromkeys(roles) if name in names] or list(names)
    drawn = bandwidth_series(series, measured, chosen[:MOST_TIME_SERIES])
    return tuple(sorted(drawn, key=lambda drawn_run: (cells.index(drawn_run.cell), drawn_run.run)))


def _recommendation(analysis: Analysis) -> tuple[RecommendAnswer | None, str]:
    """The recommendation for the default needs, or why there is none."""
    try:
        return recommend(analysis, with_default(())), ""
    except PlanError as error:
        hint = f" ({error.hint})" if error.hint else ""
        return None, f"Nothing can be recommended yet: {error}{hint}."
