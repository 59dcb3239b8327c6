"""`density`: how many guests each path carries, and what a noisy neighbour costs one."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import numpy as np

from vdisklab.analysis.capacity import Capacity, Outcomes, capacity, next_steps
from vdisklab.analysis.diagnostics.caveats import Caveats
from vdisklab.analysis.guest_groups import (
    LEAST_SERVED,
    Bottleneck,
    Criterion,
    GroupStep,
    LimitedBy,
    bottleneck,
    judge,
    parse_criterion,
    share_on_device,
)
from vdisklab.analysis.observations import median
from vdisklab.analysis.paired_ratios import Ratio, paired_ratios
from vdisklab.answers.caveats import caveats_with_remedy
from vdisklab.answers.joining import require_one_accelerator
from vdisklab.answers.loading import newest_campaign
from vdisklab.documents import Answer
from vdisklab.errors import PlanError
from vdisklab.path.bus_options import GUESTS, without_options
from vdisklab.path.cell import MeasuredCell
from vdisklab.path.segments import PageCache
from vdisklab.plan.density_request import DEFAULT_MOST
from vdisklab.results.model import Campaign, GuestGroup, Measurement, Run
from vdisklab.results.store import Store
from vdisklab.value import Value, replace

ALONE, BESIDE = 1, 2
"""Guests of a campaign that measures a victim without and with its neighbour."""


class PathCapacity(Value):
    """One path and the number of guests that it carries."""

    path: str
    capacity: Annotated[Capacity | None, "null if every run of it failed"]
    limited: Annotated[
        Bottleneck,
        "why no more guests fit: what was used up in the failed step with the fewest guests, or "
        "what ended the search",
    ]
    at_limit: Annotated[
        GroupStep | None,
        "the worst run with the guests that the path carries; with one guest if it carries none",
    ]
    on_device: Annotated[
        float | None,
        "of the bytes that the guests of `at_limit` wrote, the share that had reached the device "
        "when they ended; null if unknown, and of a path that bypasses the host's page cache",
    ]
    reached: Annotated[float | None, "the rate that one guest alone reached, if less than its load"]
    complete: Annotated[
        bool, "false if the search was interrupted, or given up because runs failed"
    ]
    failure: str | None
    steps: Annotated[tuple[GroupStep, ...], "its runs"]


class DensityAnswer(Answer):
    """`vdisklab density`: how many guests each path carries, the highest first."""

    FORMAT = "vdisklab.density/2"

    campaign: str
    load: Annotated[int, "requests per second and guest"]
    until: Annotated[Criterion, "the limit that each guest must meet"]
    caveats: Caveats
    paths: tuple[PathCapacity, ...]
    left_out: Annotated[
        tuple[str, ...], "paths that are not shown to carry the guests that were asked for"
    ] = ()


class NeighbourEffect(Value):
    """One path and what a neighbour does to the victim on it; null where nothing was measured."""

    path: str
    alone: Annotated[float | None, "seconds: the victim's median p99 alone"]
    beside: Annotated[float | None, "seconds: the same beside the neighbour"]
    ratio: Annotated[Ratio, "beside over alone, paired within rounds"]
    limited: Bottleneck | None
    on_device: Annotated[
        float | None,
        "the smallest share of the bytes written beside the neighbour that had reached the device "
        "at the end; null if unknown, and of a path that bypasses the host's page cache",
    ]
    failure: str | None


class NeighbourAnswer(Answer):
    """`vdisklab density --victim`: what a neighbour does, the smallest effect first."""

    FORMAT = "vdisklab.neighbour/2"

    campaign: str
    victim: str
    neighbour: str
    caveats: Caveats
    paths: tuple[NeighbourEffect, ...]


def outcomes_of(runs: Sequence[Run], criterion: Criterion) -> Outcomes:
    """Whether all measurements of each run passed, by its number of guests and its round."""
    outcomes: dict[int, dict[int, bool]] = defaultdict(dict)
    for run in runs:
        groups = [group for _, group in groups_of(run)]
        if groups:
            passed = all(judge(group, criterion).passed for group in groups)
            outcomes[len(groups[0].members)][run.round] = passed
    return outcomes


def groups_of(run: Run) -> list[tuple[Measurement, GuestGroup]]:
    """The measurements of a run that several guests made at once."""
    if run.failure is not None:
        return []
    return [
        (measurement, measurement.group)
        for measurement in run.measurements
        if measurement.group is not None
    ]


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
        campaign=campaign.id,
        load=int(plan["load"]),
        until=criterion,
        caveats=caveats_with_remedy(store.outlines((campaign.id,)), (campaign,)),
        paths=tuple(sorted(answers, key=_order)),
    )


def stored_density(store: Store, name: str | None) -> DensityAnswer:
    """The answer of the named campaign, or of the newest that `density` measured.

    Raises PlanError if there is none.
    """
    if name is not None:
        return density_of(store, name)
    campaign = newest_campaign(store, lambda campaign: searched_capacity(campaign.plan))
    if campaign is not None:
        return density_of(store, campaign.id)
    raise PlanError(
        f"{store} has no search of how many guests a path carries",
        hint="measure it: `vdisklab density PATHS --load 500iops`",
    )


def measured_at_once(campaign: Campaign, guests: int) -> bool:
    """True for a campaign of `run --guests` that measured paths in so many guests at once."""
    in_guests = (cell.path.attachment.guests for cell in campaign.cells if cell.path is not None)
    return guests in in_guests and not searched_capacity(campaign.plan)


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
        hint = "the search is not finished: repeat the same `vdisklab density` to continue it"
    elif tried and best.limited.limit is LimitedBy.MEMORY:
        hint = "search further with a smaller --guest-memory"
    elif tried:
        hint = f"search further: --most {guests}"
    raise PlanError(
        f"no path is shown to carry {guests} guests with {answer.load} requests a second at "
        f"{answer.until}: {best.path} carries {'at least ' if tried else ''}{carried.guests} "
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
    outcomes = outcomes_of(runs, criterion)
    complete = not next_steps(outcomes, most, repeats=1)
    carried = capacity(outcomes, most)
    most_carried = 0 if carried is None else carried.guests
    at_limit = [step for step in steps if carried and step.guests == max(1, most_carried)]
    shown = max(at_limit, key=lambda step: step.worst, default=None)
    least = most_carried + (carried is None or carried.at_least)
    slow = [step for step in judged if not step[0].passed and step[0].guests >= least]
    if slow:
        # the number it carries may have failed in some runs: any larger one says more
        _, group, measurement = min(
            slow, key=lambda step: (step[0].guests == most_carried, step[0].guests)
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
        limited=limited,
        at_limit=shown,
        on_device=next(
            (_on_device(runs, measurement) for step, _, measurement in judged if step is shown),
            None,
        ),
        reached=min(short, default=None),
        complete=complete,
        failure=_last_failure(runs),
        steps=steps,
    )


def _last_failure(runs: Sequence[Run]) -> str | None:
    """Why the last of the runs failed that were not measured again since; None without one."""
    measured = {(run.round, run.cell) for run in runs if run.failure is None}
    failures = [
        run.failure.sentence
        for run in runs
        if run.failure is not None and (run.round, run.cell) not in measured
    ]
    return failures[-1] if failures else None


def _on_device(runs: Sequence[Run], measurement: Measurement) -> float | None:
    """The share of a measurement's writes that reached the device, of paths through the cache."""
    if any(run.measured_cell.page_cache is PageCache.BYPASSED for run in runs):
        return None
    return share_on_device(measurement.evidence)


