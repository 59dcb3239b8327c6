"""Which programs a campaign runs in its guests."""

from __future__ import annotations

from collections.abc import Iterator

from vdisklab.campaign.estimate import planned_script
from vdisklab.guest.guest_filesystem import make_commands
from vdisklab.plan.campaign import CampaignPlan
from vdisklab.workload.program import program_of


def programs_of(plan: CampaignPlan) -> tuple[str, ...]:
    """Every program that the plan's measurements start, each once, in order of need."""
    return tuple(dict.fromkeys(_programs(plan)))


def _programs(plan: CampaignPlan) -> Iterator[str]:
    for measurement in plan.profile.measurements:
        if measurement.filesystem is not None:
            yield from (command[0] for command in make_commands("", measurement.filesystem))
        script = planned_script(plan, measurement)
        yield from (program_of(step.command) for step in script.prepare)
        yield program_of(script.command)
        yield from (program_of(step.command) for step in script.conclude)
