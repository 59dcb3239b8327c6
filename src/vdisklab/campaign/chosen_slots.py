"""Which cells the rounds of a search measure, within the time that the search may take."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Collection, Iterator

from vdisklab.campaign.schedule import Slot, round_order, run_seconds
from vdisklab.host.waiting import Clock
from vdisklab.path.cell import Cell
from vdisklab.plan.campaign import CampaignPlan
from vdisklab.progress import Note, Progress
from vdisklab.units import counted
from vdisklab.value import Value, replace

Choose = Callable[[int], Collection[str]]
"""(round, from 1) -> the fingerprints of the cells to measure in it."""


class TimeLimit(Value):
    """`left` returns the seconds that a search still has.

    Time is kept for the `needed` cells (fingerprints): without them, a round's numbers are useless.
    What an earlier command was to measure and failed to is `owed` (round, fingerprint): it is
    measured again, whatever is left.
    """

    left: Callable[[], float]
    needed: Collection[str] = ()
    owed: Collection[tuple[int, str]] = ()


NO_LIMIT = TimeLimit(lambda: math.inf)


def chosen_slots(
    plan: CampaignPlan,
    finished: Collection[tuple[int, str]],
    choose: Choose,
    limit: TimeLimit,
    progress: Progress,
    *,
    clock: Clock = time,
) -> Iterator[Slot]:
    """The slots of the cells that `choose` selects, as long as they will end within the limit.

    The next cell is chosen when a run has ended. Its time is estimated from the runs before it.
    """
    pace = _Pace(run_seconds(plan))
    for round in itertools.count(1):
        chosen = choose(round)
        if not chosen:
            return
        slots = [
            Slot(round, position, cell)
            for position, cell in enumerate(round_order(plan, round), 1)
            if cell.fingerprint in chosen and (round, cell.fingerprint) not in finished
        ]
        left_out = 0
        for place, slot in enumerate(slots):
            later = [slot.cell for slot in slots[place + 1 :]]
            is_owed = (round, slot.cell.fingerprint) in limit.owed
            if not is_owed and limit.left() < pace.of(slot.cell, first=place == 0) + sum(
                pace.of(cell) for cell in later if cell.fingerprint in limit.needed
            ):
                left_out += 1
                continue
            begun = clock.monotonic()
            yield replace(slot, later=len(later))
            pace.add(slot.cell, clock.monotonic() - begun, first=place == 0)
        if left_out:
            runs = f"{left_out} of the {counted(len(slots), 'run')} of round {round}"
            progress(Note(f"the budget is used up: {runs} would not end in time"))
            return


class _Pace:
    """How long runs are likely to take: their estimates, corrected by the runs so far.

    The first run of a round boots a guest, so it says nothing about the others.
    """

    def __init__(self, estimate: Callable[[Cell], float]) -> None:
        self._estimate = estimate
        self._estimated = self._measured = self._longest_first = 0.0

    def of(self, cell: Cell, *, first: bool = False) -> float:
        """The seconds of a run."""
        factor = self._measured / self._estimated if self._estimated else 1.0
        return max(factor * self._estimate(cell), self._longest_first if first else 0.0)

    def add(self, cell: Cell, seconds: float, *, first: bool) -> None:
        """Remembers a run."""
        if first:
            self._longest_first = max(self._longest_first, seconds)
        else:
            self._estimated += self._estimate(cell)
            self._measured += seconds
