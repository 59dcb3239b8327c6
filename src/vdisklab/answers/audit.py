"""Audits the disks of existing guests: paths, risks, unmet needs, and speed measured on this host.

Nothing is changed, neither guests nor images.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property, partial
from itertools import islice
from pathlib import Path

from vdisklab.analysis.diagnostics.caveats import Caveats, caveats_of
from vdisklab.answers.analysis import Analysis
from vdisklab.answers.disks import (
    ClaimedCache,
    DisksAnswer,
    ExistingDisk,
    MeasuredPaths,
    as_made,
    command_to_measure,
    is_alike,
    known_loss,
    number_of,
    place_of,
)
from vdisklab.answers.elsewhere import host_elsewhere
from vdisklab.answers.here import verdicts_here
from vdisklab.answers.loading import choose_campaigns, load_chosen, open_results
from vdisklab.answers.measuring_place import is_on_server
from vdisklab.answers.wanted_paths import wanted_paths
from vdisklab.errors import DatabaseError, NoDatabaseError
from vdisklab.host.blockdevice import device_of, stacked_device
from vdisklab.host.command import Host
from vdisklab.host.facts import machine_facts
from vdisklab.host.mounts import is_visible_device, is_visible_file
from vdisklab.inspection.disk_on_host import local_source, measured_form, read_contexts
from vdisklab.inspection.host_features import lacks_layer
from vdisklab.path.architecture import GUEST, host_of
from vdisklab.path.backing import backing_below
from vdisklab.path.cell import MeasuredCell
from vdisklab.path.disk_path import DiskPath
from vdisklab.path.durability import (
    CrashVerdicts,
    DurabilityKind,
    HostDisk,
    durability,
    what_server_keeps,
)
from vdisklab.path.named_target import names_device
from vdisklab.path.needs import (
    Need,
    nearest,
    undecided,
    unmet,
    with_default,
    with_error_policy,
)
from vdisklab.path.segments import LayerKind
from vdisklab.platforms.configured_disk import THROWN_AWAY, ConfiguredDisk, loses_writes
from vdisklab.platforms.disk_context import DiskContext, disk_path, unknown_layers
from vdisklab.platforms.disk_risks import risks
from vdisklab.platforms.registry import cannot_have
from vdisklab.platforms.risk_kinds import (
    MayFill,
    OtherArchitecture,
    Risk,
    policy_setting,
)
from vdisklab.results.model import Campaign
from vdisklab.results.store import Store
from vdisklab.value import replace

_MEASURE = "Measure first: `vdisklab advise {guests}` prints the command."


def audit_disks(
    host: Host,
    disks: Iterable[ConfiguredDisk],
    needs: tuple[Need, ...],
    campaign: Sequence[str] | None,
    db: str | None,
    *,
    guests: str,
    is_typed: bool = True,
    host_disk: HostDisk = HostDisk.VOLATILE,
) -> DisksAnswer:
    """Every disk with its risks and unmet needs, and its score if the database has one.

    `guests` names them as the user did, quoted for a shell.
    Raises DatabaseError if the caller named a database or campaign that cannot be read. A database
    whose name was not typed, because it stands in the environment, may be missing.
    """
    try:
        with open_results(db) as results:
            verdicts = verdicts_here(results, host, host_disk)
            if campaign or results.campaigns():
                loaded = load_chosen(results, choose_campaigns(results, campaign))
                analysis = Analysis(results, loaded, host_disk)
                # The places and servers are the campaign's; the disks run on today's kernel.
                verdicts = replace(
                    analysis.verdicts,
                    by_path=verdicts.by_path,
                    storage=verdicts.storage,
                    zfs_fuse=verdicts.zfs_fuse,
                )
                older = partial(_older, host, results, analysis.campaigns)
                audit = _Audit(host, needs, verdicts, MeasuredPaths(analysis), older)
                answer = audit.answer(disks, loaded.caveats)
                return replace(
                    answer,
                    measured_in=tuple(campaign.id for campaign in analysis.campaigns),
                    measured_on=host_elsewhere(analysis.campaigns),
                    measured_at=tuple(_directories(analysis.campaigns)),
                )
            reason = "the database holds no campaign"
    except DatabaseError as error:
        is_missing = isinstance(error, NoDatabaseError) and not campaign
        if is_missing and db is not None and is_typed:
            hint = "leave out --db to audit the settings alone"
            raise NoDatabaseError(error.message, hint=hint) from error
        if not is_missing and (db is not None or campaign):
            raise
        verdicts, reason = CrashVerdicts(disk=host_disk), str(error)
    answer = _Audit(host, needs, verdicts).answer(disks, caveats_of(()))
    reason = f"No speeds: {reason}."
    if any(row.disk.unseen is None for row in answer.disks):  # `advise` measures no unknown storage
        reason = f"{reason} {_MEASURE.format(guests=guests)}"
    return replace(answer, why_no_speed=reason)


def _place(row: ExistingDisk, analysis: Analysis) -> str:
    """Where the speeds were measured, in a word or two; empty if they are of the disk's server."""
    host, campaigns = host_elsewhere(analysis.campaigns), analysis.campaigns
    if host is not None:
        return f"on {host}"
    if is_on_server(row):
        return ""
    devices = {str(each) for campaign in campaigns for each in campaign.plan.get("devices") or ()}
    places = devices or set(_directories(campaigns))
    return f"in {next(iter(places))}" if len(places) == 1 else "elsewhere"


