"""Plans a campaign on this host in one pass: request, draft, survey, plan.

`possible_draft` reads what the request names here, once, and decides all that needs no trial;
`make_plan` tries the draft's stacks, unless a campaign goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from vdisklab.actions.cell_search import Narrow, Narrowed
from vdisklab.campaign.context import guest_buses, require_space
from vdisklab.campaign.guests import requested_guest
from vdisklab.campaign.schedule import device_bytes_needed, planned_script
from vdisklab.campaign.survey import find_qemus, survey
from vdisklab.errors import PlanError
from vdisklab.guest.factory import kernel_for
from vdisklab.host.blockdevice import open_device
from vdisklab.host.command import Host
from vdisklab.host.ledger import Ledger, cache_directory
from vdisklab.host.mounts import lies_in_memory, require_work_directory
from vdisklab.path.disk_path import DiskPath
from vdisklab.path.named_target import NamedTarget
from vdisklab.plan.build import Draft, backing_of, draft_plan
from vdisklab.plan.campaign import CampaignPlan
from vdisklab.plan.capabilities import Capabilities, QemuLimits, infeasible
from vdisklab.plan.guest import Qemu, UserGuest
from vdisklab.plan.matrix import expand_matrix
from vdisklab.plan.profile import Profile
from vdisklab.plan.settings import DEFAULT_PROFILE, Request, defaults
from vdisklab.progress import Note, Progress
from vdisklab.storage.device import require_usable
from vdisklab.storage.given import with_kinds
from vdisklab.workload.clients import with_clients
from vdisklab.workload.profile_files import load_profile
from vdisklab.workload.registry import MICRO_GUEST_ONLY, workload_for

Begun = Callable[[CampaignPlan], CampaignPlan | None]
"""The plan of the campaign that continues a plan; None if none does."""


def rounds_of(request: Request) -> int:
    """The number of rounds: the request's, else its profile's, else the default."""
    usual = load_profile(request.profile or DEFAULT_PROFILE).usual.rounds
    return request.rounds or usual or defaults(Request).rounds or 0


@dataclass(frozen=True, slots=True)
class NamedHere:
    """What a request names on this host, as it was found here before anything was decided.

    `limits` are the features that each of the QEMUs lacks. `on_tmpfs` is True if the images lie in
    the page cache alone.
    """

    profile: Profile
    guest: UserGuest | None
    qemus: tuple[Qemu, ...]
    limits: Mapping[str, QemuLimits]
    targets: tuple[NamedTarget, ...]
    on_tmpfs: bool


@dataclass(frozen=True, slots=True)
class Possible:
    """A request that some host can measure: `plan` is its plan on a host that can build every
    stack.
    """

    named: NamedHere
    draft: Draft
    plan: CampaignPlan


def never_begun(_plan: CampaignPlan) -> None:
    """Nothing: no campaign is continued."""


def make_plan(
    host: Host,
    ledger: Ledger,
    possible: Possible,
    progress: Progress,
    *,
    narrow: Narrow = Narrowed,
    begun: Begun = never_begun,
) -> Narrowed:
    """The plan of a possible request on this host, narrowed, after trying to build its stacks.

    `begun` returns the plan of the campaign that continues a plan: then nothing is tried but the
    servers that did not answer when it began, because a trial that fails today must not change the
    campaign. If a server is back, everything is tried anew, for a new campaign. Raises PlanError if
    no host could measure it, HostError if this host cannot.
    """
    draft, wanted = possible.draft, narrow(possible.plan).plan

    def tried(paths: Sequence[DiskPath]) -> Capabilities:
        return survey(
            host,
            ledger,
            draft.directory,
            paths,
            progress,
            backing=draft.backing,
            qemus=possible.named.limits,
        )

    plan = begun(wanted)
    left_out = [] if plan is None else _left_out(plan)
    if plan is not None and left_out:
        found = tried(left_out)
        refused = {path: infeasible(path, found) for path in left_out}
        back = [str(path) for path, reason in refused.items() if reason is None]
        if back:
            progress(Note(f"{', '.join(back)} can be measured now: a new campaign has all paths"))
            plan = None
        else:
            plan = plan.with_reasons(
                {path: why for path, why in refused.items() if why is not None}
            )
    if plan is None:
        capabilities = tried(draft.paths_to_survey)
        plan = replace(draft.on(capabilities), requested=wanted.cells)
    planned = narrow(plan)
    require_usable(host, planned.plan.backing, device_bytes_needed(planned.plan))
    return planned


def _left_out(plan: CampaignPlan) -> list[DiskPath]:
    """The requested paths on servers that did not answer when the plan's campaign began."""
    measured = {cell.path for cell in plan.cells}
    requested = dict.fromkeys(cell.path for cell in plan.requested)
    return [path for path in requested if path not in measured and path.target is not None]


