"""`trend`: campaigns of one plan on one host over time, and what the newest shows."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Annotated

import numpy as np

from vdisklab.analysis.diagnostics.caveats import Caveats
from vdisklab.analysis.diagnostics.diagnostic import Diagnostic
from vdisklab.analysis.intervals import MIN_ROUNDS
from vdisklab.analysis.level_changes import DATED_FROM, ChangeKind, LevelChange, noise_lasts
from vdisklab.analysis.observations import Floats, MeasureKey, Observations, narrowed
from vdisklab.analysis.paired_ratios import main_measures
from vdisklab.analysis.standing_losses import StandingLoss, standing_losses
from vdisklab.analysis.trend import (
    YEAR,
    CampaignLevels,
    Newest,
    SeriesChange,
    TrendVerdict,
    dated,
    earlier_needed,
    lasting_change,
    levels,
    loss_shown,
    newest_changes,
    series_changes,
)
from vdisklab.answers.loading import find_cells, find_measure, load_chosen, require_numbers
from vdisklab.documents import Answer
from vdisklab.errors import PlanError, SeparateCampaignsError
from vdisklab.host.mounts import is_out_of_sight, is_visible_directory
from vdisklab.path.cell import MeasuredCell
from vdisklab.plan.campaign import what_is_measured
from vdisklab.plan.race_terms import RaceTerms
from vdisklab.results.host_choice import by_host
from vdisklab.results.model import Campaign, Example, RunOutline
from vdisklab.results.store import Store
from vdisklab.units import counted, format_size, named
from vdisklab.value import HIDDEN, Value

DEFAULT_WORSE = 0.05
TOGETHER = "all paths"

PAUSE = 2.5
"""A pause is said if it is longer than so many usual ones: several campaigns were left out."""

_DAY = timedelta(days=1)

_STATES = ("host.", "guest.mount", "packages.", "virtiofsd.version")
"""The first part of the names of recorded states that an upgrade or an administrator can change."""


class ClockWentBack(Diagnostic):
    """A campaign that was stored after another one, but says that it began before."""

    campaign: str
    other: str

    def __str__(self) -> str:
        return (
            f"Campaign {self.campaign} was stored after {self.other}, but began before it by its "
            "date: this host's clock went back, or it was imported later. Dates decide the order; "
            "if they are wrong, name the right campaigns with --campaign."
        )


class LongPause(Diagnostic):
    """Campaigns that are missing: a pause that is much longer than the others."""

    before: datetime
    after: datetime
    usual: float
    """Days between two campaigns, the median."""

    def __str__(self) -> str:
        return (
            f"No campaign between {self.before:%Y-%m-%d} and {self.after:%Y-%m-%d}, for "
            f"{(self.after - self.before).days} days, where {self.usual:.0f} are usual: a change "
            "in this time has no closer date."
        )


class FromTheFuture(Diagnostic):
    """A campaign with a date that is still to come."""

    campaign: str
    started: datetime

    def __str__(self) -> str:
        return (
            f"Campaign {self.campaign} is of {self.started:%Y-%m-%d %H:%M}, which is still to "
            "come: a clock was wrong. Name the right campaigns with --campaign."
        )


class RanOtherwise(Diagnostic):
    """Campaigns of the same plan and host whose guests ran under another accelerator."""

    campaigns: tuple[str, ...]

    def __str__(self) -> str:
        return (
            f"Not compared: {counted(len(self.campaigns), 'campaign')} of the same plan "
            f"({named(self.campaigns)}), whose guests ran under another accelerator (KVM or "
            f"emulation) than the newest one's: `vdisklab trend --campaign {self.campaigns[0]}` "
            f"shows {'it' if len(self.campaigns) == 1 else 'the newest of them'}."
        )


class OtherHosts(Diagnostic):
    """Hosts that measured the same plan, whose campaigns are not compared with these."""

    hosts: tuple[str, ...]
    newest: str

    def __str__(self) -> str:
        return (
            f"The same plan was measured on {counted(len(self.hosts), 'other host')}: "
            f"{named(self.hosts)}; each has a trend of its own: "
            f"`vdisklab trend --campaign {self.newest}`."
        )


class OnlyCampaign(Diagnostic):
    """Nothing to compare with yet: `way` is where and how the campaign can be measured again."""

    campaign: str
    hostname: str
    way: str

    def __str__(self) -> str:
        return (
            f"Nothing to compare yet: campaign {self.campaign} is the only one of its plan on "
            f"{self.hostname}, and a verdict needs {MIN_ROUNDS} earlier ones. To go on, "
            f"{self.way}: `vdisklab run --again {self.campaign}`."
        )


class NotDated(Diagnostic):
    """Paths in which no lasting change was looked for."""

    cells: tuple[MeasuredCell, ...]

    def __str__(self) -> str:
        return (
            f"No lasting change was looked for in {named(self.cells)}: fewer than {DATED_FROM} "
            f"campaigns have {'its' if len(self.cells) == 1 else 'their'} numbers."
        )


class NoiseLasts(Diagnostic):
    """A campaign's noise lasts into the next, so changes are dated by chance more often."""

    def __str__(self) -> str:
        return (
            "Neighbouring campaigns have more in common than distant ones: what disturbs this host "
            "lasts for longer than the time between two campaigns. In two years of monthly looks a "
            "change is then dated by chance on about one of ten such hosts."
        )


