"""`rank`: each measured cell with all that is shown beside it, best first."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated

from vdisklab.analysis.candidates import candidates
from vdisklab.analysis.diagnostics.caveats import Caveats
from vdisklab.analysis.diagnostics.diagnostic import Diagnostic
from vdisklab.analysis.diagnostics.ranked import TooFewRounds
from vdisklab.analysis.diagnostics.recorded import SeveralGuests
from vdisklab.analysis.diagnostics.values import RoundsDepend
from vdisklab.analysis.fleet.host_ranks import MIN_HOSTS
from vdisklab.analysis.measure_words import RUNTIME
from vdisklab.analysis.observations import MeasureKey
from vdisklab.analysis.paired_ratios import Ratio
from vdisklab.analysis.race import RaceOutcome
from vdisklab.analysis.rank_intervals import Ranked, Ranking, WithoutRank
from vdisklab.analysis.score import DEFAULT_METRIC, RoleSet
from vdisklab.analysis.summary import Level, Summary
from vdisklab.answers.analysis import Analysis
from vdisklab.answers.choice import (
    Decision,
    PathChoice,
    decide,
    in_agreement,
    level_as_ranked,
)
from vdisklab.answers.hosts import CellOverHosts, HostsAnalysis, OverHosts
from vdisklab.answers.measured_for import measured_operations, runtime_of
from vdisklab.answers.tell_apart import imported_campaign, more_rounds_command, surer
from vdisklab.documents import RARE, Answer
from vdisklab.path.cell import MeasuredCell
from vdisklab.path.durability import Durability, HostDisk, known_durability
from vdisklab.results.model import Better, Campaign, Direction, Metric
from vdisklab.results.store import Store
from vdisklab.value import HIDDEN, Value, replace


class RankedCell(Value):
    """One cell of a ranking."""

    cell: MeasuredCell
    place: Annotated[Ranked | WithoutRank, "its rank, from `best` to `worst`, or why it has none"]
    medians: Annotated[Mapping[MeasureKey, Summary], "over rounds, with their 95 % intervals"]
    level: Annotated[
        Level | None,
        "by which cells are ordered: the geometric mean of the ranked measure over rounds",
    ]
    ratio: Annotated[
        Ratio,
        "to the baseline, within rounds, with an interval that allows for the ranks; of a cell "
        "that lacks rounds, the ratio of the `level`s; the baseline itself is 1",
    ]
    competes: Annotated[
        bool,
        "false for the host, a null device and a warm page cache, and for a path that loses data "
        "if others do not: shown for comparison",
    ]
    from_page_cache: Annotated[
        tuple[Direction, ...],
        "directions in which less than half of the bytes reached the device, and the measure does "
        "not count the time until they did",
    ]
    power_cut: Annotated[Durability | None, "null on the host, and for a free name"]
    hosts: Annotated[
        CellOverHosts | None, RARE, "with --hosts, for a ranked cell; rounds are hosts then"
    ] = None
    runtime: Annotated[float | None, f"of the ranked measure, {RUNTIME}"] = None
    ordered_by: Annotated[Summary | None, HIDDEN] = None

    def shown(self, measure: MeasureKey) -> Summary | None:
        """What is shown of a measure: of the ranked one the level, of others the median."""
        by = self.ordered_by
        return by if by is not None and by.measure == measure else self.medians.get(measure)


class RankAnswer(Answer):
    """`vdisklab rank`: the competing cells, best first, then those without a rank."""

    FORMAT = "vdisklab.rank/3"

    campaigns: Annotated[tuple[Campaign, ...], "what was ranked"]
    caveats: Caveats
    ranking: Ranking
    choice: Annotated[
        PathChoice | None, "of paths that keep flushed data, if any does; null if none is ranked"
    ]
    quantity: Annotated[Metric, "of the ranked measure"]
    inconclusive: Annotated[bool, "true when cells were ranked and no pair is shown to differ"]
    competitors: Annotated[int | None, "paths that may be chosen: no host, null or warm cache"]
    shows: Annotated[
        float | None,
        "the lead that these rounds show in about 80 % of simulated campaigns with this noise and "
        "with rivals close behind (in 54 to 97 % with uneven noise): 0.25 is 25 %",
    ]
    rounds_for_10_percent: Annotated[
        int | None, "rounds that show a lead of 10 % so; null above 1,000"
    ]
    baseline: Annotated[MeasuredCell, "the cell that scores and ratios relate to"]
    host_disk: Annotated[HostDisk, "the host's disk in a power cut, as --disk says"]
    roles: Annotated[RoleSet | None, "for scores: which measure played which role"]
    rates: Annotated[tuple[MeasureKey, ...], "for `overall_ratio`: the measures whose mean it is"]
    cells: tuple[RankedCell, ...]
    rounds: Annotated[int, "in which at least one run succeeded, or hosts"]
    findings: Annotated[tuple[Diagnostic, ...], "failed cells, page cache, missing scores and more"]
    hosts: Annotated[OverHosts | None, "with --hosts; rounds are hosts then"] = None
    more: Annotated[tuple[RankedCell, ...], HIDDEN] = ()
    """The cells that `--top` leaves out: what is said of all of them counts them."""
    race: Annotated[RaceOutcome | None, HIDDEN] = None
    """The race that decided, if one did: its rule is another one than the ranking's."""

    over_time: Annotated[object, HIDDEN] = None
    """A TrendAnswer: the newest of these campaigns among the earlier ones of its plan and host.
    None without earlier ones; then its module is not imported."""

    @property
    def lacks_hosts(self) -> bool:
        """True if the answer is over hosts, and these are too few for a rank."""
        over = self.hosts
        return over is not None and (len(over.hosts) < MIN_HOSTS or over.groups < MIN_HOSTS)

    @property
    def lacks_rounds(self) -> bool:
        """True if no path has a rank because none has enough rounds. An imported result has one
        round, and is shown for its numbers."""
        measured = any(campaign.host.machine_id for campaign in self.campaigns)
        few = any(isinstance(finding, TooFewRounds) for finding in self.findings)
        return measured and few and not self.ranking.rows


