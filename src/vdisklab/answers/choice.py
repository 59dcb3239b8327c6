"""The path to use and how sure that is: the same in every answer that names one.

What more measuring would show is in `tell_apart.py`: it takes a decision, and adds the command.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from enum import StrEnum
from typing import Annotated

from vdisklab import numbers
from vdisklab.analysis.best import SHOWS_NOTHING
from vdisklab.analysis.candidates import RatioOf, candidates
from vdisklab.analysis.diagnostics.diagnostic import Diagnostic
from vdisklab.analysis.diagnostics.ranked import Inconclusive, ShortSpan
from vdisklab.analysis.diagnostics.recorded import has_open_load
from vdisklab.analysis.intervals import MIN_ROUNDS
from vdisklab.analysis.observations import MeasureKey, Observations, narrowed
from vdisklab.analysis.paired_ratios import Ratio, paired_ratios
from vdisklab.analysis.race import RaceOutcome
from vdisklab.analysis.rank_intervals import Ranking, Unranked, WithoutRank
from vdisklab.analysis.score import DEFAULT_METRIC, MIX, SCORES
from vdisklab.analysis.summary import Summary
from vdisklab.answers.analysis import Analysis
from vdisklab.answers.hosts import HostsAnalysis
from vdisklab.answers.measured_for import (
    committing_client,
    seconds_of_measurements,
    stored_measurements,
)
from vdisklab.answers.raced import race_of
from vdisklab.path.adjacent import nearest_settings
from vdisklab.path.cell import MeasuredCell
from vdisklab.path.disk_path import DiskPath, Layer, parse_path
from vdisklab.path.durability import Durability, DurabilityKind, known_durability
from vdisklab.path.needs import distance
from vdisklab.path.platforms import NEW_GUEST_DISKS, Platform
from vdisklab.path.power_cut_words import ClientKind
from vdisklab.results.model import Better, Direction
from vdisklab.units import counted
from vdisklab.value import HIDDEN, Value, replace

MARGIN = 0.1
"""A path is good enough if it is at most this much worse than the best."""


class Surer(Value):
    """The cost of knowing a path within 10 % of the best."""

    paths: Annotated[
        int, "paths to race: this path and its ties; 0 if the same command continues the race"
    ]
    runs: Annotated[int, "runs that are still needed, at most"]
    seconds: Annotated[
        float,
        "how long the command takes at most, as `plan` says it; without a command how long the "
        "runs take, if each takes as long as the mean run so far",
    ]
    usual: Annotated[bool, "at this noise, most races take less than `seconds_usually`"] = True
    metric: Annotated[str | None, "the metric to race by; null for the score"] = None
    on: Annotated[str | None, HIDDEN] = None
    """The host on which the command must run, if that may be another one."""
    command: Annotated[
        str | None,
        "the command that races the paths, or continues the race; null if the campaign does not "
        "say how its paths were made and measured",
    ] = None
    seconds_usually: Annotated[float | None, "most races take less; null if that is not known"] = (
        None
    )


class ChoiceVerdict(StrEnum):
    """What the measurements say of the path to use."""

    ONLY = "only"
    BEST = "best"
    CLOSE = "close"
    BETTER = "better"
    SAFER = "safer"
    KEEP = "keep"
    TIED = "tied"

    @property
    def decided(self) -> bool:
        """True if the path is shown to be good enough: the best, or within a margin of it."""
        return self in (ChoiceVerdict.BEST, ChoiceVerdict.CLOSE)


class PresentDisk(Value):
    """A path that somebody may have now, and whose it is."""

    cell: MeasuredCell
    of: Annotated[
        Platform | None, "the platform that gives it to a new guest; null for the plan's baseline"
    ]
    but: Annotated[
        str | None,
        "how the platform makes its image, if only another image was measured: `preallocation=off`",
    ] = None


class Behind(Value):
    """A measure of the score in which the path to use is shown to be behind another path."""

    measure: MeasureKey
    cell: Annotated[MeasuredCell, "the other path"]
    least: Annotated[float, "how many times as good the other path is, at least"]
    in_memory: Annotated[
        bool,
        "true if less than half of the bytes of the other path reached the disk there, and the "
        "measure does not count the time until they did",
    ] = False
    on: Annotated[
        tuple[str, ...],
        "with --hosts: the hosts on which that is shown, if it is not shown of the mean host",
    ] = ()
    seconds: Annotated[
        float | None, "for which each measurement ran; null if it ended when it was done"
    ] = None
    first: Annotated[
        MeasuredCell | None, "the path that stands first in a ranking by this measure"
    ] = None


class FromMemory(Value):
    """Bytes that the path to use moved in the host's memory: less than half reached the disk."""

    direction: Direction
    low: Annotated[float, "share of the bytes that reached the disk, in the lowest measurement"]
    high: Annotated[float, "the same in the highest measurement with less than half"]


