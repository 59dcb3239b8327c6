"""Answers of the verbs `rank`, `compare` and `recommend`, from the measured cells."""

from __future__ import annotations

import math
import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from vdisklab.analysis.candidates import Recommendation, candidates, ratio_of, recommend_path
from vdisklab.analysis.diagnostics.caveats import Caveats
from vdisklab.analysis.diagnostics.diagnostic import Diagnostic
from vdisklab.analysis.diagnostics.ranked import (
    dropped_by_search,
    ranking_diagnostics,
)
from vdisklab.analysis.diagnostics.recorded import (
    ThinImage,
    has_open_load,
)
from vdisklab.analysis.diagnostics.values import (
    bimodal_diagnostics,
    ceiling_diagnostics,
    drift_diagnostics,
    first_round_diagnostics,
)
from vdisklab.analysis.intervals import MIN_ROUNDS
from vdisklab.analysis.observations import MeasureKey, Observations, narrowed
from vdisklab.analysis.paired_ratios import Ratio
from vdisklab.analysis.score import (
    MEAN,
    MIX,
    NoScore,
    Score,
    Scored,
    add_mix,
    add_scores,
    without_mix,
)
from vdisklab.analysis.summary import Summary, summarise
from vdisklab.analysis.sums import RelativeSums, relative_sums
from vdisklab.answers.density import searched_capacity
from vdisklab.answers.loading import (
    Loaded,
    baseline_of,
    find_measure,
    first_measure,
    load,
    load_evidence_diagnostics,
    require_numbers,
    stored_verdicts,
)
from vdisklab.errors import PlanError
from vdisklab.path.cell import MeasuredCell, numbers_of_guests
from vdisklab.path.disk_path import DiskPath, parse_path
from vdisklab.path.durability import CrashVerdicts, HostDisk
from vdisklab.path.needs import Need, example_of, unmet
from vdisklab.path.platforms import NEW_GUEST_DISKS, Platform
from vdisklab.results.model import Campaign
from vdisklab.results.store import Store
from vdisklab.units import counted

DEFAULT_METRIC = "overall"
SCORES = {DEFAULT_METRIC: Score.OVERALL, "read": Score.READ, "write": Score.WRITE}


@dataclass(frozen=True, slots=True)
class RecommendationAnswer:
    """A recommendation with its explanation. `summaries` has one entry per column shown.

    `ratios` are those of the next cells to the first; `lead` is the ratio of the leader of a tie to
    the recommended cell, None if that leads. `over_platforms` are the recommended cell's ratios to
    the disks that platforms give new guests, as far as they were measured; None for its own.
    `verdicts` are from power cuts on the same host.
    """

    campaigns: tuple[Campaign, ...]
    caveats: Caveats
    recommendation: Recommendation
    summaries: Mapping[MeasureKey, Mapping[MeasuredCell, Summary]]
    ratios: Mapping[MeasuredCell, Ratio]
    relative_sums: Mapping[MeasuredCell, RelativeSums]
    findings: tuple[Diagnostic, ...]
    lead: Ratio | None = None
    rates: tuple[MeasureKey, ...] = ()
    """The measures whose mean decides, for a profile without the score's measurements."""
    over_platforms: Mapping[Platform, Ratio | None] = field(default_factory=dict)
    verdicts: CrashVerdicts = field(default_factory=CrashVerdicts)

    @property
    def path(self) -> str:
        """The recommended disk path."""
        return self.recommendation.cell.name

    @property
    def order(self) -> tuple[MeasuredCell, ...]:
        """The qualified cells, best first."""
        ranked = tuple(row.cell for row in self.recommendation.ranking.rows)
        return ranked or (self.recommendation.cell,)


