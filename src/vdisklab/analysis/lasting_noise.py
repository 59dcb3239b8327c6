"""Noise that lasts from round to round: how much of it does, what that costs, and warm-up.

Rounds repeat a measurement only as far as their noise is independent. If a part r of a round's
noise lasts into the next (AR(1)), the mean of n rounds is noisier than their spread says. r is
estimated from the residuals' products of neighbouring rounds; removing a mean of n rounds lowers
that by about (1 + 4 r) / n (Marriott & Pope, Biometrika 41, 1954; Kendall, same volume).

Matrices are cells x rounds of residuals, NaN where nothing was measured.
"""

from __future__ import annotations

import math

import numpy as np

from vdisklab.analysis.distributions import t_isf
from vdisklab.analysis.observations import Floats, median
from vdisklab.analysis.pair_noise import PairNoise
from vdisklab.analysis.paired_ratios import PRECISION
from vdisklab.value import Value, replace

FROM_ROUNDS = 6
"""Fewer rounds do not show how much of the noise lasts."""

_CAUTION = 0.5
"""Standard errors that are added to what all cells show together."""

_OWN = 1.64
"""Standard errors of a cell's own estimate from which it replaces the common one, if larger."""

_MOST = 0.9

_WARM = 0.05
_WARM_ROUNDS = 3
"""The first rounds, up to _WARM_ROUNDS, are warm-up if a cell was slower in them than in three or
more later ones, by more than chance brings in this share of steady races."""


class LastingNoise(Value, eq=False):
    """What part of each cell's noise lasts into the next round, with caution; in all, `pooled`.

    `shown` is the estimate of all cells together without caution, with its standard `error`.
    """

    parts: Floats
    pooled: float
    shown: float
    error: float

    def widened(self, noise: PairNoise) -> PairNoise:
        """The noise with what lasts: larger variances of means, with fewer degrees of freedom."""
        common = float(inflation(self.pooled, noise.rounds))
        return replace(
            noise,
            variance=noise.variance * inflation(self.parts, noise.count),
            freedom=np.maximum(np.floor(noise.freedom * freedom_left(self.parts)), 2.0),
            load=noise.load * math.sqrt(common),
            rest=noise.rest * common,
        )


def lasting_noise(residual: Floats, least: float = 0.0) -> LastingNoise:
    """What lasts in these residuals: `least` where too few rounds, or one cell alone, say more."""
    measured = np.isfinite(residual)
    count = measured.sum(axis=1).astype(np.float64)
    values = np.where(measured, residual, 0.0)
    squares = (values**2).sum(axis=1)
    usable = (count >= FROM_ROUNDS) & (squares > count * PRECISION**2)
    nothing = np.full(len(residual), least)
    if not usable.any():
        return LastingNoise(nothing, least, 0.0, math.inf)
    count, squares = count[usable], squares[usable]
    products = (values[usable, 1:] * values[usable, :-1]).sum(axis=1)
    scale = 1 - 4 / count
    part = (products / squares + 1 / count) / scale
    error = 1 / np.sqrt(count) / scale
    weight = error**-2
    shown, all_error = float(part @ weight / weight.sum()), float(weight.sum() ** -0.5)
    alone = len(residual) == 1  # says too little for caution
    pooled = least if alone else min(max(shown + _CAUTION * all_error, least), _MOST)
    parts = np.full(len(residual), pooled)
    of_path = np.where(part > _OWN * error, np.minimum(part, _MOST), pooled)
    parts[usable] = np.maximum(of_path, pooled)
    return LastingNoise(parts, pooled, shown, all_error)


def inflation(part: Floats | float, rounds: Floats | float) -> Floats:
    """The variance of a mean of rounds, divided by what their spread says of it (1 or more)."""
    lasts, count = np.asarray(part, np.float64), np.asarray(rounds, np.float64)
    mean = (1 + lasts) / (1 - lasts)
    mean = mean - 2 * lasts * (1 - lasts**count) / (count * (1 - lasts) ** 2)
    seen = np.maximum(1 - (mean - 1) / np.maximum(count - 1, 1), 0.15)
    answer: Floats = mean / seen
    return answer


def freedom_left(part: Floats | float) -> Floats:
    """The share of degrees of freedom that is left: squares of neighbouring rounds agree, too."""
    squared = np.asarray(part, np.float64) ** 2
    answer: Floats = (1 - squared) / (1 + squared)
    return answer


def warm_up(residual: Floats) -> int:
    """How many of a cell's first rounds were warm-up; 0 if chance explains them.

    They are judged by the noise of the cell's later rounds, or by the median noise of all cells if
    the median is larger.
    """
    if residual.shape[1] < FROM_ROUNDS:
        return 0
    found, strongest = 0, 1.0
    for rounds in range(1, _WARM_ROUNDS + 1):
        early, late = residual[:, :rounds], residual[:, rounds:]
        count = np.isfinite(late).sum(axis=1)
        able = (count >= FROM_ROUNDS - _WARM_ROUNDS) & np.isfinite(early).all(axis=1)
        if not able.any():
            continue
        early, late, count = early[able], late[able], count[able]
        later = np.nansum(late, axis=1) / count
        variance = np.nansum((late - later[:, None]) ** 2, axis=1) / (count - 1)
        variance = np.maximum(variance, median(variance) / 0.9)
        error = np.sqrt(np.maximum(variance, PRECISION**2) * (1 / rounds + 1 / count))
        freedom = float(median(count) - 1) * max(1, len(count) // 2)
        limit = float(t_isf(_WARM / (_WARM_ROUNDS * len(count)), freedom))
        slower = float(((later - early.mean(axis=1)) / error).max()) / limit
        if slower > strongest:
            found, strongest = rounds, slower
    return found
