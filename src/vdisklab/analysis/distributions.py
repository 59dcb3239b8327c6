"""Probabilities and quantiles of the distributions that the analysis needs, and polygammas.

SciPy has all of them and takes 140 MB, more than everything else that vdisklab needs. These agree
with it to 1e-12 (`tests/unit/analysis/test_distributions.py`). Formulas: Abramowitz & Stegun,
Handbook of Mathematical Functions, 1964, by chapter and number.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache, partial
from itertools import accumulate
from statistics import NormalDist
from typing import Any

import numpy as np

from vdisklab.analysis.observations import Floats, different

_MOST_STEPS = 10_000
_EXACT = 5e-16
"""A series ends at the first term below this part of the sum or product."""

_NEAR = 1e-9
"""Newton's method stops after a step below this part of the root, which is then exact to 1e-16."""

_TINY = 1e-300
_NODES = np.arange(-640, 641) / 64
_DEEPEST = 10.0
"""Beyond this, the normal distribution has less than 1e-23."""

# Bernoulli's numbers B2, B4, … (23.1), for asymptotic series from _ASYMPTOTIC on.
_BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6)
_ASYMPTOTIC = 16


def t_sf(value: Any, freedom: Any) -> Any:  # noqa: ANN401 - numbers and arrays alike
    """The probability that Student's t with `freedom` degrees of freedom exceeds `value`."""
    return _each(_t_sf, value, freedom)


def t_isf(chance: Any, freedom: Any) -> Any:  # noqa: ANN401
    """The value that Student's t exceeds with this probability."""
    return _each(_t_isf, chance, freedom)


def chi2_sf(value: float, freedom: float) -> float:
    """The probability that chi-squared exceeds `value`."""
    return float(_gamma_sf(freedom / 2, np.array([value / 2]))[0])


def chi2_isf(chance: Any, freedom: Any) -> Any:  # noqa: ANN401
    """The value that chi-squared exceeds with this probability."""
    chances, degrees = np.broadcast_arrays(np.asarray(chance, float), np.asarray(freedom, float))
    answer = np.empty(chances.shape)
    for distinct in different(degrees):
        mine = degrees == distinct
        answer[mine] = 2 * _gamma_isf(distinct / 2, chances[mine])
    return answer[()]


def normal_cdf(value: Floats) -> Floats:
    """The probability that a standard normal number is below `value`, exact to 1e-16.

    Taylor's series around the nearest of 1281 points, whose coefficients are Hermite polynomials
    (22.11.7): at most 1/128 away, seven terms are enough.
    """
    near = np.clip(value, -_DEEPEST, _DEEPEST)
    place = np.rint((near + _DEEPEST) * 64).astype(np.intp)
    distance = near - _NODES.take(place)
    coefficients = _normal_coefficients()
    answer: Floats = coefficients[-1].take(place)
    for row in coefficients[-2::-1]:
        answer *= distance
        answer += row.take(place)
    return answer


def fair_binomial_cdf(successes: Any, trials: int) -> Any:  # noqa: ANN401
    """The probability of at most this many heads in tosses of a fair coin; 0 below zero."""
    sums = (0.0, *_fair_binomial(trials))
    answer = np.array(sums)[np.clip(np.asarray(successes), -1, trials) + 1]
    return answer[()]


def digamma(value: Any) -> Any:  # noqa: ANN401
    """The logarithmic derivative of the gamma function, for positive numbers (6.3.5, 6.3.18)."""
    x, shifted = _shifted(value, lambda x: -1 / x)
    series = sum(b / (2 * k * x ** (2 * k)) for k, b in enumerate(_BERNOULLI, 1))
    return shifted + np.log(x) - 1 / (2 * x) - series


def trigamma(value: Any) -> Any:  # noqa: ANN401
    """The derivative of `digamma` (6.4.6, 6.4.12)."""
    x, shifted = _shifted(value, lambda x: x**-2)
    series = sum(b / x ** (2 * k + 1) for k, b in enumerate(_BERNOULLI, 1))
    return shifted + 1 / x + 1 / (2 * x**2) + series