def value_diagnostics(
    observations: Observations,
    shown: Collection[MeasureKey],
    measure: MeasureKey,
    cached: Collection[MeasuredCell],
) -> Iterator[Diagnostic]:
    """Diagnostics from the values of the rounds: drift, outlying first rounds, two modes, ceilings.

    `cached` are the cells whose numbers come from the page cache.
    """
    yield from drift_diagnostics(observations, measure)
    yield from first_round_diagnostics(observations, measure)
    for key in shown:
        yield from bimodal_diagnostics(observations, key)
    yield from ceiling_diagnostics(observations, measure, cached)


def missing_scores(scored: Scored, measure: MeasureKey) -> tuple[NoScore, ...]:
    """The cells without the ranked score; only the baseline if that is the cause."""
    missing = tuple(entry for entry in scored.missing if entry.key == measure)
    if missing and (missing[0].baseline_lacking or missing[0].baseline_zero):
        return tuple(entry for entry in missing if entry.cell == scored.baseline) or missing[:1]
    return missing


def measurements_used(scored: Scored, measure: MeasureKey) -> set[str]:
    """The names of the measurements from which the ranked numbers are computed."""
    if measure.name != "score":
        return {measure.name}
    if scored.roles is None or measure == MEAN:
        return {key.name for key in scored.rates}
    return {key.name for key in scored.roles.measures.values()}


def _measures(scored: Scored, metric: str) -> tuple[MeasureKey, tuple[MeasureKey, ...]]:
    """The measure to rank by, and those shown as columns."""
    measure = criterion(scored, metric)
    scores = tuple(score.key for score in Score)
    return measure, scores if metric in SCORES and measure in scores else (measure,)


def _no_score(scored: Scored, metric: str) -> str:
    """Why a profile without the score's four measurements has no score of this name."""
    if metric != DEFAULT_METRIC and scored.overall is not None:
        return f"this campaign's profile has no {metric} score, only the overall one"
    return (
        "this campaign has no scores: its profile has no rate, or the baseline "
        f"{scored.baseline} was not measured"
    )


def answer_recommendation(
    results: Store,
    needs: tuple[Need, ...],
    weights: str | None,
    names: list[str] | None,
    disk: HostDisk | None = None,
) -> RecommendationAnswer:
    """The best path that meets all needs. Raises PlanError if there is none."""
    loaded = load(results, names)
    require_numbers(loaded)
    return recommendation_of(results, loaded, needs, weights, disk=disk)


def recommendation_of(
    results: Store,
    loaded: Loaded,
    needs: tuple[Need, ...],
    weights: str | None = None,
    *,
    worked: Mapping[MeasuredCell, RelativeSums] | None = None,
    disk: HostDisk | None = None,
) -> RecommendationAnswer:
    """Like `answer_recommendation`, for loaded campaigns.

    `worked` has the counters of each cell; it is read from the database if it is None.
    """
    _require_comparable(loaded, weights)
    verdicts = stored_verdicts(results, loaded.campaigns[0].host, disk)
    scored = add_scores(loaded.observations, baseline_of(loaded)[0])
    if not candidates(scored.observations.cells):
        raise _nothing_to_recommend(scored.observations, needs, verdicts, Score.OVERALL.key)
    observations, measure, shown = weighted(scored, weights)
    best = recommend_path(observations, measure, needs, verdicts)
    if best is None:
        raise _nothing_to_recommend(observations, needs, verdicts, measure)
    order = [row.cell for row in best.ranking.rows] or [best.cell]
    if worked is None:
        worked = relative_sums(results.sums(loaded.ids), loaded.cells)
    return RecommendationAnswer(
        campaigns=loaded.campaigns,
        caveats=loaded.caveats,
        recommendation=best,
        summaries={key: summarise(observations, key) for key in shown},
        ratios={cell: ratio_of(observations, measure, cell, order[0]) for cell in order[1:6]},
        lead=ratio_of(observations, measure, best.ties[0], best.cell)
        if best.ties and best.ties[0] != best.cell
        else None,
        rates=scored.rates if measure == scored.overall else (),
        over_platforms=dict(_over_platforms(observations, measure, best.cell)),
        relative_sums=worked,
        findings=(
            *ranking_diagnostics(best.ranking, MIN_ROUNDS, dropped_by_search(loaded.outlines)),
            *missing_scores(scored, measure),
            *(without_mix(observations, scored.baseline, shown[1:]) if measure == MIX else ()),
            *_grown(results, loaded, best.cell),
        ),
        verdicts=verdicts,
    )


