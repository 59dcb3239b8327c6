"""How many guests a path carries: searches by measuring, after a control whose answer is known."""

from __future__ import annotations

import math
import os
import tempfile
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from vdisklab.analysis.capacity import REPEATS, Capacity, capacity, next_steps
from vdisklab.analysis.guest_groups import (
    LEAST_SERVED,
    Bottleneck,
    Criterion,
    GroupStep,
    LimitedBy,
    bottleneck,
    judge,
    parse_criterion,
)
from vdisklab.campaign.runner import Choose
from vdisklab.errors import HostError, PlanError
from vdisklab.host.command import LocalHost
from vdisklab.host.facts import memory_bytes
from vdisklab.host.ledger import open_ledger
from vdisklab.path.cell import MeasuredCell
from vdisklab.path.disk_path import DiskPath
from vdisklab.path.durability import Verdicts
from vdisklab.path.rules import impossible
from vdisklab.path.segments import ImageFormat
from vdisklab.plan.build import backing_of
from vdisklab.plan.campaign import CampaignPlan
from vdisklab.plan.density_request import DEFAULT_LIMIT, DEFAULT_MOST, DensityRequest
from vdisklab.plan.guest import GUESTS, USUAL_GUEST, RanUnder, with_each, without_options
from vdisklab.plan.matrix import expand_paths
from vdisklab.plan.settings import NO_BASELINE
from vdisklab.powercut.recording.logged_disk import rated_disk
from vdisklab.progress import Note, Progress
from vdisklab.results.model import GuestGroup, Measurement, Run
from vdisklab.results.store import Store, open_store
from vdisklab.services.measure import Measured, measure
from vdisklab.services.planning import load_profile
from vdisklab.storage.room import guests_that_fit
from vdisklab.storage.site import open_site
from vdisklab.units import MIB, format_bytes

PROFILE = "open-load"
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


def known_rate(guests: int, load: int = CONTROL_LOAD) -> float:
    """The requests per second of a disk that carries this many guests, and not one more."""
    return load * (guests + 0.5)


@dataclass(frozen=True, slots=True)
class PathCapacity:
    """What was measured of one path; `capacity` is None if every run of it failed.

    `steps` are its runs, `limited` what limited the smallest number of guests that did not pass,
    or the search. `reached` is the rate that one guest alone reached if that is less than its load.
    """

    path: str
    capacity: Capacity | None
    steps: tuple[GroupStep, ...]
    limited: Bottleneck
    reached: float | None
    failure: str | None = None

    @property
    def at_limit(self) -> GroupStep | None:
        """The worst run at the largest number of guests that the path carries."""
        if self.capacity is None:
            return None
        at = [step for step in self.steps if step.guests == self.capacity.guests]
        return max(at, key=lambda step: step.worst, default=None)


@dataclass(frozen=True, slots=True)
class DensityAnswer:
    """The capacities of all paths, the highest first."""

    campaign: str
    load: int
    criterion: Criterion
    paths: tuple[PathCapacity, ...]
    emulated: bool


@dataclass(frozen=True, slots=True)
class CapacitySearch:
    """Selects the numbers of guests to measure in each block."""

    criterion: Criterion
    repeats: int
    progress: Progress
    renews_guests: bool = True

    def narrow(self, plan: CampaignPlan, verdicts: Verdicts, progress: Progress) -> CampaignPlan:
        """The plan itself: what a path loses in a power cut does not matter here."""
        del verdicts, progress
        return plan

    def choosing(self, results: Store, plan: CampaignPlan, campaign: str) -> Choose:
        """Returns the function that selects the cells of a block."""
        cells: dict[str, dict[int, str]] = defaultdict(dict)
        for cell in plan.cells:
            cells[name_of_one(cell.measured)][cell.path.attachment.guests or 1] = cell.fingerprint

        def choose(block: int) -> Collection[str]:
            runs = [run for run in results.runs(campaign) if run.block < block]
            chosen: set[str] = set()
            for path, by_guests in cells.items():
                own = [run for run in runs if run.cell in by_guests.values()]
                if sum(run.failure is not None for run in own) > _MOST_FAILURES:
                    continue
                if block == 2:
                    self._say_what_one_reaches(path, own)
                steps = next_steps(outcomes_of(own, self.criterion), max(by_guests), self.repeats)
                chosen |= {by_guests[guests] for guests in steps}
            return chosen

        return choose

    def _say_what_one_reaches(self, path: str, runs: Sequence[Run]) -> None:
        """Says at the first step that no guest can reach the load."""
        for run in runs:
            for _, group in groups_of(run):
                step = judge(group, self.criterion)
                if step.served is not None and step.served < LEAST_SERVED:
                    self.progress(
                        Note(
                            f"{path}: one guest alone completes {step.served:.0%} of its requests, "
                            f"{step.iops:.0f} a second: choose a --load below that"
                        )
                    )


