"""The path to use and how sure that is: the same in every answer that names one."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated

from vdisklab.analysis.best import competitors
from vdisklab.analysis.candidates import Recommendation
from vdisklab.analysis.observations import MeasureKey
from vdisklab.analysis.race import RaceOutcome
from vdisklab.analysis.rank_intervals import Ranking
from vdisklab.answers.analysis import Analysis
from vdisklab.answers.hosts import HostsAnalysis
from vdisklab.answers.race import race_of
from vdisklab.documents import HIDDEN
from vdisklab.errors import PlanError
from vdisklab.path.cell import MeasuredCell, PageCacheChoice
from vdisklab.path.durability import Durability, known_durability
from vdisklab.path.needs import DURABLE, unmet
from vdisklab.path.segments import HOST
from vdisklab.plan.plan_file import request_alike
from vdisklab.plan.profile_file import parse_profile
from vdisklab.plan.run_request import MOST_ROUNDS
from vdisklab.plan.settings import DEFAULT_PROFILE, NO_BASELINE, Request, command_words, given
from vdisklab.workload.builtin_profiles import builtin_profile_text

USUAL_NOISE = 0.15
"""Up to this noise, most simulated races of equal paths end in half of the rounds (`bench/race.py`:
in a third at 12 %; the rounds grow as its square)."""

MARGIN = 0.1
"""A path is good enough if it is at most this much worse than the best."""


@dataclass(frozen=True, slots=True)
class Surer:
    """The cost of knowing a path within 10 % of the best."""

    paths: Annotated[
        int, "to race, this one and its ties; 0 if the same command goes on with its race"
    ]
    runs: Annotated[int, "still to be made, at most"]
    seconds: Annotated[float, "by the mean duration of a run so far"]
    usual: Annotated[bool, "at this noise, most races take less than half of that"] = True
    metric: Annotated[str | None, "to race by; null for the score"] = None
    command: Annotated[
        str | None,
        "that races them; null if the campaign does not say how its paths were made and measured",
    ] = None


@dataclass(frozen=True, slots=True)
class PathChoice:
    """The path to use, and how sure that is."""

    cell: MeasuredCell
    ties: Annotated[tuple[MeasuredCell, ...], "the other paths that are not shown to be worse"]
    behind: Annotated[
        float | None,
        "by how much the best of these may be better, at most: 0.1 is 10 %, 0 if this path is the "
        "best; null if there is no limit",
    ]
    leads: Annotated[bool, "false for a simpler path that is shown to be close to the leader"]
    compared: Annotated[int, "paths that were compared"]
    considered: Annotated[int, "paths that were measured"]
    confidence: float
    durability: Durability | None = field(metadata=HIDDEN)
    surer: Annotated[Surer | None, "null if it is sure enough, or cannot be told"]

    step: Annotated[float | None, "the metric's step, if `behind` is that"] = None
    left_out: Annotated[int, "paths that did not race: a model expects nothing of them"] = 0
    unranked: Annotated[int, "paths that qualify, but have too few rounds to be compared"] = 0

    @property
    def is_close(self) -> bool:
        """True if it is shown to be good enough."""
        return not self.ties or (self.behind is not None and self.behind <= MARGIN)


def recommended(analysis: Analysis, found: Recommendation, race: RaceOutcome | None) -> PathChoice:
    """The choice of a recommendation; a race decides instead of the ranking."""
    if race is not None:
        return _of_race(analysis, race, found.considered)
    return _of_ranking(analysis, found.ranking, found.cell, found.ties, found.considered)


def choose(analysis: Analysis, measure: MeasureKey) -> PathChoice | None:
    """The path to use by a measure, among those that keep flushed data, if there are any.

    None if no path could be ranked.
    """
    if measure == analysis.scored.overall and not isinstance(analysis, HostsAnalysis):
        race = race_of(analysis, (DURABLE,))
        if race is not None:
            return _of_race(analysis, race, race.cells)
    observations = analysis.values(measure)
    able = [observations.cells[place] for place in competitors(observations.cells).tolist()]
    durable = [
        cell
        for cell in able
        if cell.path is None or not unmet(cell.path, (DURABLE,), analysis.verdicts)
    ]
    ranking = analysis.ranking(measure)
    if 0 < len(durable) < len(able) or isinstance(analysis, HostsAnalysis):
        ranking = analysis.ranked_by.among(observations, measure, durable or able)
    cell = analysis.ranked_by.to_use(ranking)
    if cell is None:
        return None
    return _of_ranking(analysis, ranking, cell, analysis.ranked_by.winners(ranking), len(able))


def _of_ranking(
    analysis: Analysis,
    ranking: Ranking,
    cell: MeasuredCell,
    winners: Sequence[MeasuredCell],
    considered: int,
) -> PathChoice:
    best, ties = ranking.best, tuple(other for other in winners if other != cell)
    behind = None if best is None else best.behind
    if best is None and ranking.rows and not ties:
        behind = 0.0
    surer = None
    over_hosts = isinstance(analysis, HostsAnalysis)
    if best is not None and ties and (behind is None or behind > MARGIN) and not over_hosts:
        metric = None if ranking.measure == analysis.scored.overall else str(ranking.measure)
        surer = replace(
            _surer(analysis, (cell, *ties), MOST_ROUNDS, new=True),
            usual=best.noise <= USUAL_NOISE,
            metric=metric,
            command=race_command(analysis, (cell, *ties), metric),
        )
    return PathChoice(
        cell=cell,
        ties=ties,
        behind=behind,
        leads=not winners or winners[0] == cell,
        compared=len(ranking.rows) if best is None else best.competitors,
        considered=considered,
        confidence=1 - ranking.alpha,
        durability=known_durability(cell, analysis.verdicts),
        surer=surer,
        unranked=0 if best is None else best.unranked,
    )


def _of_race(analysis: Analysis, race: RaceOutcome, considered: int) -> PathChoice:
    rounds = 0 if race.decided else race.most_rounds - race.rounds
    left = (race.best, *race.as_good)
    return replace(
        of_race(race),
        considered=considered,
        durability=known_durability(race.best, analysis.verdicts),
        surer=_surer(analysis, left, rounds) if rounds > 0 else None,
    )


def of_race(race: RaceOutcome) -> PathChoice:
    """The choice that a race has shown, without the path's durability."""
    return PathChoice(
        cell=race.best,
        ties=race.as_good,
        behind=0.0 if race.proven else race.margin if race.decided else race.behind,
        leads=True,
        compared=race.raced or race.measured,
        considered=race.cells,
        confidence=race.confidence,
        durability=None,
        surer=None,
        step=race.step if race.decided else None,
        left_out=race.left_out,
    )


