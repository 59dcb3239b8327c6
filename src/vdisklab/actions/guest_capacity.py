"""Measures how many guests a path carries, or what a neighbour costs one, after a known control."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from pathlib import Path

from vdisklab.actions.cell_search import Narrowed
from vdisklab.actions.measure import Measured, measure, unchanged_campaign
from vdisklab.actions.planning import possible_plan
from vdisklab.analysis.capacity import next_steps
from vdisklab.analysis.guest_groups import LEAST_SERVED, Criterion, judge, parse_criterion
from vdisklab.answers import density
from vdisklab.campaign.chosen_slots import NO_LIMIT, Choose, TimeLimit
from vdisklab.campaign.schedule import schedule
from vdisklab.campaign.space import kind_of_guest, most_guests
from vdisklab.errors import HostError, PlanError
from vdisklab.host.command import LocalHost
from vdisklab.host.facts import available_memory, memory_bytes, missing_right
from vdisklab.host.ledger import open_ledger
from vdisklab.path.bus_options import GUESTS, with_each
from vdisklab.path.disk_path import DiskPath
from vdisklab.path.durability import CrashVerdicts
from vdisklab.path.rules import impossible
from vdisklab.path.segments import ImageFormat
from vdisklab.plan.build import backing_of
from vdisklab.plan.campaign import CampaignPlan
from vdisklab.plan.density_request import DEFAULT_LIMIT, DEFAULT_MOST, OPEN_LOAD, DensityRequest
from vdisklab.plan.guest import USUAL_GUEST
from vdisklab.plan.matrix import expand_paths
from vdisklab.plan.settings import NO_BASELINE
from vdisklab.progress import Note, Progress
from vdisklab.results.model import Campaign, Run
from vdisklab.results.store import Store, open_store
from vdisklab.storage.logged_disk import rated_disk
from vdisklab.storage.site import guests_that_fit, open_site, require_memory_for_all
from vdisklab.units import MIB, format_bytes, in_percent
from vdisklab.value import Value, replace
from vdisklab.workload.profile_files import load_profile

_MOST_FAILURES = 2

_SHARE_FOR_GUESTS = 0.8
"""Of the host's memory."""

# The control: a disk that serves 100 requests a second carries 2 guests with 40 each, since 3 would
# need 120. With 2 guests it is 80 % busy, so some requests wait, but no queue grows.
CONTROL_LOAD = 40
CONTROL_GUESTS = 2
CONTROL_LIMIT = "latency_p99<=400ms"
_CONTROL_PATH = "ext4/raw/none"
_CONTROL_SECONDS, _CONTROL_RAMP = 6.0, 3.0
_CONTROL_REPEATS = 2
_CONTROL_SIZE = 16 * MIB
_CONTROL_DISK = 512 * MIB


def known_rate(guests: int) -> float:
    """The requests per second of a disk that carries this many guests, and not one more."""
    return CONTROL_LOAD * (guests + 0.5)


