"""Predicts unmeasured cells from measured ones that share segments with them.

A Gaussian process over the factors of paths (Rasmussen & Williams, Gaussian Processes for Machine
Learning, 2006). A value is

    logarithm = factors + pairs of factors + cell + round + noise

where each factor has an effect for each of its levels, each pair of factors one for each pair of
levels, and each cell one of its own. It is not known beforehand how much paths have in common. So
the prior is a mixture of shares of the variance (`SHARES`), weighted by their marginal likelihoods.
The scale is integrated out, so the model has no unit and assumes no size of the noise.

Factors, pairs and rounds are a regression with a normal prior, which is solved in the space of its
coefficients, so time grows linearly with the runs. Matrices of runs x runs would need their cube.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Self

import numpy as np
import numpy.typing as npt

from vdisklab.analysis.observations import Floats
from vdisklab.analysis.relevance import MOST_RUNS, RelevanceModel, ScaledRuns
from vdisklab.path.factors import Levels
from vdisklab.value import Value

Indices = npt.NDArray[np.int64]

OWN = (0.0003, 0.003, 0.03, 0.2, 0.95)
PAIRS = (0.03, 0.15, 0.5)
NOISE = (0.04, 0.1, 0.25, 0.7, 2.0)
SHARES: Floats = np.array(
    [
        ((1 - of_cell) * (1 - pairs), (1 - of_cell) * pairs, of_cell, noise**2)
        for of_cell, pairs, noise in itertools.product(OWN, PAIRS, NOISE)
    ]
)
"""Variances of factors, pairs and cells, which add up to 1, and of the noise relative to them."""

ROUND_VARIANCE = 300.0
"""Large, so that a round's level is estimated from its own runs alone: drift has no limit."""

STAGES = (60, 400)
IMPROBABLE = 1e-3
MOST_NUMBERS = 500_000
"""Maximum number of matrix elements that are factorised at once."""

LARGE = 1e12

PRIOR_RUNS = 1.0
PRIOR_VARIANCE = 0.1
"""The weak prior of the scale counts as one run."""


class Runs(Value, eq=False):
    """ScaledRuns values, by round: the row of the cell, the round (from 0), and the logarithm."""

    cell: Indices
    round: Indices
    value: Floats

    @classmethod
    def of(cls, logs: Floats) -> Self:
        """The runs of a matrix of cells x rounds, without empty rounds."""
        round, cell = np.nonzero(np.isfinite(logs.T))
        return cls(cell, np.unique(round, return_inverse=True)[1], logs[cell, round])