def rank_cells(analysis: Analysis, metric: str = DEFAULT_METRIC) -> RankAnswer:
    """Ranks the cells by a score or a measure. Raises PlanError for an unknown metric."""
    measure = analysis.measure(metric)
    shown = analysis.shown_with(metric, measure)
    decision = _with_command_to_decide(analysis, decide(analysis, measure))
    ranking, best = decision.ranking, decision.ranking.best
    scored = analysis.scored
    findings = analysis.findings(measure, shown)
    if any(map(measured_operations, analysis.campaigns)):  # they have no ranks to speak of
        findings = analysis.findings_of_runs()
    return RankAnswer(
        campaigns=analysis.campaigns,
        caveats=analysis.caveats,
        ranking=ranking,
        choice=decision.choice,
        quantity=measure.quantity,
        inconclusive=ranking.inconclusive,
        competitors=None if best is None else best.competitors,
        shows=None if best is None else best.shows,
        rounds_for_10_percent=None if best is None else best.rounds_for(0.1),
        baseline=analysis.baseline,
        host_disk=analysis.verdicts.disk,
        roles=scored.roles if measure.name == "score" else None,
        rates=scored.rates if measure == scored.overall else (),
        cells=tuple(_ranked_cells(analysis, decision, shown)),
        rounds=analysis.rounds,
        findings=(
            *analysis.fewest_of_several(_this_command(metric)),
            *_with_command(analysis, _after_race(decision, findings), metric),
        ),
        hosts=_over_hosts(analysis, decision) if isinstance(analysis, HostsAnalysis) else None,
        race=decision.race,
    )


def _with_command_to_decide(analysis: Analysis, decision: Decision) -> Decision:
    choice = decision.choice
    if choice is None:
        return decision
    choice = replace(choice, surer=surer(analysis, choice, decision))
    return replace(decision, choice=choice)


def _after_race(decision: Decision, findings: Iterable[Diagnostic]) -> Iterator[Diagnostic]:
    """The findings in agreement with the decision: none sends to a race what has raced."""
    for finding in in_agreement(decision.choice, findings):
        if isinstance(finding, RoundsDepend):
            yield replace(finding, raced=decision.race is not None)
        else:
            yield finding


def _this_command(metric: str) -> str:
    by = "" if metric == DEFAULT_METRIC else f" --metric {shlex.quote(metric)}"
    return f"vdisklab rank{by}"


def _with_command(
    analysis: Analysis, findings: Iterable[Diagnostic], metric: str
) -> Iterator[Diagnostic]:
    """The findings; one of too few rounds with the command that measures more, one of several
    numbers of guests with the command that ranks one of them."""
    for finding in findings:
        if isinstance(finding, TooFewRounds):
            now = analysis.loaded.measured_now
            command = None if now is not None else more_rounds_command(analysis)
            into = imported_campaign(analysis)
            yield replace(finding, command=command, on=analysis.run_on, now=now, imported=into)
        elif isinstance(finding, SeveralGuests):
            command = f"{_this_command(metric)} --guests {finding.numbers[-1]}"
            yield replace(finding, command=command)
        else:
            yield finding


def _over_hosts(analysis: HostsAnalysis, decision: Decision) -> OverHosts:
    ranking, chosen = decision.ranking, None if decision.choice is None else decision.choice.cell
    order = [row.cell for row in ranking.rows]
    usable = candidates(analysis.observations.cells)
    paths = [cell for cell in order if cell in usable]
    # What is shown for comparison, such as the host itself, competes with no path. The answer is
    # one of the two, as in `recommend`.
    rivals = [cell for cell in paths if cell != chosen][: 2 if chosen is None else 1]
    pair = (*(() if chosen is None else (chosen,)), *rivals)
    return analysis.over_hosts(ranking.measure, pair, paths if paths[1:] else (), chosen)


