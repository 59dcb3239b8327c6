"""A second model of paths: few factors matter, and those in any combination.

`path_model` adds up factors and pairs of factors. Where a factor matters only together with two
others ("the page size counts if the cache is small and hashing is on"), pairs cannot say so. Here a
Gaussian process has the covariance

    k(x, y) = product over factors of exp(-w)   for each factor in which x and y differ

so interactions of all orders exist, and a factor with a small w does not matter (automatic
relevance determination: Rasmussen & Williams, Gaussian Processes for Machine Learning, 2006, 5.1).
The w and the noise maximise the marginal likelihood. `path_model` weights both models by it.

Draws from the prior are sums of random features: a factor joins a feature with the probability
1 - exp(-w) and gives each of its levels a random sign. Two cells' products of signs then agree on
average as k says.
"""

from __future__ import annotations

import math
from typing import Self

import numpy as np
import numpy.typing as npt

from vdisklab.analysis.observations import Floats
from vdisklab.value import Value

Indices = npt.NDArray[np.int64]

MOST_RUNS = 1000
"""With more runs this model is not tried: time grows with their cube."""

_FITTED_RUNS = 200
"""So many runs, the first ones, decide what matters."""

_STEPS = 80
_FIRST_STEP, _LARGEST_STEP, _SMALLEST_STEP = 0.3, 1.0, 1e-3
_FASTER, _SLOWER = 1.2, 0.5

_BEGIN = (-1.5, -4.0)
_LEAST, _MOST = (-9.0, -11.0), (2.0, 1.5)
"""Logarithms of w and of the noise's variance relative to that of the cells: begin and limits."""

_MATTERS = 0.02
_PRICE = 1.0
"""Each w above _MATTERS, which was chosen to fit, costs _PRICE times the half logarithm of the
runs (Schwarz, Annals of Statistics 6, 1978)."""

_FEATURES = 1000


class ScaledRuns(Value, eq=False):
    """Runs for the model: the levels of each run's cell, its round, and the scaled value.

    `degrees` and `prior` are those of the scale, as in `path_model`; `round_variance` is a round's.
    """

    levels: Indices
    round: Indices
    target: Floats
    degrees: float
    prior: float
    round_variance: float

    def first(self, count: int) -> Self:
        """The first runs."""
        lost = len(self.target) - count
        if lost <= 0:
            return self
        return type(self)(
            self.levels[:count], self.round[:count], self.target[:count],
            self.degrees - lost, self.prior, self.round_variance,
        )  # fmt: skip


class RelevanceModel:
    """The model, fitted to runs. `evidence` is its marginal likelihood as a logarithm."""

    def __init__(self, runs: ScaledRuns) -> None:
        self._runs = runs
        differ = _differences(runs.first(_FITTED_RUNS).levels)
        self._log_w, log_noise = _maximised(runs.first(_FITTED_RUNS), differ)
        self._noise = math.exp(log_noise)
        covariance = self._covariance(runs.levels) + _of_rounds(runs)
        covariance[np.diag_indices_from(covariance)] += self._noise
        self._inverse = np.linalg.inv(covariance)
        target = runs.target
        self.misfit = max(float(target @ self._inverse @ target), 0.0) + runs.prior
        _, determinant = np.linalg.slogdet(covariance)
        chosen = int((np.exp(self._log_w) > _MATTERS).sum())
        self.evidence = float(
            -determinant / 2
            - runs.degrees / 2 * math.log(self.misfit)
            - _PRICE * chosen * math.log(len(target)) / 2
        )

    def _covariance(self, levels: Indices) -> Floats:
        """Between cells with these levels, and those of the runs."""
        answer = np.zeros((len(levels), len(self._runs.target)))
        for column, of_runs, weight in zip(
            levels.T, self._runs.levels.T, np.exp(self._log_w).tolist(), strict=True
        ):
            answer -= weight * (column[:, None] != of_runs)
        return np.exp(answer)

    def draws(self, levels: Indices, count: int, rng: np.random.Generator) -> Floats:
        """Draws of the scaled values of cells with these levels: cells x draws, up to a constant.

        As in `PathModel.draws`, a draw from the prior is corrected by what it misses of the runs.
        """
        runs = self._runs
        features = _features(levels, runs.levels, 1 - np.exp(-np.exp(self._log_w)), rng)
        weight = rng.normal(0, 1 / math.sqrt(_FEATURES), (_FEATURES, count))
        prior, at_runs = (feature @ weight for feature in features)
        scale = np.sqrt(self.misfit / rng.chisquare(runs.degrees, count))
        rounds = math.sqrt(runs.round_variance) * rng.normal(
            size=(int(runs.round.max()) + 1, count)
        )
        missed = runs.target[:, None] / scale - at_runs - rounds[runs.round]
        missed -= math.sqrt(self._noise) * rng.normal(size=missed.shape)
        answer: Floats = (prior + self._covariance(levels) @ (self._inverse @ missed)) * scale
        return answer