class PathChoice(Value):
    """The path to use, and how sure that is: what every sentence, rank and bar goes by."""

    verdict: Annotated[
        ChoiceVerdict,
        "`best`, or `close`: no other path is better by more than `behind`; `better` than what a "
        "platform gives a new guest; `safer` than the baseline, which loses data; `keep`: no path "
        "is shown to be better than what a platform gives, or than the baseline; `tied`: no "
        "difference is shown; `only`: there is nothing to compare it with",
    ]
    cell: MeasuredCell
    leader: Annotated[MeasuredCell, "the path with the best numbers, which may lead by chance"]
    ties: Annotated[tuple[MeasuredCell, ...], "the other paths that are not shown to be worse"]
    worse: Annotated[
        tuple[MeasuredCell, ...],
        "the paths that are shown to be worse than this path: their ranks do not overlap with its "
        "rank; empty for a race, which only shows that the others are not better by more than its "
        "margin",
    ]
    present: Annotated[
        tuple[PresentDisk, ...],
        "the disks that a user may have now, if this campaign measured them",
    ]
    behind: Annotated[
        float | None,
        "by how much the best path may be better, at most: 0.1 is 10 %, 0 if this path is the "
        "best; null if there is no limit below twice as good, or if `compare` shows nothing of "
        "this path and one of its ties",
    ]
    compared: Annotated[int, "paths that were compared"]
    considered: Annotated[int, "paths that were measured"]
    confidence: float
    durability: Annotated[Durability | None, HIDDEN]
    surer: Annotated[
        Surer | None, "null if the choice is sure enough, or if the cost is unknown"
    ] = None
    ahead: Annotated[
        float | None,
        "by how much the numbers of `leader` are better, which may be chance: 0.1 is 10 %",
    ] = None
    step: Annotated[float | None, "the metric's step, if `behind` is one step"] = None
    left_out: Annotated[
        int, "paths that did not race, because a model predicts that they do not win"
    ] = 0
    not_best: Annotated[
        tuple[MeasuredCell, ...],
        "paths that are shown not to be the best, but not to be worse than this path",
    ] = ()
    unranked: Annotated[
        tuple[MeasuredCell, ...], "that qualify, but have too few rounds to be compared"
    ] = ()
    behind_in: Annotated[
        Behind | None,
        "the measure of the score in which another path is shown to be most ahead, if by more than "
        "10 %; all measures and paths hold together with 95 %",
    ] = None
    from_memory: Annotated[
        tuple[FromMemory, ...], "directions in which its numbers are the host's memory, not a disk"
    ] = ()
    stays: Annotated[tuple[MeasuredCell, ...], HIDDEN] = ()
    """After a race, the other paths that are not shown to be worse than any path. A guest's disk
    that has one of these paths is kept, as `advise` says."""
    covered: Annotated[tuple[MeasuredCell, ...], HIDDEN] = ()
    """The paths of which `behind` says how much better they may be: those that were compared."""
    campaigns: Annotated[tuple[str, ...], HIDDEN] = ()
    hosts: Annotated[int | None, HIDDEN] = None
    """Hosts that were compared, if the answer is over hosts."""
    rounds: Annotated[int, HIDDEN] = 0
    """Rounds of that of the tied paths which was measured most often."""
    by: Annotated[MeasureKey | None, HIDDEN] = None
    """The measure of the answer, if it is not the overall score; `seconds` as in `Behind`."""
    seconds: Annotated[float | None, HIDDEN] = None
    commits: Annotated[ClientKind | None, HIDDEN] = None
    """The database that was measured: its commits are what a power cut is to test."""

    @property
    def tied(self) -> tuple[MeasuredCell, ...]:
        """All paths that may be the best, the answer first."""
        return (self.cell, *self.ties)

    @property
    def kept(self) -> tuple[PresentDisk, ...]:
        """What somebody may have now and can keep: it may be the best."""
        return tuple(disk for disk in self.present if disk.cell in self.tied)

    @property
    def keeps(self) -> bool:
        """True if the answer itself is what somebody may have now."""
        return any(disk.cell == self.cell for disk in self.present)

    def holds(self, ratio: Ratio, cell: MeasuredCell, other: MeasuredCell) -> Ratio:
        """The ratio of a path to another with an interval that allows for this decision.

        An interval of two paths alone and a decision among all are right with 95 % each; side by
        side, neither says what the other rules out.
        """
        if ratio.ratio is None or ratio.low is None or ratio.high is None or cell == other:
            return ratio
        low, high = ratio.low, ratio.high
        if cell in self.tied and other in self.tied:
            low, high = min(low, 1.0), max(high, 1.0)
        is_covered = cell in self.covered and other in self.covered
        if is_covered and self.step is None and self.behind is not None:
            if cell == self.cell:
                low = max(low, 1 / (1 + self.behind))
            elif other == self.cell:
                high = min(high, 1 + self.behind)
        return replace(ratio, low=min(low, ratio.ratio), high=max(high, ratio.ratio))