def _directories(campaigns: Iterable[Campaign]) -> dict[str, None]:
    """The directories in which campaigns measured."""
    plans = (campaign.plan for campaign in campaigns)
    return {str(plan["directory"]): None for plan in plans if plan.get("directory") is not None}


def _older(host: Host, results: Store, used: Sequence[Campaign]) -> dict[str, tuple[DiskPath, ...]]:
    """The paths with numbers of the other campaigns of this machine, by id, the newest first."""
    machine, ids = machine_facts(host).machine_id, {campaign.id for campaign in used}
    measured: dict[str, dict[DiskPath, None]] = {
        campaign.id: {}
        for campaign in results.campaigns(with_runs=True)
        if campaign.host.machine_id == machine and campaign.id not in ids
    }
    for run in results.outlines(list(measured)) if measured else ():
        path = run.measured_cell.path
        if run.failure is None and path is not None:
            measured[run.campaign][path] = None
    return {name: tuple(paths) for name, paths in measured.items()}


class _Audit:
    """What disks are compared with: the needs, the power cuts, the measured paths."""

    def __init__(
        self,
        host: Host,
        needs: tuple[Need, ...],
        verdicts: CrashVerdicts,
        measured: MeasuredPaths | None = None,
        older: Callable[[], Mapping[str, Sequence[DiskPath]]] = dict,
    ) -> None:
        self._needs, self._verdicts, self._measured = needs, verdicts, measured
        self._host, self._read_older = host, older
        self._eligible: dict[bool, list[MeasuredCell]] = {}
        self._lacked: dict[LayerKind, str | None] = {}

    def answer(self, disks: Iterable[ConfiguredDisk], caveats: Caveats) -> DisksAnswer:
        """All disks, each with the facts about its source on this host."""
        disks, host_disk = tuple(disks), self._verdicts.disk
        audited = tuple(
            self._audited(disk, replace(context, disk=host_disk))
            for disk, context in zip(disks, read_contexts(disks), strict=True)
        )
        audited = tuple(sorted(audited, key=lambda row: row.disk.template))
        return DisksAnswer(audited, caveats, needs=self._needs, host_disk=host_disk)

    def _audited(self, disk: ConfiguredDisk, context: DiskContext) -> ExistingDisk:
        path, disk_risks = disk_path(disk, context), risks(disk, context)
        native = disk.architecture is None or host_of(disk.architecture) == GUEST.name
        if not native:
            disk_risks += (OtherArchitecture(disk.architecture or "", GUEST.name),)
        by_settings = known_loss(disk, self._verdicts)
        loss = loses_writes(disk) or (context.drops_flushes if path is None else None)
        loss = loss or (None if by_settings is None else by_settings.reason)
        below = disk.lost_below or context.lost_below
        verdicts = replace(
            self._verdicts,
            without_flushes=context.without_flushes,
            lost_below=THROWN_AWAY if disk.is_thrown_away else below,
            # Of the disk's own directory, and not of the campaign's.
            below=context.file_system,
            served_device=disk.on_served_device,
        )
        # What is never written loses nothing in a power cut.
        needs = [need for need in self._needs if not (disk.read_only and need.goes_by_power_cuts)]
        lacks = {need: loss for need in needs if loss and need.goes_by_power_cuts}
        if path is None:
            by_policy = [need for need in needs if need.goes_by_error_policy and disk.by_policy]
            lacks |= _unmet_by_policy(disk, by_policy)
            judged = {*lacks, *by_policy}
            unknown = {need: "it has no disk path" for need in needs if need not in judged}
            return ExistingDisk(
                disk, None, disk_risks, power_cut=by_settings, lacks=lacks, undecided=unknown
            )
        lacks |= unmet(path, needs, verdicts)
        layers = unknown_layers(disk, context)
        open_needs = [need for need in lacks if layers and undecided(path, need)]
        reasons = {need: f"{lacks.pop(need)}, and {layers}" for need in open_needs}
        offered = self._offered(disk, path, needs, verdicts) if lacks else None
        by_server = durability(path, verdicts).kind is DurabilityKind.BY_SERVER
        if not loss and (by_server or disk.lost_if):
            open_needs = [need for need in needs if need.goes_by_power_cuts and need not in lacks]
            why = what_server_keeps(path) if disk.lost_if is None else disk.lost_if[0]
            reasons |= dict.fromkeys(open_needs, why)
        row = ExistingDisk(
            disk,
            path,
            _with_one_setting(disk_risks, disk, path, offered),
            None,
            None,
            None if disk.read_only or _blocked(disk_risks) else durability(path, verdicts),
            lacks,
            reasons,
            offered,
            below if any(need.goes_by_power_cuts for need in lacks) else None,
            _caches_below(disk),
        )
        if not native:
            return row
        made = as_made(disk, path, context)
        # No measurement is of storage that nobody saw.
        if not (disk.limits or disk.unseen or context.without_flushes or below):
            row = self._compared(row, made)
            if row.standing is None:
                row = replace(row, measured_before=self._measured_before(made))
        below_too = context.without_flushes or below  # which no path can be built with
        measured = measured_form(disk, disk.path or path, context)
        command = None if below_too else _way_to_measure(row, measured)
        lacking = None if command is None else self._lacking(measured)
        if lacking is not None:
            return replace(row, lacks_here=lacking)
        return replace(row, to_measure=command)

    def _measured_before(self, path: DiskPath) -> str | None:
        """The newest other campaign that measured such a path."""
        older = self._older.items()
        return next(
            (name for name, paths in older if any(is_alike(path, other) for other in paths)), None
        )

    @cached_property
    def _older(self) -> Mapping[str, Sequence[DiskPath]]:
        return self._read_older()

    def _lacking(self, path: DiskPath) -> str | None:
        """What this host lacks to measure a disk's path."""
        kinds = [layer.kind for layer in path.layers if layer.kind.facts.target is None]
        for kind in kinds:
            if kind not in self._lacked:
                self._lacked[kind] = lacks_layer(self._host, kind)
        return next((f"{kind}: {why}" for kind in kinds if (why := self._lacked[kind])), None)

    def _compared(self, row: ExistingDisk, path: DiskPath) -> ExistingDisk:
        """The disk beside all measured cells; those with its own path's options are its speed."""
        measured = self._measured
        path = path if measured is None else measured.on_target(row.disk, path)
        closest = None if measured is None else measured.closest(path)
        if measured is None or closest is None:
            return row
        path = measured.in_place(row.disk, path, closest)
        standing = measured.standing(path, closest, self._usable(row.disk, measured))
        places = map(Path, _directories(measured.analysis.campaigns))
        of_disk, of_speeds = number_of(place_of(row.disk)), {number_of(place) for place in places}
        unseen = of_disk is None or None in of_speeds or not of_speeds
        row = replace(
            row,
            on_other_storage=not unseen and of_disk not in of_speeds,
            measured_at="" if of_disk in of_speeds - {None} else _place(row, measured.analysis),
        )
        if is_alike(path, measured.cells[closest]):
            return replace(row, standing=standing)
        return replace(row, nearest=standing)

    def _usable(self, disk: ConfiguredDisk, measured: MeasuredPaths) -> list[MeasuredCell]:
        """The cells that the disk could change to; guests that share it share no page cache."""
        if disk.shareable not in self._eligible:
            needs = with_default(self._needs)
            self._eligible[disk.shareable] = [
                cell
                for cell, path in measured.cells.items()
                if not unmet(path, needs, self._verdicts)
                and (path.cache.direct or not disk.shareable)
            ]
        return self._eligible[disk.shareable]

    def _offered(
        self, disk: ConfiguredDisk, path: DiskPath, needs: Sequence[Need], verdicts: CrashVerdicts
    ) -> DiskPath | None:
        """The platform's nearest path that meets all needs; it drops flushes if no other does."""
        refusal = partial(cannot_have, disk)
        safe = nearest(path, with_default(needs), verdicts, refusal)
        return safe or nearest(path, needs, verdicts, refusal)