def _of_rounds(runs: ScaledRuns) -> Floats:
    """The covariance of runs that rounds bring."""
    answer: Floats = runs.round_variance * (runs.round[:, None] == runs.round)
    return answer


def _differences(levels: Indices) -> Floats:
    """For each factor, whether runs differ in it: factors x runs x runs."""
    return np.array([column[:, None] != column for column in levels.T], np.float64)


def _features(
    levels: Indices, of_runs: Indices, joins: Floats, rng: np.random.Generator
) -> tuple[Floats, Floats]:
    """Random features of cells and of runs."""
    cells = np.ones((len(levels), _FEATURES), np.float32)
    runs = np.ones((len(of_runs), _FEATURES), np.float32)
    for column, run_levels, chance in zip(levels.T, of_runs.T, joins.tolist(), strict=True):
        signs = rng.integers(0, 2, (int(column.max()) + 1, _FEATURES)).astype(np.float32) * 2 - 1
        signs[:, rng.random(_FEATURES) >= chance] = 1
        cells *= signs[column]
        runs *= signs[run_levels]
    return cells.astype(np.float64), runs.astype(np.float64)


def _maximised(runs: ScaledRuns, differ: Floats) -> tuple[Floats, float]:
    """The logarithms of w and of the noise with the largest marginal likelihood.

    By resilient propagation (Riedmiller & Braun, 1993), which needs only the signs of the
    derivatives.
    """
    factors = len(differ)
    place = np.r_[np.full(factors, _BEGIN[0]), _BEGIN[1]]
    least = np.r_[np.full(factors, _LEAST[0]), _LEAST[1]]
    most = np.r_[np.full(factors, _MOST[0]), _MOST[1]]
    flat, rounds = differ.reshape(factors, -1), _of_rounds(runs)
    step, before = np.full(factors + 1, _FIRST_STEP), np.zeros(factors + 1)
    best, lowest = place, math.inf
    for _ in range(_STEPS):
        weight, noise = np.exp(place[:-1]), math.exp(place[-1])
        of_cells = np.exp(-(weight @ flat)).reshape(rounds.shape)
        covariance = of_cells + rounds
        covariance[np.diag_indices_from(covariance)] += noise
        root = np.linalg.cholesky(covariance)
        inverse = np.linalg.inv(covariance)
        solved = inverse @ runs.target
        misfit = max(float(runs.target @ solved), 0.0) + runs.prior
        loss = float(np.log(np.diagonal(root)).sum()) + runs.degrees / 2 * math.log(misfit)
        if loss < lowest:
            best, lowest = place, loss
        change = (inverse - runs.degrees / misfit * np.outer(solved, solved)) / 2
        slope = np.r_[-(flat @ (change * of_cells).ravel()) * weight, noise * np.trace(change)]
        turned = slope * before
        step = np.where(turned > 0, step * _FASTER, np.where(turned < 0, step * _SLOWER, step))
        step = step.clip(_SMALLEST_STEP, _LARGEST_STEP)
        before = np.where(turned < 0, 0.0, slope)
        place = (place - np.sign(before) * step).clip(least, most)
    return best[:-1], float(best[-1])
