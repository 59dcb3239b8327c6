"""Predicts cells that were not measured from those that share segments with them.

A Gaussian process over the factors of paths (Rasmussen & Williams, Gaussian Processes for Machine
Learning, 2006). A value is

    logarithm = factors + pairs of factors + cell + block + noise

where each factor adds something of its level, each pair of factors something of their two levels,
and each cell something of its own. Nobody knows beforehand how much paths have in common, so the
prior is a mixture of shares of the variance (`SHARES`), weighted by their marginal likelihoods.
The scale is integrated out, so the model has no unit and assumes no size of the noise.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt
from scipy.linalg import cho_factor, cho_solve

from vdisklab.analysis.observations import Floats
from vdisklab.path.factors import Levels

Indices = npt.NDArray[np.int64]

OWN = (0.0003, 0.003, 0.03, 0.2, 0.95)
PAIRS = (0.03, 0.15, 0.5)
NOISE = (0.04, 0.1, 0.25, 0.7, 2.0)
SHARES: Floats = np.array(
    [
        ((1 - own) * (1 - pairs), (1 - own) * pairs, own, noise**2)
        for own, pairs, noise in itertools.product(OWN, PAIRS, NOISE)
    ]
)
"""Variances of factors, pairs and cells, which add up to 1, and of the noise relative to them."""

BLOCK_VARIANCE = 300.0
"""Large, so that a block's level is estimated from its own runs alone: drift has no limit."""

FIRST_RUNS = 60
IMPROBABLE = 1e-3
MOST_NUMBERS = 10_000_000
"""Maximum number of covariances that are factorised at once."""

LARGE = 1e12

PRIOR_RUNS = 1.0
PRIOR_VARIANCE = 0.1
"""The weak prior of the scale counts as one run."""


@dataclass(frozen=True, slots=True, eq=False)
class Runs:
    """Measured values, by block: the row of the cell, the block (from 0), and the logarithm."""

    cell: Indices
    block: Indices
    value: Floats

    @classmethod
    def of(cls, logs: Floats) -> Self:
        """The runs of a matrix of cells x blocks, without blocks that have none."""
        block, cell = np.nonzero(np.isfinite(logs.T))
        return cls(cell, np.unique(block, return_inverse=True)[1], logs[cell, block])


class PathModel:
    """The model of cells with these factor levels."""

    def __init__(self, levels: Levels) -> None:
        self.cells = len(levels)
        self._factors = list(levels.T)
        pairs = (_pair(*both) for both in itertools.combinations(levels.T, 2))
        known = {column.tobytes() for column in self._factors}
        distinct = {column.tobytes(): column for column in pairs if column.max() + 1 < self.cells}
        self._pairs = [column for key, column in distinct.items() if key not in known]

    def draws(self, runs: Runs, count: int, rng: np.random.Generator) -> Floats:
        """Draws of the cells' true logarithms, given the runs: cells x draws, up to a constant.

        Each draw belongs to one of the shares, in proportion to their weights. A draw from the
        prior is corrected by what it misses of the data (Matheron's rule: Wilson et al., Journal of
        Machine Learning Research 22, 2021), so time grows only linearly with the cells.
        """
        centred = runs.value - runs.value.mean()
        unit = float(centred.std()) or 1.0
        target = centred / unit
        kernels = self._kernels(runs.cell, runs.cell)
        same_block = (runs.block[:, None] == runs.block) * BLOCK_VARIANCE
        weight, misfit = _weights(kernels, same_block, target)
        points = (np.arange(count) + rng.random()) / count
        chosen = np.searchsorted(np.cumsum(weight), points).clip(0, len(weight) - 1)
        scale = np.sqrt(misfit[chosen] / rng.chisquare(_degrees(same_block), count))
        factors, pairs, own, noise = SHARES[chosen].T
        drawn = np.sqrt(factors) * self._prior(self._factors, count, rng)
        drawn += np.sqrt(pairs) * self._prior(self._pairs, count, rng)
        drawn += np.sqrt(own) * rng.normal(size=(self.cells, count))
        error = math.sqrt(BLOCK_VARIANCE) * rng.normal(size=(int(runs.block.max()) + 1, count))
        missed = target[:, None] / scale - drawn[runs.cell] - error[runs.block]
        missed -= np.sqrt(noise) * rng.normal(size=missed.shape)
        for share in np.unique(chosen):
            mine = chosen == share
            factor = cho_factor(_covariances(kernels, same_block, SHARES[share : share + 1])[0])
            missed[:, mine] = cho_solve(factor, missed[:, mine])
        everywhere = self._kernels(np.arange(self.cells), runs.cell)
        drawn += everywhere[0] @ (factors * missed) + everywhere[1] @ (pairs * missed)
        np.add.at(drawn, runs.cell, own * missed)
        answer: Floats = drawn * (scale * unit)
        return answer

    def _kernels(self, rows: Indices, columns: Indices) -> Floats:
        """The similarity of rows and columns: by factors, by pairs of factors, and as the same
        cell."""
        shares = []
        for codes in (self._factors, self._pairs):
            equal = np.zeros((len(rows), len(columns)))
            for code in codes:
                equal += code[rows][:, None] == code[columns]
            shares.append(equal / max(1, len(codes)))
        return np.stack([*shares, rows[:, None] == columns])

    def _prior(self, codes: list[Indices], count: int, rng: np.random.Generator) -> Floats:
        drawn = np.zeros((self.cells, count))
        for code in codes:
            drawn += rng.normal(size=(int(code.max()) + 1, count))[code]
        return drawn / math.sqrt(max(1, len(codes)))