class HostChange(Value):
    """A fact of the host, or a state that was read back, that changed between two campaigns."""

    fact: str
    before: str
    after: str


class TrendRow(Value):
    """One path, or all together, in the newest campaign."""

    path: Annotated[str, f"a cell, or `{TOGETHER}`"]
    newest: Newest
    lasting: Annotated[
        float | None,
        "level now / level before the changes of the last 12 campaigns: those that were dated, or "
        "a loss that an earlier newest campaign showed and that is not half gone; null without any",
    ]
    since: Annotated[str | None, "the campaign that first has the last of these changes"]
    exceeds: Annotated[
        bool, "worse by more than --worse: the newest campaign, or the level since a dated change"
    ]
    levels: Annotated[
        tuple[float | None, ...], "of each campaign, relative to the first that is known"
    ]

    @property
    def verdict(self) -> TrendVerdict:
        """By the newest campaign, and by the lasting change of the level if there is one."""
        lasts = None if self.lasting is None else TrendVerdict.of(self.lasting)
        if lasts is None or self.newest.verdict is TrendVerdict.WORSE:
            return self.newest.verdict
        return lasts


class DatedShift(Value):
    """A lasting change of one path, or of all together: a step, or a line (a slow change)."""

    path: str
    kind: ChangeKind
    before: Annotated[str, "the last campaign before the step, or before the line begins to move"]
    after: Annotated[str, "the first campaign after the step, or the last one of the line"]
    earliest: Annotated[datetime, "when the campaign before it began"]
    latest: Annotated[datetime, "when the campaign after it began"]
    campaigns: Annotated[int, "from before to after: 1 for a step without a gap"]
    change: Annotated[LevelChange, "of the whole change, with its 95 % interval"]
    each: Annotated[float | None, "ratio from one campaign to the next; null for a step"]
    odds: Annotated[float, "how many times likelier the numbers are with a change than without"]
    changed: Annotated[tuple[HostChange, ...], "between these two campaigns"]


class TrendAnswer(Answer):
    """`vdisklab trend`: how a host's numbers change from campaign to campaign."""

    FORMAT = "vdisklab.trend/1"

    campaigns: Annotated[tuple[Campaign, ...], "the compared ones, oldest first"]
    elsewhere: Annotated[bool, "true if they are of another host than this one"]
    measures: Annotated[tuple[MeasureKey, ...], "a path's level is their geometric mean"]
    verdict: Annotated[TrendVerdict, "worse if any path is, else better if any is"]
    allowed: Annotated[float, "how much worse the newest may be: 0.05 is 5 %"]
    exceeded: Annotated[bool, "true if any path is shown to be worse by more; exit status 9"]
    repeats: Annotated[
        str | None,
        "with --confirm: the campaign that looked worse, which the newest repeats; not compared",
    ]
    confirmed: Annotated[
        bool | None,
        "with --confirm: whether both were worse by more; null if a path that looked worse has no "
        "numbers in the newest; exit status 8",
    ]
    together: Annotated[
        int, f"paths of two or more campaigns, whose mean is `{TOGETHER}` if they are several"
    ]
    paths: Annotated[tuple[TrendRow, ...], "all together first, then the worst first"]
    dated: Annotated[bool, "false with fewer than six campaigns: no lasting change was looked for"]
    shifts: tuple[DatedShift, ...]
    changed: Annotated[
        tuple[HostChange, ...], "on the host since the last campaign that is compared with"
    ]
    findings: tuple[Diagnostic, ...]
    caveats: Caveats
    not_measured: Annotated[
        tuple[str, ...],
        "paths that were asked for, by name or by the plan of the newest campaign, of which no run "
        "succeeded in it; exit status 8",
    ] = ()
    needed: Annotated[int | None, HIDDEN] = None
    """Earlier campaigns with which a loss of `allowed` would be shown of the path that needs the
    fewest; None if MOST_EARLIER do not show it, or if it is not known."""
    year_shows: Annotated[float | None, HIDDEN] = None
    """The smallest loss that a year of earlier campaigns would show of any path."""