def _require_comparable(loaded: Loaded, weights: str | None) -> None:
    """Raises PlanError for rates that are given, and for different numbers of guests."""
    searched = [one.id for one in loaded.campaigns if searched_capacity(one.plan)]
    if searched and weights is None:
        raise PlanError(
            f"the campaign {searched[0]} searched how many guests each path carries",
            hint="`vdisklab recommend --guests N` names the paths that carry N",
        )
    numbers = numbers_of_guests(loaded.observations.cells)
    if len(numbers) > 1:
        raise PlanError(
            f"paths were measured in {', '.join(map(str, numbers))} guests at once, and rates of "
            "different numbers of guests cannot be compared",
            hint="measure one number of guests, or compare two paths with the same number: "
            "`vdisklab compare`",
        )
    if weights is None and any(has_open_load(one.plan) for one in loaded.campaigns):
        raise PlanError(
            "the load was open, so the rates show the load that was set, not what a path can do",
            hint="weigh a latency, such as --weights randwrite-4k-open/write/latency_p99=1",
        )


def _grown(results: Store, loaded: Loaded, cell: MeasuredCell) -> Iterator[ThinImage]:
    """The diagnostic of a cell whose new image grew while it was measured."""
    image = None if cell.path is None else cell.path.image
    if image is not None and image.is_thin:
        for entry in load_evidence_diagnostics(results, loaded):
            if isinstance(entry, ThinImage) and cell in entry.cells:
                yield entry


def _over_platforms(
    observations: Observations, measure: MeasureKey, chosen: MeasuredCell
) -> Iterator[tuple[Platform, Ratio | None]]:
    """The ratio of the chosen cell to each platform's default disk; None if they are the same.

    A default that was measured on several host layers is taken on those of the chosen cell.
    """
    paths = candidates(observations.cells)
    for platform, disk in NEW_GUEST_DISKS.items():
        default = parse_path(disk.path)
        alike = [cell for cell, path in paths.items() if replace(path, layers=()) == default]
        alike.sort(key=lambda cell: (paths[cell].layers != paths[chosen].layers, cell))
        for cell in alike[:1]:
            own = cell == chosen
            yield platform, None if own else ratio_of(observations, measure, chosen, cell)


def weighted(
    scored: Scored, weights: str | None
) -> tuple[Observations, MeasureKey, tuple[MeasureKey, ...]]:
    """The measure that decides, and the measures shown as columns."""
    if weights is None:
        if scored.overall is None:
            raise PlanError(
                f"{_no_score(scored, DEFAULT_METRIC)}, so the deciding measure is unknown",
                hint=f"name it: --weights {_example(scored.observations)}=1"
                if scored.baseline in scored.observations.place
                else f"measure {scored.baseline} in the same campaign, or rank by one measure: "
                f"`vdisklab rank --metric {_example(scored.observations)}`",
            )
        if scored.overall == MEAN:
            return scored.observations, MEAN, (MEAN,)
        return scored.observations, Score.OVERALL.key, tuple(score.key for score in Score)
    chosen = parse_weights(scored, weights)
    if scored.baseline not in scored.observations.cells:
        raise PlanError(
            f"weights need the baseline {scored.baseline}, which was not measured",
            hint="measure it in the same campaign",
        )
    mixed = add_mix(scored.observations, scored.baseline, chosen)
    return mixed, MIX, (MIX, *chosen)


