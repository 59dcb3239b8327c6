"""What to do about existing guests' disks: keep or change, by measurements on their storage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain

from vdisklab.answers.advice_by_campaigns import Desk
from vdisklab.answers.advised_campaigns import plans
from vdisklab.answers.database_guests import databases_by_name
from vdisklab.answers.disks import (
    DiskAction,
    DisksAnswer,
    ExistingDisk,
    PlannedMeasurement,
    StandIn,
    is_for_machine,
)
from vdisklab.answers.measured_for import (
    Measured,
    committing_client,
    waits_for_flushes,
)
from vdisklab.answers.measuring_place import stand_in
from vdisklab.answers.wanted_paths import settings_of
from vdisklab.host.command import Host
from vdisklab.inspection.disk_on_host import read_contexts
from vdisklab.path.durability import HostDisk
from vdisklab.path.platforms import Platform
from vdisklab.plan.settings import Request
from vdisklab.platforms.configured_disk import ConfiguredDisk, in_doubt
from vdisklab.platforms.dialect import Change
from vdisklab.platforms.registry import (
    can_change,
    dialect_of,
)
from vdisklab.results.store import Store
from vdisklab.value import replace
from vdisklab.workload.profile_files import load_profile


def advise_disks(
    results: Store | None,
    host: Host,
    disks: Sequence[ConfiguredDisk],
    request: Request,
    campaigns: Sequence[str] | None = None,
    *,
    machine: str,
) -> DisksAnswer:
    """The answer for each disk from stored campaigns, and the plan for those without one.

    An answer from fewer rounds than `request` asks for, or of a race without a decision, is planned
    too: more continue its campaign.
    `request` has the options of the campaigns to measure, and names no paths; its directory is the
    place to measure for all. Without `campaigns` each disk takes the newest campaign of this
    machine that measured its path; with a profile only one that measured with it, or replayed the
    recorded load. `machine` is this host's architecture as uname(2) names it.
    """
    asked = [] if request.profile is None else _programs_of(request.profile)
    desk = Desk(results, host, campaigns, request.disk or HostDisk.VOLATILE, request.profile)
    rows = [
        desk.row(disk, context, machine, request.directory)
        for disk, context in zip(disks, read_contexts(disks), strict=True)
    ]
    rows = _with_one_line(rows)
    measured_paths = {str(row.advised.path) for row in rows}
    places: dict[StandIn | None, list[ExistingDisk]] = {}
    for row in (row for row in rows if not row.disk.template):
        if _is_elsewhere(row, machine) or desk.is_open(row, request, measured_paths):
            places.setdefault(stand_in(row), []).append(row)
    unplaced = [
        row
        for stands_in in (StandIn.NODE, StandIn.STORAGE)
        for row in places.get(stands_in, ())
        if row.advised.measurable
    ]
    shown = sorted(rows, key=_by_danger)
    names = [row.name for row in shown]
    unknown = {row.name for row in shown if row.advised.action is DiskAction.UNKNOWN}

    def turn(plan: PlannedMeasurement) -> tuple[bool, bool, int]:
        """The command that an unknown disk waits for comes first: it is printed at once."""
        return unknown.isdisjoint(plan.disks), plan.is_elsewhere, names.index(plan.disks[0])

    planned = chain.from_iterable(
        plans(together, request, desk, stands_in) for stands_in, together in places.items()
    )
    return DisksAnswer(
        tuple(shown),
        desk.caveats,
        host_disk=request.disk or HostDisk.VOLATILE,
        planned=tuple(sorted(planned, key=turn)),
        unplaced=len({(row.disk.platform, row.advised.path) for row in unplaced}),
        measured_on=desk.measured_on,
        profile=request.profile,
        unasked_profiles=desk.profiles if request.profile is None else (),
        commits=committing_client(asked),
        of_commits=waits_for_flushes(asked or desk.measurements),
        databases=databases_by_name(row.disk.guest or row.disk.domain for row in rows),
    )


def _by_danger(row: ExistingDisk) -> tuple[bool, int, int]:
    """The order of disks: what guests have before templates; what is to change first, of which what
    loses flushed data, then what does not start."""
    loses = row.power_cut is not None and not row.power_cut.kind.acceptable
    starts = not any(risk.blocks for risk in row.risks)
    danger = 0 if loses or (row.advised.for_safety and starts) else 1 + starts
    return row.disk.template, list(DiskAction).index(row.advised.action), danger


def _with_one_line(rows: Sequence[ExistingDisk]) -> list[ExistingDisk]:
    """The rows, where all of a guest have one line if its platform needs that."""
    changes: dict[tuple[Platform, str], list[Change]] = {}
    for row in rows:
        if row.advised.change is not None:
            changes.setdefault((row.disk.platform, row.disk.guest), []).append(row.advised.change)
    return [_with_line_of(row, changes) for row in rows]


def _with_line_of(
    row: ExistingDisk, changes: Mapping[tuple[Platform, str], Sequence[Change]]
) -> ExistingDisk:
    together = dialect_of(row.disk.platform).together
    of_guest = changes.get((row.disk.platform, row.disk.guest), ())
    if together is None or row.advised.change is None or len(of_guest) == 1:
        return row
    return replace(row, advice=replace(row.advised, change=together(row.disk.guest, of_guest)))


def _programs_of(profile: str) -> list[Measured]:
    """The programs of a profile with their settings. Raises PlanError for an unknown profile."""
    return [(each.program, each.settings) for each in load_profile(profile).measurements]


def _is_elsewhere(row: ExistingDisk, machine: str) -> bool:
    """True for a disk that is measured only on its server, or on the host that has it."""
    advice = row.advised
    return (
        advice.action is DiskAction.UNKNOWN
        and not advice.measurable
        and advice.path is not None
        and row.disk.unseen is None  # the first sentence says what reads its storage
        and not in_doubt(row.disk)  # another disk may be measured than the guest's
        and not advice.path.shares_directory
        and not row.disk.limits
        and _can_change_any(row)
        and is_for_machine(row.disk, row.risks, machine)
    )


def _can_change_any(row: ExistingDisk) -> bool:
    """True if one line changes a setting of the disk, so that a measurement decides something."""
    path = row.advised.path or row.disk.assumed
    return path is not None and any(can_change(row.disk, to) for to in settings_of(row.disk, path))
