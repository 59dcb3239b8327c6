"""Estimates the noise of the difference of two cells, and avoids estimates that are too low.

Three rounds say little about one cell's noise, so all cells share one estimate, unless the data
contradict that in one of two ways: a cell is noisier than the others, or cells are fast and slow in
the same rounds (the paths on one pool, or with one bus). The limits were chosen by simulation
(`bench/simulations.py`): with equal noise the test keeps its power, and in both other cases at most
about 5 % of the answers are wrong.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt

from vdisklab.analysis.additive import PRECISION, Fit
from vdisklab.analysis.distributions import chi2_isf, chi2_sf
from vdisklab.analysis.intervals import MIN_ROUNDS
from vdisklab.analysis.observations import Floats, median
from vdisklab.value import Value

NOISIER = 0.1
"""A cell gets its own variance if the common noise makes its variance less probable than this."""
MUCH_NOISIER = 0.01
"""Below this probability, the cell's variance also has the degrees of freedom of one cell alone."""

SHARED = 0.15
"""If residuals point the same way by chance with less than this probability, divided by
`more_rounds`, cells are taken to share round effects. In three rounds a test at 5 % overlooks such
effects; in more rounds it does not, and a false alarm costs the degrees of freedom."""

CLEARLY = 0.05
"""Below this probability, a finding says that cells share round effects."""

SHARED_PART = 0.2
"""A shared effect above this part of the variance decides the degrees of freedom."""


class PairNoise(Value, eq=False):
    """For each cell: its variance with degrees of freedom, number of rounds, `load`, and
    `resolution` (`Fit`).

    `load` says how strongly the shared round effect moves the cell (a standard deviation of
    logarithms, 0 without such an effect); `rest` is the variance that the effect leaves. `shared`
    is the fraction of the variance that cells have in common, 0 if that may be chance.
    """

    variance: Floats
    freedom: Floats
    count: Floats
    load: Floats
    resolution: Floats
    rest: float
    shared: float

    @property
    def rounds(self) -> int:
        """The median number of rounds of a cell, MIN_ROUNDS at least."""
        return max(MIN_ROUNDS, int(median(self.count)))

    def between(
        self, first: npt.NDArray[np.intp], other: npt.NDArray[np.intp]
    ) -> tuple[Floats, Floats]:
        """The standard error of the difference of the effects, and its degrees of freedom.

        Rounding adds `rounded` at most, which is a bound and no part of this error.
        """
        share = 1 / self.count[first] + 1 / self.count[other]
        least = np.minimum(self.count[first], self.count[other])
        variance = (
            self.variance[first] / self.count[first] + self.variance[other] / self.count[other]
        )
        freedom = np.minimum(self.freedom[first], self.freedom[other])
        if self.load.any():
            together = (self.load[first] - self.load[other]) ** 2 / least
            variance = np.maximum(variance, together + self.rest * share)
            freedom = np.where(
                together > SHARED_PART * variance, np.minimum(freedom, least - 1), freedom
            )
        return np.sqrt(variance), freedom

    def rounded(self, first: npt.NDArray[np.intp], other: npt.NDArray[np.intp]) -> Floats:
        """The largest difference of the effects that rounded values can make."""
        answer: Floats = self.resolution[first] + self.resolution[other]
        return answer


def pair_noise(model: Fit, places: npt.NDArray[np.intp]) -> PairNoise:
    """The noise of the cells in these rows of the model."""
    residual = model.residual[places]
    observed = np.isfinite(residual)
    count = observed.sum(axis=1).astype(np.float64)
    fitted = len(model.rows)
    left = np.nansum(residual**2, axis=1) / (count - 1)
    # The fit of the rounds has also removed one cell's share of the noise.
    of_cell = np.maximum(left * (fitted / (fitted - 1) if fitted > 1 else 1.0), PRECISION**2)
    common, noisy = _common(of_cell, count - 1)
    variance = own_or_common(np.maximum(of_cell, _unequal(left)), common, count - 1)
    freedom = np.full(len(places), float(common_freedom(len(places), int(median(count)))))
    freedom[noisy] = count[noisy] - 1
    residual = residual[:, observed.any(axis=0)]
    load, rest, p = _shared(residual)
    share = 0.0 if p > CLEARLY else min(1.0, float((load**2).sum() / of_cell.sum()))
    if p > SHARED / more_rounds(residual.shape[1]):
        load = np.zeros(len(places))
    return PairNoise(variance, freedom, count, load, model.resolution[places], rest, share)