def _blocked(disk_risks: Iterable[Risk]) -> bool:
    """True for a disk with which the guest does not start: no power cut meets it."""
    return any(risk.blocks for risk in disk_risks)


def _with_one_setting(
    found: tuple[Risk, ...], disk: ConfiguredDisk, path: DiskPath, offered: DiskPath | None
) -> tuple[Risk, ...]:
    """The risks, whose remedy is the error policy that is offered for a need, if one is."""
    if offered is None or offered.attachment.error_policy == path.attachment.error_policy:
        return found
    setting = policy_setting(disk.platform, offered)
    return tuple(
        replace(risk, instead=setting)
        if isinstance(risk, MayFill) and risk.instead is not None
        else risk
        for risk in found
    )


def _unmet_by_policy(disk: ConfiguredDisk, needs: Sequence[Need]) -> dict[Need, str]:
    """The needs of failing storage that a disk without a path does not meet by its error policy,
    with reasons that end with the setting."""
    if disk.by_policy is None:
        return {}
    lacks = unmet(disk.by_policy, needs, CrashVerdicts())
    better = with_error_policy(disk.by_policy, lacks, CrashVerdicts())
    setting = None if better == disk.by_policy else policy_setting(disk.platform, better)
    return {
        need: why if setting is None else f"{why}; set {setting}" for need, why in lacks.items()
    }


