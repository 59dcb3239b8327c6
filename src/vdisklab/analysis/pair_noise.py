"""How noisy the difference of two cells is, when it must not be taken for quieter than it is.

Three blocks say little about one cell's noise, so all cells share one estimate, unless the data
speak against it in one of two ways: a cell is noisier than the others, or cells share what happens
to them in a block (the paths on one pool, or with one bus). The limits were chosen by simulation
(`bench/best.py`): equal noise keeps its power, and neither way makes more than 5 % of wrong
answers.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import special

from vdisklab.analysis.additive import PRECISION, Fit
from vdisklab.analysis.observations import Floats

NOISIER = 0.1
"""A cell whose variance has a smaller probability under the common noise has its own variance,"""
MUCH_NOISIER = 0.01
"""and below this probability its own degrees of freedom, too."""

SHARED = 0.2
"""Residuals that point the same way with a smaller probability are taken to share block effects.
Tests at 5 % overlook such effects in three blocks, and 20 % cost little."""

CLEARLY = 0.01
"""Below this probability the user is told."""

SHARED_PART = 0.2
"""From this part of the variance on, a shared effect decides the degrees of freedom."""


@dataclass(frozen=True, slots=True, eq=False)
class PairNoise:
    """By cell: its variance, the degrees of freedom of that, its blocks, and its `load`.

    The load is what a cell gets of the shared block effect (a standard deviation of logarithms, 0
    without one), `rest` the variance of a value beside it. `shared` is the share of the variance
    that is shared, 0 if that may be chance.
    """

    variance: Floats
    freedom: Floats
    count: Floats
    load: Floats
    rest: float
    shared: float

    def between(
        self, one: npt.NDArray[np.intp], other: npt.NDArray[np.intp]
    ) -> tuple[Floats, Floats]:
        """The standard error of the difference of the effects, and its degrees of freedom."""
        share = 1 / self.count[one] + 1 / self.count[other]
        least = np.minimum(self.count[one], self.count[other])
        variance = self.variance[one] / self.count[one] + self.variance[other] / self.count[other]
        freedom = np.minimum(self.freedom[one], self.freedom[other])
        if self.load.any():
            together = (self.load[one] - self.load[other]) ** 2 / least
            variance = np.maximum(variance, together + self.rest * share)
            freedom = np.where(
                together > SHARED_PART * variance, np.minimum(freedom, least - 1), freedom
            )
        return np.sqrt(variance), freedom


def pair_noise(model: Fit, places: npt.NDArray[np.intp]) -> PairNoise:
    """The noise of the cells at these places of the model."""
    residual = model.residual[places]
    seen = np.isfinite(residual)
    count = seen.sum(axis=1).astype(np.float64)
    fitted = len(model.rows)
    # The fit of the blocks has also removed one cell's share of the noise.
    squares = np.nansum(residual**2, axis=1) * (fitted / (fitted - 1) if fitted > 1 else 1.0)
    own = np.maximum(squares / (count - 1), PRECISION**2)
    common, noisy = _common(own, count - 1)
    variance = np.where(own > _limit(NOISIER, count - 1) * common, own, common)
    freedom = np.full(len(places), float(common_freedom(len(places), int(np.median(count)))))
    freedom[noisy] = count[noisy] - 1
    load, rest, p = _shared(residual[:, seen.any(axis=0)])
    share = 0.0 if p > CLEARLY else min(1.0, float((load**2).sum() / own.sum()))
    return PairNoise(variance, freedom, count, load, rest, share)


def common_freedom(cells: int, blocks: int) -> int:
    """The degrees of freedom of the variance that the cells have in common.

    Fewer than (cells - 1) x (blocks - 1): those of two cells, at most half of all, are left out for
    a noisy cell and a shared effect that are too small for a test.
    """
    return max(blocks - 1, int(max((cells - 1) / 2, cells - 3) * (blocks - 1)))


def _limit(chance: float, freedom: Floats) -> Floats:
    """The ratio of estimated to true variance that normal noise exceeds with this probability."""
    unique, place = np.unique(freedom, return_inverse=True)  # few: it is slow
    answer: Floats = (special.chdtri(unique, chance) / unique)[place]
    return answer


def _common(own: Floats, freedom: Floats) -> tuple[float, npt.NDArray[np.bool_]]:
    """The variance that most cells have in common, and the cells that are much noisier.

    Begins with the median, which few noisy cells do not change, then takes the mean of the others.
    """
    common = float(np.median(own / _limit(0.5, freedom)))
    limit = _limit(MUCH_NOISIER, freedom)
    noisy = np.zeros(len(own), dtype=np.bool_)
    for _ in range(5):
        noisy = own > limit * common
        quiet = freedom * ~noisy
        common = float((own * quiet).sum() / quiet.sum())
    return common, noisy


def _shared(residual: Floats) -> tuple[Floats, float, float]:
    """Each cell's load of a shared block effect, the variance beside it, and the test's p-value.

    The loads are 0 without an effect.

    Independent residuals point in all directions of the blocks alike, however noisy a cell is.
    Bingham's test of that (Annals of Statistics 2, 1974) needs directions only; the effect is the
    first singular vector (an additive main effect and one multiplicative interaction: Gollob,
    Psychometrika 33, 1968). Cells that miss a block do not take part in both.
    """
    nothing = np.zeros(len(residual))
    whole = np.isfinite(residual).all(axis=1)
    table = residual[whole]
    cells, blocks = table.shape
    length = np.sqrt((table**2).sum(axis=1, keepdims=True))
    moving = length[:, 0] > PRECISION
    steps = blocks - 1
    if moving.sum() < 3 or steps < 2:
        return nothing, 0.0, 1.0
    direction = table[moving] / length[moving]
    spread = direction.T @ direction / len(direction)
    statistic = len(direction) * steps * (steps + 2) / 2 * (float((spread**2).sum()) - 1 / steps)
    p = float(special.chdtrc(steps * (steps + 1) / 2 - 1, statistic))
    if p > SHARED:
        return nothing, 0.0, p
    _, sizes, effects = np.linalg.svd(table, full_matrices=False)
    effect = effects[0]
    seen = np.isfinite(residual)
    load = (np.where(seen, residual, 0.0) @ effect) / np.maximum(seen @ effect**2, PRECISION)
    beside = float((sizes[1:] ** 2).sum()) / max(1, (cells - 2) * (steps - 1))
    return load / np.sqrt(steps), beside, p
