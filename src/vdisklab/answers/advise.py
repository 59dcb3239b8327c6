"""What to do about existing guests' disks: keep or change, by measurements on their storage."""

from __future__ import annotations

import math
import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated

from vdisklab.actions.planning import load_profile
from vdisklab.analysis.candidates import candidates, ratio_of, to_use
from vdisklab.analysis.diagnostics.caveats import Caveats, caveats_of
from vdisklab.analysis.intervals import MIN_ROUNDS
from vdisklab.analysis.observations import MeasureKey, Observations, narrowed
from vdisklab.analysis.paired_ratios import Ratio, one_of
from vdisklab.analysis.rank_intervals import rank as rank_cells
from vdisklab.analysis.score import Scored, add_scores
from vdisklab.answers.disks import (
    DiskGroup,
    default_path,
    looks_alike,
    number_of,
    parsed_path,
    paths_to_measure,
    shown_better,
    unlikeness,
)
from vdisklab.answers.loading import (
    Loaded,
    baseline_of,
    choose_campaigns,
    load_chosen,
    stored_verdicts,
)
from vdisklab.answers.plan import answer_plan
from vdisklab.answers.race import as_race, can_race, race_outcome
from vdisklab.documents import HIDDEN, Answer
from vdisklab.errors import PlanError
from vdisklab.host.command import Host
from vdisklab.host.facts import collect_facts
from vdisklab.host.mounts import lies_in_memory
from vdisklab.path.adjacent import adjacent_paths
from vdisklab.path.cell import MeasuredCell, PageCacheChoice
from vdisklab.path.disk_path import DiskPath
from vdisklab.path.durability import CrashVerdicts, Durability, HostDisk, durability
from vdisklab.path.needs import DURABLE, meets
from vdisklab.plan.build import build_plan
from vdisklab.plan.capabilities import Capabilities
from vdisklab.plan.run_request import RaceTerms
from vdisklab.plan.settings import DEFAULT_PROFILE, Request, command_words
from vdisklab.platforms.configured_disk import (
    AioConflict,
    CannotWork,
    FlushesDropped,
    LimitsBeyondPath,
    OtherFormat,
)
from vdisklab.platforms.dialect import Change
from vdisklab.platforms.registry import can_change, change_of, dialect_of, same_image_and_bus
from vdisklab.results.model import Campaign
from vdisklab.results.store import Store


class DiskAction(StrEnum):
    """What to do about a disk."""

    KEEP = "keep"
    CHANGE = "change"
    MEASURE = "measure"
    CANNOT = "cannot be measured"


@dataclass(frozen=True, slots=True)
class DiskAdvice:
    """Disks with one path on one file system, and what to do about them."""

    group: DiskGroup
    action: DiskAction
    reason: Annotated[str, "why nothing is advised, or what is not known"] = ""
    campaign: str | None = None
    to: Annotated[DiskPath | None, "the path to change to; null unless `action` is `change`"] = None
    other: Annotated[DiskPath | None, "the best other setting that was measured, or `to`"] = None
    gain: Annotated[Ratio | None, "of `other` to the present path"] = None
    for_safety: Annotated[bool, "true if the present path loses flushed data"] = False
    now: Annotated[Durability | None, "what a power cut does to the present path"] = None
    then: Annotated[Durability | None, "and to `to`"] = None
    changes: Annotated[tuple[Change, ...], "the lines for each disk, in their order"] = ()
    rebuilt: Annotated[
        DiskPath | None, "a better path that needs a conversion or a guest's driver"
    ] = None
    over_rebuilt: Annotated[Ratio | None, "of `rebuilt` to the present path"] = None
    over_default: Annotated[Ratio | None, "of the advised path to the platform's default"] = None
    elsewhere: Annotated[
        Path | None, "where it was measured, if that is on another file system than the disk"
    ] = None