class Decision(Value):
    """The path to use (None if no path could be ranked), the ranking that says the same, and the
    race that decided, if one did."""

    choice: PathChoice | None
    ranking: Ranking
    race: RaceOutcome | None = None


def decide(analysis: Analysis, measure: MeasureKey) -> Decision:
    """The decision by a measure, among those that keep flushed data, if there are any.

    No path is chosen where only the host's were measured.
    """
    ranking, race = analysis.ranking(measure), None
    is_rate = measure.quantity.better is Better.HIGHER
    if is_rate and any(has_open_load(campaign.plan) for campaign in analysis.campaigns):
        return Decision(None, ranking)  # the rate that was set
    metric = raced_metric(analysis, measure)
    if metric is not None and not isinstance(analysis, HostsAnalysis):
        race = race_of(analysis, analysis.competing, metric)
    decision = decided_among(analysis, ranking, race, analysis.values(measure))
    if decision.choice is None:
        enough = [
            row.cell
            for row in ranking.unranked
            if row.cell in analysis.competing and row.rounds >= MIN_ROUNDS
        ]
        if len(enough) == 1:
            decision = replace(decision, choice=only(analysis, enough[0], ranking))
    chosen = None if decision.choice is None else decision.choice.cell.path
    # Paths of the host are ranked where nothing else was measured; no guest can use one.
    return replace(decision, choice=None) if chosen is not None and chosen.on_host else decision


def raced_metric(analysis: Analysis, measure: MeasureKey) -> str | None:
    """The measure as `run --metric` names it; None for one of `--weights`, which no race has."""
    if measure == MIX:
        return None
    if measure == analysis.scored.overall:
        return DEFAULT_METRIC
    names = (name for name, score in SCORES.items() if score.key == measure)
    return next(names, str(measure))


def as_ranked(ratio: Ratio, cell: MeasuredCell, other: MeasuredCell, ranking: Ranking) -> Ratio:
    """The ratio with an interval that shows no difference between cells whose ranks overlap."""
    if ratio.low is None or ratio.high is None or told_apart(cell, other, ranking) is not False:
        return ratio
    return replace(ratio, low=min(ratio.low, 1.0), high=max(ratio.high, 1.0))