def tetragamma(value: Any) -> Any:  # noqa: ANN401
    """The derivative of `trigamma` (6.4.6, 6.4.13)."""
    x, shifted = _shifted(value, lambda x: -2 * x**-3)
    series = sum((2 * k + 1) * b / x ** (2 * k + 2) for k, b in enumerate(_BERNOULLI, 1))
    return shifted - 1 / x**2 - 1 / x**3 - series


def _each(function: Callable[[float, float], float], first: Any, other: Any) -> Any:  # noqa: ANN401
    """The function of each pair of numbers; a float of two numbers."""
    if isinstance(first, float | int) and isinstance(other, float | int):
        return np.float64(function(float(first), float(other)))  # 2 µs instead of 14
    ones, others = np.broadcast_arrays(np.asarray(first, float), np.asarray(other, float))
    pairs = zip(ones.ravel().tolist(), others.ravel().tolist(), strict=True)
    return np.array([function(*pair) for pair in pairs]).reshape(ones.shape)[()]


@lru_cache(maxsize=65536)
def _t_sf(value: float, freedom: float) -> float:
    """By the incomplete beta function (26.7.1)."""
    if not freedom > 0 or math.isnan(value):
        return math.nan
    if value < 0:
        return 1 - _t_sf(-value, freedom)
    square = value * value / freedom
    if math.isinf(square):
        return 0.0
    half = freedom / 2
    # x ** half * (1 - x) ** 0.5 / B(half, 0.5), with x = 1 / (1 + square)
    front = math.exp(-half * math.log1p(square)) * math.sqrt(square / (1 + square))
    front *= _gamma_ratio(half) / math.sqrt(math.pi)
    x, rest = 1 / (1 + square), square / (1 + square)
    if x < (half + 1) / (half + 2.5):
        return front * _beta_fraction(half, 0.5, x) / half / 2
    return (1 - front * _beta_fraction(0.5, half, rest) * 2) / 2


@lru_cache(maxsize=65536)
def _t_isf(chance: float, freedom: float) -> float:
    """Newton's method. The tail is convex, so it ends on the left of the root and climbs to it."""
    if not freedom > 0 or not 0 < chance < 1:
        return {0.0: math.inf, 1.0: -math.inf}.get(chance, math.nan) if freedom > 0 else math.nan
    if chance > 0.5:
        return -_t_isf(1 - chance, freedom)
    # The first terms of the expansion at the normal quantile (26.7.5), which is close for many
    # degrees of freedom.
    normal = -NormalDist().inv_cdf(chance)
    value = normal + (normal**3 + normal) / (4 * freedom) if freedom > 4 else normal
    density = _gamma_ratio(freedom / 2) / math.sqrt(math.pi * freedom)
    for _ in range(_MOST_STEPS):
        slope = density * math.exp(-(freedom + 1) / 2 * math.log1p(value * value / freedom))
        step = (_t_sf.__wrapped__(value, freedom) - chance) / slope
        value = max(0.0, value + step)
        if abs(step) <= _NEAR * value or value == 0:
            break
    return value


def _gamma_ratio(x: float) -> float:
    """Gamma(x + 1/2) / Gamma(x): 6.1.47, after the recurrence to a large x."""
    front = 1.0
    while x < _ASYMPTOTIC:
        front *= x / (x + 0.5)
        x += 1
    series = -1 / (8 * x) + 1 / (192 * x**3) - 1 / (640 * x**5) + 17 / (14336 * x**7)
    return front * math.sqrt(x) * math.exp(series - 31 / (18432 * x**9))


def _beta_fraction(a: float, b: float, x: float) -> float:
    """The continued fraction of the incomplete beta function (26.5.8), by Lentz's method."""
    c, d = 1.0, 1 / _apart(1 - (a + b) * x / (a + 1))
    answer = d
    for m in range(1, _MOST_STEPS):
        change = 1.0
        for term in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1 / _apart(1 + term * d)
            c = _apart(1 + term / c)
            change = c * d
            answer *= change
        if abs(change - 1) <= _EXACT:
            break
    return answer


def _apart(value: float) -> float:
    """The value, or a tiny one in place of zero."""
    return value if abs(value) > _TINY else _TINY