@dataclass(frozen=True, slots=True)
class PlannedMeasurement:
    """A campaign that answers for some groups, each by a race of its own paths."""

    request: Annotated[Request, HIDDEN]
    race: Annotated[RaceTerms | None, HIDDEN]
    command: str
    seconds_at_least: Annotated[float, "estimate, if the first rounds decide"]
    seconds: Annotated[float, "estimate of the most"]
    groups: Annotated[int, "number of groups that it answers for"]


@dataclass(frozen=True, slots=True)
class AdviceAnswer(Answer):
    """`vdisklab advise`: what to do about existing guests' disks, those to change first."""

    FORMAT = "vdisklab.advise/2"

    advice: tuple[DiskAdvice, ...]
    planned: Annotated[tuple[PlannedMeasurement, ...], "for the groups that were not measured"]
    unplaced: Annotated[int, "groups of images that are not on this host"] = 0
    notes: Annotated[tuple[str, ...], "what could not be read"] = ()
    caveats: Caveats = field(default_factory=lambda: caveats_of(()))


def advise_groups(
    results: Store | None,
    host: Host,
    groups: Sequence[DiskGroup],
    request: Request,
    campaigns: Sequence[str] | None = None,
) -> AdviceAnswer:
    """The answer for each group from stored campaigns, and the plan for those without one.

    An answer from fewer rounds than `request` asks for, or of a race without a decision, is planned
    too: more continue its campaign.
    `request` has the options of the campaigns to measure, and names no paths. Without `campaigns`
    each group takes the newest campaign of this machine that measured it.
    """
    desk = _Desk(results, host, campaigns, request.disk or HostDisk.VOLATILE)
    advice = tuple(desk.advise(group) for group in groups)
    own = {str(group.path) for group in groups}
    open_groups = [
        entry.group
        for entry in advice
        if entry.action is DiskAction.MEASURE
        or (entry.to is not None and entry.gain is None)
        or entry.elsewhere is not None
        or desk.is_unfinished(entry, request, own)
    ]
    planned = tuple(_plans(open_groups, request))
    order = (DiskAction.CHANGE, DiskAction.KEEP, DiskAction.MEASURE, DiskAction.CANNOT)
    return AdviceAnswer(
        tuple(sorted(advice, key=lambda entry: order.index(entry.action))),
        planned,
        sum(group.directory is None for group in open_groups),
        caveats=desk.caveats,
    )


def _plans(groups: Iterable[DiskGroup], request: Request) -> Iterator[PlannedMeasurement]:
    """One campaign for each file system."""
    by_place: dict[int | None, list[DiskGroup]] = {}
    for group in groups:
        if group.directory is not None:
            by_place.setdefault(number_of(group.directory), []).append(group)
    for together in by_place.values():
        paths = dict.fromkeys(path for group in together for path in paths_to_measure(group))
        place = together[0].directory
        in_memory = place is not None and lies_in_memory(place)
        full = replace(
            request,
            paths=tuple(map(str, paths)),
            baseline=str(together[0].path),  # the host's own speed would answer nothing here
            directory=place,
            page_cache=PageCacheChoice.WARM if in_memory else PageCacheChoice.COLD,
        )
        profile = load_profile(request.profile or DEFAULT_PROFILE)
        plan = build_plan(full, Capabilities(), profile)
        own = tuple(tuple(map(str, paths_to_measure(group))) for group in together)
        terms = RaceTerms(groups=own if len(own) > 1 else ())
        races = request.rounds is None and can_race(plan, terms)
        answer = answer_plan(as_race(plan, terms) if races else plan)
        # one race of all paths would decide for one group only
        alone = full if len(own) == 1 or request.rounds else replace(full, rounds=plan.rounds)
        yield PlannedMeasurement(
            full,
            terms if races else None,
            shlex.join(command_words(alone)),
            answer.seconds_at_least,
            answer.seconds_estimated,
            len(together),
        )