def level_as_ranked(
    level: Summary | None, cell: MeasuredCell, of_baseline: Summary | None, ranking: Ranking
) -> Summary | None:
    """The level of a cell, with an interval that agrees with the ranks: it reaches beyond 1, the
    baseline, only if the ranks do not tell the cell from the baseline.

    The level of a measure in which the baseline is not 1 is returned as it is.
    """
    if level is None or level.low is None or level.high is None or of_baseline is None:
        return level
    apart = told_apart(cell, of_baseline.cell, ranking)
    if of_baseline.median != 1 or cell == of_baseline.cell or apart is None:
        return level
    low, high = level.low, level.high
    if not apart:
        low, high = min(low, 1.0), max(high, 1.0)
    elif level.median > 1:
        low = max(low, 1.0)
    else:
        high = min(high, 1.0)
    return replace(level, low=low, high=high)


def told_apart(cell: MeasuredCell, other: MeasuredCell, ranking: Ranking) -> bool | None:
    """True if the ranks of two cells are shown to differ; None if one of them has no rank."""
    places = {row.cell: row for row in ranking.rows}
    first, second = places.get(cell), places.get(other)
    if first is None or second is None:
        return None
    return first.worst < second.best or second.worst < first.best


def nothing_shown(rounds: int) -> str:
    """The sentence in place of an answer while there are too few rounds for one."""
    return f"nothing is shown after {counted(rounds, 'round')}"


def rounds_of(observations: Observations, cells: Collection[MeasuredCell]) -> int:
    """The rounds of the cell that was measured most often; 0 without cells."""
    return int(narrowed(observations, cells).rounds_of().max(initial=0))


def in_agreement(choice: PathChoice | None, findings: Iterable[Diagnostic]) -> Iterator[Diagnostic]:
    """The findings, without the one that more rounds may decide, if this choice has decided it, or
    says which command does; and without how long a decision holds, if there is none."""
    decided = choice is not None and choice.verdict.decided
    said = decided or (
        choice is not None and choice.surer is not None and choice.surer.command is not None
    )
    return (
        each
        for each in findings
        if not (said and isinstance(each, Inconclusive))
        and (decided or not isinstance(each, ShortSpan))
    )


def behind_in(
    observations: Observations,
    measures: Sequence[MeasureKey],
    chosen: MeasuredCell,
    others: Sequence[MeasuredCell],
    looks: int = 1,
) -> Behind | None:
    """The measure in which one of the other cells is shown to be most ahead of the chosen one, by
    more than `MARGIN`.

    Each ratio is within rounds, at an error of 5 % for all measures and cells, and for so many
    `looks`, together (Bonferroni).
    """
    place = observations.place
    rivals = [cell for cell in others if cell != chosen and cell in place]
    if chosen not in place or not rivals or not measures:
        return None
    level, found = 1 - (1 - 0.95) / (looks * len(measures) * len(rivals)), list[Behind]()
    for measure in measures:
        grid, quantity = observations.grid(measure), measure.quantity
        rows = [place[cell] for cell in rivals]
        ratios = paired_ratios(grid[rows], grid[place[chosen]], quantity, level, forecast=False)
        for cell, ratio in zip(rivals, ratios, strict=True):
            if ratio.low is None or ratio.high is None:
                continue
            least = ratio.low if quantity.better is Better.HIGHER else 1 / ratio.high
            if least > 1 + MARGIN:
                found.append(Behind(measure, cell, least))
    return max(found, key=lambda behind: behind.least, default=None)


def _behind_on_hosts(
    analysis: HostsAnalysis, chosen: MeasuredCell, others: Sequence[MeasuredCell]
) -> Behind | None:
    """The same, of hosts alone: who acts for all of them meets the one that differs."""
    found: dict[tuple[MeasureKey, MeasuredCell], dict[str, Behind]] = {}
    for host in analysis.hosts:
        rounds, looks = analysis.own_rounds(host), len(analysis.hosts)
        behind = behind_in(rounds, analysis.scored.rates, chosen, others, looks)
        if behind is not None:
            found.setdefault((behind.measure, behind.cell), {})[host.name] = behind
    each = []
    for by_host in found.values():
        least = min(by_host.values(), key=lambda behind: behind.least)
        each.append(replace(least, on=tuple(by_host)))
    return max(each, key=lambda behind: (len(behind.on), behind.least), default=None)