def _gamma_front(a: float, x: Floats) -> Floats:
    """x ** a * exp(-x) / Gamma(a + 1). For large numbers the large terms cancel beforehand."""
    if a < _ASYMPTOTIC:
        return np.asarray(np.exp(a * np.log(x) - x - math.lgamma(a + 1)))
    # Stirling's series (6.1.41)
    stirling = sum(
        b / (2 * k * (2 * k - 1) * a ** (2 * k - 1)) for k, b in enumerate(_BERNOULLI, 1)
    )
    beyond = x / a - 1
    exponent = a * (np.log1p(beyond) - beyond) - stirling
    return np.asarray(np.exp(exponent) / math.sqrt(2 * math.pi * a))


def _gamma_sf(a: float, x: Floats) -> Floats:
    """The regularised upper incomplete gamma function: 6.5.29 below a + 1, 6.5.31 above."""
    answer = np.ones(len(x))
    low, high = (x > 0) & (x < a + 1), x >= a + 1
    if low.any():
        term = total = np.ones(int(low.sum()))
        for n in range(1, _MOST_STEPS):
            term = term * x[low] / (a + n)
            total = total + term
            if (term <= _EXACT * total).all():
                break
        answer[low] = 1 - _gamma_front(a, x[low]) * total
    if high.any():
        answer[high] = _gamma_front(a, x[high]) * a * _gamma_fraction(a, x[high])
    return answer


def _gamma_fraction(a: float, x: Floats) -> Floats:
    """The continued fraction of the upper incomplete gamma function, by Lentz's method."""
    b = x + 1 - a
    c, d = np.full(len(x), 1 / _TINY), 1 / b
    answer = d
    for i in range(1, _MOST_STEPS):
        term = -i * (i - a)
        b = b + 2
        d = 1 / (term * d + b)
        c = b + term / c
        answer = answer * (c * d)
        if (np.abs(c * d - 1) <= _EXACT).all():
            break
    return answer


def _gamma_isf(a: float, chance: Floats) -> Floats:
    """The inverse of `_gamma_sf` by Halley's method, from Wilson and Hilferty's cube (26.4.17)."""
    normal = np.array([-NormalDist().inv_cdf(chance_of_row) for chance_of_row in chance.tolist()])
    x = a * np.maximum(1 - 1 / (9 * a) + normal / (3 * math.sqrt(a)), 0.0) ** 3
    # Near zero the distribution is x ** a / Gamma(a + 1).
    small = np.exp((np.log1p(-chance) + math.lgamma(a + 1)) / a)
    x = np.where((x < 0.1 * a) | (a < 1), np.minimum(small, np.maximum(x, small)), x)
    for _ in range(60):
        step = (_gamma_sf(a, x) - chance) * x / (_gamma_front(a, x) * a)
        step = step / (1 - np.clip(step * ((a - 1) / x - 1) / -2, -0.5, 0.5))
        x = np.maximum(x + step, x / 2)
        if (np.abs(step) <= _NEAR * x).all():
            break
    return np.asarray(x)


@lru_cache(maxsize=1)
def _normal_coefficients() -> list[Floats]:
    """Taylor's coefficients of the normal distribution at each node, from the constant one on."""
    cdf = np.array([math.erfc(-node / math.sqrt(2)) / 2 for node in _NODES.tolist()])
    density = np.exp(-(_NODES**2) / 2) / math.sqrt(2 * math.pi)
    hermite = [np.ones(len(_NODES)), _NODES]
    for n in range(1, 6):
        hermite.append(_NODES * hermite[n] - n * hermite[n - 1])
    return [
        cdf,
        *(
            (-1) ** n * polynomial * density / math.factorial(n + 1)
            for n, polynomial in enumerate(hermite)
        ),
    ]


@lru_cache(maxsize=256)
def _fair_binomial(trials: int) -> tuple[float, ...]:
    counts = map(partial(math.comb, trials), range(trials + 1))
    return tuple(count / 2**trials for count in accumulate(counts))


def _shifted(value: Any, term: Callable[[Floats], Floats]) -> tuple[Floats, Floats]:  # noqa: ANN401
    """The value after the recurrence to a large one, and the sum of its terms."""
    x = np.asarray(value, float)
    total = np.zeros(x.shape)
    for _ in range(_ASYMPTOTIC):
        total, x = total + term(x), x + 1
    return x, total