def possible_plan(host: Host, request: Request) -> CampaignPlan:
    """The plan of a request, without trying to build its stacks: they are taken to work here.

    Raises the errors of `possible_draft` and of a campaign's start.
    """
    plan = possible_draft(host, request).plan
    require_space(plan)
    return plan


def possible_draft(host: Host, request: Request) -> Possible:
    """What is known of a request before anything is tried here.

    Raises PlanError if no host could measure it, HostError if a file or QEMU that it names is not
    usable here.
    """
    named = named_here(host, request)
    request = replace(request, target=named.targets)
    draft = draft_plan(request, named.profile, named.qemus, named.guest)
    # Refuse requests that no host could measure before trying anything on this one.
    plan = draft.on(Capabilities(qemus=named.limits, on_tmpfs=named.on_tmpfs))
    check_measurements(plan)
    if plan.guest.kernel is not None and guest_buses(plan):
        kernel_for(host, cache_directory(), guest_buses(plan), plan.guest)
    return Possible(named, draft, plan)


def named_here(host: Host, request: Request) -> NamedHere:
    """What a request names on this host, from the profile down to the place of its disks.

    Raises PlanError for a profile that cannot be, HostError if a file or QEMU is not usable here.
    """
    profile = load_profile(request.profile or DEFAULT_PROFILE, beside=request.neighbour)
    profile = with_clients(profile, request.clients)
    guest = requested_guest(host, request)
    qemus, limits = find_qemus(host, request.qemu)
    targets = with_kinds(host, request.target)
    for device in request.devices:
        open_device(device)  # before a path is judged by it
    directory = (request.directory or Path()).absolute()
    require_work_directory(directory)
    on_tmpfs = not request.devices and lies_in_memory(directory)
    return NamedHere(profile, guest, qemus, limits, targets, on_tmpfs)


def require_possible_paths(request: Request) -> None:
    """Raises PlanError if no host can have the request's paths, or else its profile's.

    With --qemu nothing is checked: a path may name a version that only the program itself tells.
    """
    if not request.qemu:
        usual = load_profile(request.profile or DEFAULT_PROFILE).usual.paths
        expand_matrix(request.patterns or usual, backing=backing_of(request))


def check_measurements(plan: CampaignPlan) -> None:
    """Raises PlanError for settings that a program lacks, and for unsuitable disks or guests."""
    for measurement in plan.profile.measurements:
        if plan.guest.user is not None and measurement.program in MICRO_GUEST_ONLY:
            raise PlanError(
                f"measurement {measurement.name!r} needs vdisklab's micro guest, but --guest "
                f"names {plan.guest.user.image}",
                hint="leave out --guest, or choose another profile",
            )
        workload = workload_for(measurement)
        if workload.needs_directory and measurement.filesystem is None:
            raise PlanError(
                f"measurement {measurement.name!r}: {measurement.program} works on files",
                hint='name its file system: filesystem = "ext4"',
            )
        planned_script(plan, measurement)
        if plan.guest.is_windows:
            planned_script(plan, measurement, in_windows=True)
