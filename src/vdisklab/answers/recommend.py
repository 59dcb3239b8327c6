"""`recommend`: the path to use, its rivals, and what each need costs."""

from __future__ import annotations

import math
import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

import numpy as np

from vdisklab.analysis.candidates import (
    Price,
    RatioOf,
    Recommendation,
    candidates,
    qualified,
    ratio_of,
    recommend_path,
)
from vdisklab.analysis.diagnostics.caveats import Caveats
from vdisklab.analysis.diagnostics.diagnostic import Diagnostic
from vdisklab.analysis.diagnostics.ranked import more_imports
from vdisklab.analysis.diagnostics.recorded import ThinImage, has_open_load, has_sustained
from vdisklab.analysis.fleet.agreement import Agreement, agreement
from vdisklab.analysis.fleet.host_ranks import MIN_HOSTS
from vdisklab.analysis.intervals import MIN_ROUNDS
from vdisklab.analysis.observations import MeasureKey, Observations, narrowed
from vdisklab.analysis.paired_ratios import Ratio
from vdisklab.analysis.race import RaceOutcome
from vdisklab.analysis.rank_intervals import Ranked
from vdisklab.analysis.score import DEFAULT_METRIC, MEAN, MIX, Score, add_mix, without_mix
from vdisklab.analysis.summary import Level, Summaries, Summary, levels, summarise
from vdisklab.analysis.sums import RelativeSums
from vdisklab.answers.analysis import Analysis, no_speed
from vdisklab.answers.choice import (
    Decision,
    PathChoice,
    as_ranked,
    decided_among,
    in_agreement,
    level_as_ranked,
    nothing_shown,
    only,
    raced_metric,
    rounds_of,
)
from vdisklab.answers.density import searched_capacity
from vdisklab.answers.during import paths_of_operations
from vdisklab.answers.hosts import HostsAnalysis, OverHosts
from vdisklab.answers.life import measured_lives
from vdisklab.answers.loading import first_measure, newest_campaign, place_options, stored_place
from vdisklab.answers.measured_for import measured_operations
from vdisklab.answers.raced import race_of
from vdisklab.answers.tell_apart import (
    imported_campaign,
    more_rounds_command,
    race_command,
    surer,
    with_default_cache,
)
from vdisklab.documents import RARE, Answer
from vdisklab.errors import PlanError
from vdisklab.host.mounts import is_visible_directory
from vdisklab.path.cell import MeasuredCell, numbers_of_guests
from vdisklab.path.disk_path import Attachment, DiskPath, parse_path
from vdisklab.path.durability import (
    CrashVerdicts,
    Durability,
    DurabilityKind,
    HostDisk,
    durability,
)
from vdisklab.path.needs import (
    DURABLE,
    FLUSH_AGAIN,
    Need,
    NeedKind,
    example_of,
    measured_stall,
    meets,
    unmet,
    with_error_policy,
)
from vdisklab.path.platforms import NEW_GUEST_DISKS, Platform
from vdisklab.path.segments import HOST, CacheMode
from vdisklab.path.stalls import DEFAULT_STALL
from vdisklab.results.model import Better, Campaign
from vdisklab.value import HIDDEN, Value, field, replace

_NEXT = 5
"""How many of the next paths are compared with the first, beside all that tie with it."""


class TooFewRoundsError(PlanError):
    """No path has the rounds that an answer needs; the hint continues the campaign."""


class Alternative(Value):
    """A path that meets all needs."""

    cell: MeasuredCell
    place: Annotated[Ranked | None, "its rank among these paths; null without one"]
    medians: Annotated[Mapping[MeasureKey, Summary], "over rounds, with their 95 % intervals"]
    level: Annotated[
        Level | None,
        "by which paths are ordered: the geometric mean of the deciding measure over rounds",
    ]
    ratio: Annotated[
        Ratio | None,
        "how many times as good as the recommended path; null for the recommended path itself, "
        "and for paths far behind",
    ]
    power_cut: Durability
    hosts: Annotated[
        Agreement | None, RARE, "with --hosts: this path / the recommended one, for the first six"
    ] = None
    ordered_by: Annotated[Summary | None, HIDDEN] = None

    def shown(self, measure: MeasureKey) -> Summary | None:
        """The number to show: the level of the measure that decides, the median of any other."""
        by = self.ordered_by
        return by if by is not None and by.measure == measure else self.medians.get(measure)


