"""A plan that races: whether it can, by which number, and what every round measures."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from vdisklab.analysis.best import competitors
from vdisklab.analysis.score import DEFAULT_METRIC, ROLE_SETS, SCORES
from vdisklab.errors import PlanError
from vdisklab.path.cell import Cell, numbers_of_guests
from vdisklab.plan.campaign import CampaignPlan
from vdisklab.plan.profile import Profile
from vdisklab.plan.race_terms import RaceTerms
from vdisklab.results.model import LIFE_STEPS, METRICS, Direction
from vdisklab.value import replace
from vdisklab.workload.registry import directions_of


def in_every_round(cell: Cell, plan: CampaignPlan, metric: str) -> bool:
    """True for what is measured as long as anything is: paths on the host, and the baseline, to
    which scores relate."""
    return cell.path.on_host or (metric in SCORES and cell.path == plan.baseline)


def can_race(plan: CampaignPlan, terms: RaceTerms) -> bool:
    """True if a plan has two paths or more to rank, in one number of guests, and a number to rank
    by; and if neither the user nor the profile says in how many rounds."""
    cells = tuple(cell.measured for cell in plan.cells if cell.path.is_guest_storage)
    if (
        plan.profile.usual.rounds is not None
        or len(numbers_of_guests(cells)) > 1
        or len(competitors(cells)) < 2
    ):
        return False
    try:
        require_metric(plan.profile, terms.metric)
    except PlanError:
        return False
    return True


def require_metric(profile: Profile, metric: str) -> None:
    """Raises PlanError if a profile has no number of this name, or several."""
    names = list(_measured(profile))
    if metric not in SCORES:
        numbers = _numbers_called(metric, profile)
        if len(numbers) != 1:
            problem = "several numbers" if numbers else "nothing"
            raise PlanError(
                f"the profile {profile.name} measures {problem} called {metric!r}",
                hint=f"write overall, read, write, or MEASUREMENT/DIRECTION/METRIC of "
                f"{', '.join(names)}",
            )
        return
    roles = SCORES[metric].roles
    if profile.is_open_load:
        raise PlanError(
            f"the load of profile {profile.name} is open: rates show the load that is set",
            hint="rank by a latency: --metric MEASUREMENT/DIRECTION/latency_p99",
        )
    if metric == DEFAULT_METRIC:
        return  # without the score's measurements it is the mean of all rates
    if not any(all(role_set.measures[r].name in names for r in roles) for role_set in ROLE_SETS):
        raise PlanError(
            f"the profile {profile.name} has no score {metric!r}",
            hint="name the metric to rank by: --metric MEASUREMENT/DIRECTION/METRIC",
        )


def _measured(profile: Profile) -> Mapping[str, Collection[Direction]]:
    """The measurements that are stored by a profile, with their directions: of a disk's life each
    step is one."""
    if profile.makes_disks:
        return dict.fromkeys(LIFE_STEPS, (Direction.NONE,))
    return {
        measurement.name: directions_of(measurement) or tuple(Direction)
        for measurement in profile.measurements
    }


def _numbers_called(metric: str, profile: Profile) -> set[tuple[str, str]]:
    """The (measurement, metric) pairs of a profile whose full name contains `metric`."""
    spelled = {
        f"{measurement}/{direction}/{name}": (measurement, name)
        for measurement, directions in _measured(profile).items()
        for direction in directions
        for name in METRICS
    }
    if metric in spelled:
        return {spelled[metric]}
    return {number for text, number in spelled.items() if metric in text}


def as_race(plan: CampaignPlan, terms: RaceTerms) -> CampaignPlan:
    """The plan with these terms instead of a number of rounds."""
    return replace(plan, rounds=terms.rounds, race=terms)
