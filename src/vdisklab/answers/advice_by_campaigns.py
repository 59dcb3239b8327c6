"""What stored campaigns say of an existing guest's disk, those on its own storage first."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain
from pathlib import Path

from vdisklab.analysis.diagnostics.caveats import Caveats
from vdisklab.analysis.diagnostics.recorded import has_open_load
from vdisklab.analysis.intervals import MIN_ROUNDS
from vdisklab.answers.advice_by_rules import by_rules, limited, made_safe, no_line, without_path
from vdisklab.answers.analysis import Analysis
from vdisklab.answers.begun import MeasuringHost, host_changes, mount_below, on_mount
from vdisklab.answers.caveats import caveats_with_remedy
from vdisklab.answers.choice import rounds_of
from vdisklab.answers.disks import (
    DEVICE_HAS_DATA,
    DEVICE_NOT_HERE,
    MEASURED_ALONE,
    NONE_MEASURED,
    NOT_HERE,
    SERVER_NOT_MEASURED,
    Advice,
    BegunMeasurement,
    DiskAction,
    DiskStanding,
    ExistingDisk,
    MeasuredPaths,
    as_made,
    default_path,
    device_not_here,
    in_place_of,
    is_alike,
    is_on_device_here,
    is_own_unseen,
    known_loss,
    limits_of,
    number_of,
    place_of,
    problem_of,
)
from vdisklab.answers.effort import Effort, StoredTimes, effort
from vdisklab.answers.elsewhere import host_elsewhere
from vdisklab.answers.here import verdicts_here
from vdisklab.answers.loading import choose_campaigns, load_chosen
from vdisklab.answers.measured_for import (
    Measured,
    stored_measurements,
)
from vdisklab.answers.measuring_place import MeasuringPlace, is_on_node
from vdisklab.answers.race import race_outcome
from vdisklab.answers.wanted_paths import wanted_of
from vdisklab.campaign.prepared_data import require_programs_of_data
from vdisklab.errors import HostError, PlanError
from vdisklab.host.command import Host
from vdisklab.host.facts import collect_facts, machine_facts
from vdisklab.host.mounts import (
    is_of_server,
    is_out_of_sight,
    is_surely_absent,
    mount_of,
)
from vdisklab.inspection.disk_on_host import is_mounted, measured_form
from vdisklab.inspection.host_features import cannot_build
from vdisklab.path.adjacent import same_image_and_bus
from vdisklab.path.cell import MeasuredCell
from vdisklab.path.disk_path import DiskPath
from vdisklab.path.durability import CrashVerdicts, HostDisk, durability
from vdisklab.path.needs import DURABLE, meets
from vdisklab.plan.campaign import CampaignPlan
from vdisklab.plan.race_terms import RaceTerms
from vdisklab.plan.settings import DEFAULT_PROFILE, Request
from vdisklab.platforms.configured_disk import THROWN_AWAY, ConfiguredDisk, in_doubt
from vdisklab.platforms.disk_context import DiskContext, disk_path
from vdisklab.platforms.disk_risks import risks
from vdisklab.platforms.registry import (
    can_change,
    change_of,
)
from vdisklab.platforms.risk_kinds import FlushesDroppedBelow
from vdisklab.results.model import Campaign, HostFacts
from vdisklab.results.store import Store
from vdisklab.value import Value, replace
from vdisklab.workload.builtin_profiles import (
    builtin_profile,
    builtin_profiles,
)
from vdisklab.workload.profile_files import load_profile
from vdisklab.workload.replay import digest_of, is_load

_OF_TEMPLATE = "no guest runs on a template, and each clone is judged by its own lines"


_ELSEWHERE = (SERVER_NOT_MEASURED, DEVICE_NOT_HERE, DEVICE_HAS_DATA)


def _measured_with(profile: str) -> Callable[[Campaign], bool]:
    """Whether a campaign measured with a profile: for a recorded load, whether it replayed the
    load."""
    if not is_load(profile):
        name = load_profile(profile).name
        return lambda campaign: campaign.plan.get("profile") == name
    digest = digest_of(profile)

    def replayed(campaign: Campaign) -> bool:
        measurements = campaign.plan.get("measurements", ())
        return any(row.get("settings", {}).get("digest") == digest for row in measurements)

    return replayed


class StoredProfile(Value):
    """The profile to measure with: the user's, else the one that the answer would be compared with.

    None is the default one; then `unusable` says why it is not the stored one.
    """

    name: str | None = None
    unusable: str = ""


class Desk:
    """Answers for disks, with each campaign analysed once, and one answer for all disks alike."""

    def __init__(
        self,
        results: Store | None,
        host: Host,
        campaigns: Sequence[str] | None,
        disk: HostDisk,
        profile: str | None,
    ) -> None:
        self._results, self._host = results, host
        self._measured: dict[str, MeasuredPaths] = {}
        self._answers: dict[object, Advice] = {}
        self._of_speed: dict[str, bool] = {}
        self._verdicts = CrashVerdicts(disk=disk)
        self._campaigns: tuple[Campaign, ...] = ()
        self._none_measured = (
            NONE_MEASURED if profile is None else f"{NONE_MEASURED} with the profile {profile}"
        )
        self._machine = machine = machine_facts(host).machine_id
        if results is None:
            return
        self._verdicts = verdicts_here(results, host, disk)
        stored = (
            choose_campaigns(results, campaigns) if campaigns else results.campaigns(with_runs=True)
        )
        asked = None if profile is None else _measured_with(profile)
        self._campaigns = tuple(
            campaign
            for campaign in stored
            if (campaigns or campaign.host.machine_id == machine)
            and (asked is None or asked(campaign))
            and not has_open_load(campaign.plan)  # rates show the load that was set
        )

    @cached_property
    def _builtin(self) -> tuple[str, ...]:
        """The names of vdisklab's own profiles."""
        return builtin_profiles()

    def _is_of_speed(self, name: str) -> bool:
        """False for a profile that measures no running guest's speed: how guests boot, how disks
        are made, or what discards give back. A profile of a file is taken to do so."""
        if name not in self._of_speed:
            self._of_speed[name] = True
            if name in self._builtin:
                profile = builtin_profile(name)
                others = profile.boots, profile.makes_disks, profile.trims, profile.without_guests
                self._of_speed[name] = not any(others)
        return self._of_speed[name]

    def effort(self, plan: CampaignPlan, *, is_here: bool) -> Effort:
        """The time of a plan here, with what is stored of it; of another host nothing is."""
        times = self._times
        if not is_here or times is None:
            return effort(plan)
        here = MeasuringHost(self._machine, lambda: on_mount(self._host_facts, mount_below(plan)))
        return effort(plan, times.so_far(here, plan, self._verdicts))

    def lacks(self, plan: CampaignPlan) -> str:
        """The program that this host lacks for a plan's data, and how to get it."""
        try:
            require_programs_of_data(self._host, plan)
        except HostError as error:
            return f"{error}: {error.hint}"
        return ""

    @cached_property
    def _times(self) -> StoredTimes | None:
        return None if self._results is None else StoredTimes(self._results, self._machine)

    @cached_property
    def _host_facts(self) -> HostFacts:
        """The facts of this host; its programs are asked once."""
        return collect_facts(self._host)

    def stored_profile(self, row: ExistingDisk, path: DiskPath, request: Request) -> StoredProfile:
        """The profile with which to measure a disk's path: of the stored ones the default, or else
        the last one measured, so that the answer compares like with like."""
        if request.profile is not None:
            return StoredProfile(request.profile)
        stored: dict[str, Campaign] = {}
        for campaign in self._candidates(path, row.advised.directory, far=row.advised.far):
            name = campaign.plan.get("profile")
            if name and name not in stored and not campaign.plan.get("during"):
                stored[str(name)] = campaign
        stored = {name: campaign for name, campaign in stored.items() if self._is_of_speed(name)}
        builtin = [name for name in stored if name in self._builtin]
        if DEFAULT_PROFILE in builtin or not stored:
            return StoredProfile()
        if builtin:
            return StoredProfile(builtin[0])
        name, campaign = next(iter(stored.items()))
        return StoredProfile(
            unusable=f"campaign {campaign.id} measured with {name!r}, which is a file: add "
            f"--profile FILE to measure with it instead of {DEFAULT_PROFILE}"
        )

    @property
    def caveats(self) -> Caveats:
        """Caveats of all campaigns that were used."""
        used = [measured.analysis.loaded for measured in self._measured.values()]
        return caveats_with_remedy(
            tuple(outline for loaded in used for outline in loaded.outlines),
            tuple(campaign for loaded in used for campaign in loaded.campaigns),
        )

    @property
    def profiles(self) -> tuple[str, ...]:
        """The profiles of all campaigns that were used."""
        used = (measured.analysis.campaigns for measured in self._measured.values())
        names = (campaign.plan.get("profile") for each in used for campaign in each)
        return tuple(sorted({str(name) for name in names if name}))

    @property
    def measurements(self) -> list[Measured]:
        """The programs of all campaigns that were used, with their settings."""
        used = (measured.analysis.campaigns for measured in self._measured.values())
        return list(chain.from_iterable(map(stored_measurements, chain.from_iterable(used))))

    @property
    def measured_on(self) -> str | None:
        """The host of all campaigns that were used, if it is another one."""
        used = (measured.analysis.loaded for measured in self._measured.values())
        return host_elsewhere([campaign for loaded in used for campaign in loaded.campaigns])

    def row(
        self, disk: ConfiguredDisk, context: DiskContext, machine: str, directory: Path | None
    ) -> ExistingDisk:
        """The answer for one disk."""
        path = None if disk.path is None else measured_form(disk, disk.path, context)
        found = risks(disk, replace(context, disk=self._verdicts.disk))
        below = next((risk.reason for risk in found if isinstance(risk, FlushesDroppedBelow)), None)
        problem = problem_of(disk, path, found, machine)
        rules = replace(
            self._verdicts,
            lost_below=THROWN_AWAY if disk.is_thrown_away else below,
            below=context.file_system,
            served_device=disk.on_served_device,
        )
        own_place, full_path = place_of(disk), disk_path(disk, context)
        place = directory or own_place
        far = full_path is not None and is_mounted(full_path)
        on_server = far and directory is not None and is_of_server(directory, disk.source)
        stands_in = directory is not None and own_place is None and not on_server
        # Of the disk as it is, not of the form in which it is measured; as `audit` says it.
        now = known_loss(disk, rules)
        if full_path is not None and not disk.read_only:
            now = durability(full_path, rules)
        row = ExistingDisk(disk, full_path, found, power_cut=now)
        start = Advice(
            path, reason=problem or "", directory=place, far=far, stands_in=stands_in,
            on_device_here=is_on_device_here(disk),
            own_unseen=is_own_unseen(disk),
        )  # fmt: skip
        made = None if path is None else as_made(disk, path, context)
        settings = (disk.platform, disk.limits, disk.shareable, disk.read_only, disk.drops_flushes)
        server = disk.server and (disk.server.has_secret, disk.server.session)
        alike = (
            path or disk.assumed,
            made,
            number_of(place),
            stands_in,
            far,
            problem,
            below,
            settings,
            tuple(risk for risk in found if risk.serious or risk.blocks),
            disk.unseen,
            in_doubt(disk),
            disk.is_thrown_away,
            disk.ignored_errors,
            (disk.changed_in, disk.changed_at),
            server,
        )
        if alike not in self._answers:
            self._answers[alike] = by_rules(row, start, below) or self._advise(row, start, made)
        answer = self._answers[alike]
        if answer.to is not None:
            # Only here: disks that share an answer may lie on several file systems.
            then = durability(in_place_of(full_path, answer.to), rules)
            answer = replace(answer, then=then)
        if disk.template and answer.action is DiskAction.UNKNOWN:
            answer = replace(answer, action=DiskAction.KEEP, reason=_OF_TEMPLATE, measurable=False)
        change = None if answer.to is None else change_of(disk, answer.to)
        blocked = any(risk.blocks for risk in found)  # no power cut meets a guest that never starts
        return replace(
            row,
            power_cut=None if blocked else row.power_cut,
            advice=replace(
                answer, change=change, directory=place, on_device_here=start.on_device_here
            ),
        )

    def _advise(self, row: ExistingDisk, start: Advice, made: DiskPath | None) -> Advice:
        """Advises by rules first, then by measurements; the reason at `start` is the disk's
        problem."""
        disk, path, now = row.disk, start.path, row.power_cut
        if path is None or now is None:
            return without_path(row, start)
        unsafe = not now.kind.acceptable and not any(risk.blocks for risk in row.risks)
        safe = made_safe(row, start, path) if unsafe else None
        limits = limits_of(disk, path)
        no_change = "" if disk.limits else no_line(disk, path)
        # Where no line can be printed, a measurement elsewhere would decide nothing either.
        refusal = start.reason or no_change
        if start.reason in _ELSEWHERE:
            refusal = no_change or start.reason
        if disk.unseen is not None and start.directory is None:
            # No measurement is of its storage, as --dir would say.
            refusal = refusal or f"its storage is unknown: {disk.unseen}"
        found = None if no_change or disk.limits else self._beside(row, start, path, made or path)
        if found is not None:
            if found.action is not DiskAction.UNKNOWN:
                return found
            refusal = found.reason
        if refusal or disk.limits or (safe is not None and safe.to is None):
            told = replace(start, reason=refusal) if refusal else limited(row, start, limits)
            return safe or told
        reason = _cannot_build(self._host, path) or ""
        start = replace(start, measurable=not reason)
        reason = reason or self._none_measured
        begun = None
        for campaign in self._candidates(path, start.directory, far=start.far):
            answer = self._answer(row, start, path, made or path, campaign)
            if answer.action is not DiskAction.UNKNOWN:
                own_place = None if start.stands_in else start.directory
                place = _elsewhere(own_place, campaign)
                gone = place is not None and is_surely_absent(place)
                unseen = place is not None and is_out_of_sight(place)
                return replace(
                    answer, elsewhere=place, elsewhere_gone=gone, elsewhere_unseen=unseen
                )
            reason, begun = answer.reason, begun or answer.begun
        if limits and not unsafe:
            return replace(limited(row, start, limits), measurable=False)
        found = safe or replace(start, reason=reason)
        return replace(found, measurable=start.measurable, begun=begun)

    def _beside(
        self, row: ExistingDisk, start: Advice, path: DiskPath, made: DiskPath
    ) -> Advice | None:
        """The answer of campaigns beside the disk, on its server or on a spare device, where only
        these measure its path; else None."""
        if start.reason == SERVER_NOT_MEASURED:
            return self._on_server(row, start, made)
        is_whole = path.image is None and not path.layers
        if is_whole and start.reason == device_not_here(row.disk):
            return self._on_spare_device(start, row, path)
        return None

    def _on_spare_device(self, start: Advice, row: ExistingDisk, path: DiskPath) -> Advice:
        """The answer of a campaign on a spare device for a disk that is a whole device; `start` if
        there is none."""
        reason = start.reason
        for campaign in self._candidates(path, None, far=False):
            answer = self._answer(row, start, path, path, campaign)
            if answer.action is not DiskAction.UNKNOWN:
                return replace(answer, elsewhere=_place_of(campaign, path), reason="")
            reason = answer.reason
        return replace(start, reason=reason)

    def _on_server(self, row: ExistingDisk, start: Advice, made: DiskPath) -> Advice:
        """The answer of a campaign on a target of the disk's own server; `start` if there is none.

        The change is of the disk's own path, which no target names.
        """
        path, reason = start.path or made, start.reason
        for campaign in self._campaigns:
            if not campaign.plan.get("target"):
                continue
            try:
                measured = self._paths_of(campaign)
            except PlanError as error:
                reason = str(error)
                continue
            named = measured.on_target(row.disk, path)
            if not any(is_alike(named, other) for other in measured.cells.values()):
                continue
            new_image = replace(made, layers=named.layers)
            answer = self._answer(row, replace(start, path=named), named, new_image, campaign)
            if answer.action is not DiskAction.UNKNOWN:
                to, other = (
                    each and replace(each, layers=path.layers) for each in (answer.to, answer.other)
                )
                return replace(answer, path=path, to=to, other=other, reason="")
            reason = answer.reason
        return replace(start, reason=reason)

    def is_open(self, row: ExistingDisk, request: Request, own_paths: set[str]) -> bool:
        """True for a disk for which a measurement here, or on its node, would answer more."""
        advice = row.advised
        return advice.measurable and (
            advice.action is DiskAction.UNKNOWN
            or (advice.to is not None and advice.gain is None)
            or _has_no_measurement_of_its_storage(row)
            or self.is_unfinished(row, request, own_paths)
        )

    def is_unfinished(self, row: ExistingDisk, request: Request, own_paths: set[str]) -> bool:
        """True for a campaign of `advise` that was interrupted, or made with fewer --rounds.

        Its baseline is the path of a disk, which `own_paths` lists.
        """
        campaign = next(
            (campaign for campaign in self._campaigns if campaign.id == row.advised.campaign), None
        )
        if campaign is None or self._results is None:
            return False
        plan, path = campaign.plan, row.advised.path
        stored = StoredProfile(request.profile)
        if path is not None:
            stored = self.stored_profile(row, path, request)
        if (
            plan.get("profile") != load_profile(stored.name or DEFAULT_PROFILE).name
            or plan.get("baseline") not in own_paths
        ):
            return False
        if request.rounds is not None:
            done = self._results.finished(campaign.id, failed_too=True)
            return len(done) < len(plan.get("cells", ())) * request.rounds
        terms = RaceTerms.of(plan)
        if terms is None:
            return False
        at_home = MeasuringPlace.of(row, None, None)
        paths = tuple(map(str, wanted_of(row, at_home))) if terms.groups else ()
        loaded = self._measured[campaign.id].analysis.loaded
        race = race_outcome(loaded, terms, self._verdicts, paths)
        return race is not None and not race.decided and race.rounds < race.most_rounds

    def _candidates(
        self, path: DiskPath, directory: Path | None, *, far: bool
    ) -> Iterator[Campaign]:
        """Campaigns with such a path, those on its own file system first, then by age; for one on a
        server only those."""

        def is_elsewhere(campaign: Campaign) -> bool:
            return directory is None or _elsewhere(directory, campaign) is not None

        for campaign in sorted(self._campaigns, key=is_elsewhere):
            paths = (cell.path for cell in campaign.cells)
            if far and not _is_on_same(directory, campaign):
                continue
            if any(other is not None and is_alike(path, other) for other in paths):
                yield campaign

    def _paths_of(self, campaign: Campaign) -> MeasuredPaths:
        assert self._results is not None  # noqa: S101 - a campaign comes from the results
        if campaign.id not in self._measured:
            loaded = load_chosen(self._results, (campaign,))
            self._measured[campaign.id] = MeasuredPaths(Analysis(self._results, loaded))
        return self._measured[campaign.id]

    def _answer(
        self,
        row: ExistingDisk,
        start: Advice,
        path: DiskPath,
        made: DiskPath,
        campaign: Campaign,
    ) -> Advice:
        """The answer of one campaign for a disk; unknown if the campaign compares too few paths.

        Its standing is that of its image as it was made. A change of settings makes no other image,
        so what a change gains is judged with one image: allocated, as an image in use is.
        """
        try:
            measured = self._paths_of(campaign)
        except PlanError as error:
            return replace(start, reason=str(error))
        cells, current = measured.cells, measured.closest(path)
        scored = measured.score in measured.analysis.observations.used
        if current is None or not scored or not is_alike(path, cells[current]):
            return replace(start, reason="its measurements have no score")
        safe, usable = self._eligible(row.disk, path, current, cells)
        ranked = {row.cell for row in measured.ranking((current, *usable)).rows}
        if current not in ranked or len(ranked) < 2:
            rounds = rounds_of(measured.analysis.observations, [current])
            few = f"fewer than {MIN_ROUNDS} rounds of its path, or no other setting, are measured"
            few = few if usable or rounds < MIN_ROUNDS else MEASURED_ALONE
            return replace(start, reason=few, begun=self._begun(measured, current, start, campaign))
        standing = self._standing(measured, path, made, current, usable)
        unsafe = row.power_cut is not None and not row.power_cut.kind.acceptable
        chosen = measured.made_safe(current, usable) if unsafe else standing.better
        if unsafe and chosen is None:
            return start
        best = chosen or measured.highest(usable)
        rebuilt = measured.better(
            current, [cell for cell in safe if cell not in usable and not _is_empty(cell)]
        )
        if rebuilt is not None and chosen is not None and not measured.beats(rebuilt, chosen):
            rebuilt = None
        gain = measured.ratio(best, current)
        to = None if chosen is None else usable[chosen]
        default = default_path(row.disk.platform, path)
        others = (
            cell
            for cell in cells
            if cells[cell] == default
            and cell not in (chosen or current, standing.cell)  # its own number is one already
        )
        return replace(
            start,
            standing=standing,
            action=DiskAction.KEEP if to is None else DiskAction.CHANGE,
            campaign=campaign.id,
            to=to,
            other=None if best is None else usable[best],
            gain=gain,
            gain_over=None if gain is None or standing.cell == current else current,
            for_safety=unsafe and to is not None,
            rebuilt=None if rebuilt is None else cells[rebuilt],
            over_rebuilt=measured.ratio(rebuilt, current),
            over_default=measured.compared(chosen or current, next(others, None)),
        )

    def _begun(
        self,
        measured: MeasuredPaths,
        current: MeasuredCell,
        start: Advice,
        campaign: Campaign,
    ) -> BegunMeasurement | None:
        """The rounds of a disk's path in a campaign on the disk's file system, if they are too few
        and `run` goes on with the campaign."""
        rounds = rounds_of(measured.analysis.observations, [current])
        directory = start.directory
        if directory is None or _elsewhere(directory, campaign) is not None:
            return None
        if not 0 < rounds < MIN_ROUNDS:
            return None
        if host_changes(campaign.host, on_mount(self._host_facts, mount_of(directory))):
            return None
        plan = campaign.plan
        planned = None if RaceTerms.of(plan) is not None else plan.get("rounds")
        names = frozenset(cell.name for cell in campaign.cells)
        return BegunMeasurement(rounds, planned, names, str(plan.get("profile")))

    def _standing(
        self,
        measured: MeasuredPaths,
        path: DiskPath,
        made: DiskPath,
        current: MeasuredCell,
        usable: Mapping[MeasuredCell, DiskPath],
    ) -> DiskStanding:
        """The standing of a disk's image as it was made, and what is better than its settings."""
        of_settings = measured.standing(path, current, usable)
        new_image = measured.closest(made)
        if (
            new_image is None
            or new_image == current
            or not is_alike(path, measured.cells[new_image])
        ):
            return of_settings
        found = measured.standing(made, new_image, ())
        return replace(found, better=of_settings.better, gain=of_settings.gain)

    def _eligible(
        self,
        disk: ConfiguredDisk,
        path: DiskPath,
        current: MeasuredCell,
        cells: Mapping[MeasuredCell, DiskPath],
    ) -> tuple[list[MeasuredCell], dict[MeasuredCell, DiskPath]]:
        """The cells on the disk's own stack that are as safe as the disk; and those among them that
        need one changed line, each with the disk's path after that change."""
        flush_free = durability(path, self._verdicts).flush_free
        safe = [
            cell
            for cell, other in cells.items()
            if cell != current
            and other.layers == cells[current].layers
            and meets(other, DURABLE, self._verdicts)
            and flush_free <= durability(other, self._verdicts).flush_free
        ]
        adapted = {
            cell: replace(path, cache=cells[cell].cache, attachment=cells[cell].attachment)
            for cell in safe
            if same_image_and_bus(cells[current], cells[cell])
        }
        return safe, {cell: to for cell, to in adapted.items() if can_change(disk, to)}