class CapacitySearch(Value):
    """Selects the numbers of guests to measure in each round."""

    criterion: Criterion
    repeats: int | None
    progress: Progress
    renews_guests: bool = True
    span: int | None = None

    def narrow(self, plan: CampaignPlan, verdicts: CrashVerdicts) -> Narrowed:
        """The plan itself: what a path loses in a power cut does not matter here."""
        del verdicts
        return Narrowed(plan, self)

    def choosing(self, results: Store, plan: CampaignPlan, campaign: str) -> Choose:
        """Returns the function that selects the cells of a round."""
        fitting = self._fitting(plan)
        cells: dict[str, dict[int, str]] = defaultdict(dict)
        for cell in plan.cells:
            cells[density.name_of_one(cell.measured)][cell.path.attachment.guests or 1] = (
                cell.fingerprint
            )

        def choose(round: int) -> Collection[str]:
            runs = [run for run in results.runs(campaign) if run.round < round]
            chosen: set[str] = set()
            for path, by_guests in cells.items():
                of_path = [run for run in runs if run.cell in by_guests.values()]
                if sum(run.failure is not None for run in of_path) > _MOST_FAILURES:
                    continue
                measured = [run for run in of_path if run.failure is None]
                if len(measured) == 1 and measured[0].round == round - 1:
                    self._say_what_one_reaches(path, measured)
                most = min(max(by_guests), fitting)
                outcomes = density.outcomes_of(of_path, self.criterion)
                steps = next_steps(outcomes, most, self.repeats, self.span)
                chosen |= {by_guests[guests] for guests in steps if guests <= fitting}
            return chosen

        return choose

    def _fitting(self, plan: CampaignPlan) -> int:
        """The number of guests of a cell that fit into the memory that is free now.

        It does not change the plan: the same command continues when more is free.
        """
        free, most = available_memory(), most_guests(plan)
        kinds = most_guests(plan, 1)
        fitting = guests_that_fit(plan.guest.memory_bytes, free) // kinds if free else most
        if fitting < most // kinds:
            self.progress(
                Note(
                    f"{format_bytes(free)} of memory is free: no group of more than {fitting} is "
                    "tried now; with more free memory the same command goes on"
                )
            )
        return fitting

    def time_limit(self, results: Store, plan: CampaignPlan, campaign: str) -> TimeLimit:
        """No limit."""
        del results, plan, campaign
        return NO_LIMIT

    def _say_what_one_reaches(self, path: str, runs: Sequence[Run]) -> None:
        """Says at the first step that no guest can reach the load."""
        for run in runs:
            for _, group in density.groups_of(run):
                step = judge(group, self.criterion)
                if step.served is not None and step.served < LEAST_SERVED:
                    self.progress(
                        Note(
                            f"{path}: one guest alone completes {in_percent(step.served)} of its "
                            f"requests, {step.iops:.0f} a second: choose a --load below that"
                        )
                    )


def measure_density(
    store: Store, request: DensityRequest, progress: Progress
) -> tuple[Measured, density.DensityAnswer | None]:
    """Runs the control, then searches the capacity of each path, unless that is done already.

    Raises PlanError for requests that nothing could answer, HostError if the control fails.
    """
    campaign = campaign_of(request)
    plan = possible_plan(LocalHost(), campaign)
    stored = None if request.new else unchanged_campaign(store, plan)
    if stored is not None and not _remaining(store, campaign, plan, stored, progress):
        answer = density.density_of(store, stored.id)
        runs = sum(1 for _ in store.runs(stored.id))
        complete = all(path.complete for path in answer.paths)  # or memory ended it, or failures
        return Measured(stored.id, runs, complete_before=complete), answer
    try:
        run_control(request, progress)
    except KeyboardInterrupt:
        return Measured(interrupted=True), None
    return _search(store, campaign, progress)


def campaign_of(request: DensityRequest) -> DensityRequest:
    """The campaign of a request, with a cell for each number of guests.

    Raises PlanError for what density cannot search, HostError if not even one guest fits.
    """
    request.require_search()
    parse_criterion(request.until or DEFAULT_LIMIT)
    require_group_paths(request)
    profile = load_profile(request.profile or OPEN_LOAD)
    if not profile.is_open_load:
        raise PlanError(
            f"the profile {profile.name} has no open load, whose rate --load sets",
            hint=f"choose --profile {OPEN_LOAD}, or a profile of yours with rate_iops",
        )
    return replace(
        request,
        guests=tuple(str(number) for number in range(1, _most(request) + 1)),
        profile=request.profile or OPEN_LOAD,
        until=request.until or DEFAULT_LIMIT,
        baseline=NO_BASELINE,
    )