class MetByAll(Value):
    """A need that all measured `paths` meet, `tested` of them by simulated power cuts."""

    need: Need
    paths: int
    tested: int = 0


class RecommendAnswer(Answer):
    """`vdisklab recommend`: the path to use, and why."""

    FORMAT = "vdisklab.recommend/4"

    campaigns: tuple[Campaign, ...]
    caveats: Caveats
    path: Annotated[str, "the disk path to use, with the error policy that the needs ask for"]
    policy_added: Annotated[bool, "true if it was measured without that policy"]
    recommendation: Recommendation
    choice: PathChoice
    shows: Annotated[
        float | None,
        "the lead that these rounds show in about 80 % of simulated campaigns with this noise and "
        "with rivals close behind (in 54 to 97 % with uneven noise): 0.25 is 25 %",
    ]
    rounds_for_10_percent: Annotated[
        int | None, "rounds that would show a lead of 10 % as `shows` does; null above 1,000"
    ]
    default_measured_in: Annotated[
        str | None, "another campaign of this host, if only that measured QEMU's default"
    ]
    lives_measured_in: Annotated[
        str | None,
        "if disposable disks are asked for: another campaign of this host, if only that measured "
        "how disks are made from a template",
    ]
    over_platforms: Annotated[
        Mapping[Platform, Ratio | None],
        "ratio to a new guest's disk by platform, as far as measured; null for the same path. The "
        "ranks, which compare all paths at once, set an end that is exactly 1",
    ]
    host_disk: Annotated[HostDisk, "the host's disk in a power cut, as --disk says"]
    baseline: Annotated[MeasuredCell, "the cell that scores and ratios relate to"]
    rates: Annotated[
        tuple[MeasureKey, ...], "the measures whose mean decides, for a profile without the score"
    ]
    measures: Annotated[tuple[MeasureKey, ...], "the measure that decides, and its parts"]
    alternatives: Annotated[tuple[Alternative, ...], "best first"]
    requests: Annotated[
        Mapping[MeasuredCell, RelativeSums],
        "what a request cost on the path, and on the paths that it is compared with",
    ]
    findings: tuple[Diagnostic, ...]
    left_out: Annotated[
        Mapping[MeasuredCell, str], "paths that do not meet the needs besides `durable`, and why"
    ]
    race: Annotated[RaceOutcome | None, "what the race has shown that decides, if one was run"]
    hosts: Annotated[OverHosts | None, "with --hosts; rounds are hosts then"] = None
    stalls: Annotated[Mapping[Need, str | None], HIDDEN] = field(default_factory=dict)
    """For each need that goes by measured operations what the path's did, in words; None where none
    was measured there."""
    there: Annotated[str, HIDDEN] = ""
    """The options of `run` that name the place of the campaign, to measure operations there."""
    run_on: Annotated[str | None, HIDDEN] = None
    """The host on which commands that measure more must run; None if that is this one."""
    met_by_all: Annotated[tuple[MetByAll, ...], HIDDEN] = ()
    """The needs that the user wrote and that every measured path meets, so that they decide
    nothing."""
    sustained: Annotated[bool, HIDDEN] = False
    """True if writes count with the time until they are on the disk."""
    beside_default: Annotated[str, HIDDEN] = ""
    """The command that measures this path beside itself with QEMU's default cache mode, if no
    campaign of this host did."""

    @property
    def order(self) -> tuple[MeasuredCell, ...]:
        """The qualified cells, best first."""
        return tuple(row.cell for row in self.alternatives)