def _is_empty(cell: MeasuredCell) -> bool:
    """True for an image that is empty at first, as a converted one is not."""
    return cell.path is not None and cell.path.image is not None and cell.path.image.is_thin


def _elsewhere(directory_of_disk: Path | None, campaign: Campaign) -> Path | None:
    """The place of a campaign that is not known to be on a disk's own file system."""
    return None if _is_on_same(directory_of_disk, campaign) else _place_of(campaign)


def _is_on_same(directory_of_disk: Path | None, campaign: Campaign) -> bool:
    """True for a campaign on a disk's own file system: a directory that has gone is on none."""
    number = number_of(_place_of(campaign))
    return number is not None and number == number_of(directory_of_disk)


def _place_of(campaign: Campaign, path: DiskPath | None = None) -> Path:
    """Where a campaign measured its paths, or this one: the first of its devices, or a directory.

    Images without layers stay in the directory.
    """
    devices = campaign.plan.get("devices") or ()
    paths = [path] if path else [cell.path for cell in campaign.cells if cell.path]
    on_devices = all(each.layers or each.image is None for each in paths)
    place = devices[0] if devices and on_devices else campaign.plan.get("directory", "")
    return Path(str(place))


def _cannot_build(host: Host, path: DiskPath) -> str | None:
    """Why the disk's stack cannot be built here, so that nothing can be measured."""
    lacking = ((layer, cannot_build(host, layer.kind)) for layer in path.layers)
    found = next(((layer, why) for layer, why in lacking if why), None)
    return None if found is None else f"{NOT_HERE} ({found[0]}: {found[1]})"


def _has_no_measurement_of_its_storage(row: ExistingDisk) -> bool:
    """True for advice by measurements on other storage, if the disk's own can be measured, here or
    on its node, or a directory that the user named for it."""
    advice = row.advised
    if advice.elsewhere is None:
        return False
    if advice.stands_in and number_of(advice.directory) == number_of(advice.elsewhere):
        return False
    return advice.directory is not None or is_on_node(row)