def outcomes_of(runs: Sequence[Run], criterion: Criterion) -> Mapping[int, list[bool]]:
    """Whether each measured run passed, by its number of guests."""
    outcomes: dict[int, list[bool]] = defaultdict(list)
    for run in runs:
        for _, group in groups_of(run):
            outcomes[len(group.members)].append(judge(group, criterion).passed)
    return outcomes


def groups_of(run: Run) -> list[tuple[Measurement, GuestGroup]]:
    """The measurements of a run that several guests made at once."""
    if run.failure is not None:
        return []
    return [(one, one.group) for one in run.measurements if one.group is not None]


def measure_density(
    store: Store, request: DensityRequest, progress: Progress
) -> tuple[Measured, DensityAnswer | None]:
    """Runs the control, then searches the capacity of each path.

    Raises PlanError for requests that nothing could answer, HostError if the control fails.
    """
    campaign = campaign_of(request)
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
    profile = load_profile(request.profile or PROFILE)
    if not profile.is_open_load:
        raise PlanError(
            f"the profile {profile.name} has no open load, whose rate --load sets",
            hint=f"choose --profile {PROFILE}, or a profile of yours with rate_iops",
        )
    return replace(
        request,
        guests=tuple(str(number) for number in range(1, _most(request) + 1)),
        profile=request.profile or PROFILE,
        baseline=NO_BASELINE,
    )


def require_group_paths(request: DensityRequest) -> None:
    """Raises PlanError for paths that several guests cannot have, and without any path."""
    if not request.patterns:
        raise PlanError("no disk path is given", hint="write paths such as {raw,qcow2}/none")
    for path in expand_paths(request.patterns):
        _require_groups(path, request)


def _require_groups(path: DiskPath, request: DensityRequest) -> None:
    """Raises PlanError for a path that several guests cannot have, or that is thin."""
    if path.on_host or (path.image is not None and path.image.format is ImageFormat.NULL):
        raise PlanError(f"{path} gives no guest a disk", hint="write a path such as raw/none")
    (pair,) = with_each(path, GUESTS, ("2",))
    verdict = impossible(pair, backing_of(request))
    if verdict is not None:
        raise PlanError(
            f"{path} cannot be given to several guests: {verdict.reason}", hint=verdict.instead
        )
    if path.image is not None and path.image.is_thin and not request.thin:
        raise PlanError(
            f"{path} is thin: what is measured would be the allocation of its blocks, and a full "
            "image carries several times as many guests",
            hint="leave preallocation out, or add --thin",
        )


def _most(request: DensityRequest) -> int:
    """The largest number of guests to try. Raises HostError if not even one fits into memory."""
    memory = request.guest_memory or USUAL_GUEST.memory_bytes
    total, most = memory_bytes(), request.most or DEFAULT_MOST
    if not total:
        return most
    fitting = guests_that_fit(memory, int(_SHARE_FOR_GUESTS * total))
    if not fitting:
        raise HostError(
            f"not even one guest with {format_bytes(memory)} of memory fits into this host's "
            f"{format_bytes(total)}",
            hint="choose a smaller --guest-memory",
        )
    return min(most, fitting)


def _search(
    store: Store, campaign: DensityRequest, progress: Progress, *, renew: bool = True
) -> tuple[Measured, DensityAnswer | None]:
    criterion = parse_criterion(campaign.until or DEFAULT_LIMIT)
    search = CapacitySearch(criterion, campaign.blocks or REPEATS, progress, renew)
    measured = measure(store, campaign, progress, new=campaign.new, search=search)
    if measured.campaign is None:
        return measured, None
    return measured, density_of(store, measured.campaign)


def run_control(request: DensityRequest, progress: Progress) -> None:
    """Searches a disk whose capacity is known. Raises HostError if the answer is not that."""
    if os.geteuid() != 0:
        raise HostError(
            "the control, a disk of known capacity, needs root", hint="run vdisklab as root"
        )
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
) -> tuple[Measured, DensityAnswer | None]:
    """Searches a disk that carries so many guests, with guests like the request's.

    All steps use the same guests: only the search itself is put to the test.
    """
    work = (request.directory or Path()).absolute()
    with (
        open_ledger() as ledger,
        open_site(LocalHost(), ledger, work) as site,
        rated_disk(site, "control", _CONTROL_DISK, known_rate(guests)) as device,
        tempfile.TemporaryDirectory() as directory,
        open_store(f"sqlite:///{directory}/control.sqlite") as store,
    ):
        control = DensityRequest(
            paths=(_CONTROL_PATH,), devices=(device,), directory=request.directory,
            load=CONTROL_LOAD, until=CONTROL_LIMIT, most=most, size_bytes=_CONTROL_SIZE,
            runtime=_CONTROL_SECONDS, ramp=_CONTROL_RAMP, accelerator=request.accelerator,
            guest_cpus=request.guest_cpus, guest_memory=request.guest_memory,
            guest_kernel=request.guest_kernel, blocks=repeats,
        )  # fmt: skip
        return _search(store, campaign_of(control), progress, renew=False)