def recommend(
    analysis: Analysis, needs: tuple[Need, ...], weights: str | None = None
) -> RecommendAnswer:
    """The best path that meets all needs. Raises PlanError if there is none."""
    _require_comparable(analysis, weights, needs)
    hosts = analysis if isinstance(analysis, HostsAnalysis) else None
    if hosts is None and not candidates(analysis.observations.cells):
        raise _nothing_to_recommend(analysis, analysis.observations, needs, Score.OVERALL.key)
    observations, measure, shown = weighted(analysis, weights)
    observations = analysis.values(measure, observations)
    meeting = qualified(observations, needs, analysis.verdicts)
    if hosts is None and rounds_of(observations, meeting) < MIN_ROUNDS:
        raise _nothing_to_recommend(analysis, observations, needs, measure)
    decision = _decision(analysis, observations, measure, meeting)
    found = recommend_path(
        observations,
        measure,
        needs,
        analysis.verdicts,
        analysis.ranked_by,
        decided=() if decision.choice is None else decision.choice.tied,
    )
    if hosts is not None and (found is None or not found.ranking.rows):
        raise _nothing_for_all(hosts, needs)
    if found is None:
        raise _nothing_to_recommend(analysis, observations, needs, measure)
    if hosts is not None:
        shown = (measure,)
    choice = decision.choice or only(analysis, found.cell, decision.ranking)
    choice = replace(choice, surer=surer(analysis, choice, decision, needs))
    found = replace(found, ranking=decision.ranking)
    best, chosen = found.ranking.best, found.cell
    alone = analysis.ranked_by.ratio_of(observations, measure)
    ordered = levels(observations, measure, found.ranking)

    def ratio(cell: MeasuredCell, other: MeasuredCell) -> Ratio:
        ordering = _by_levels(alone(cell, other), ordered.get(cell), ordered.get(other))
        return choice.holds(ordering, cell, other)

    pair = alone if hosts is not None else partial(ratio_of, observations, measure)

    def as_compared(cell: MeasuredCell, other: MeasuredCell) -> Ratio:
        """The ratio of a sentence, which `compare` prints of the same pair."""
        return choice.holds(
            as_ranked(pair(cell, other), cell, other, decision.ranking), cell, other
        )

    found = replace(
        found.with_ratios(as_compared),
        prices=tuple(_prices(analysis, observations, found, meeting)),
    )
    summaries = {
        key: analysis.summaries(key) if weights is None else summarise(observations, key)
        for key in shown
    }
    of_baseline = ordered.get(analysis.baseline)
    alternatives = tuple(_alternatives(found, summaries, ratio, ordered, of_baseline))
    configured = _with_policy(chosen, needs, analysis.verdicts)
    answer = RecommendAnswer(
        campaigns=analysis.campaigns,
        caveats=analysis.caveats,
        path=chosen.name if configured is None else configured,
        policy_added=configured is not None,
        recommendation=found,
        choice=choice,
        shows=None if best is None else best.shows,
        rounds_for_10_percent=None if best is None else best.rounds_for(0.1),
        default_measured_in=None if found.default else _default_elsewhere(analysis, chosen),
        lives_measured_in=_lives_elsewhere(analysis, needs),
        over_platforms=dict(_over_platforms(observations, chosen, as_compared)),
        host_disk=analysis.verdicts.disk,
        baseline=analysis.baseline,
        rates=analysis.scored.rates if measure == analysis.scored.overall else (),
        measures=shown,
        alternatives=alternatives,
        requests={
            cell: analysis.relative_sums[cell]
            for cell in _explaining(found, [row.cell for row in alternatives])
            if cell in analysis.relative_sums
        },
        findings=(
            *analysis.fewest_of_several(_this_command(needs, weights)),
            *in_agreement(choice, analysis.ranking_findings(found.ranking)),
            *analysis.missing_scores(measure),
            *(without_mix(observations, analysis.baseline, shown[1:]) if measure == MIX else ()),
            *_grown(analysis, chosen),
        ),
        left_out={
            cell: "; ".join(lacking.values())
            for cell, path in candidates(observations.cells).items()
            if (lacking := _lacking(path, needs, analysis.verdicts))
        },
        race=decision.race,
        met_by_all=tuple(_met_by_all(observations, needs, analysis.verdicts)),
        stalls={
            need: measured_stall(chosen.path, need, analysis.verdicts)
            for need in needs
            if need.goes_by_stalls and chosen.path is not None
        },
        there=place_options(analysis.campaigns[0]),
        run_on=analysis.run_on,
        sustained=has_sustained(analysis.loaded.observations),
        beside_default=""
        if found.default or hosts
        else _beside_default(analysis, chosen, measure, needs),
    )
    return answer if hosts is None else _with_hosts(answer, hosts)