def criterion(scored: Scored, name: str) -> MeasureKey:
    """The measure of a name: overall, read, write, or a measure. Raises PlanError."""
    if name not in SCORES:
        return find_measure(scored.observations, name)
    if name == DEFAULT_METRIC and scored.overall is not None:
        return scored.overall
    if scored.roles is None:
        raise PlanError(
            _no_score(scored, name),
            hint=f"name a measure: `vdisklab rank --metric {_example(scored.observations)}`",
        )
    return SCORES[name].key


def parse_weights(scored: Scored, text: str) -> Mapping[MeasureKey, float]:
    """`read=3,write=1` as measures with weights. Raises PlanError."""
    weights: dict[MeasureKey, float] = {}
    for part in text.split(","):
        name, equals, number = part.strip().rpartition("=")
        try:
            weight = float(number)
        except ValueError:
            weight = -1.0
        if not equals or not name or not 0 <= weight < math.inf:
            raise PlanError(f"{part!r} is not a weight", hint="write weights like read=3,write=1")
        key = criterion(scored, name)
        weights[key] = weights.get(key, 0.0) + weight
    if not sum(weights.values()) > 0:
        raise PlanError("all weights are zero", hint="write weights like read=3,write=1")
    return {key: weight for key, weight in weights.items() if weight}


def _example(observations: Observations) -> str:
    """A measure that has numbers, as an option's value."""
    return shlex.quote(str(first_measure(observations)))


def _nothing_to_recommend(
    observations: Observations,
    needs: tuple[Need, ...],
    verdicts: CrashVerdicts,
    measure: MeasureKey,
) -> PlanError:
    """Why no path is recommended, and what to do."""
    paths = candidates(observations.cells)
    if not paths:
        name = next((cell.name for cell in observations.cells if cell.path is None), None)
        free = f"{name!r} is not a disk path: `vdisklab table` shows it; " if name else ""
        return PlanError(
            "no path that a guest could use was measured",
            hint=f"{free}measure some, such as "
            "`vdisklab run ext4/{raw,qcow2}/{none,writeback}`",
        )
    usable = narrowed(observations, paths)
    rounds = int(usable.rounds_of().max(initial=0))
    if rounds < MIN_ROUNDS:
        return PlanError(
            f"measured in {counted(rounds, 'round')}; a rank needs {MIN_ROUNDS}",
            hint=f"continue the campaign with --rounds {MIN_ROUNDS} or more",
        )
    if not np.isfinite(usable.grid(measure)).any():
        return PlanError(
            f"no path has the measure {measure}: a measurement that it is computed from, or the "
            "baseline, is missing, or the baseline's is zero",
            hint="see `vdisklab rank`, or name the deciding measure: --weights "
            f"{_example(usable)}=1",
        )
    which = f"no path that meets {_joined(needs)}" if needs else "no path"
    return none_meets(paths.values(), needs, verdicts) or PlanError(
        f"{which} has the measure {measure} in {MIN_ROUNDS} rounds",
        hint="see `vdisklab rank` for the reason",
    )


def _joined(needs: Iterable[Need]) -> str:
    return " and ".join(map(str, needs))


def none_meets(
    paths: Collection[DiskPath], needs: Sequence[Need], verdicts: CrashVerdicts
) -> PlanError | None:
    """The error if none of the measured paths meets all needs; None if one does."""
    lacking = [set(unmet(path, needs, verdicts)) for path in paths]
    if set() in lacking:
        return None
    example = example_of(needs)
    decisive = next((need.way_out for need in needs if {need} in lacking), None)
    if example is None:
        ways = [f"these needs contradict each other: {decisive or 'leave one out'}"]
    else:
        ways = [f"measure a path that qualifies: `vdisklab run {example} host`"]
        ways[:0] = [] if decisive is None else [decisive]
    return PlanError(
        f"none of the {len(paths)} measured paths meets {_joined(needs)}", hint=", or ".join(ways)
    )
