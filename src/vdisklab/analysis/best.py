"""Which cells may be the best: multiple comparisons with the best.

The question has c - 1 comparisons, not the c(c - 1)/2 of a full ranking, so it needs fewer blocks.
Sources: Gupta, Technometrics 7, 1965 (the subset that holds the best); Hsu, Annals of Statistics
12, 1984, and Multiple Comparisons, 1996, chapter 4 (the same with the best chosen by the data).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from vdisklab.analysis.additive import Fit
from vdisklab.analysis.intervals import MIN_BLOCKS, t_isf, t_sf
from vdisklab.analysis.observations import MeasureKey
from vdisklab.analysis.pair_tests import beaten
from vdisklab.path.cell import MeasuredCell
from vdisklab.path.segments import PageCache
from vdisklab.results.model import Better

POWER = 0.8
MOST_BLOCKS = 1000


@dataclass(frozen=True, slots=True)
class BestSet:
    """The answer to "which is the best": with confidence 1 - `alpha`, one of `cells`.

    `cells` are the competitors that are not shown to be worse than another, by value, best first;
    the first leads. `beaten` is the number of the other competitors. `runner_up` is the competitor
    next by value, inside the set or not; `p` is the one-sided p-value of the leader's lead over it,
    adjusted for the number of competitors.
    `noise` is the standard deviation of a competitor's run beside its block, as a logarithm, and
    `blocks` their median number of blocks.
    """

    measure: MeasureKey
    alpha: float
    cells: tuple[MeasuredCell, ...]
    beaten: int
    runner_up: MeasuredCell | None
    p: float | None
    noise: float
    blocks: int

    @property
    def leader(self) -> MeasuredCell:
        """The competitor with the best mean."""
        return self.cells[0]

    @property
    def alone(self) -> bool:
        """True when the leader is shown to be the best."""
        return len(self.cells) == 1

    @property
    def competitors(self) -> int:
        """How many cells compete."""
        return len(self.cells) + self.beaten

    @property
    def shows(self) -> float | None:
        """The lead (0.25: 25 %) that these blocks show with a power of 80 % at this noise."""
        return math.expm1(self._least_lead(self.blocks)) if self.competitors > 1 else None

    def blocks_for(self, lead: float) -> int | None:
        """How many blocks show such a lead with a power of 80 %; None above 1000."""
        if self.competitors < 2 or self._least_lead(MOST_BLOCKS) > math.log1p(lead):
            return None
        low, high = MIN_BLOCKS, MOST_BLOCKS
        while low < high:
            middle = (low + high) // 2
            if self._least_lead(middle) <= math.log1p(lead):
                high = middle
            else:
                low = middle + 1
        return low

    def _least_lead(self, blocks: int) -> float:
        """The difference of logarithms shown in so many blocks (the sample size of a t-test)."""
        freedom = (self.competitors - 1) * (blocks - 1)
        quantiles = t_isf(self.alpha / (self.competitors - 1), freedom) + t_isf(1 - POWER, freedom)
        return float(quantiles) * self.noise * math.sqrt(2 / blocks)


def competitors(cells: Sequence[MeasuredCell]) -> npt.NDArray[np.intp]:
    """The places of the cells that a user could choose; of all cells if there is none.

    Neither the host's own numbers nor the null device compete, and of a path measured cold and warm
    only the cold one: warm shows the host's memory. A name that is no disk path competes.
    """
    chosen: dict[str, int] = {}
    for place, cell in enumerate(cells):
        known = cell.name in chosen
        if cell.on_host or cell.is_null or (known and cell.page_cache is PageCache.WARM):
            continue
        chosen[cell.name] = place
    return np.array(sorted(chosen.values()) or range(len(cells)), dtype=np.intp)


def best_set(
    measure: MeasureKey,
    model: Fit,
    fitted: Sequence[MeasuredCell],
    blocks: npt.NDArray[np.intp],
    alpha: float = 0.05,
) -> BestSet | None:
    """The set of the competitors among the `fitted` cells; None without any.

    `fitted` and `blocks` have the cell and its number of blocks for each row of the model.
    """
    places = competitors(fitted)
    if not len(places):
        return None
    part = model.at(places)
    sign = 1.0 if measure.quantity.better is Better.HIGHER else -1.0
    # Rounded, so that cells with equal values are ordered by name, not by rounding errors.
    goodness = sign * np.round(part.effect, 12)
    cells = [fitted[place] for place in places.tolist()]
    others = max(1, len(places) - 1)
    may = beaten(goodness, part, alpha / others) == 0
    order = sorted(range(len(cells)), key=lambda at: (-goodness[at], cells[at]))
    p = None
    if len(order) > 1:
        first, second = order[:2]
        gap = (goodness[first] - goodness[second]) / np.hypot(part.error[first], part.error[second])
        p = min(1.0, others * float(t_sf(gap, min(part.freedom[first], part.freedom[second]))))
    counts = blocks[places]
    return BestSet(
        measure=measure,
        alpha=alpha,
        cells=tuple(cells[at] for at in order if may[at]),
        beaten=int((~may).sum()),
        runner_up=cells[order[1]] if len(order) > 1 else None,
        p=p,
        noise=float(np.sqrt(np.median(part.error**2 * counts))),
        blocks=int(np.median(counts)),
    )