def _decision(
    analysis: Analysis,
    observations: Observations,
    measure: MeasureKey,
    meeting: Collection[MeasuredCell],
) -> Decision:
    """The decision among the cells that meet some needs; a race decides if it went by the score."""
    raced = measure != MIX and not isinstance(analysis, HostsAnalysis)
    race = race_of(analysis, meeting) if raced else None
    ranking = analysis.ranked_by.among(observations, measure, meeting)
    return decided_among(analysis, ranking, race, observations)


def _prices(
    analysis: Analysis,
    observations: Observations,
    found: Recommendation,
    meeting: Collection[MeasuredCell],
) -> Iterator[Price]:
    """What each need costs: the decision that `recommend` prints without this need, and the ratio
    of the two paths alone, as `compare` prints it.

    A need has no price if nothing is decided among the paths that qualify without it.
    """
    for need in found.needs:
        still_needed = [each for each in found.needs if each != need]
        able = qualified(observations, still_needed, analysis.verdicts)
        if set(able) == set(meeting):
            yield Price(need, found.cell, None)
            continue
        decision = _decision(analysis, observations, found.measure, able)
        if decision.choice is None:
            continue
        best = decision.choice.cell
        ratio = ratio_of(observations, found.measure, best, found.cell)
        yield Price(need, best, None if best == found.cell else ratio)


def _by_levels(ratio: Ratio, of: Summary | None, to: Summary | None) -> Ratio:
    """The ratio of the numbers that order the table, which are corrected for rounds that a cell
    lacks; the interval moves with it."""
    if ratio.ratio is None or not ratio.ratio or of is None or to is None:
        return ratio
    first, second = of.median, to.median
    if of.measure.quantity.better is Better.LOWER:
        first, second = second, first
    if not first > 0 or not second > 0:
        return ratio
    moved = first / second / ratio.ratio
    return replace(
        ratio,
        ratio=first / second,
        low=None if ratio.low is None else ratio.low * moved,
        high=None if ratio.high is None else ratio.high * moved,
    )


def _met_by_all(
    observations: Observations, needs: Sequence[Need], verdicts: CrashVerdicts
) -> Iterator[MetByAll]:
    """The needs that the user wrote and that every path which a guest could use meets."""
    paths = list(candidates(observations.cells).values())
    kept = sum(durability(path, verdicts).kind is DurabilityKind.KEPT_IN_TEST for path in paths)
    for need in needs:
        if not need.implied and all(meets(path, need, verdicts) for path in paths):
            yield MetByAll(need, len(paths), kept if need.goes_by_power_cuts else 0)


def _lacking(path: DiskPath, needs: Sequence[Need], verdicts: CrashVerdicts) -> Mapping[Need, str]:
    """Why a path does not meet the needs, whatever its error policy.

    Who loses flushed data has a column, and is left out without being asked.
    """
    asked = [need for need in needs if need != DURABLE]
    return unmet(with_error_policy(path, asked, verdicts), asked, verdicts)


def _with_policy(
    chosen: MeasuredCell, needs: Sequence[Need], verdicts: CrashVerdicts
) -> str | None:
    """The path with the error policy that the needs ask for; None if it has that."""
    if chosen.path is None:
        return None
    configured = with_error_policy(chosen.path, needs, verdicts)
    return None if configured == chosen.path else str(configured)


def _with_hosts(answer: RecommendAnswer, analysis: HostsAnalysis) -> RecommendAnswer:
    """The answer, with the hosts' results added."""
    chosen, measure = answer.recommendation.cell, answer.recommendation.measure
    numbers = analysis.numbers(measure)
    rivals = [cell for cell in answer.order[: _NEXT + 1] if cell != chosen]
    over = {cell: agreement(numbers, measure, cell, chosen) for cell in rivals}
    return replace(
        answer,
        alternatives=tuple(replace(row, hosts=over.get(row.cell)) for row in answer.alternatives),
        hosts=analysis.over_hosts(measure, (chosen, *rivals), answer.order, chosen),
    )