def answer_trend(
    results: Store,
    paths: Sequence[str] = (),
    *,
    campaigns: Sequence[str] = (),
    measure: str | None = None,
    worse: float = DEFAULT_WORSE,
    suspect: TrendAnswer | None = None,
    machine: str | None = None,
) -> TrendAnswer:
    """Compares the newest campaign with earlier ones of its plan on its host.

    One of `campaigns` names the newest, several name all that are compared. With `suspect`, an
    earlier answer, the newest campaign repeats that answer's newest: a path exceeds the limit only
    if it does so in both. Raises PlanError.
    """
    chosen, findings = _chosen(results, campaigns, machine)
    loaded = load_chosen(results, chosen)
    require_numbers(loaded)
    observations = loaded.observations
    wanted: list[MeasuredCell] = []
    if paths:
        wanted = [cell for path in paths for cell in find_cells(observations, path)]
        observations = narrowed(observations, wanted)
    measures = _measures(observations, measure)
    found = levels(observations, [campaign.id for campaign in chosen], measures)
    changes = series_changes(found, worse)
    names = [TOGETHER if cell is None else str(cell) for cell in found.cells]
    repeats = None if suspect is None else suspect.campaigns[-1].id
    without = frozenset(number for number, campaign in enumerate(chosen) if campaign.id == repeats)
    newest = newest_changes(found, changes, without=without)
    before = None if suspect is None else {row.path for row in suspect.paths if row.exceeds}
    standing = standing_losses(found, worse, without=without)
    lasting = tuple(_lasting(changes, standing, chosen))
    rows = tuple(_rows(found, names, newest, lasting, worse=worse, before=before))
    exceeded = any(row.exceeds for row in rows)
    spreads = [(series, each.spread) for series, each in enumerate(newest)]
    needed = (earlier_needed(found, series, spread, worse) for series, spread in spreads)
    shown = (loss_shown(found, series, spread, YEAR) for series, spread in spreads)
    last = max((number for trend in newest for number in trend.earlier), default=None)
    search = bool(dated(found).any())
    lasts = (
        search and noise_lasts(found.level[0]) and not any(change.series == 0 for change in changes)
    )
    undated = tuple(
        cell
        for cell, has_change in zip(found.cells, dated(found).tolist(), strict=True)
        if search and not has_change and cell is not None
    )
    return TrendAnswer(
        campaigns=chosen,
        elsewhere=machine not in (None, chosen[-1].host.machine_id),
        measures=measures,
        verdict=_verdict(rows),
        allowed=worse,
        exceeded=exceeded,
        repeats=repeats,
        confirmed=_confirmed(rows, before, exceeded=exceeded),
        together=found.together,
        paths=rows,
        needed=min((each for each in needed if each is not None), default=None),
        year_shows=min((each for each in shown if each is not None), default=None),
        dated=search,
        shifts=tuple(_dated(results, chosen, names, found, changes)),
        changed=() if last is None else _changed(results, chosen[last], chosen[-1]),
        findings=(
            *findings,
            *((NotDated(undated),) if undated else ()),
            *((NoiseLasts(),) if lasts else ()),
        ),
        caveats=loaded.caveats,
        not_measured=tuple(map(str, _not_measured(chosen[-1], loaded.outlines, wanted))),
    )


def _not_measured(
    newest: Campaign, outlines: Iterable[RunOutline], wanted: Sequence[MeasuredCell]
) -> Iterator[MeasuredCell]:
    """The `wanted` cells, or else the planned ones, of which no run succeeded. A search leaves out
    planned cells on purpose."""
    tried: dict[MeasuredCell, bool] = {}
    for run in outlines:
        if run.campaign == newest.id:
            cell = run.measured_cell
            tried[cell] = tried.get(cell, False) or run.failure is None
    terms = RaceTerms.of(newest.plan)
    chooses = terms is not None and terms.shortlist and not wanted
    for cell in dict.fromkeys(wanted or newest.cells):
        if not tried.get(cell, chooses):
            yield cell