def _way_to_measure(row: ExistingDisk, path: DiskPath) -> str | None:
    """A clause with the command that measures a disk's path, as it is measured, beside the setting
    that `advise` would compare with it first."""
    if row.standing is not None or row.disk.limits or row.disk.unseen:
        return None
    if any(risk.blocks for risk in row.risks):
        return None
    first = list(islice(wanted_paths(row.disk, path), 2))
    if path not in first:
        return None
    beside = first[1] if len(first) > 1 else None
    here = place_of(row.disk)
    source = row.disk.source or ""
    is_file = source.startswith("/") and not names_device(source)
    there = Path(source).parent if here is None and is_file else None
    command = command_to_measure(path, beside, row.disk, here or there)
    if backing_below(path).devices:
        return f"{command}, on a device that may be overwritten"
    return command if there is None else f"{command}, on the host that has its image"


def _caches_below(disk: ConfiguredDisk) -> tuple[ClaimedCache, ...]:
    """The caches of the host's disks that hold a disk's source; none if it is not on this host."""
    source = local_source(disk)
    if source is None:
        return ()
    if is_visible_file(source):
        device = device_of(source.parent)
    else:
        device = stacked_device(source) if is_visible_device(source) else None
    leaves = () if device is None else device.leaves()
    return tuple(ClaimedCache(leaf.name, leaf.write_cache, leaf.fua) for leaf in leaves)