def _nothing_for_all(analysis: HostsAnalysis, needs: Sequence[Need]) -> PlanError:
    """Why no path is recommended for these hosts, and what to do."""
    if len(analysis.hosts) < MIN_HOSTS:
        return PlanError(
            f"a recommendation for a fleet needs {MIN_HOSTS} hosts, and {len(analysis.hosts)} have "
            "results of this plan",
            hint="measure more hosts, or leave out --hosts for the answer of one",
        )
    if analysis.groups < MIN_HOSTS:
        return PlanError(
            f"a recommendation for a fleet needs {MIN_HOSTS} independent hosts, and these "
            f"{len(analysis.hosts)} share racks or arrays: they are {analysis.groups} groups",
            hint="measure hosts in other racks, or leave out --hosts for the answer of one",
        )
    paths = candidates(analysis.observations.cells).values()
    refusal = none_meets(paths, needs, analysis.verdicts) if paths else None
    meeting = f" and that meets {_joined(needs)}" if needs else ""
    return refusal or PlanError(
        f"no path that a guest could use{meeting} was measured on {MIN_HOSTS} hosts",
        hint="measure them on every host: `vdisklab run PATHS… --db postgresql://…`",
    )


def _alternatives(
    found: Recommendation,
    summaries: Mapping[MeasureKey, Summaries],
    ratio: RatioOf,
    ordered: Summaries,
    of_baseline: Summary | None,
) -> Iterator[Alternative]:
    """The paths that meet all needs, best first; without a ranking only the recommended one."""
    places = {row.cell: row for row in found.ranking.rows}
    order = list(places) or list(found.durability)
    for place, cell in enumerate(order):
        level = ordered.get(cell)
        yield Alternative(
            cell=cell,
            place=places.get(cell),
            medians={key: of[cell] for key, of in summaries.items() if cell in of},
            level=Level.of(level),
            ratio=ratio(cell, found.cell)
            if cell != found.cell and (place <= _NEXT or cell in found.ties)
            else None,
            power_cut=found.durability[cell],
            ordered_by=level_as_ranked(level, cell, of_baseline, found.ranking),
        )


def _explaining(found: Recommendation, order: Sequence[MeasuredCell]) -> dict[MeasuredCell, None]:
    """The recommended cell and those whose counters explain the order.

    They are the runner-up, QEMU's default, and the first cell shown to be worse: tied cells are
    often similar, so only a worse cell shows the reason.
    """
    worse = next((row.cell for row in found.ranking.rows if row.best > 1), None)
    compared = (found.cell, *order[1:2], found.default, worse)
    return dict.fromkeys(cell for cell in compared if cell is not None)


