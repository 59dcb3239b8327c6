"""What noisy neighbours cost a guest: the ratio of its latency beside them to its latency alone."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from vdisklab.actions.guest_capacity import require_group_paths, run_control
from vdisklab.actions.measure import Measured, measure, unchanged_campaign
from vdisklab.analysis.diagnostics.caveats import Caveats, caveats_of
from vdisklab.analysis.guest_groups import Bottleneck, bottleneck
from vdisklab.analysis.paired_ratios import Ratio, paired_ratios
from vdisklab.answers.density_answer import groups_of, name_of_one
from vdisklab.answers.loading import require_one_accelerator
from vdisklab.answers.planning import load_profile, possible_plan
from vdisklab.campaign.schedule import schedule
from vdisklab.errors import PlanError
from vdisklab.host.command import LocalHost
from vdisklab.plan.run_request import DensityRequest
from vdisklab.plan.settings import NO_BASELINE
from vdisklab.progress import Progress
from vdisklab.results.model import Run
from vdisklab.results.store import Store

_ALONE, _BESIDE = 1, 2


@dataclass(frozen=True, slots=True)
class NeighbourEffect:
    """One path: the victim's median p99 alone and beside a neighbour in seconds, and their ratio.

    The ratio is paired within rounds. None where nothing was measured.
    """

    path: str
    alone: float | None
    beside: float | None
    ratio: Ratio
    limited: Bottleneck | None
    failure: str | None


@dataclass(frozen=True, slots=True)
class NeighbourAnswer:
    """The effect on each path, the smallest first."""

    campaign: str
    victim: str
    neighbour: str
    paths: tuple[NeighbourEffect, ...]
    caveats: Caveats


def measure_neighbour(
    store: Store, request: DensityRequest, progress: Progress
) -> tuple[Measured, NeighbourAnswer | None]:
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
    answer = neighbour_answer(store, measured.campaign, str(request.victim), str(request.neighbour))
    return measured, answer


def neighbour_campaign(request: DensityRequest) -> DensityRequest:
    """The campaign of a request. Raises PlanError for what it cannot say."""
    unused = ("guests", "load", "until", "most", "profile", "baseline")
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
        guests=(str(_ALONE), str(_BESIDE)),
        profile=request.victim,
        victim=None,
        baseline=NO_BASELINE,
    )


def neighbour_answer(
    store: Store, campaign_id: str, victim: str, neighbour: str
) -> NeighbourAnswer:
    """The answer of a campaign from its stored runs.

    Raises PlanError if they ran under two accelerators.
    """
    require_one_accelerator(store, store.campaign(campaign_id))
    runs: dict[str, list[Run]] = {}
    for run in store.runs(campaign_id):
        runs.setdefault(name_of_one(run.measured_cell), []).append(run)
    effects = [_effect(path, own) for path, own in runs.items()]
    ordered = sorted(
        effects, key=lambda one: float("inf") if one.ratio.ratio is None else one.ratio.ratio
    )
    caveats = caveats_of(store.outlines((campaign_id,)))
    return NeighbourAnswer(campaign_id, victim, neighbour, tuple(ordered), caveats)


def _effect(path: str, runs: list[Run]) -> NeighbourEffect:
    p99: dict[int, dict[int, float]] = {_ALONE: {}, _BESIDE: {}}
    limited = None
    for run in runs:
        for measurement, group in groups_of(run)[:1]:
            p99[len(group.members)][run.round] = group.members[0].latency_p99
            if len(group.members) == _BESIDE:
                limited = bottleneck(group, measurement.evidence)
    rounds = sorted(p99[_ALONE].keys() & p99[_BESIDE].keys())
    beside, alone = (
        np.array([[p99[guests][round] for round in rounds]]) for guests in (_BESIDE, _ALONE)
    )
    failures = [run.failure.sentence for run in runs if run.failure is not None]
    return NeighbourEffect(
        path=path,
        alone=float(np.median(alone)) if rounds else None,
        beside=float(np.median(beside)) if rounds else None,
        ratio=paired_ratios(beside, alone)[0] if rounds else Ratio(0),
        limited=limited,
        failure=failures[-1] if failures else None,
    )
