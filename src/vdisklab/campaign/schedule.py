"""The order of a campaign: every cell once in each block, at random, and repeatable."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from vdisklab.campaign.host_stacks import Stack, stack_of, takes_turns
from vdisklab.path.cell import Cell
from vdisklab.plan.campaign import CampaignPlan


@dataclass(frozen=True, slots=True)
class Slot:
    """One run to do: a cell's place in a block; both numbers count from 1."""

    block: int
    position: int
    cell: Cell


def block_order(plan: CampaignPlan, block: int) -> tuple[Cell, ...]:
    """The cells of one block in their order: a function of the plan and the block alone.

    Where stacks take turns on the user's devices, each is built once in a block: the cells of one
    stack stand together, in random order, and so do the stacks.
    """
    cells = list(plan.cells)
    random.Random(f"{plan.seed}/{block}").shuffle(cells)  # noqa: S311 - no secret
    if not takes_turns(plan):
        return tuple(cells)
    # the place of a stack is that of its first cell; sorting keeps the order within a stack
    turns = list(dict.fromkeys(_tenant(plan, cell) for cell in cells))
    return tuple(sorted(cells, key=lambda cell: turns.index(_tenant(plan, cell))))


def _tenant(plan: CampaignPlan, cell: Cell) -> Stack | None:
    """The stack that must be standing on the devices for a cell; None when it needs none."""
    if not cell.path.has_storage or not plan.backing.on_devices(cell.path.layers):
        return None
    return stack_of(plan, cell.path)


def schedule(plan: CampaignPlan, finished: Collection[tuple[int, str]] = ()) -> Iterator[Slot]:
    """The runs that are left, block by block; `finished` holds (block, cell fingerprint)."""
    for block in range(1, plan.blocks + 1):
        for position, cell in enumerate(block_order(plan, block), 1):
            if (block, cell.fingerprint) not in finished:
                yield Slot(block, position, cell)