def _require_comparable(analysis: Analysis, weights: str | None, needs: Sequence[Need]) -> None:
    """Raises PlanError for rates that are given, and for different numbers of guests."""
    ordered = [campaign for campaign in analysis.campaigns if measured_operations(campaign)]
    if ordered:
        paths = " ".join(paths_of_operations(ordered[0]))
        machine = ordered[0].host.machine_id
        speed = newest_campaign(
            analysis.results,
            lambda each: (
                each.host.machine_id == machine
                and not measured_operations(each)
                and not searched_capacity(each.plan)
            ),
        )
        asked = [f"--need {need}" for need in needs if not need.implied] or ["--need backup"]
        if analysis.stalls.limit != DEFAULT_STALL:
            asked.append(f"--stall {analysis.stalls.limit:.12g}")
        speed_too = f"vdisklab run {paths} host {place_options(ordered[0])}".rstrip()
        on = "" if analysis.run_on is None else f" on {analysis.run_on}"
        both = (
            f"measure speed{on} with `{speed_too}`, then repeat this command without "
            "--campaign: it takes both into account"
        )
        if speed is not None:
            command = f"vdisklab recommend {' '.join(asked)} --campaign {speed.id}"
            both = f"`{command}` takes both into account"
        raise no_speed(ordered[0], both)
    searched = [campaign.id for campaign in analysis.campaigns if searched_capacity(campaign.plan)]
    if searched and weights is None:
        raise PlanError(
            f"the campaign {searched[0]} searched how many guests each path carries",
            hint="`vdisklab recommend --guests N` names the paths that carry N",
        )
    numbers = numbers_of_guests(analysis.loaded.observations.cells)
    if len(numbers) > 1:
        observations, verdicts = analysis.loaded.observations, analysis.verdicts
        measured = candidates(observations.cells).values()
        there = stored_place(analysis.campaigns[0])
        unmet_by_all = none_meets(measured, needs, verdicts, there, on=analysis.run_on)
        if unmet_by_all is not None:
            raise unmet_by_all
        most = numbers_of_guests(qualified(observations, needs, verdicts))[-1]
        command = f"{_this_command(needs, weights)} --guests {most}"
        which = ", ".join(map(str, numbers))
        raise PlanError(
            f"paths were measured in {which} guests at once, and different numbers of guests "
            "cannot be compared",
            hint=f"name one number: `{command}`",
        )
    if weights is None and any(has_open_load(campaign.plan) for campaign in analysis.campaigns):
        raise PlanError(
            "the load was open, so the rates show the load that was set, not what a path can do",
            hint="weigh a latency, such as --weights randwrite-4k-open/write/latency_p99=1",
        )


def _this_command(needs: Sequence[Need], weights: str | None) -> str:
    asked = [f"--need {need}" for need in needs if not need.implied]
    asked += [] if weights is None else [f"--weights {shlex.quote(weights)}"]
    return " ".join(("vdisklab recommend", *asked))


def _default_elsewhere(analysis: Analysis, chosen: MeasuredCell) -> str | None:
    """Another campaign of this host with QEMU's default beside the path's image and layers."""
    path, machine = chosen.path, analysis.campaigns[0].host.machine_id
    if path is None or isinstance(analysis, HostsAnalysis):
        return None
    usual = replace(path, cache=CacheMode.WRITEBACK)
    wanted = {usual.canonical, replace(usual, cache=CacheMode.DEFAULT).canonical}
    wanted |= {replace(usual, attachment=Attachment()).canonical}
    for campaign in analysis.results.campaigns(with_runs=True):
        measured = {cell.name for cell in campaign.cells}
        is_own = campaign.id in analysis.loaded.ids  # planned there, but without numbers
        if campaign.host.machine_id == machine and wanted & measured and not is_own:
            return campaign.id
    return None


def _beside_default(
    analysis: Analysis, chosen: MeasuredCell, measure: MeasureKey, needs: Sequence[Need]
) -> str:
    """The command that races a path, by the answer's measure, beside itself with QEMU's default
    cache mode: numbers of the default alone, in a campaign of their own, would stand beside
    nothing. Empty if no race goes by the measure."""
    usual, metric = with_default_cache(chosen), raced_metric(analysis, measure)
    if usual is None or metric is None:
        return ""
    cells = (chosen, usual)
    command = race_command(analysis, cells, metric, needs)
    if command is not None or metric != DEFAULT_METRIC:
        return command or ""
    here = place_options(analysis.campaigns[0])
    return f"vdisklab run {shlex.join(cell.name for cell in cells)} {here}".rstrip()


def _lives_elsewhere(analysis: Analysis, needs: Sequence[Need]) -> str | None:
    """The newest campaign of this host with disks that were made from a template."""
    asked = any(need.kind is NeedKind.DISPOSABLE for need in needs)
    if not asked or isinstance(analysis, HostsAnalysis):
        return None
    if any(map(measured_lives, analysis.campaigns)):
        return None
    machine = analysis.campaigns[0].host.machine_id
    found = newest_campaign(
        analysis.results,
        lambda each: each.host.machine_id == machine and measured_lives(each),
    )
    return None if found is None else found.id


def _grown(analysis: Analysis, cell: MeasuredCell) -> Iterator[ThinImage]:
    """The diagnostic of a cell whose new image grew while it was measured."""
    image = None if cell.path is None else cell.path.image
    if image is not None and image.is_thin:
        for entry in analysis.evidence:
            if isinstance(entry, ThinImage) and cell in entry.cells:
                yield entry