def require_group_paths(request: DensityRequest) -> None:
    """Raises PlanError for paths that several guests cannot have, and without any path."""
    if not request.patterns:
        raise PlanError("no disk path is given", hint="write paths such as {raw,qcow2}/none")
    for path in expand_paths(request.patterns, targets=request.target):
        _require_groups(path, request)


def _require_groups(path: DiskPath, request: DensityRequest) -> None:
    """Raises PlanError for a path that several guests cannot have, or that is thin."""
    is_null = path.image is not None and path.image.format is ImageFormat.NULL
    if not path.gives_disk or is_null:
        raise PlanError(f"{path} gives no guest a disk", hint="write a path such as raw/none")
    if path.attachment.guests is not None:
        raise PlanError(
            f"density decides itself how many guests it measures, but {path} names a number",
            hint=f"leave out guests={path.attachment.guests}",
        )
    (pair,) = with_each(path, GUESTS, ("2",))
    verdict = impossible(pair, backing_of(request))
    if verdict is not None:
        raise PlanError(
            f"{path} cannot be given to several guests: {verdict.reason}", hint=verdict.instead
        )
    if path.image is not None and path.image.is_thin and not request.thin:
        raise PlanError(
            f"{path} is thin: the numbers would show how fast its blocks are allocated. A full "
            "image carries several times as many guests",
            hint="leave preallocation out, or add --thin",
        )