class _Desk:
    """Answers for groups, with each campaign loaded once."""

    def __init__(
        self,
        results: Store | None,
        host: Host,
        campaigns: Sequence[str] | None,
        disk: HostDisk,
    ) -> None:
        self._results = results
        self._loaded: dict[str, tuple[Loaded, Scored]] = {}
        self._verdicts = CrashVerdicts(disk=disk)
        self._campaigns: tuple[Campaign, ...] = ()
        if results is None:
            return
        facts = collect_facts(host)
        self._verdicts = stored_verdicts(results, facts, disk)
        stored = (
            choose_campaigns(results, campaigns) if campaigns else results.campaigns(with_runs=True)
        )
        self._campaigns = tuple(
            campaign
            for campaign in stored
            if campaigns or campaign.host.machine_id == facts.machine_id
        )

    @property
    def caveats(self) -> Caveats:
        """Caveats of all campaigns that were used."""
        return caveats_of(
            tuple(outline for loaded, _ in self._loaded.values() for outline in loaded.outlines)
        )

    def advise(self, group: DiskGroup) -> DiskAdvice:
        """The answer for one group."""
        if group.path is None:
            return DiskAdvice(group, DiskAction.CANNOT, group.problem or "it has no disk path")
        now = durability(group.path, self._verdicts)
        if group.problem is not None:
            safe = _made_safe(group, group.path, now)
            changes = _is_unsafe(group) and safe.action is DiskAction.CHANGE
            return safe if changes else DiskAdvice(group, DiskAction.CANNOT, group.problem)
        unmeasured = _no_measurement_decides(group, group.path, now)
        if unmeasured is not None:
            return unmeasured
        reason = "none of its paths has been measured on this host"
        for campaign in self._candidates(group):
            answer = self._answer(group, group.path, campaign, now)
            if answer.action is not DiskAction.MEASURE:
                return replace(answer, elsewhere=_elsewhere(group, campaign))
            reason = answer.reason
        if not now.kind.acceptable:
            return _made_safe(group, group.path, now)
        return DiskAdvice(group, DiskAction.MEASURE, reason, now=now)

    def is_unfinished(self, entry: DiskAdvice, request: Request, own: set[str]) -> bool:
        """True for a campaign of `advise` that was interrupted, or made with fewer --rounds.

        Its baseline is the path of a disk, one of `own`.
        """
        stored = (one for one in self._campaigns if one.id == entry.campaign)
        campaign = next(stored, None)
        if campaign is None or self._results is None:
            return False
        plan = campaign.plan
        if plan.get("profile") != request.profile or plan.get("baseline") not in own:
            return False
        if request.rounds is not None:
            done = self._results.finished(campaign.id, failed_too=True)
            return len(done) < len(plan.get("cells", ())) * request.rounds
        terms = RaceTerms.of(plan)
        if terms is None:
            return False
        paths = tuple(map(str, paths_to_measure(entry.group))) if terms.groups else ()
        race = race_outcome(self._loaded[campaign.id][0], terms, self._verdicts, paths)
        return race is not None and not race.decided and race.rounds < race.most_rounds

    def _candidates(self, group: DiskGroup) -> Iterator[Campaign]:
        """Campaigns with the group's path, those on its own file system first, then by age."""

        def is_elsewhere(campaign: Campaign) -> bool:
            return group.directory is None or _elsewhere(group, campaign) is not None

        for campaign in sorted(self._campaigns, key=is_elsewhere):
            names = {cell.name for cell in campaign.cells}
            if any(
                looks_alike(group, path) for path in map(parsed_path, names) if path is not None
            ):
                yield campaign

    def _scored(self, campaign: Campaign) -> Scored:
        assert self._results is not None  # noqa: S101 - a campaign comes from the results
        if campaign.id not in self._loaded:
            loaded = load_chosen(self._results, (campaign,))
            scored = add_scores(loaded.observations, baseline_of(loaded)[0])
            self._loaded[campaign.id] = loaded, scored
        return self._loaded[campaign.id][1]

    def _answer(
        self, group: DiskGroup, path: DiskPath, campaign: Campaign, now: Durability
    ) -> DiskAdvice:
        try:
            scored = self._scored(campaign)
        except PlanError as error:
            return DiskAdvice(group, DiskAction.MEASURE, str(error))
        observations, score = scored.observations, scored.overall
        cells = candidates(observations.cells)
        alike = [cell for cell in cells if looks_alike(group, cells[cell])]
        if not alike or score is None or score not in observations.used:
            return DiskAdvice(group, DiskAction.MEASURE, "its measurements have no score")
        own = min(alike, key=lambda cell: (unlikeness(path, cells[cell]), cell))
        safe = {
            cell: other
            for cell, other in cells.items()
            if cell != own
            and other.layers == cells[own].layers
            and meets(other, DURABLE, self._verdicts)
            and (now.flush_free <= durability(other, self._verdicts).flush_free)
        }
        usable = {
            cell: _adapted(path, other)
            for cell, other in safe.items()
            if same_image_and_bus(cells[own], other)
            and can_change(group.disks[0], _adapted(path, other))
        }
        comparison = _Comparison(observations, score, own)
        if not comparison.ranked([own, *usable]):
            few = f"fewer than {MIN_ROUNDS} rounds of its path, or no other setting, are measured"
            return DiskAdvice(group, DiskAction.MEASURE, few)
        unsafe = not now.kind.acceptable
        chosen = comparison.winner(usable) if unsafe else comparison.better(usable)
        if unsafe and chosen is None:
            return _made_safe(group, path, now)
        best = chosen or comparison.highest(usable)
        rebuilt = comparison.better(
            [cell for cell in safe if cell not in usable and not _is_empty(cell)]
        )
        if rebuilt is not None and chosen is not None and not comparison.beats(rebuilt, chosen):
            rebuilt = None
        gain = None if best is None else comparison.ratio(best)
        if gain is not None and chosen is None:
            gain = one_of(gain, math.comb(len(usable) + 1, 2))  # pairs with the disk's own cell
        to = None if chosen is None else usable[chosen]
        default = default_path(group)
        default_cell = next((cell for cell in cells if cells[cell] == default), None)
        return DiskAdvice(
            group,
            DiskAction.KEEP if to is None else DiskAction.CHANGE,
            campaign=campaign.id,
            to=to,
            other=None if best is None else usable[best],
            gain=gain,
            for_safety=unsafe and to is not None,
            now=now,
            then=None if to is None else durability(to, self._verdicts),
            changes=() if to is None else tuple(change_of(disk, to) for disk in group.disks),
            rebuilt=None if rebuilt is None else cells[rebuilt],
            over_rebuilt=None if rebuilt is None else comparison.ratio(rebuilt),
            over_default=None
            if default_cell in (None, chosen or own)
            else ratio_of(observations, score, chosen or own, default_cell),
        )