def _over_platforms(
    observations: Observations, chosen: MeasuredCell, ratio: RatioOf
) -> Iterator[tuple[Platform, Ratio | None]]:
    """The ratio of the chosen cell to each platform's default disk; None if they are the same.

    If a default was measured on several host layers, the chosen cell's layers count.
    """
    paths = candidates(observations.cells)
    bare = {cell: replace(path, layers=()).spelled_out for cell, path in paths.items()}
    for platform, disk in NEW_GUEST_DISKS.items():
        default = parse_path(disk.path).spelled_out
        alike = [cell for cell, path in bare.items() if path == default]
        alike.sort(key=lambda cell: (paths[cell].layers != paths[chosen].layers, cell))
        for cell in alike[:1]:
            yield platform, None if cell == chosen else ratio(chosen, cell)


def weighted(
    analysis: Analysis, weights: str | None
) -> tuple[Observations, MeasureKey, tuple[MeasureKey, ...]]:
    """The observations with the measure that decides, that measure, and those to show."""
    scored, observations = analysis.scored, analysis.observations
    if weights is None:
        if scored.overall is None:
            raise PlanError(
                f"{analysis.why_no_score(DEFAULT_METRIC)}, so the deciding measure is unknown",
                hint=f"name it: --weights {analysis.example_measure}=1"
                if analysis.baseline in observations.place
                else f"measure {analysis.baseline} in the same campaign, or rank by one measure: "
                f"`vdisklab rank --metric {analysis.example_measure}`",
            )
        return observations, MEAN, (MEAN,)
    chosen = parse_weights(analysis, weights)
    if analysis.baseline not in observations.cells:
        raise PlanError(
            f"weights need the baseline {analysis.baseline}, which was not measured",
            hint="measure it in the same campaign",
        )
    return add_mix(observations, analysis.baseline, chosen), MIX, (MIX, *chosen)


def parse_weights(analysis: Analysis, text: str) -> Mapping[MeasureKey, float]:
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
        key = analysis.measure(name)
        weights[key] = weights.get(key, 0.0) + weight
    if not sum(weights.values()) > 0:
        raise PlanError("all weights are zero", hint="write weights like read=3,write=1")
    return {key: weight for key, weight in weights.items() if weight}


def _nothing_to_recommend(
    analysis: Analysis,
    observations: Observations,
    needs: tuple[Need, ...],
    measure: MeasureKey,
) -> PlanError:
    """Why no path is recommended, and what to do."""
    campaigns, verdicts = (
        " and ".join(campaign.id for campaign in analysis.campaigns),
        analysis.verdicts,
    )
    older = analysis.older_answer
    use = f"`vdisklab recommend --campaign {older}` answers; or " if older else ""
    paths = candidates(observations.cells)
    if not paths:
        name = next((cell.name for cell in observations.cells if cell.path is None), None)
        free = f"{name!r} is not a disk path: `vdisklab table` shows it; " if name else ""
        return PlanError(
            f"no path that a guest could use was measured in campaign {campaigns}",
            hint=f"{free}{use}{_places(analysis)}measure some, such as "
            "`vdisklab run ext4/{raw,qcow2}/{none,writeback}`",
        )
    # More rounds do not help if no path meets the needs.
    there = stored_place(analysis.campaigns[0])
    unmet_by_all = none_meets(paths.values(), needs, verdicts, there, on=analysis.run_on)
    if unmet_by_all is not None:
        return unmet_by_all
    usable, command = narrowed(observations, paths), more_rounds_command(analysis)
    rounds = rounds_of(observations, paths)
    on = "" if analysis.run_on is None else f" on {analysis.run_on}"
    more = f"continue{on} with --rounds {MIN_ROUNDS} or more"
    if (into := imported_campaign(analysis)) is not None:
        more = more_imports(MIN_ROUNDS, into)
    continues = more if command is None else f"`{command}`{on} continues"
    if analysis.loaded.measured_now is not None:
        continues = f"{analysis.loaded.measured_now}; ask again later"
    if rounds < MIN_ROUNDS:
        return TooFewRoundsError(nothing_shown(rounds), hint=f"{use}{continues}")
    if not np.isfinite(usable.grid(measure)).any():
        return PlanError(
            "no path has a score: a measurement that it is computed from, or the baseline, is "
            "missing, or the baseline's is zero",
            hint="see `vdisklab rank`, or name the deciding measure: --weights "
            f"{shlex.quote(str(first_measure(usable)))}=1",
        )
    which = "no path"
    if needs:
        is_usual = tuple(needs) == (DURABLE,)
        which = "no durable path" if is_usual else f"no path that meets {_joined(needs)}"
    if rounds_of(observations, qualified(observations, needs, verdicts)) < MIN_ROUNDS:
        problem = f"{which} was measured in {MIN_ROUNDS} rounds"
    else:
        problem = f"{which} has each measurement of the score in {MIN_ROUNDS} rounds"
    return PlanError(problem, hint=f"{use}see `vdisklab rank` for the reason; {continues}")


