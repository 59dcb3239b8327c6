"""Plans a campaign on this host in one pass: request, draft, survey, plan.

Each step takes the value of the step before it: the request becomes `NamedHere`, with all that it
names on this host; that becomes a `Draft`, which decides all that needs no trial; the survey tries
the draft's stacks, unless a campaign goes on; and the draft becomes the plan.
"""

from __future__ import annotations

from functools import partial

from vdisklab.actions.cell_search import CellSearch, Narrow, Narrowed
from vdisklab.answers.begun import MeasuringHost, begun_campaign, facts_of_place, mount_below
from vdisklab.answers.loading import stored_verdicts, verdicts_of
from vdisklab.campaign.named_here import named_here
from vdisklab.campaign.schedule import check_measurements, device_bytes_needed
from vdisklab.campaign.space import require_space
from vdisklab.campaign.survey import survey
from vdisklab.guest.accelerator import require_device
from vdisklab.guest.image.kernel import kernel_for
from vdisklab.host.command import Host
from vdisklab.host.ledger import Ledger
from vdisklab.host.state_directory import cache_directory
from vdisklab.path.architecture import require_host
from vdisklab.path.disk_path import DiskPath
from vdisklab.path.durability import CrashVerdicts, HostDisk
from vdisklab.plan.build import Draft, backing_of, draft_plan
from vdisklab.plan.campaign import CampaignPlan
from vdisklab.plan.capabilities import Capabilities, infeasible
from vdisklab.plan.matrix import expand_matrix
from vdisklab.plan.option_rows import defaults
from vdisklab.plan.settings import Request
from vdisklab.progress import Event, Note, Progress
from vdisklab.results.model import HostFacts
from vdisklab.results.store import Store
from vdisklab.storage.device import require_usable
from vdisklab.value import Value, replace
from vdisklab.workload.profile_files import load_profile


def rounds_of(request: Request) -> int:
    """The number of rounds: the request's, else its profile's, else the default."""
    usual = load_profile(request.profile_name).usual.rounds
    return request.rounds or usual or defaults(Request).rounds or 0


class Possible(Value):
    """A request that some host can measure: `plan` is its plan on a host that can build every
    stack, or what a search may measure of that.
    """

    draft: Draft
    plan: CampaignPlan


class Planned(Value):
    """The plan to measure on this host now, and what decided it.

    `search` decides what each round measures, None if every round measures all cells. `events` are
    to be reported when the plan is measured. `goes_on` is True if the plan is that of a stored
    campaign.
    """

    plan: CampaignPlan
    search: CellSearch | None
    events: tuple[Event, ...]
    facts: HostFacts
    verdicts: CrashVerdicts
    goes_on: bool


def plan_request(
    store: Store | None,
    host: Host,
    ledger: Ledger,
    request: Request,
    progress: Progress,
    *,
    new: bool = False,
    search: CellSearch | None = None,
    narrow: Narrow = Narrowed,
) -> Planned:
    """From a request to its plan on this host; `run` measures this plan, and `plan` shows it.

    It goes on with the campaign of an equal plan unless `new`, or if no results are stored yet.
    `search` narrows what is measured, instead of `narrow`. Raises PlanError if no host could
    measure the request, HostError if this host cannot.
    """
    possible = possible_draft(host, request)
    facts = facts_of_place(host, mount_below(possible.plan))
    disk = possible.plan.settings.disk
    if store is None:
        verdicts = verdicts_of((), disk or HostDisk.VOLATILE, (facts,))
    else:
        verdicts = stored_verdicts(store, facts, disk)
    if search is not None:
        narrow = partial(search.narrow, verdicts=verdicts)
    possible = replace(possible, plan=narrow(possible.plan).plan)
    begun = None if store is None or new else begun_plan(store, facts, possible.plan)
    made = make_plan(host, ledger, possible, progress, narrow=narrow, begun=begun)
    return Planned(made.plan, made.search, made.events, facts, verdicts, begun is not None)


def begun_plan(store: Store, facts: HostFacts, possible: CampaignPlan) -> CampaignPlan | None:
    """The plan that a request continues on this host, with the cells that it began with; None if it
    begins a new campaign."""
    found = begun_campaign(store.campaigns(), MeasuringHost.of(facts), possible)
    return None if found is None else found[1]


def make_plan(
    host: Host,
    ledger: Ledger,
    possible: Possible,
    progress: Progress,
    *,
    narrow: Narrow = Narrowed,
    begun: CampaignPlan | None = None,
) -> Narrowed:
    """The plan of a possible request on this host, narrowed, after trying to build its stacks.

    `begun` is the plan of the campaign that goes on, if one does: then nothing is tried but the
    servers that did not answer when it began, because a trial that fails today must not change the
    campaign. If a server is back, everything is tried anew, for a new campaign. Raises PlanError if
    no host could measure it, HostError if this host cannot.
    """
    draft, plan = possible.draft, begun
    if plan is not None and (left_out := _left_out(plan)):
        found = survey(host, ledger, draft, left_out, progress)
        refused = {path: infeasible(path, found) for path in left_out}
        back = [str(path) for path, reason in refused.items() if reason is None]
        plan = plan.with_reasons({path: why for path, why in refused.items() if why is not None})
        if back:
            can = f"{', '.join(back)} can be measured now"
            why = "paths are compared within a round, and the older rounds lack it"
            progress(Note(f"{can}: a new campaign measures all paths, as {why}"))
            plan = None
    if plan is None:
        found = survey(host, ledger, draft, draft.paths_to_survey, progress)
        plan = replace(draft.on(found), requested=possible.plan.cells)
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
    require_host()
    named = named_here(host, request)
    draft = draft_plan(named)
    # Refuse requests that no host could measure before trying anything on this one.
    plan = draft.on(Capabilities(qemus=named.limits, on_tmpfs=named.on_tmpfs))
    check_measurements(plan)
    if plan.guest_buses:
        require_device(plan.guest.accelerator)
    if plan.guest.kernel is not None and plan.guest_buses:
        kernel_for(host, cache_directory(), plan.guest_buses, plan.guest)
    return Possible(draft, plan)


def possible_paths(request: Request) -> tuple[DiskPath, ...]:
    """The request's paths, or else its profile's. Raises PlanError if no host can have them.

    None with --qemu: a path may name a version that only the program itself tells.
    """
    if request.qemu:
        return ()
    usual = load_profile(request.profile_name).usual.paths
    matrix = expand_matrix(request.patterns or usual, backing=backing_of(request))
    return tuple(dict.fromkeys(cell.path for cell in matrix.cells))