def decided_among(
    analysis: Analysis,
    ranking: Ranking,
    race: RaceOutcome | None,
    observations: Observations,
) -> Decision:
    """The decision among ranked paths; a race decides instead of the ranking."""
    decision = _decided(analysis, ranking, race, observations)
    choice = decision.choice
    if choice is not None:
        choice = replace(
            choice,
            behind=_known_limit(choice, ranking.measure, observations),
            rounds=rounds_of(observations, choice.tied),
            hosts=len(analysis.hosts) if isinstance(analysis, HostsAnalysis) else None,
            from_memory=from_memory(analysis, choice.cell, ranking.measure),
            ahead=_ahead(choice, decision.ranking),
            commits=_commits(analysis),
            by=None if ranking.measure == analysis.scored.overall else ranking.measure,
            seconds=seconds_of_measurements(analysis.campaigns),
        )
        decision = replace(decision, choice=choice)
    if choice is None or ranking.measure != analysis.scored.overall:
        return decision
    others = [row.cell for row in ranking.rows]
    behind = behind_in(observations, analysis.scored.rates, choice.cell, others)
    if behind is None and isinstance(analysis, HostsAnalysis):
        behind = _behind_on_hosts(analysis, choice.cell, others)
    if behind is not None:
        cached = {
            (found.cell, found.measurement, found.direction)
            for found in analysis.cached
            if found.shows_memory(behind.measure)
        }
        in_memory = (behind.cell, behind.measure.name, behind.measure.direction) in cached
        rows = decide(analysis, behind.measure).ranking.rows
        behind = replace(
            behind,
            in_memory=in_memory,
            seconds=choice.seconds,
            first=rows[0].cell if rows else None,
        )
    return replace(decision, choice=replace(choice, behind_in=behind))


def _known_limit(
    choice: PathChoice, measure: MeasureKey, observations: Observations
) -> float | None:
    """`behind` of a choice; None if it says nothing.

    The ranking takes its noise from all paths, `compare` from two alone. Where `compare` shows
    nothing of the answer and a path that ties with it, a limit would sound like a finding.
    """
    if choice.behind is None or choice.verdict.decided or not choice.ties:
        return choice.behind
    if choice.behind >= SHOWS_NOTHING:
        return None
    row, rows = observations.place[choice.cell], [observations.place[cell] for cell in choice.ties]
    grid, resolution = observations.grid(measure), observations.resolution(measure)
    pairs = paired_ratios(
        grid[rows],
        grid[row],
        measure.quantity,
        forecast=False,
        resolution=resolution[rows] + resolution[row],
    )
    unknown = any(numbers.known_interval(pair.low, pair.high) is None for pair in pairs)
    return None if unknown else choice.behind


def _ahead(choice: PathChoice, ranking: Ranking) -> float | None:
    """The lead of the leader's mean over that of the path to use, as a share."""
    effects = {row.cell: row.effect for row in ranking.rows}
    if choice.cell not in effects or choice.leader not in effects:
        return None
    lead = effects[choice.leader] - effects[choice.cell]
    if ranking.measure.quantity.better is Better.LOWER:
        lead = -lead
    return max(0.0, math.expm1(min(lead, 700.0)))


def from_memory(
    analysis: Analysis, cell: MeasuredCell, measure: MeasureKey
) -> tuple[FromMemory, ...]:
    """The directions in which less than half of the bytes behind a cell's numbers reached the disk,
    in the measurements that `measure` is made of. Sustained writes count the time until they did.
    """
    used = analysis.measurements_used(measure)
    shares: dict[Direction, list[float]] = {}
    for finding in analysis.cached:
        if finding.cell != cell or not finding.shows_memory(measure):
            continue
        if finding.measurement in used or measure == MIX:
            shares.setdefault(finding.direction, []).append(finding.share)
    return tuple(
        FromMemory(direction, min(shares[direction]), max(shares[direction]))
        for direction in (Direction.READ, Direction.WRITE)
        if direction in shares
    )