def _elsewhere(group: DiskGroup, campaign: Campaign) -> Path | None:
    """The directory of a campaign on another file system than the group's images."""
    directory = Path(str(campaign.plan.get("directory", "")))
    measured = number_of(directory)
    own = number_of(group.directory)
    return None if None in (measured, own) or measured == own else directory


def _no_measurement_decides(group: DiskGroup, path: DiskPath, now: Durability) -> DiskAdvice | None:
    """The answer for a disk that cannot be changed, or has limits that no measured path has."""
    limits = next((risk for risk in group.risks if isinstance(risk, LimitsBeyondPath)), None)
    reason = _no_line(group, path) or (None if limits is None else limits.clause)
    if limits is not None and not now.kind.acceptable:
        safe = _made_safe(group, path, now)
        if safe.action is DiskAction.CHANGE:
            return safe
    return None if reason is None else DiskAdvice(group, DiskAction.CANNOT, reason, now=now)


def _no_line(group: DiskGroup, path: DiskPath) -> str | None:
    """Why no setting can be changed in one line, so that no measurement would decide anything."""
    refusal = None
    for other in adjacent_paths(path, dialect_of(group.platform).aio_of):
        if same_image_and_bus(path, other):
            try:
                change_of(group.disks[0], other)
            except PlanError as error:
                refusal = f"{error}: {error.hint}"
            else:
                return None
    return refusal


