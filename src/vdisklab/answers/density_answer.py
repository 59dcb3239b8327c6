"""How many guests each path carries, from the stored runs of a search."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from vdisklab.analysis.capacity import Capacity, capacity, next_steps
from vdisklab.analysis.diagnostics.caveats import Caveats, caveats_of
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
from vdisklab.answers.loading import require_one_accelerator
from vdisklab.errors import PlanError
from vdisklab.path.cell import MeasuredCell
from vdisklab.plan.guest import GUESTS, without_options
from vdisklab.plan.run_request import DEFAULT_MOST
from vdisklab.results.model import GuestGroup, Measurement, Run
from vdisklab.results.store import Store


@dataclass(frozen=True, slots=True)
class PathCapacity:
    """What was measured of one path; `capacity` is None if every run of it failed.

    `steps` are its runs, `limited` what limited the smallest number of guests above the capacity
    that did not pass, or the search. `reached` is the rate that one guest alone reached if that is
    less than its load. `complete` is False if the search was interrupted, or given up because runs
    failed.
    """

    path: str
    capacity: Capacity | None
    steps: tuple[GroupStep, ...]
    limited: Bottleneck
    reached: float | None
    complete: bool
    failure: str | None = None

    @property
    def at_limit(self) -> GroupStep | None:
        """The worst run with the guests that the path carries; with one if it carries none."""
        if self.capacity is None:
            return None
        guests = max(1, self.capacity.guests)
        at = [step for step in self.steps if step.guests == guests]
        return max(at, key=lambda step: step.worst, default=None)


@dataclass(frozen=True, slots=True)
class DensityAnswer:
    """The capacities of all paths, the highest first; paths that carry too few may be left out."""

    campaign: str
    load: int
    criterion: Criterion
    paths: tuple[PathCapacity, ...]
    caveats: Caveats
    left_out: tuple[str, ...] = ()


def outcomes_of(runs: Sequence[Run], criterion: Criterion) -> Mapping[int, list[bool]]:
    """Whether all measurements of each run passed, by its number of guests."""
    outcomes: dict[int, list[bool]] = defaultdict(list)
    for run in runs:
        groups = [group for _, group in groups_of(run)]
        if groups:
            passed = all(judge(group, criterion).passed for group in groups)
            outcomes[len(groups[0].members)].append(passed)
    return outcomes


def groups_of(run: Run) -> list[tuple[Measurement, GuestGroup]]:
    """The measurements of a run that several guests made at once."""
    if run.failure is not None:
        return []
    return [(one, one.group) for one in run.measurements if one.group is not None]


def density_of(store: Store, campaign_id: str) -> DensityAnswer:
    """The answer of a campaign, from its stored runs.

    Raises PlanError for a campaign that `density` did not measure, or that has two accelerators.
    """
    campaign = store.campaign(campaign_id)
    plan = campaign.plan
    if not searched_capacity(plan):
        raise PlanError(
            f"the campaign {campaign.id} did not search how many guests a path carries",
            hint="measure it: `vdisklab density PATHS --load 500iops`",
        )
    require_one_accelerator(store, campaign)
    criterion = parse_criterion(str(plan["until"]))
    cells: dict[str, set[int]] = defaultdict(set)
    for cell in campaign.cells:
        if cell.path is not None:
            cells[name_of_one(cell)].add(cell.path.attachment.guests or 1)
    runs: dict[str, list[Run]] = {name: [] for name in cells}
    for run in store.runs(campaign.id):
        runs.setdefault(name_of_one(run.measured_cell), []).append(run)
    wanted = int(plan.get("most", DEFAULT_MOST))
    answers = [
        _path_capacity(name, runs[name], criterion, max(guests), wanted)
        for name, guests in cells.items()
    ]
    return DensityAnswer(
        campaign.id,
        int(plan["load"]),
        criterion,
        tuple(sorted(answers, key=_order)),
        caveats_of(store.outlines((campaign.id,))),
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
    return "load" in plan and "until" in plan and len(plan.get("cells", ())) > 0


def carrying(answer: DensityAnswer, guests: int) -> DensityAnswer:
    """The answer with only the paths that are shown to carry this many guests.

    Raises PlanError naming the best path if there is none.
    """
    enough = [
        path for path in answer.paths if path.capacity is not None and path.capacity.low >= guests
    ]
    if enough:
        left_out = tuple(path.path for path in answer.paths if path not in enough)
        return replace(answer, paths=tuple(enough), left_out=left_out)
    best = answer.paths[0] if answer.paths else None
    if best is None or best.capacity is None:
        raise PlanError("no path of this search could be measured", hint="`vdisklab runs` says why")
    carried = best.capacity
    tried = carried.at_least and carried.guests < guests
    hint = "measure other paths, more --rounds, a smaller --load or a longer --until"
    if not best.complete:
        hint = "the search did not end: the same `vdisklab density` continues it"
    elif tried and best.limited.limit is LimitedBy.MEMORY:
        hint = "search further with a smaller --guest-memory"
    elif tried:
        hint = f"search further: --most {guests}"
    raise PlanError(
        f"no path is shown to carry {guests} guests with {answer.load} requests a second at "
        f"{answer.criterion}: {best.path} carries {'at least ' if tried else ''}{carried.guests} "
        f"({carried.low}–{carried.high})",
        hint=hint,
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
        (judge(group, criterion, measurement.samples), group, measurement)
        for run in runs
        for measurement, group in groups_of(run)
    ]
    steps = tuple(sorted((step for step, _, _ in judged), key=lambda step: step.guests))
    alone = [step for step in steps if step.guests == 1]
    short = [step.iops for step in alone if step.served is not None and step.served < LEAST_SERVED]
    failures = [run.failure.sentence for run in runs if run.failure is not None]
    outcomes = outcomes_of(runs, criterion)
    complete = not next_steps(outcomes, most, repeats=1)
    carried = capacity(outcomes, most)
    most_carried = 0 if carried is None else carried.guests
    least = most_carried + (carried is None or carried.at_least)
    slow = [one for one in judged if not one[0].passed and one[0].guests >= least]
    if slow:
        # the number it carries may have failed in some runs: any larger one says more
        _, group, measurement = min(
            slow, key=lambda one: (one[0].guests == most_carried, one[0].guests)
        )
        limited = bottleneck(group, measurement.evidence)
    elif not complete:
        limited = Bottleneck(LimitedBy.UNFINISHED, "")
    else:
        limited = Bottleneck(
            LimitedBy.MEMORY if most < wanted else LimitedBy.MOST, f"{most} guests"
        )
    return PathCapacity(
        path=name,
        capacity=carried,
        steps=steps,
        limited=limited,
        reached=min(short, default=None),
        complete=complete,
        failure=failures[-1] if failures else None,
    )