class PathModel:
    """The model of cells with these factor levels."""

    def __init__(self, levels: Levels) -> None:
        self.cells = len(levels)
        self._levels = levels
        factors = list(levels.T)
        pairs = (_pair(*both) for both in itertools.combinations(levels.T, 2))
        seen = {column.tobytes() for column in factors}
        distinct = {column.tobytes(): column for column in pairs if column.max() + 1 < self.cells}
        self._factors = _OneHot.of(factors, self.cells)
        self._pairs = _OneHot.of(
            [column for key, column in distinct.items() if key not in seen], self.cells
        )

    def draws(self, runs: Runs, count: int, rng: np.random.Generator) -> Floats:
        """Draws of the cells' true logarithms, given the runs: cells x draws, up to a constant.

        Each draw belongs to one of two models, of sums of factors and pairs or of `relevance`, in
        proportion to their likelihoods.
        """
        centred = runs.value - runs.value.mean()
        unit = float(centred.std()) or 1.0
        target = centred / unit
        sizes = [*(size for size in STAGES if size < len(target)), len(target)]
        data = [self.sums(runs, target, size) for size in sizes]
        weight, misfit, evidence = _weights(data)
        relevance = self._relevance(runs, target, data[-1].degrees)
        few = 0 if relevance is None else _share(relevance.evidence, evidence, count)
        parts = []
        if few < count:
            parts.append(
                self._of_sums(runs, target, data[-1], (weight, misfit), count=count - few, rng=rng)
            )
        if relevance is not None and few:
            parts.append(relevance.draws(self._levels, few, rng))
        return np.column_stack([unit * (part - part.mean(axis=0)) for part in parts])

    def _of_sums(
        self,
        runs: Runs,
        target: Floats,
        sums: ModelSums,
        shares: tuple[Floats, Floats],
        *,
        count: int,
        rng: np.random.Generator,
    ) -> Floats:
        """Draws from the model of sums, with the weight and misfit of each of its shares.

        A draw from the prior is corrected by what it misses of the data (Matheron's rule: Wilson et
        al., Journal of Machine Learning Research 22, 2021), so time grows only linearly with the
        cells.
        """
        weight, misfit = shares
        points = (np.arange(count) + rng.random()) / count
        chosen = np.searchsorted(np.cumsum(weight), points).clip(0, len(weight) - 1)
        scale = np.sqrt(misfit[chosen] / rng.chisquare(sums.degrees, count))
        factors, pairs, of_one_cell, noise = SHARES[chosen].T
        of_factors = np.sqrt(factors) * rng.normal(size=(self._factors.width, count))
        of_pairs = np.sqrt(pairs) * rng.normal(size=(self._pairs.width, count))
        of_cells = np.sqrt(of_one_cell) * rng.normal(size=(self.cells, count))
        error = math.sqrt(ROUND_VARIANCE) * rng.normal(size=(int(runs.round.max()) + 1, count))
        at_runs, pairs_at_runs = self._factors.rows(runs.cell), self._pairs.rows(runs.cell)
        missed = target[:, None] / scale - at_runs @ of_factors - pairs_at_runs @ of_pairs
        missed -= of_cells[runs.cell] + error[runs.round]
        missed -= np.sqrt(noise) * rng.normal(size=missed.shape)
        for share in np.unique(chosen):
            mine = chosen == share
            missed[:, mine] = sums.solved(SHARES[share], missed[:, mine])
        of_factors += factors * (at_runs.T @ missed)
        of_pairs += pairs * (pairs_at_runs.T @ missed)
        of_cells += of_one_cell * _sums_of(runs.cell, missed, self.cells)
        answer: Floats = self._factors.times(of_factors) + self._pairs.times(of_pairs) + of_cells
        answer *= scale
        return answer

    def _relevance(self, runs: Runs, target: Floats, degrees: float) -> RelevanceModel | None:
        """The second model; None with too many runs, or runs that say nothing of factors."""
        levels = self._levels[runs.cell]
        if len(target) > MOST_RUNS or degrees <= PRIOR_RUNS + 1 or not np.ptp(levels, axis=0).any():
            return None
        prior = PRIOR_RUNS * PRIOR_VARIANCE
        return RelevanceModel(
            ScaledRuns(levels, runs.round, target, degrees, prior, ROUND_VARIANCE)
        )

    def sums(self, runs: Runs, target: Floats, size: int) -> ModelSums:
        """The sums over the first runs, `size` at most."""
        cell, round = runs.cell[:size], runs.round[:size]
        return ModelSums(
            self._factors.rows(cell),
            self._pairs.rows(cell),
            _OneHot.of([round], size).rows(np.arange(len(round))),
            cell,
            target[:size],
        )


class _OneHot(Value, eq=False):
    """A matrix with a column for each number of each code, and a 1 where a row has it, divided by
    the square root of the number of codes: rows have length 1.

    `places` has the columns of each row's ones. The matrix of all cells is never made.
    """

    places: Indices
    width: int

    @classmethod
    def of(cls, codes: Sequence[Indices], rows: int) -> Self:
        """The matrix of these codes of each row."""
        first = np.cumsum([0, *(int(code.max()) + 1 for code in codes)])
        columns = [code + start for code, start in zip(codes, first, strict=False)]
        places = np.stack(columns, axis=1) if columns else np.empty((rows, 0), np.int64)
        return cls(places, int(first[-1]))

    @property
    def _length(self) -> float:
        return math.sqrt(max(1, self.places.shape[1]))

    def rows(self, chosen: Indices) -> Floats:
        """These rows, as a matrix."""
        places = self.places[chosen]
        matrix = np.zeros((len(chosen), self.width))
        np.put_along_axis(matrix, places, 1 / self._length, axis=1)
        return matrix

    def times(self, columns: Floats) -> Floats:
        """The product with a matrix."""
        answer = np.zeros((len(self.places), columns.shape[1]))
        for place in self.places.T:
            answer += columns[place]
        return answer / self._length


def _sums_of(group: Indices, columns: Floats, groups: int) -> Floats:
    """The sums of the rows of each group."""
    answer = np.zeros((groups, columns.shape[1]))
    np.add.at(answer, group, columns)
    return answer


def _pair(left: Indices, other: Indices) -> Indices:
    """The combined levels of two factors, numbered in the order of first occurrence."""
    both = left * (other.max() + 1) + other
    _, first, inverse = np.unique(both, return_index=True, return_inverse=True)
    number: Indices = np.argsort(np.argsort(first))
    return number[inverse.reshape(-1)]