def trend_of(results: Store, campaigns: Sequence[str]) -> TrendAnswer | None:
    """The only one of these campaigns among the earlier ones of its plan and host; None if there
    is nothing to compare.
    """
    if len(campaigns) != 1:
        return None
    try:
        chosen, _ = _chosen(results, campaigns, None)
        return answer_trend(results, campaigns=campaigns) if len(chosen) > 1 else None
    except PlanError:
        return None


def _on_which_host(campaign: Campaign, machine: str | None) -> str:
    """On which host a campaign can be measured again; `machine` is this host's id. An answer says
    by itself that the directory is gone."""
    if machine not in (None, campaign.host.machine_id):
        return f"measure it anew on its own host, another machine named {campaign.host.hostname}"
    return "measure it anew"


def _where(campaign: Campaign, machine: str | None) -> str:
    """The same for an error, with the directory if that is gone."""
    directory = campaign.plan.get("directory")
    there = directory is None or is_visible_directory(Path(str(directory)))
    if machine != campaign.host.machine_id or there:
        return _on_which_host(campaign, machine)
    if is_out_of_sight(Path(str(directory))):
        return f"measure it anew, as a user who may look into its work directory {directory}"
    return f"measure it anew, once its work directory {directory} is there again"


def _chosen(
    results: Store, names: Sequence[str], machine: str | None
) -> tuple[tuple[Campaign, ...], tuple[Diagnostic, ...]]:
    """The campaigns to compare, oldest first, and what is to know of them. Raises PlanError."""
    given = {campaign.id: campaign for campaign in map(results.campaign, names)}
    every = results.campaigns(with_runs=True)
    newest = max(given.values() or every[:1], key=lambda campaign: campaign.started, default=None)
    if newest is not None and len(given) < 2:
        every = tuple(campaign for campaign in every if campaign.started <= newest.started)
        given = {}
    if newest is None or not newest.host.machine_id:
        raise PlanError(
            "there is no measured campaign" if newest is None
            else f"campaign {newest.id} is an import, whose host is not known",
            hint="name a measured one: `vdisklab runs` lists them; `vdisklab run` measures",
        )  # fmt: skip
    same = [campaign for campaign in given.values() or every if _comparable(campaign, newest)]
    here = [campaign for campaign in same if campaign.host.machine_id == newest.host.machine_id]
    otherwise = _ran_otherwise(results, here, newest)
    here = [campaign for campaign in here if campaign not in otherwise]
    for campaign in given.values():
        if campaign not in here:
            what = "another host" if campaign in same else "another plan"
            what = "another accelerator" if campaign in otherwise else what
            raise SeparateCampaignsError(
                f"campaigns {newest.id} and {campaign.id} cannot be compared over time: "
                f"{campaign.id} is of {what}",
                together=_over_time(results, given.values()),
            )
    if newest not in here:
        raise PlanError(
            f"campaign {newest.id} has no run yet",
            hint=f"{_where(newest, machine)}: `vdisklab run --again {newest.id}`",
        )
    alone = (
        (OnlyCampaign(newest.id, _host_name(results, newest), _on_which_host(newest, machine)),)
        if len(here) < 2
        else ()
    )
    chosen = tuple(sorted(here, key=lambda campaign: campaign.started))
    stored = {
        campaign.id: number for number, campaign in enumerate(results.campaigns(as_stored=True))
    }
    pauses = () if given else tuple(_pauses(chosen))
    apart = (RanOtherwise(tuple(each.id for each in otherwise)),) if otherwise else ()
    return chosen, (*alone, *_clock(chosen, stored), *pauses, *_others(newest, same), *apart)


def _host_name(results: Store, campaign: Campaign) -> str:
    """The name of a campaign's host, by which `runs` and `rank` tell it from others."""
    grouped = by_host(results.campaigns(with_runs=True))
    return next((name for name, group in grouped.items() if campaign in group), "")


def _ran_otherwise(
    results: Store, campaigns: Iterable[Campaign], newest: Campaign
) -> tuple[Campaign, ...]:
    """The campaigns whose guests did not run under the accelerator of the newest one's."""
    ran_under = results.ran_under(newest.id)
    return tuple(
        campaign
        for campaign in campaigns
        if campaign.id != newest.id and len(ran_under | results.ran_under(campaign.id)) > 1
    )