def neighbour_answer(
    store: Store, campaign_id: str, victim: str, neighbour: str
) -> NeighbourAnswer:
    """The answer of a campaign from its stored runs.

    Raises PlanError if they ran under two accelerators.
    """
    campaign = store.campaign(campaign_id)
    require_one_accelerator(store, campaign)
    runs: dict[str, list[Run]] = {}
    for run in store.runs(campaign_id):
        runs.setdefault(name_of_one(run.measured_cell), []).append(run)
    effects = [_neighbour_effect(path, runs_of_path) for path, runs_of_path in runs.items()]
    ordered = sorted(
        effects,
        key=lambda effect: float("inf") if effect.ratio.ratio is None else effect.ratio.ratio,
    )
    caveats = caveats_with_remedy(store.outlines((campaign_id,)), (campaign,))
    return NeighbourAnswer(campaign_id, victim, neighbour, caveats, tuple(ordered))


def _neighbour_effect(path: str, runs: list[Run]) -> NeighbourEffect:
    p99: dict[int, dict[int, float]] = {ALONE: {}, BESIDE: {}}
    limited = None
    on_device = []
    for run in runs:
        for measurement, group in groups_of(run)[:1]:
            p99[len(group.members)][run.round] = group.members[0].latency_p99
            if len(group.members) == BESIDE:
                limited = bottleneck(group, measurement.evidence)
                on_device.append(_on_device(runs, measurement))
    rounds = sorted(p99[ALONE].keys() & p99[BESIDE].keys())
    beside, alone = (
        np.array([[p99[guests][round] for round in rounds]]) for guests in (BESIDE, ALONE)
    )
    return NeighbourEffect(
        path=path,
        alone=median(alone) if rounds else None,
        beside=median(beside) if rounds else None,
        ratio=paired_ratios(beside, alone)[0] if rounds else Ratio(0),
        limited=limited,
        on_device=min((share for share in on_device if share is not None), default=None),
        failure=_last_failure(runs),
    )