def _decided(
    analysis: Analysis,
    ranking: Ranking,
    race: RaceOutcome | None,
    observations: Observations,
) -> Decision:
    if race is not None:
        return Decision(_of_race(analysis, race, ranking), _after_race(ranking, race), race)
    cell = analysis.ranked_by.to_use(ranking)
    if cell is None:
        return Decision(None, ranking)
    winners = analysis.ranked_by.winners(ranking)
    choice = _of_ranking(analysis, ranking, cell, winners, observations)
    return Decision(choice, ranking)


def _after_race(ranking: Ranking, race: RaceOutcome) -> Ranking:
    """The ranking in the words of the race, which has decided: what may be the best has rank 1, and
    the path to use stands first.
    """
    left = (race.best, *race.as_good)
    rows = [replace(row, best=1) if row.cell in left else row for row in ranking.rows]
    if race.decided:
        rows.sort(key=lambda row: row.cell != race.best)
    separated = ranking.separated
    if race.proven:
        # The race shows the best to differ from every other path, so also from those with which it
        # shares ranks: the others are behind its worst rank already.
        separated += sum(row.worst - 1 for row in rows if row.cell == race.best)
        rows = [
            replace(row, best=1, worst=1) if row.cell == race.best
            else replace(row, best=max(2, row.best), worst=max(2, row.worst))
            for row in rows
        ]  # fmt: skip
    return replace(ranking, rows=tuple(rows), separated=separated)


def only(analysis: Analysis, cell: MeasuredCell, ranking: Ranking) -> PathChoice:
    """The choice of a path that cannot be compared with another."""
    unranked = tuple(row.cell for row in ranking.unranked if row.cell != cell and _few(row))
    return PathChoice(
        verdict=ChoiceVerdict.ONLY,
        cell=cell,
        leader=cell,
        ties=(),
        worse=(),
        present=(),
        behind=None,
        compared=1,
        considered=len(analysis.measured),
        confidence=1 - ranking.alpha,
        durability=known_durability(cell, analysis.verdicts),
        unranked=unranked,
        from_memory=from_memory(analysis, cell, ranking.measure),
        campaigns=tuple(campaign.id for campaign in analysis.campaigns),
        commits=_commits(analysis),
    )


def _commits(analysis: Analysis) -> ClientKind | None:
    """The client of `powercut` that commits as what was measured does."""
    return committing_client(stored_measurements(analysis.campaigns[0]))


def _few(row: WithoutRank) -> bool:
    """True for a path that would be compared if it had been measured more often."""
    return row.reason in (Unranked.TOO_FEW_ROUNDS, Unranked.NO_COMMON_ROUND)


def _of_ranking(
    analysis: Analysis,
    ranking: Ranking,
    cell: MeasuredCell,
    winners: Sequence[MeasuredCell],
    observations: Observations,
) -> PathChoice:
    best = ranking.best
    ranks = [row.cell for row in ranking.rows]
    present = present_disks(analysis, ranks, ranks)
    kept = [disk.cell for disk in present if disk.cell in winners]
    # Of several, the one with the best numbers: rows are in their order.
    cell = next((row.cell for row in ranking.rows if row.cell in kept), cell)
    cell = _made_safe(analysis, winners) or _keeping_data(analysis, cell, winners, kept)
    ties = tuple(other for other in winners if other != cell)
    behind = None if best is None else best.bounds.get(cell)
    if best is None and ranking.rows and not ties:
        behind = 0.0
    others = (*_present_unsafe(analysis), *present)
    leader = winners[0] if winners else cell
    alone = analysis.ranked_by.ratio_of(observations, ranking.measure)

    def ratio(first: MeasuredCell, second: MeasuredCell) -> Ratio:
        return as_ranked(alone(first, second), first, second, ranking)

    others_by_rank = [row.cell for row in ranking.rows if row.cell not in (cell, *ties)]
    worse = tuple(other for other in others_by_rank if told_apart(cell, other, ranking))
    choice = PathChoice(
        verdict=ChoiceVerdict.TIED,
        cell=cell,
        leader=leader,
        ties=ties,
        worse=worse,
        not_best=tuple(other for other in others_by_rank if other not in worse),
        present=others,
        behind=behind,
        compared=len(ranking.rows),
        considered=len(analysis.measured),
        confidence=1 - ranking.alpha,
        durability=known_durability(cell, analysis.verdicts),
        unranked=tuple(row.cell for row in ranking.unranked if _few(row)),
        covered=tuple(ranks),
        campaigns=tuple(campaign.id for campaign in analysis.campaigns),
    )
    unsafe = any(
        disk.cell not in analysis.competing and disk.cell not in choice.tied for disk in others
    )
    verdict = _verdict(choice, ratio, unsafe=unsafe)
    return replace(choice, verdict=verdict)