def _pair(one: Indices, other: Indices) -> Indices:
    """The combined levels of two factors, numbered in the order of first occurrence."""
    both = one * (other.max() + 1) + other
    _, first, inverse = np.unique(both, return_index=True, return_inverse=True)
    number: Indices = np.argsort(np.argsort(first))
    return number[inverse.reshape(-1)]


def _covariances(kernels: Floats, same_block: Floats, shares: Floats) -> Floats:
    """The covariance of the runs for each row of `shares`."""
    covariances: Floats = np.tensordot(shares[:, :3], kernels, 1) + same_block
    diagonal = np.arange(len(same_block))
    covariances[:, diagonal, diagonal] += shares[:, 3, None]
    return covariances


def _weights(kernels: Floats, same_block: Floats, target: Floats) -> tuple[Floats, Floats]:
    """The weights of the shares, whose sum is 1, and the data's misfit (sum of squares).

    Shares that are improbable after the first runs are not tried with all runs.
    """
    weight, misfit = np.ones(len(SHARES)), np.ones(len(SHARES))
    for count in sorted({min(FIRST_RUNS, len(target)), len(target)}):
        part = slice(count)
        likely = np.flatnonzero(weight > IMPROBABLE * weight.max())
        logarithm = np.full(len(SHARES), -np.inf)
        degrees = _degrees(same_block[part, part])
        at_once = max(1, MOST_NUMBERS // count**2)
        for first in range(0, len(likely), at_once):
            places = likely[first : first + at_once]
            covariances = _covariances(
                kernels[:, part, part], same_block[part, part], SHARES[places]
            )
            # The last row of this factor is the solution for the target, scaled to unit noise.
            bordered = np.zeros((len(places), count + 1, count + 1))
            bordered[:, :count, :count] = covariances
            bordered[:, count, :count] = target[part]
            bordered[:, count, count] = LARGE
            root = np.linalg.cholesky(bordered)
            misfit[places] = PRIOR_RUNS * PRIOR_VARIANCE + (root[:, count, :count] ** 2).sum(axis=1)
            determinant = np.log(np.diagonal(root, axis1=1, axis2=2)[:, :count]).sum(axis=1)
            logarithm[places] = -determinant - degrees / 2 * np.log(misfit[places])
        weight = np.exp(logarithm - logarithm.max())
    return weight / weight.sum(), misfit


def _degrees(same_block: Floats) -> float:
    """Degrees of freedom of the scale: the runs, minus one per block, plus those of the prior."""
    blocks = int((same_block.argmax(axis=1) == np.arange(len(same_block))).sum())
    return PRIOR_RUNS + len(same_block) - blocks
