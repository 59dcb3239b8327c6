"""The order of a campaign: every cell once in each block, at random, and repeatable."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from vdisklab.plan.campaign import CampaignPlan
from vdisklab.plan.cell import Cell


@dataclass(frozen=True, slots=True)
class Slot:
    """One run to do: a cell's place in a block; both numbers count from 1."""

    block: int
    position: int
    cell: Cell


def block_order(plan: CampaignPlan, block: int) -> tuple[Cell, ...]:
    """The cells of one block in their order: a function of seed, block and cells alone."""
    cells = list(plan.cells)
    random.Random(f"{plan.seed}/{block}").shuffle(cells)  # noqa: S311 - no secret
    return tuple(cells)


def schedule(plan: CampaignPlan, finished: Collection[tuple[int, str]] = ()) -> Iterator[Slot]:
    """The runs that are left, block by block; `finished` holds (block, cell fingerprint)."""
    for block in range(1, plan.blocks + 1):
        for position, cell in enumerate(block_order(plan, block), 1):
            if (block, cell.fingerprint) not in finished:
                yield Slot(block, position, cell)