def _verdict(choice: PathChoice, ratio: RatioOf, *, unsafe: bool) -> ChoiceVerdict:
    """What a ranking says of a path that may be the best. `unsafe` tells if a disk of `present`
    loses data, and may not be the answer.
    """
    if choice.compared < 2:
        return ChoiceVerdict.ONLY
    if not choice.ties:
        return ChoiceVerdict.BEST
    if choice.behind is not None and choice.behind <= MARGIN:
        return ChoiceVerdict.CLOSE
    if unsafe:  # who has such a disk does not have a platform's default
        return ChoiceVerdict.SAFER
    if choice.keeps:
        return ChoiceVerdict.KEEP
    over = [ratio(choice.cell, disk.cell) for disk in choice.present]
    shown = over and not choice.kept and all(gain.low is not None and gain.low > 1 for gain in over)
    return ChoiceVerdict.BETTER if shown else ChoiceVerdict.TIED


def present_disks(
    analysis: Analysis, ranked: Collection[MeasuredCell], among: Collection[MeasuredCell]
) -> tuple[PresentDisk, ...]:
    """The cells `among` those ranked that a user may run today: the plan's baseline, if the
    baseline is a guest's path, and the disks that platforms give new guests.

    Of a platform's disk with another preallocation the nearest one on each stack counts, but only
    if the disk itself has no rank: an answer has one disk for it.
    """
    paths = candidates(ranked)
    is_present = analysis.names_baseline and analysis.baseline in paths
    found = [PresentDisk(analysis.baseline, None)] if is_present else []
    bare = {cell: replace(path, layers=()).spelled_out for cell, path in paths.items()}
    for platform, disk in NEW_GUEST_DISKS.items():
        default = parse_path(disk.path).spelled_out
        alike: dict[tuple[Layer, ...], list[MeasuredCell]] = {}
        for cell, path in bare.items():
            if in_use(path) == in_use(default):
                alike.setdefault(paths[cell].layers, []).append(cell)
        exact = {layers for layers, cells in alike.items() if default in map(bare.get, cells)}
        for layers, cells in alike.items():
            if layers in exact or not exact:
                cell = min(cells, key=lambda each: (distance(bare[each], default), each))
                found.append(PresentDisk(cell, platform, _otherwise(bare[cell], default)))
    return tuple(disk for disk in found if disk.cell in among)


def _otherwise(path: DiskPath, default: DiskPath) -> str | None:
    """How the image of a platform's disk is made, if that of a path is made otherwise."""
    measured, made = path.image, default.image
    if (
        measured is None
        or made is None
        or made.word("preallocation") == (measured.word("preallocation"))
    ):
        return None
    return f"preallocation={made.word('preallocation')}"


def in_use(path: DiskPath) -> DiskPath:
    """A path without how its image was made."""
    image = path.image
    if image is None:
        return path
    options = tuple(item for item in image.options if item[0] not in ("preallocation", "overlay"))
    return replace(path, image=replace(image, options=options))


def _present_unsafe(analysis: Analysis) -> tuple[PresentDisk, ...]:
    """The plan's baseline, if it is a guest's path that loses flushed data and is not ranked."""
    baseline = analysis.baseline
    of_baseline = known_durability(baseline, analysis.verdicts)
    unsafe = (
        of_baseline is not None
        and not of_baseline.kind.acceptable
        and baseline in analysis.measured
        and baseline not in analysis.competing
        and analysis.names_baseline
    )
    return (PresentDisk(baseline, None),) if unsafe else ()