class ModelSums:
    """Sums of squares and products over some runs; each share's likelihood follows from them.

    The covariance of the runs is that of the regression's features (factors, pairs, rounds) plus
    that of noise and cells, which is easily inverted: equal for all runs of a cell. Its inverse and
    determinant follow from Woodbury's identity (Rasmussen & Williams, appendix A.3).
    """

    def __init__(
        self, factors: Floats, pairs: Floats, rounds: Floats, cell: Indices, target: Floats
    ) -> None:
        if pairs.shape[1] > len(target):  # as many features as runs have the same covariance
            pairs = np.linalg.qr(pairs.T).R.T
        parts = (factors, pairs, rounds)
        self.degrees = PRIOR_RUNS + len(target) - rounds.shape[1]
        self._kind = np.repeat(np.arange(len(parts)), [part.shape[1] for part in parts])
        self._features = np.hstack(parts)
        _, cell, times = np.unique(cell, return_inverse=True, return_counts=True)
        self._cell, self._times = cell.reshape(-1), times
        columns = np.hstack([self._features, target[:, None]])
        of_cells = _sums_of(self._cell, columns, len(times))
        self._products = _squared(columns)
        self._products_of_cells = {
            int(count): _squared(of_cells[np.flatnonzero(times == count)])
            for count in np.unique(times)
        }

    @property
    def size(self) -> int:
        """The number of elements of a share's matrix."""
        return int(self._products.size)

    def likelihoods(self, shares: Floats) -> tuple[Floats, Floats]:
        """The marginal likelihood of each share as a logarithm, and the misfit (sum of squares)."""
        of_cells, noise = shares[:, 2], shares[:, 3]
        bordered = self._bordered(shares)
        squares = bordered[:, -1, -1].copy()
        # The last row of this factor is the solution for the target.
        bordered[:, -1, -1] += LARGE
        root = np.linalg.cholesky(bordered)
        misfit = np.maximum(squares - (root[:, -1, :-1] ** 2).sum(axis=1), 0.0)
        misfit += PRIOR_RUNS * PRIOR_VARIANCE
        logarithm = np.log(np.diagonal(root, axis1=1, axis2=2)[:, :-1]).sum(axis=1)
        logarithm += np.log(_variances(shares)[:, self._kind]).sum(axis=1) / 2
        logarithm += np.log(noise) * (self._features.shape[0] - len(self._times)) / 2
        logarithm += np.log(noise[:, None] + of_cells[:, None] * self._times).sum(axis=1) / 2
        return -logarithm - self.degrees / 2 * np.log(misfit), misfit

    def solved(self, share: Floats, columns: Floats) -> Floats:
        """The columns multiplied by the inverse of the runs' covariance."""
        matrix = self._bordered(share[None])[0, :-1, :-1]
        beside = self._without_cells(share, columns)
        shown = self._features @ np.linalg.solve(matrix, self._features.T @ beside)
        return beside - self._without_cells(share, shown)

    def _without_cells(self, share: Floats, columns: Floats) -> Floats:
        """The columns multiplied by the inverse of the covariance of cells and noise."""
        _, _, of_cell, noise = share
        sums = _sums_of(self._cell, columns, len(self._times))
        of_cells = (of_cell / (noise + of_cell * self._times))[:, None] * sums
        answer: Floats = (columns - of_cells[self._cell]) / noise
        return answer

    def _bordered(self, shares: Floats) -> Floats:
        """For each share the matrix of the normal equations, with the target as its last column."""
        of_cells, noise = shares[:, 2, None, None], shares[:, 3, None, None]
        matrix: Floats = np.repeat(self._products[None], len(shares), axis=0)
        for times, products in self._products_of_cells.items():
            matrix -= of_cells / (noise + of_cells * times) * products
        matrix /= noise
        diagonal = np.arange(len(self._kind))
        matrix[:, diagonal, diagonal] += 1 / _variances(shares)[:, self._kind]
        return matrix


def _squared(columns: Floats) -> Floats:
    """The products of all columns."""
    answer: Floats = columns.T @ columns
    return answer


def _variances(shares: Floats) -> Floats:
    """The variances of factors, pairs and rounds for each share."""
    return np.column_stack([shares[:, :2], np.full(len(shares), ROUND_VARIANCE)])


def _share(first: float, other: float, count: int) -> int:
    """Of `count` draws those of the first of two models with these likelihoods (logarithms)."""
    return round(count / (1 + math.exp(min(other - first, 700.0))))


def _weights(data: Sequence[ModelSums]) -> tuple[Floats, Floats, float]:
    """A weight for each of SHARES, their sum 1, the data's misfit (sum of squares) with each, and
    the logarithm of the mean likelihood.

    The first runs rule out most shares; only the rest are tried with all runs.
    """
    weight, misfit, logarithm = np.ones(len(SHARES)), np.ones(len(SHARES)), np.zeros(len(SHARES))
    for sums in data:
        likely = np.flatnonzero(weight > IMPROBABLE * weight.max())
        logarithm = np.full(len(SHARES), -np.inf)
        at_once = max(1, MOST_NUMBERS // sums.size)
        for first in range(0, len(likely), at_once):
            places = likely[first : first + at_once]
            logarithm[places], misfit[places] = sums.likelihoods(SHARES[places])
        weight = np.exp(logarithm - logarithm.max())
    total = float(weight.sum())
    evidence = float(logarithm.max()) + math.log(total / len(SHARES))
    return weight / total, misfit, evidence
