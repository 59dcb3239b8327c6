"""What more measuring would show of a decision: the command that races paths or continues a
campaign, and how long the command takes.

Here the decision is an argument: nothing in this file changes which path is to be used.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from vdisklab.analysis.intervals import MIN_ROUNDS
from vdisklab.analysis.observations import MeasureKey
from vdisklab.analysis.race import RaceOutcome
from vdisklab.analysis.score import DEFAULT_METRIC
from vdisklab.answers.analysis import Analysis
from vdisklab.answers.choice import ChoiceVerdict, Decision, PathChoice, Surer, raced_metric
from vdisklab.answers.elsewhere import directories_gone
from vdisklab.answers.hosts import HostsAnalysis
from vdisklab.errors import PlanError, VdisklabError
from vdisklab.path.cell import MeasuredCell, PageCacheChoice
from vdisklab.path.disk_path import Attachment
from vdisklab.path.needs import DURABLE, Need, unmet, with_default
from vdisklab.path.segments import HOST, CacheMode, PageCache
from vdisklab.plan.option_rows import given
from vdisklab.plan.race_terms import (
    DEFAULT_CONFIDENCE,
    DEFAULT_MARGIN,
    MOST_ROUNDS,
    RaceTerms,
)
from vdisklab.results.model import Campaign, Origin
from vdisklab.value import Value, replace
from vdisklab.workload.builtin_profiles import builtin_profile

if TYPE_CHECKING:
    from vdisklab.answers.effort import Effort
    from vdisklab.plan.settings import Request

USUAL_NOISE = 0.12
"""Up to this noise, most simulated races end in as few rounds as `plan` says (`bench/race.py`; the
rounds grow as its square)."""


def surer(
    analysis: Analysis, choice: PathChoice, decision: Decision, needs: Sequence[Need] = ()
) -> Surer | None:
    """What it costs to be surer of the choice of a decision, among paths that meet the `needs`.

    None if the choice is sure enough, or if no command makes it surer.
    """
    if analysis.loaded.measured_now is not None or isinstance(analysis, HostsAnalysis):
        return None  # what is being measured goes on by itself; no command runs on many hosts
    if decision.race is not None:
        return _going_on(analysis, decision.race)
    ranking = decision.ranking
    if choice.verdict is ChoiceVerdict.ONLY:
        return _to_compare(analysis, choice, ranking.measure, needs)
    if ranking.best is None or not choice.ties or choice.verdict.decided:
        return None
    raced_as = raced_metric(analysis, ranking.measure)
    if raced_as is None:  # no race goes by weights of the user's own
        return None
    race = _new_race(analysis, choice.tied, raced_as, needs)
    return replace(
        _cost(analysis, choice.tied, MOST_ROUNDS, race),
        paths=len(choice.tied),
        usual=ranking.best.noise <= USUAL_NOISE,
        metric=None if raced_as == DEFAULT_METRIC else raced_as,
        command=None if race is None else race.command,
    )


def _going_on(analysis: Analysis, race: RaceOutcome) -> Surer | None:
    """What it costs to go on with a race; None if the race has ended."""
    rounds = 0 if race.decided else race.most_rounds - race.rounds
    if rounds <= 0:
        return None
    going_on = _race_going_on(analysis)
    command = None if going_on is None else going_on.command
    return replace(_cost(analysis, race.going_on, rounds, going_on), command=command)


def _to_compare(
    analysis: Analysis, choice: PathChoice, measure: MeasureKey, needs: Sequence[Need]
) -> Surer | None:
    """What there is to compare a path with costs: the rounds that others lack, or, where nothing
    else was measured, a race by the measure with the path's other cache mode. None if that is not
    known, or no race goes by the measure."""
    cell, unranked, raced_as = choice.cell, choice.unranked, None
    if unranked:
        race = _more_rounds(analysis)
    elif len(analysis.measured) == 1:
        other = with_default_cache(cell, instead=CacheMode.NONE)
        raced_as = raced_metric(analysis, measure)
        if other is None or raced_as is None:
            return None
        race = _new_race(analysis, (cell, other), raced_as, needs)
    else:
        return None
    if race is None:
        return None
    return replace(
        _cost(analysis, (cell, *unranked), MIN_ROUNDS, race),
        paths=0 if unranked else 2,
        command=race.command,
        usual=not unranked,
        metric=None if raced_as == DEFAULT_METRIC else raced_as,
    )


def with_default_cache(cell: MeasuredCell, instead: CacheMode | None = None) -> MeasuredCell | None:
    """The path with QEMU's default cache mode and attachment, cold; with cache mode `instead` if it
    has the default one. None where a race does not measure such a path."""
    path = cell.path
    if path is None or path.on_host or path.shares_directory:
        return None
    stated = (path.attachment.option(name) for name in ("guests", "during", "made", "qemu"))
    if any(option is not None for option in stated):  # measured in another way than a race does
        return None
    usual = replace(path, cache=CacheMode.WRITEBACK, attachment=Attachment())
    if usual != path.spelled_out:
        return MeasuredCell(usual.canonical, PageCache.COLD)
    return None if instead is None else MeasuredCell(replace(path, cache=instead).canonical)


class _Race(Value):
    """A race of some paths with the settings of a campaign; `options` are the words for its terms.

    Without terms it is a number of rounds. It `goes_on` if it is the campaign's own.
    """

    request: Request
    terms: RaceTerms | None
    options: tuple[str, ...]
    goes_on: bool = False

    @property
    def command(self) -> str:
        """What starts the race, or continues it."""
        from vdisklab.plan.settings import command_words  # noqa: PLC0415 - as below

        return shlex.join([*command_words(self.request), *self.options])


def _cost(
    analysis: Analysis, tied: Collection[MeasuredCell], rounds: int, race: _Race | None
) -> Surer:
    """What a race between these paths costs, as `plan` says it of the same command.

    Without a command it is the time of so many rounds of the paths, with what is measured beside
    them in each: the baseline, and paths on the host.
    """
    takes = None if race is None else _effort_of(analysis, race, tied)
    if takes is not None and takes.slots:
        return Surer(
            0,
            len(takes.slots),
            takes.at_most,
            on=analysis.run_on,
            seconds_usually=takes.usually,
        )
    took = [run.wall_seconds for run in analysis.loaded.outlines if run.wall_seconds]
    runs = rounds * (len(tied) + len(_beside(analysis, tied)))
    seconds = runs * sum(took) / max(1, len(took))
    return Surer(0, runs, seconds, on=analysis.run_on)


def _effort_of(analysis: Analysis, race: _Race, tied: Collection[MeasuredCell]) -> Effort | None:
    """The effort of a race's command, of which `tied` are left; None if its plan names what only
    the host that measured it has."""
    # Imported late: an answer that is sure enough builds no plan. A tie builds one: how long its
    # command takes is what `plan` says of the same command.
    from vdisklab.answers.begun import (  # noqa: PLC0415
        MeasuringHost,
        host_changes,
        this_host,
    )
    from vdisklab.answers.effort import SoFar, effort, pace_of, so_far_of  # noqa: PLC0415
    from vdisklab.answers.race_plan import as_race  # noqa: PLC0415
    from vdisklab.host.command import LocalHost  # noqa: PLC0415
    from vdisklab.plan.build import build_plan  # noqa: PLC0415
    from vdisklab.plan.capabilities import Capabilities  # noqa: PLC0415
    from vdisklab.plan.settings import DEFAULT_PROFILE  # noqa: PLC0415

    if race.request.qemu or race.request.guest_image is not None:
        return None
    campaign = analysis.campaigns[0]
    try:
        profile = builtin_profile(race.request.profile or DEFAULT_PROFILE)
        plan = build_plan(race.request, Capabilities(), profile)
        plan = plan if race.terms is None else as_race(plan, race.terms)
    except VdisklabError:
        return None
    # Of another machine it is not known whether it has changed since.
    is_here = analysis.run_on is None
    host = this_host(LocalHost(), plan) if is_here else MeasuringHost.of(campaign.host)
    so_far = so_far_of(analysis.results, host, plan, analysis.verdicts, new=race.goes_on)
    if race.goes_on:
        pace = pace_of(plan, analysis.loaded.outlines) or so_far.pace
        so_far = SoFar(pace=pace)  # of a host that has changed since: a new campaign
        if not host_changes(campaign.host, host.facts()):
            so_far = SoFar(analysis.results.finished(campaign.id), tied, pace)
    return effort(plan, so_far)


def _beside(analysis: Analysis, tied: Collection[MeasuredCell]) -> list[MeasuredCell]:
    """The cells that each round of a race between `tied` measures, too."""
    return [
        cell
        for cell in analysis.loaded.observations.cells
        if cell not in tied
        and (cell == analysis.baseline or (cell.path is not None and cell.path.on_host))
    ]


def _new_race(
    analysis: Analysis,
    tied: Sequence[MeasuredCell],
    metric: str,
    needs: Sequence[Need] = (),
) -> _Race | None:
    """The race of these cells by `metric` for paths with these needs, with the settings of the
    campaign; None if the campaign does not store every setting that the command needs, or its
    profile has no such number to race by. A directory that is not here now is not named.
    """
    cells = (*tied, *_beside(analysis, tied))
    request = _request_again(analysis, cells, tied)
    if request is not None and directories_gone(analysis.campaigns):
        request = replace(request, directory=None)
    if request is None or not _can_race_by(request, metric):
        return None
    lost = {cell for cell in (*cells, *analysis.measured) if _loses(analysis, cell)}
    options, terms = ["--find", "best"], RaceTerms(shortlist=True)
    if not lost.issuperset(analysis.measured) and lost.intersection(tied):
        options.append("--unsafe")  # only who asks for it ranks these beside others
        terms = replace(terms, needs=())
    elif lost.intersection(cells):
        # --find would leave out what loses data: the baseline, or every path.
        options, terms = ["--within", f"{DEFAULT_MARGIN:g}"], RaceTerms()
    # An answer for needs goes by a race for the same ones.
    more = [need for need in needs if need != DURABLE]
    options += [word for need in more for word in ("--need", str(need))]
    terms = replace(
        terms, needs=with_default(more, unsafe=not terms.needs) if more else terms.needs
    )
    if metric != DEFAULT_METRIC:
        options, terms = [*options, "--metric", metric], replace(terms, metric=metric)
    return _Race(request, terms, tuple(options))


def _can_race_by(request: Request, metric: str) -> bool:
    """True if `run` accepts the metric for the request's profile: an open load's rates are set."""
    # Imported late, as below.
    from vdisklab.answers.race_plan import require_metric  # noqa: PLC0415
    from vdisklab.plan.settings import DEFAULT_PROFILE  # noqa: PLC0415

    try:
        require_metric(builtin_profile(request.profile or DEFAULT_PROFILE), metric)
    except PlanError:
        return False
    return True


def _loses(analysis: Analysis, cell: MeasuredCell) -> bool:
    path = cell.path
    return path is not None and bool(unmet(path, (DURABLE,), analysis.verdicts))


def race_command(
    analysis: Analysis,
    tied: Sequence[MeasuredCell],
    metric: str = DEFAULT_METRIC,
    needs: Sequence[Need] = (),
) -> str | None:
    """The command that races these cells with the settings of the campaign; None as above."""
    race = _new_race(analysis, tied, metric, needs)
    return None if race is None else race.command


def _race_going_on(analysis: Analysis) -> _Race | None:
    """The campaign's own race; None if the campaign does not say how its paths were made and
    measured.

    It names the same paths in the same order, because they decide which campaign a command
    continues.
    """
    campaign, terms = analysis.campaigns[0], RaceTerms.of(analysis.campaigns[0].plan)
    cells = _planned(campaign)
    request = _request_again(analysis, cells, cells)
    if request is None or terms is None or terms.groups:
        return None
    margin, confidence = f"{terms.margin:g}", f"{terms.confidence:g}"
    options = {
        "--find": ("best",) if terms.shortlist else (),
        "--within": () if terms.margin == DEFAULT_MARGIN else (margin,),
        "--confidence": () if terms.confidence == DEFAULT_CONFIDENCE else (confidence,),
        "--metric": () if terms.metric == "overall" else (terms.metric,),
        "--need": tuple(str(need) for need in terms.needs if need != DURABLE),
    }
    stated = [word for flag, values in options.items() for each in values for word in (flag, each)]
    unsafe = [] if DURABLE in terms.needs else ["--unsafe"]
    return _Race(request, terms, (*stated, *unsafe), goes_on=True)


def imported_campaign(analysis: Analysis) -> str | None:
    """The campaign of an answer whose results were all imported: `run` continues none of it."""
    if all(run.origin is Origin.IMPORTED for run in analysis.loaded.outlines):
        return analysis.campaigns[0].id
    return None


def more_rounds_command(analysis: Analysis) -> str | None:
    """The command that continues the campaign's race, or the campaign up to the fewest rounds that
    a rank needs; None as above."""
    race = _more_rounds(analysis)
    return None if race is None else race.command


def _more_rounds(analysis: Analysis) -> _Race | None:
    if RaceTerms.of(analysis.campaigns[0].plan) is not None:
        race = _race_going_on(analysis)
        if race is not None:
            return race
    cells = _planned(analysis.campaigns[0])
    request = _request_again(analysis, cells, cells) if cells else None
    if request is None:
        return None
    return _Race(replace(request, rounds=MIN_ROUNDS), None, (), goes_on=True)


def _planned(campaign: Campaign) -> list[MeasuredCell]:
    """The cells that a campaign's command names, with those that the host could not serve."""
    # Imported late: most answers have no command that measures again.
    from vdisklab.plan.campaign import what_is_measured  # noqa: PLC0415

    return [MeasuredCell.parse(text) for text in what_is_measured(campaign.plan)["cells"]]