def common_freedom(cells: int, rounds: int) -> int:
    """The degrees of freedom of the variance that the cells have in common.

    These are fewer than (cells - 1) x (rounds - 1): the degrees of two cells, at most half of all,
    are given up as a precaution against a noisy cell or a shared effect too small for a test to
    find.
    """
    return max(rounds - 1, int(max((cells - 1) / 2, cells - 3) * (rounds - 1)))


def more_rounds(rounds: int) -> float:
    """The divisor of precautions made for three rounds: 1 for three, 3 for four, 36 for ten."""
    return max(1.0, (rounds - 1) * (rounds - 2) / 2)


def _unequal(left: Floats) -> Floats:
    """The cells' variances, if those `left` after the fit are unequal (Grubbs, Journal of the
    American Statistical Association 43, 1948).

    The mean of the cells is subtracted in each round. That makes a noisy cell look less noisy and
    the others noisier, most of all with few cells.
    """
    cells = len(left)
    if cells < 3:
        return left
    answer: Floats = (left - left.sum() / (cells * (cells - 1))) * cells / (cells - 2)
    return answer


def own_or_common(of_cell: Floats, common: float, freedom: Floats) -> Floats:
    """The variance of each cell: the common one, or the cell's own if that is much larger."""
    return np.where(of_cell > _limit(NOISIER, freedom) * common, of_cell, common)


def _limit(chance: float, freedom: Floats) -> Floats:
    """The ratio of estimated to true variance that normal noise exceeds with this probability."""
    distinct, place = np.unique(freedom, return_inverse=True)
    return np.array([_limit_of(chance, count) for count in distinct.tolist()])[place]


@lru_cache(maxsize=1024)
def _limit_of(chance: float, freedom: float) -> float:
    return float(chi2_isf(chance, freedom)) / freedom


def _common(of_cell: Floats, freedom: Floats) -> tuple[float, npt.NDArray[np.bool_]]:
    """The variance that most cells have in common, and the cells that are much noisier.

    Begins with the median, which few noisy cells do not change, then takes the mean of the others.
    """
    common = float(median(of_cell / _limit(0.5, freedom)))
    limit = _limit(MUCH_NOISIER, freedom)
    noisy = np.zeros(len(of_cell), dtype=np.bool_)
    for _ in range(5):
        noisy = of_cell > limit * common
        quiet = freedom * ~noisy
        common = float((of_cell * quiet).sum() / quiet.sum())
    return common, noisy


def _shared(residual: Floats) -> tuple[Floats, float, float]:
    """Each cell's load of a shared round effect, the variance that is left, and the test's p-value.

    The loads are 0 where the p-value is too high for both SHARED and CLEARLY.

    Independent residuals point in all directions equally often, however noisy a cell is. Bingham's
    test of that (Annals of Statistics 2, 1974) needs only directions. The effect is the first
    singular vector (an additive main effect and one multiplicative interaction: Gollob,
    Psychometrika 33, 1968). Cells that miss a round are used for neither, but get a load.
    """
    nothing = np.zeros(len(residual))
    whole = np.isfinite(residual).all(axis=1)
    table = residual[whole]
    cells, rounds = table.shape
    length = np.sqrt((table**2).sum(axis=1, keepdims=True))
    moving = length[:, 0] > PRECISION
    steps = rounds - 1
    if moving.sum() < 3 or steps < 2:
        return nothing, 0.0, 1.0
    direction = table[moving] / length[moving]
    spread = direction.T @ direction / len(direction)
    statistic = len(direction) * steps * (steps + 2) / 2 * (float((spread**2).sum()) - 1 / steps)
    p = chi2_sf(statistic, steps * (steps + 1) / 2 - 1)
    if p > max(SHARED / more_rounds(rounds), CLEARLY):
        return nothing, 0.0, p
    # The eigenvectors of a matrix of rounds: the SVD of a table of many cells takes longer.
    squares, effects = np.linalg.eigh(table.T @ table)
    effect = effects[:, -1]
    observed = np.isfinite(residual)
    load = (np.where(observed, residual, 0.0) @ effect) / np.maximum(
        observed @ effect**2, PRECISION
    )
    beside = max(0.0, float(squares[:-1].sum())) / max(1, (cells - 2) * (steps - 1))
    return load / np.sqrt(steps), beside, p