def _surer(
    analysis: Analysis, tied: Collection[MeasuredCell], rounds: int, *, new: bool = False
) -> Surer:
    """What these paths cost in so many rounds, with what is measured beside them in each: the
    baseline, and paths on the host."""
    beside = _beside(analysis, tied)
    took = [run.wall_seconds for run in analysis.loaded.outlines if run.wall_seconds]
    runs = rounds * (len(tied) + len(beside))
    return Surer(len(tied) if new else 0, runs, runs * sum(took) / max(1, len(took)))


def _beside(analysis: Analysis, tied: Collection[MeasuredCell]) -> list[MeasuredCell]:
    """The cells that each round of a race between `tied` measures, too."""
    return [
        cell
        for cell in analysis.loaded.observations.cells
        if cell not in tied
        and (cell == analysis.baseline or (cell.path is not None and cell.path.on_host))
    ]


def race_command(
    analysis: Analysis, tied: Sequence[MeasuredCell], metric: str | None
) -> str | None:
    """The command that races these cells, measured as they were; None if the campaign does not
    store all that it takes.
    """
    campaign, *others = analysis.campaigns
    plan, beside = campaign.plan, _beside(analysis, tied)
    paths = [cell.path for cell in (*tied, *beside)]
    try:
        profile = parse_profile(builtin_profile_text(str(plan.get("profile"))), "profile")
    except PlanError:
        return None
    measured = [str(one.get("name")) for one in plan.get("measurements", ())]
    if (
        others
        or measured != [one.name for one in profile.measurements]
        or any(path is None or path.attachment.qemu for path in paths)
    ):
        return None
    alike = request_alike(plan, Request)
    usual = {
        row.name: row.kind.empty
        for row, value in given(alike)
        if value == profile.usual.settings.get(row.name, row.default)
    }
    baseline, caches = plan.get("baseline"), {str(cell.page_cache) for cell in tied}
    on = {path.layers[0].option("at") for path in paths if path is not None and path.layers}
    request = replace(
        alike,
        **usual,
        paths=tuple(cell.name for cell in (*tied, *beside)),
        target=tuple(one for one in alike.target if one.name in on),
        profile=None if profile.name == DEFAULT_PROFILE else profile.name,
        baseline=None if baseline == HOST else baseline or NO_BASELINE,
        page_cache=next((one for one in PageCacheChoice if one in caches), None),
    )
    durable = not any(path and unmet(path, (DURABLE,), analysis.verdicts) for path in paths)
    return shlex.join(
        [
            *command_words(request),
            *("--find", "best"),
            *(() if metric is None else ("--metric", metric)),
            *(() if durable else ("--unsafe",)),
        ]
    )