def _is_unsafe(group: DiskGroup) -> bool:
    """True for disks that drop flushes, and whose settings are otherwise understood."""
    odd = (AioConflict, CannotWork, OtherFormat)
    return any(isinstance(risk, FlushesDropped) for risk in group.risks) and not any(
        isinstance(risk, odd) for risk in group.risks
    )


def _is_empty(cell: MeasuredCell) -> bool:
    """True for an image that is empty at first, as a converted one is not."""
    return cell.path is not None and cell.path.image is not None and cell.path.image.is_thin


def _made_safe(group: DiskGroup, path: DiskPath, now: Durability) -> DiskAdvice:
    """The advice for disks that lose flushed data: the first setting that keeps it.

    What it costs was not measured. MEASURE if no single line makes them safe.
    """
    for other in adjacent_paths(path, dialect_of(group.platform).aio_of):
        usable = same_image_and_bus(path, other) and can_change(group.disks[0], other)
        if usable and meets(other, DURABLE, CrashVerdicts(disk=now.disk)):
            return DiskAdvice(
                group,
                DiskAction.CHANGE,
                "what safety costs was not measured",
                to=other,
                for_safety=True,
                now=now,
                then=durability(other, CrashVerdicts(disk=now.disk)),
                changes=tuple(change_of(disk, other) for disk in group.disks),
            )
    return DiskAdvice(
        group,
        DiskAction.MEASURE,
        "it loses flushed data, and no single setting makes it safe",
        now=now,
    )


def _adapted(path: DiskPath, measured: DiskPath) -> DiskPath:
    """The disk's path with the settings of a measured one, but its own image and layers."""
    return replace(path, cache=measured.cache, attachment=measured.attachment)


@dataclass(frozen=True, slots=True)
class _Comparison:
    """Comparisons of measured cells with the disk's own, by the overall score."""

    observations: Observations
    score: MeasureKey
    own: MeasuredCell

    def ranked(self, cells: Sequence[MeasuredCell]) -> bool:
        """True if the own cell and at least one other have enough rounds for a rank."""
        rows = rank_cells(narrowed(self.observations, cells), self.score).rows
        return len(rows) > 1 and any(row.cell == self.own for row in rows)

    def winner(self, cells: Collection[MeasuredCell]) -> MeasuredCell | None:
        """The best of these cells, or the one to use of those that may be the best."""
        ranking = rank_cells(narrowed(self.observations, list(cells)), self.score)
        return to_use(ranking) or next((row.cell for row in ranking.rows), None)

    def highest(self, cells: Collection[MeasuredCell]) -> MeasuredCell | None:
        """The one with the highest score, whether or not it is shown to be better."""
        rows = rank_cells(narrowed(self.observations, list(cells)), self.score).rows
        return next((row.cell for row in rows), None)

    def better(self, cells: Collection[MeasuredCell]) -> MeasuredCell | None:
        """The one to use of these cells if it is shown to be better than the own one.

        The ranking has both, so that the error rate holds for all comparisons together.
        """
        if not cells:
            return None
        ranking = rank_cells(narrowed(self.observations, [self.own, *cells]), self.score)
        return shown_better(self.own, ranking, cells, self.winner(cells))

    def beats(self, cell: MeasuredCell, other: MeasuredCell) -> bool:
        """True if the interval of the ratio of two cells lies above 1."""
        ratio = ratio_of(self.observations, self.score, cell, other)
        return ratio.low is not None and ratio.low > 1

    def ratio(self, cell: MeasuredCell) -> Ratio:
        """How many times as good a cell is as the own one."""
        return ratio_of(self.observations, self.score, cell, self.own)


def disks_by_action(advice: Iterable[DiskAdvice]) -> Mapping[DiskAction, int]:
    """The number of disks by action."""
    counts = dict.fromkeys(DiskAction, 0)
    for entry in advice:
        counts[entry.action] += len(entry.group.disks)
    return counts