def density_of(store: Store, campaign_id: str) -> DensityAnswer:
    """The answer of a campaign, from its stored runs.

    Raises PlanError for a campaign that `density` did not measure.
    """
    campaign = store.campaign(campaign_id)
    plan = campaign.plan
    if not searched_capacity(plan):
        raise PlanError(
            f"the campaign {campaign.id} did not search how many guests a path carries",
            hint="measure it: `vdisklab density PATHS --load 500iops`",
        )
    criterion = parse_criterion(str(plan.get("until", DEFAULT_LIMIT)))
    cells: dict[str, set[int]] = defaultdict(set)
    for cell in campaign.cells:
        if cell.path is not None:
            cells[name_of_one(cell)].add(cell.path.attachment.guests or 1)
    runs: dict[str, list[Run]] = {name: [] for name in cells}
    emulated = False
    for run in store.runs(campaign.id):
        runs.setdefault(name_of_one(run.measured_cell), []).append(run)
        emulated = emulated or run.accelerator != RanUnder.KVM
    wanted = int(plan.get("most", DEFAULT_MOST))
    answers = [
        _path_capacity(name, runs[name], criterion, max(guests), wanted)
        for name, guests in cells.items()
    ]
    return DensityAnswer(
        campaign.id, int(plan["load"]), criterion, tuple(sorted(answers, key=_order)), emulated
    )


def stored_density(store: Store, name: str | None) -> DensityAnswer:
    """The answer of the named campaign, or of the newest that `density` measured.

    Raises PlanError if there is none.
    """
    if name is not None:
        return density_of(store, name)
    for campaign in store.campaigns(with_runs=True):
        if searched_capacity(campaign.plan):
            return density_of(store, campaign.id)
    raise PlanError(
        f"{store} has no search of how many guests a path carries",
        hint="measure it: `vdisklab density PATHS --load 500iops`",
    )


def searched_capacity(plan: Mapping[str, Any]) -> bool:
    """True for a stored plan that `density` made to search capacities."""
    return "load" in plan and "neighbour" not in plan and len(plan.get("cells", ())) > 0


def carrying(answer: DensityAnswer, guests: int) -> DensityAnswer:
    """The answer with only the paths that certainly carry so many guests.

    Raises PlanError naming the best path if there is none.
    """
    enough = [
        path for path in answer.paths if path.capacity is not None and path.capacity.low >= guests
    ]
    if enough:
        return replace(answer, paths=tuple(enough))
    best = answer.paths[0] if answer.paths else None
    if best is None or best.capacity is None:
        raise PlanError("no path of this search could be measured", hint="`vdisklab runs` says why")
    carried = best.capacity
    tried = carried.at_least and carried.guests < guests
    raise PlanError(
        f"no path is shown to carry {guests} guests with {answer.load} requests a second at "
        f"{answer.criterion}: {best.path} carries {'at least ' if tried else ''}{carried.guests} "
        f"({carried.low}–{carried.high})",
        hint=f"search further: --most {guests}"
        if tried
        else "measure other paths, more --blocks, a smaller --load or a longer --until",
    )


def _order(answer: PathCapacity) -> tuple[float, float]:
    carried, step = answer.capacity, answer.at_limit
    return (1 if carried is None else -carried.guests, math.inf if step is None else step.worst)


def name_of_one(cell: MeasuredCell) -> str:
    """The name of a cell without its number of guests."""
    if cell.path is None:
        return cell.label
    return MeasuredCell(str(without_options(cell.path, (GUESTS,))), cell.page_cache).label


def _path_capacity(
    name: str, runs: Sequence[Run], criterion: Criterion, most: int, wanted: int
) -> PathCapacity:
    judged = [
        (judge(group, criterion), group, measurement)
        for run in runs
        for measurement, group in groups_of(run)
    ]
    steps = tuple(sorted((step for step, _, _ in judged), key=lambda step: step.guests))
    alone = [step for step in steps if step.guests == 1]
    short = [step.iops for step in alone if step.served is not None and step.served < LEAST_SERVED]
    failures = [run.failure.sentence for run in runs if run.failure is not None]
    failed = [one for one in judged if not one[0].passed]
    if failed:
        _, group, measurement = min(failed, key=lambda one: one[0].guests)
        limited = bottleneck(group, measurement.evidence)
    else:
        limited = Bottleneck(
            LimitedBy.MEMORY if most < wanted else LimitedBy.MOST, f"{most} guests"
        )
    return PathCapacity(
        path=name,
        capacity=capacity(outcomes_of(runs, criterion), most),
        steps=steps,
        limited=limited,
        reached=min(short, default=None),
        failure=failures[-1] if failures else None,
    )