def _request_again(
    analysis: Analysis, cells: Sequence[MeasuredCell], tied: Sequence[MeasuredCell]
) -> Request | None:
    """A request of the paths of `cells` with the campaign's settings; `tied` say the page cache.
    None if the campaign does not store every setting, or has one without an option."""
    paths = [cell.path for cell in cells]
    campaign, *others = analysis.campaigns
    plan = campaign.plan
    try:
        profile = builtin_profile(str(plan.get("profile")))
    except PlanError:
        return None
    # Imported late: reading a plan needs pydantic, and most answers have no such command.
    from vdisklab.plan.guest import parse_qemu  # noqa: PLC0415
    from vdisklab.plan.plan_file import request_alike  # noqa: PLC0415
    from vdisklab.plan.settings import (  # noqa: PLC0415
        DEFAULT_PROFILE,
        NO_BASELINE,
        Request,
    )

    measured = [str(measurement.get("name")) for measurement in plan.get("measurements", ())]
    if (
        others
        or measured != [measurement.name for measurement in profile.measurements]
        or any(path is None for path in paths)
    ):
        return None
    alike = request_alike(plan, Request)
    if alike.guest_kernel is not None:  # no option names it, only a plan's file
        return None
    usual = {
        row.name: row.kind.empty
        for row, value in given(alike)
        if value == profile.usual.settings.get(row.name, row.default)
    }
    baseline = NO_BASELINE if plan.get("no_baseline") else plan.get("baseline")
    caches = {str(cell.page_cache) for cell in tied}
    on = {path.layers[0].option("at") for path in paths if path is not None and path.layers}
    used = {path.attachment.qemu for path in paths if path is not None}
    return replace(
        alike,
        **usual,
        qemu=tuple(
            parse_qemu(f"{name}={qemu['binary']}")
            for name, qemu in plan.get("qemu", {}).items()
            if name in used
        ),
        paths=tuple(dict.fromkeys(cell.name for cell in cells)),
        target=tuple(target for target in alike.target if target.name in on),
        profile=None if profile.name == DEFAULT_PROFILE else profile.name,
        baseline=None if baseline == HOST else baseline or NO_BASELINE,
        page_cache=PageCacheChoice.BOTH
        if {PageCacheChoice.COLD, PageCacheChoice.WARM} <= caches
        else next((state for state in PageCacheChoice if state in caches), None),
    )