def with_trend(answer: RankAnswer, results: Store) -> RankAnswer:
    """The answer with how the host has changed since earlier campaigns, as `trend` shows it."""
    if answer.hosts is not None or len(results.campaigns()) == 1:
        return answer
    # Imported late: most databases that are ranked hold one campaign.
    from vdisklab.answers.trend import trend_of  # noqa: PLC0415

    newest = max(answer.campaigns, key=lambda campaign: campaign.started)
    return replace(answer, over_time=trend_of(results, [newest.id]))


def the_best(answer: RankAnswer, top: int | None) -> RankAnswer:
    """The answer with its first cells only; all for None."""
    every = (*answer.cells, *answer.more)
    return replace(answer, cells=every[:top], more=() if top is None else every[top:])


def _ranked_cells(
    analysis: Analysis, decision: Decision, shown: tuple[MeasureKey, ...]
) -> list[RankedCell]:
    ranking, measure = decision.ranking, decision.ranking.measure
    summaries = {key: analysis.summaries(key) for key in shown}
    levels, ratios = analysis.levels(measure), analysis.ratios(measure)
    used = analysis.measurements_used(measure)
    cached = {
        (finding.cell, finding.direction)
        for finding in analysis.cached
        if finding.measurement in used and finding.shows_memory(measure)
    }
    # For comparison: the host's own speed and the like, best first, before cells without numbers.
    beside = sorted(
        (row for row in ranking.unranked if row.reason.beside),
        key=lambda row: _worst_last(levels.get(row.cell)),
    )
    few = [row for row in ranking.unranked if not row.reason.beside]
    runtime = runtime_of(analysis.campaigns, measure.name)
    places: tuple[Ranked | WithoutRank, ...] = (*ranking.rows, *beside, *few)
    over_hosts = analysis.by_cell(measure) if isinstance(analysis, HostsAnalysis) else {}
    base = next((row for row in ranking.rows if row.cell == analysis.baseline), None)
    most = max((row.rounds for row in ranking.rows), default=0)
    return [
        RankedCell(
            cell=place.cell,
            place=place,
            medians={key: of[place.cell] for key, of in summaries.items() if place.cell in of},
            level=Level.of(level),
            ratio=_as_ranked(
                _by_level(
                    ratios.get(place.cell, Ratio(0)), level, levels.get(analysis.baseline), most
                ),
                place,
                base,
                measure,
            ),
            competes=isinstance(place, Ranked) or not place.reason.beside,
            from_page_cache=tuple(
                direction
                for direction in (Direction.READ, Direction.WRITE)
                if (place.cell, direction) in cached
            ),
            power_cut=known_durability(place.cell, analysis.verdicts),
            hosts=over_hosts.get(place.cell),
            runtime=runtime,
            ordered_by=level_as_ranked(level, place.cell, levels.get(analysis.baseline), ranking),
        )
        for place in places
        for level in [levels.get(place.cell)]
    ]


def _worst_last(level: Summary | None) -> float:
    if level is None:
        return math.inf
    return -level.median if level.measure.quantity.better is Better.HIGHER else level.median


def _by_level(
    ratio: Ratio, level: Summary | None, of_baseline: Summary | None, rounds: int
) -> Ratio:
    """The ratio to the baseline, of the numbers that order the cells.

    In a measure in which the baseline is 1 it is the level. In another one it is the ratio within
    rounds unless a cell lacks some of all `rounds`: its level is corrected for these, so the ratio
    of the levels is shown, with an interval as wide as that of the rounds that both have.
    """
    if ratio.ratio is None or level is None or of_baseline is None:
        return ratio
    if of_baseline.median == 1:
        return replace(ratio, ratio=level.median, low=level.low, high=level.high)
    step = level.measure.quantity.step or 0.0
    above, below = level.median + step, of_baseline.median + step
    is_whole = min(level.rounds, of_baseline.rounds) >= rounds
    if is_whole or ratio.ratio <= 0 or above <= 0 or below <= 0:
        return ratio
    moved = above / below / ratio.ratio
    low, high = (None if end is None else end * moved for end in (ratio.low, ratio.high))
    return replace(ratio, ratio=ratio.ratio * moved, low=low, high=high)


def _as_ranked(
    ratio: Ratio, place: Ranked | WithoutRank, base: Ranked | None, measure: MeasureKey
) -> Ratio:
    """The ratio to the baseline with an interval that says no more than the ranks: a tie is no
    difference. Two paths alone are compared by `compare`.
    """
    if ratio.ratio is None or ratio.low is None or ratio.high is None:
        return ratio
    if base is None or not isinstance(place, Ranked) or place.cell == base.cell:
        return ratio
    low, high = ratio.low, ratio.high
    higher = measure.quantity.better is Better.HIGHER
    if place.worst < base.best if higher else base.worst < place.best:
        low = max(low, 1.0)
    elif base.worst < place.best if higher else place.worst < base.best:
        high = min(high, 1.0)
    else:
        low, high = min(low, 1.0), max(high, 1.0)
    return replace(ratio, low=min(low, ratio.ratio), high=max(high, ratio.ratio))
