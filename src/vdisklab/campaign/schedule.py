"""The order of a campaign: every cell once in each round, at random, and repeatable."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from vdisklab.campaign.host_stacks import Stack, stack_of, takes_turns
from vdisklab.path.cell import Cell
from vdisklab.plan.campaign import CampaignPlan
from vdisklab.plan.profile import MeasurementPlan
from vdisklab.workload.registry import workload_for


@dataclass(frozen=True, slots=True)
class Slot:
    """One run to do: a cell and its place in a round. Both numbers count from 1."""

    round: int
    position: int
    cell: Cell


def round_order(plan: CampaignPlan, round: int) -> tuple[Cell, ...]:
    """The cells of one round in random order, which depends on the plan and the round alone.

    If stacks take turns on the user's devices, each is built once per round: the cells of one stack
    follow each other, in random order, and so do the stacks.
    """
    cells = list(plan.cells)
    random.Random(f"{plan.seed}/{round}").shuffle(cells)  # noqa: S311 - no secret
    if not takes_turns(plan):
        return tuple(cells)
    # the place of a stack is that of its first cell; sorting keeps the order within a stack
    turns: dict[Stack | None, int] = {}
    for cell in cells:
        turns.setdefault(_device_stack(plan, cell), len(turns))
    return tuple(sorted(cells, key=lambda cell: turns[_device_stack(plan, cell)]))


def _device_stack(plan: CampaignPlan, cell: Cell) -> Stack | None:
    """The stack on the user's devices that a cell needs, or None."""
    if not cell.path.has_storage or not plan.backing.on_devices(cell.path.layers):
        return None
    return stack_of(plan, cell.path)


def schedule(plan: CampaignPlan, finished: Collection[tuple[int, str]] = ()) -> Iterator[Slot]:
    """The runs to do, round by round; `finished` holds (round, cell fingerprint)."""
    for round in range(1, plan.rounds + 1):
        for position, cell in enumerate(round_order(plan, round), 1):
            if (round, cell.fingerprint) not in finished:
                yield Slot(round, position, cell)


AttachGroups = tuple[tuple[bool, tuple[MeasurementPlan, ...]], ...]
"""(needs a freshly booted guest, the measurements that share an attach), in order."""


def attach_groups(plans: Sequence[MeasurementPlan]) -> AttachGroups:
    """All measurements, in order. One that needs a fresh guest starts a new group."""
    groups: list[tuple[bool, tuple[MeasurementPlan, ...]]] = []
    for plan in plans:
        if groups and not workload_for(plan).needs_fresh_guest:
            fresh, group = groups[-1]
            groups[-1] = (fresh, (*group, plan))
        else:
            groups.append((workload_for(plan).needs_fresh_guest, (plan,)))
    return tuple(groups)