def _over_time(results: Store, campaigns: Iterable[Campaign]) -> list[list[str]]:
    """The ids of these campaigns, by those that can be compared over time with the newest."""
    usable = (each for each in campaigns if len(results.ran_under(each.id)) < 2)
    left, groups = sorted(usable, key=lambda each: each.started), list[list[str]]()
    while left:
        newest = left[-1]
        same = [
            each
            for each in left
            if each.host.machine_id == newest.host.machine_id and _comparable(each, newest)
        ] or [newest]
        otherwise = _ran_otherwise(results, same, newest)
        same = [each for each in same if each not in otherwise]
        groups.append([each.id for each in same])
        left = [each for each in left if each not in same]
    return groups


def _comparable(campaign: Campaign, newest: Campaign) -> bool:
    """Whether both measured a path in the same way; other paths may have been added or left out."""
    measured, other = what_is_measured(campaign.plan), what_is_measured(newest.plan)
    mine, theirs = set(measured.pop("cells")), set(other.pop("cells"))
    return measured == other and (mine == theirs or not mine.isdisjoint(theirs))


def _clock(chosen: Sequence[Campaign], stored: dict[str, int]) -> Iterator[Diagnostic]:
    for earlier, later in pairwise(chosen):
        if stored[earlier.id] < stored[later.id]:  # the last stored is first
            yield ClockWentBack(earlier.id, later.id)
    if chosen[-1].started > datetime.now(UTC):
        yield FromTheFuture(chosen[-1].id, chosen[-1].started)


def _pauses(chosen: Sequence[Campaign]) -> Iterator[LongPause]:
    """The longest pause, if it is longer than PAUSE usual ones; of hours none is said."""
    days = [(later.started - earlier.started) / _DAY for earlier, later in pairwise(chosen)]
    if len(days) < MIN_ROUNDS:
        return
    usual, longest = statistics.median(days), max(range(len(days)), key=days.__getitem__)
    if usual >= 1 and days[longest] > PAUSE * usual:
        yield LongPause(chosen[longest].started, chosen[longest + 1].started, usual)


def _others(newest: Campaign, same: Sequence[Campaign]) -> Iterator[Diagnostic]:
    others = [campaign for campaign in same if campaign.host.machine_id != newest.host.machine_id]
    if others:
        hosts = by_host([*others, newest])
        names = tuple(name for name, campaigns in hosts.items() if newest not in campaigns)
        yield OtherHosts(names, others[0].id)


def _measures(observations: Observations, name: str | None) -> tuple[MeasureKey, ...]:
    """The named measure, or the main rate of each measurement. Raises PlanError if there is none.

    Scores are left out: some relate to a path that may have changed, too.
    """
    if name is not None:
        return (find_measure(observations, name),)
    if measures := tuple(sorted(main_measures(observations.used))):
        return measures
    raise PlanError(
        "these campaigns have no rate", hint="name a measure: --metric, as in `vdisklab rank`"
    )


def _lasting(
    changes: Sequence[SeriesChange],
    standing: Sequence[StandingLoss | None],
    chosen: Sequence[Campaign],
) -> Iterator[tuple[float | None, str | None]]:
    """For each series the lasting change of its level, and the campaign that first has it.

    A standing loss counts until a change is dated as late as it.
    """
    for series, loss in enumerate(standing):
        ratio = lasting_change(changes, series, len(chosen))
        dated = [change.dated for change in changes if change.series == series]
        start = dated[-1].start if dated and ratio is not None else None
        covered = dated[-1].end if dated and dated[-1].each else start
        if loss is not None and (covered is None or covered < loss.start - 1):
            ratio, start = (1.0 if ratio is None else ratio) * loss.ratio, loss.start
        yield ratio, None if start is None else chosen[start].id


def _rows(
    found: CampaignLevels,
    names: Sequence[str],
    newest: Sequence[Newest],
    lasts: Sequence[tuple[float | None, str | None]],
    *,
    worse: float,
    before: set[str] | None,
) -> Iterator[TrendRow]:
    """The rows in their order; with `before`, only its paths can exceed the limit."""
    together = [index for index, cell in enumerate(found.cells) if cell is None]
    others = [index for index in range(len(names)) if index not in together]
    ratios = [row.change.ratio for row in newest]
    others.sort(key=lambda index: _badness(newest[index], lasts[index][0]))
    relative = found.level - _first(found)
    for index in (*together, *others):
        ratio, (lasting, since) = ratios[index], lasts[index]
        losses = [lasting] if lasting is not None else []
        if newest[index].verdict is TrendVerdict.WORSE and ratio is not None:
            losses.append(ratio)
        exceeds = min(losses, default=1.0) < 1 - worse and (
            before is None or names[index] in before
        )
        shown = np.exp(relative[index])
        points = tuple(float(value) if math.isfinite(value) else None for value in shown)
        yield TrendRow(names[index], newest[index], lasting, since, exceeds, points)