def _made_safe(analysis: Analysis, tied: Sequence[MeasuredCell]) -> MeasuredCell | None:
    """The tied path that a change of settings makes of a baseline that loses data: nobody converts
    an image for a path that is not shown to be better."""
    (disk,) = _present_unsafe(analysis) or (None,)
    if disk is None or disk.cell.path is None:
        return None
    return nearest_settings(disk.cell.path, {cell: cell.path for cell in tied if cell.path})


def _keeping_data(
    analysis: Analysis,
    cell: MeasuredCell,
    tied: Sequence[MeasuredCell],
    kept: Collection[MeasuredCell],
) -> MeasuredCell:
    """The cell, or if it loses flushed data the first tied one that does not: a tie shows no price
    of safety. What nobody has gives way to one that kept all data in power cuts, too."""

    def risk(each: MeasuredCell) -> int:
        found = known_durability(each, analysis.verdicts)
        if found is not None and not found.kind.acceptable:
            return 2
        tested = found is not None and found.kind is DurabilityKind.KEPT_IN_TEST
        return 0 if tested or each in kept else 1

    return min((cell, *tied), key=risk)


def _of_race(analysis: Analysis, race: RaceOutcome, ranking: Ranking) -> PathChoice:
    left = (race.best, *race.as_good)
    present = present_disks(analysis, {*left, *(row.cell for row in ranking.rows)}, left)
    choice = of_race(race)
    kept = [cell for cell in left if cell in {disk.cell for disk in present}]
    bounds = {} if ranking.best is None else ranking.best.bounds
    unsafe = _present_unsafe(analysis)
    if unsafe and not choice.verdict.decided and choice.verdict is not ChoiceVerdict.ONLY:
        choice = replace(choice, verdict=ChoiceVerdict.SAFER)
    made_safe = _made_safe(analysis, left)
    if not choice.verdict.decided and choice.verdict is not ChoiceVerdict.ONLY:
        cell = made_safe or _keeping_data(analysis, next(iter(kept), race.best), left, kept)
        choice = replace(
            choice,
            verdict=ChoiceVerdict.KEEP if cell in kept and not unsafe else choice.verdict,
            cell=cell,
            ties=tuple(other for other in left if other != cell),
            behind=choice.behind if cell == race.best else bounds.get(cell),
        )
    leads = next((row.cell for row in ranking.rows if row.cell in left), choice.leader)
    return replace(
        choice,
        stays=tuple(row.cell for row in ranking.rows if row.best == 1 and row.cell not in left),
        leader=leads if race.lost else choice.leader,
        present=(*unsafe, *present),
        considered=len(analysis.measured),
        durability=known_durability(choice.cell, analysis.verdicts),
        covered=tuple(row.cell for row in ranking.rows if row.cell not in race.lost),
        campaigns=tuple(campaign.id for campaign in analysis.campaigns),
    )


def of_race(race: RaceOutcome) -> PathChoice:
    """The choice that a race has shown, without the path's durability."""
    behind = 0.0 if race.proven else race.margin if race.decided else race.behind
    verdict = (
        ChoiceVerdict.BEST
        if race.proven
        else ChoiceVerdict.CLOSE
        if race.decided
        else ChoiceVerdict.TIED
    )
    if (
        behind is not None
        and race.step is None
        and behind <= MARGIN
        and verdict is ChoiceVerdict.TIED
    ):
        verdict = ChoiceVerdict.CLOSE
    compared = (race.raced or race.measured) - len(race.few)
    if race.measured < 2 or compared < 2:
        verdict = ChoiceVerdict.ONLY
    return PathChoice(
        verdict=verdict,
        cell=race.best,
        leader=race.best,
        ties=race.as_good,
        worse=(),
        present=(),
        behind=behind,
        compared=compared,
        considered=race.cells,
        confidence=race.confidence,
        durability=None,
        step=race.step if race.decided else None,
        left_out=race.left_out,
        unranked=race.few,
    )