def _most(request: DensityRequest) -> int:
    """The largest number of guests to try. Raises HostError if not even one fits into memory.

    Guests of each kind stay in memory while those of another one are measured.
    """
    memory = request.guest_memory or USUAL_GUEST.memory_bytes
    total, most = memory_bytes(), request.most or DEFAULT_MOST
    if not total:
        return most
    kinds = len(
        {kind_of_guest(path) for path in expand_paths(request.patterns, targets=request.target)}
    )
    kinds *= max(1, len(request.qemu))
    fitting = guests_that_fit(memory, int(_SHARE_FOR_GUESTS * total) // kinds)
    if not fitting:
        of_kinds = f" of each of {kinds} kinds" if kinds > 1 else ""
        raise HostError(
            f"not even one guest{of_kinds} with {format_bytes(memory)} of memory fits into this "
            f"host's {format_bytes(total)}",
            hint="choose a smaller --guest-memory" + (", or fewer paths" if of_kinds else ""),
        )
    return min(most, fitting)


def _search(
    store: Store, campaign: DensityRequest, progress: Progress, *, renew: bool = True
) -> tuple[Measured, density.DensityAnswer | None]:
    search = _search_of(campaign, progress, renew=renew)
    measured = measure(store, campaign, progress, new=campaign.new, search=search)
    if measured.campaign is None:
        return measured, None
    return measured, density.density_of(store, measured.campaign)


def _search_of(
    campaign: DensityRequest, progress: Progress, *, renew: bool = True
) -> CapacitySearch:
    criterion = parse_criterion(str(campaign.until))
    return CapacitySearch(criterion, campaign.rounds, progress, renew, campaign.precision)


def _remaining(
    store: Store, request: DensityRequest, plan: CampaignPlan, stored: Campaign, progress: Progress
) -> Collection[str]:
    """The cells that a stored search would measure next."""
    last = max((run.round for run in store.runs(stored.id)), default=0)
    return _search_of(request, progress).choosing(store, plan, stored.id)(last + 1)


def measure_neighbour(
    store: Store, request: DensityRequest, progress: Progress
) -> tuple[Measured, density.NeighbourAnswer | None]:
    """Runs the control, then measures the victim alone and beside a neighbour in each round.

    Raises PlanError for requests that nothing could answer, HostError if the control fails.
    """
    campaign = neighbour_campaign(request)
    plan = possible_plan(LocalHost(), campaign)
    stored = None if request.new else unchanged_campaign(store, plan)
    if stored is None or list(schedule(plan, store.finished(stored.id))):
        try:
            run_control(request, progress)
        except KeyboardInterrupt:
            return Measured(interrupted=True), None
    measured = measure(store, campaign, progress, new=request.new)
    if measured.campaign is None:
        return measured, None
    answer = density.neighbour_answer(
        store, measured.campaign, str(request.victim), str(request.neighbour)
    )
    return measured, answer


def neighbour_campaign(request: DensityRequest) -> DensityRequest:
    """The campaign of a request. Raises PlanError if no campaign can express the request."""
    unused = ("guests", "load", "until", "most", "precision", "profile", "baseline")
    given = [f"--{name}" for name in unused if getattr(request, name)]
    if given:
        raise PlanError(
            "--victim compares one guest alone with the same beside a neighbour, so "
            f"{' and '.join(given)} {'has' if len(given) == 1 else 'have'} no effect",
            hint=f"leave out {' and '.join(given)}",
        )
    require_group_paths(request)
    for name in (request.victim, request.neighbour):
        load_profile(str(name))
    return replace(
        request,
        guests=(str(density.ALONE), str(density.BESIDE)),
        profile=request.victim,
        victim=None,
        baseline=NO_BASELINE,
    )


def run_control(request: DensityRequest, progress: Progress) -> None:
    """Searches a disk whose capacity is known. Raises HostError if the answer is not that."""
    if (lacking := missing_right()) is not None:
        right, way = lacking
        raise HostError(f"the control, a disk of known capacity, needs {right}", hint=way)
    rate = known_rate(CONTROL_GUESTS)
    progress(
        Note(
            f"control: a disk of {rate:g} requests a second must carry {CONTROL_GUESTS} guests "
            f"with {CONTROL_LOAD} each"
        )
    )
    measured, answer = search_known(request, CONTROL_GUESTS, CONTROL_GUESTS + 1, progress)
    if measured.interrupted:
        raise KeyboardInterrupt
    path = answer.paths[0] if answer is not None and answer.paths else None
    carried = None if path is None else path.capacity
    if carried is None or carried.guests != CONTROL_GUESTS:
        outcome = "could not be measured" if carried is None else f"carried {carried.guests}"
        reason = f": {path.failure}" if path is not None and path.failure else ""
        raise HostError(
            f"the control failed: a disk that carries {CONTROL_GUESTS} guests {outcome}, so no "
            f"answer of this host would be right{reason}",
            hint="the machine may be too busy for its guests: stop other work, or use fewer "
            "--guest-cpus",
        )
    progress(Note(f"control passed: it carried {carried.guests}"))


def search_known(
    request: DensityRequest,
    guests: int,
    most: int,
    progress: Progress,
    *,
    repeats: int = _CONTROL_REPEATS,
) -> tuple[Measured, density.DensityAnswer | None]:
    """Searches a disk that carries `guests` guests, with guests like the request's.

    All steps use the same guests: only the search itself is put to the test. Raises HostError if
    they do not fit into the memory that is free.
    """
    memory = request.guest_memory or USUAL_GUEST.memory_bytes
    require_memory_for_all(memory, most, available_memory())
    work = (request.directory or Path()).absolute()
    with (
        open_ledger() as ledger,
        open_site(LocalHost(), ledger, work) as site,
        rated_disk(site, "control", _CONTROL_DISK, known_rate(guests)) as device,
        open_store(str(site.directory / "control.sqlite")) as store,
    ):
        control = DensityRequest(
            paths=(_CONTROL_PATH,), devices=(device,), directory=request.directory,
            load=CONTROL_LOAD, until=CONTROL_LIMIT, most=most, size_bytes=_CONTROL_SIZE,
            runtime=_CONTROL_SECONDS, ramp=_CONTROL_RAMP, accelerator=request.accelerator,
            guest_cpus=request.guest_cpus, guest_memory=request.guest_memory,
            guest_kernel=request.guest_kernel, rounds=repeats,
        )  # fmt: skip
        return _search(store, campaign_of(control), progress, renew=False)
