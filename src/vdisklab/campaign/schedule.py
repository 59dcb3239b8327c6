"""The order of a campaign: every cell once in each block, at random, and repeatable."""

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
    """One run to do: a cell and its place in a block. Both numbers count from 1."""

    block: int
    position: int
    cell: Cell


def block_order(plan: CampaignPlan, block: int) -> tuple[Cell, ...]:
    """The cells of one block in random order, which depends on the plan and the block alone.

    If stacks take turns on the user's devices, each is built once per block: the cells of one stack
    follow each other, in random order, and so do the stacks.
    """
    cells = list(plan.cells)
    random.Random(f"{plan.seed}/{block}").shuffle(cells)  # noqa: S311 - no secret
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
    """The runs to do, block by block; `finished` holds (block, cell fingerprint)."""
    for block in range(1, plan.blocks + 1):
        for position, cell in enumerate(block_order(plan, block), 1):
            if (block, cell.fingerprint) not in finished:
                yield Slot(block, position, cell)


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