def _badness(newest: Newest, lasting: float | None) -> tuple[bool, bool, float]:
    """A key that sorts paths: those shown to be worse first, by their loss, then by the newest
    change; paths without one come last."""
    shown = [lasting] if lasting is not None else []
    if newest.verdict is TrendVerdict.WORSE and newest.change.ratio is not None:
        shown.append(newest.change.ratio)
    loss = min(shown, default=1.0)
    ratio = loss if loss < 1 else newest.change.ratio
    return loss >= 1, ratio is None, ratio or 0.0


def _confirmed(rows: Sequence[TrendRow], before: set[str] | None, *, exceeded: bool) -> bool | None:
    """Whether a repeat shows the loss of the paths `before`, too; None if it did not measure one.

    One path that is worse in both is enough.
    """
    lacks = (row.path for row in rows if row.newest.verdict is TrendVerdict.NOT_MEASURED)
    if before is None or (not exceeded and not before.isdisjoint(lacks)):
        return None
    return exceeded


def _first(found: CampaignLevels) -> Floats:
    """Each series' first known level; NaN without any."""
    measured = np.isfinite(found.level)
    return np.asarray(found.level[np.arange(len(measured)), measured.argmax(axis=1)][:, None])


def _verdict(rows: Sequence[TrendRow]) -> TrendVerdict:
    """The first that holds of any row: worse, better, no change shown, too few campaigns.

    A row counts by its newest campaign, and by the lasting change of its level if it has one.
    """
    seen = {row.newest.verdict for row in rows}
    seen |= {TrendVerdict.of(row.lasting) for row in rows if row.lasting is not None}
    order = (
        TrendVerdict.WORSE, TrendVerdict.BETTER, TrendVerdict.NONE_SHOWN, TrendVerdict.TOO_FEW
    )  # fmt: skip
    return next((verdict for verdict in order if verdict in seen), TrendVerdict.NOT_MEASURED)


def _dated(
    results: Store,
    chosen: Sequence[Campaign],
    names: Sequence[str],
    found: CampaignLevels,
    changes: Sequence[SeriesChange],
) -> Iterator[DatedShift]:
    for change in sorted(changes, key=lambda change: (change.dated.start, change.series)):
        dated, measured = change.dated, np.flatnonzero(np.isfinite(found.level[change.series]))
        if dated.kind is ChangeKind.STEP:
            first, last = int(measured[measured < dated.start][-1]), dated.start
        else:
            first, last = dated.start, dated.end
        before, after = chosen[first], chosen[last]
        yield DatedShift(
            names[change.series], dated.kind, before.id, after.id, before.started, after.started,
            last - first, dated.change, dated.each, dated.odds, _changed(results, before, after),
        )  # fmt: skip


def _changed(results: Store, before: Campaign, after: Campaign) -> tuple[HostChange, ...]:
    """What differs between two campaigns, as far as both know it. The states of a run belong to its
    path, so only those of paths that both have measured are compared.
    """
    examples = results.examples([before.id]), results.examples([after.id])
    cells = {example.cell for example in examples[0]} & {example.cell for example in examples[1]}
    old, new = (
        _facts(results, campaign, [example for example in measured if example.cell in cells])
        for campaign, measured in zip((before, after), examples, strict=True)
    )
    return tuple(
        HostChange(name, old[name], new[name])
        for name in old
        if name in new and old[name] != new[name]
    )


def _facts(results: Store, campaign: Campaign, examples: Iterable[Example]) -> dict[str, str]:
    """The facts of the host, the disk, and the states that runs recorded without asking for one."""
    host = campaign.host
    facts = {
        "kernel": host.kernel,
        "QEMU": host.qemu,
        "fio": host.fio,
        "CPU": host.cpu,
        "CPUs": None if host.cpus is None else str(host.cpus),
        "memory": None if host.memory_bytes is None else format_size(host.memory_bytes),
        **{name.replace("_", " "): value for name, value in host.more.items()},
        "disk": results.media().get(campaign.id),
    }
    states: dict[str, set[str]] = {}
    for example in examples:
        for name, requested, observed in example.checks:
            if requested is None and name.startswith(_STATES):
                states.setdefault(name, set()).add(observed)
    facts |= {name: ", ".join(sorted(values)) for name, values in states.items()}
    return {name: value for name, value in facts.items() if value}