def _places(analysis: Analysis) -> str:
    """The clause with the command that shows places measured by `run --here` side by side; empty
    unless the campaign and another of this host have the host's own speed alone.
    """
    newest = analysis.campaigns[0]
    places = {
        str(campaign.plan.get("directory")): campaign.id
        for campaign in reversed([newest, *analysis.results.campaigns(with_runs=True)])
        if campaign.host.machine_id == newest.host.machine_id and _is_of_place(campaign)
    }
    if len(places) < 2 or not _is_of_place(newest):
        return ""
    named = " ".join(f"--campaign {id}" for id in places.values())
    return f"`vdisklab table {named}` shows the places side by side; or "


def _is_of_place(campaign: Campaign) -> bool:
    """True for a campaign that measured nothing but a directory as it is."""
    return {cell.name for cell in campaign.cells} == {HOST}


def _joined(needs: Iterable[Need]) -> str:
    return " and ".join(map(str, needs))


def _is_there(directory: str) -> bool:
    """True for a directory, quoted for a shell, that this host has."""
    return is_visible_directory(Path(*shlex.split(directory)))


def none_meets(
    paths: Collection[DiskPath],
    needs: Sequence[Need],
    verdicts: CrashVerdicts,
    there: str = "",
    *,
    on: str | None = None,
) -> PlanError | None:
    """The error if none of the measured paths meets all needs; None if one does. `there` are the
    options of `run` that name the place where they were measured, `on` is its host if that is not
    this one."""
    reasons = {path: unmet(path, needs, verdicts) for path in paths}
    lacking = [set(found) for found in reasons.values()]
    if set() in lacking:
        return None
    problem = f"none of the {len(paths)} measured paths meets {_joined(needs)}"
    if len(reasons) == 1:
        problem = f"{next(iter(reasons))}, the only measured path, does not meet {_joined(needs)}"
    reason = verdicts.without_flushes
    if reason is not None and any(need.goes_by_power_cuts for need in needs):
        return PlanError(f"{problem}: {reason}", hint=f"{FLUSH_AGAIN}; or add --unsafe")
    for path, found in reasons.items():
        if found and all(need.goes_by_stalls for need in found):
            (need, why), *_ = found.items()
            return PlanError(
                f"{problem}: on {path} {why}",
                hint=f"choose a longer --stall, or {need.way_out}",
            )
    example = example_of(needs)
    decisive = next((need.way_out for need in needs if {need} in lacking), None)
    if example is None:
        ways = [f"these needs contradict each other: {decisive or 'leave one out'}"]
    else:
        where = "" if on is None else f" on {on}"
        option, _, directory = there.partition(" ")
        is_gone = on is None and option == "--dir" and not _is_there(directory)
        gone = f" (in the current directory, as {directory} is gone)" if is_gone else ""
        command = f"vdisklab run {example} host {'' if is_gone else there}".rstrip()
        ways = [f"measure a path that qualifies{where}: `{command}`{gone}"]
        ways[:0] = [] if decisive is None else [decisive]
    return PlanError(problem, hint=", or ".join(ways))
