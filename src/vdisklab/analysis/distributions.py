"""Tails and quantiles of the two distributions that we need.

They are those of scipy.stats, taken from scipy.special: scipy.stats takes a second and a half
to load, which every verb would pay for.
"""

from __future__ import annotations

from typing import Any

from scipy import special


def t_sf(value: Any, freedom: Any) -> Any:  # noqa: ANN401 - numbers and arrays alike
    """The chance that Student's t with `freedom` degrees of freedom exceeds `value`."""
    return special.stdtr(freedom, -value)


def t_isf(chance: Any, freedom: Any) -> Any:  # noqa: ANN401
    """The value that Student's t exceeds with this chance."""
    return -special.stdtrit(freedom, chance)


def binomial_cdf(successes: Any, trials: Any, chance: float) -> Any:  # noqa: ANN401
    """The chance of at most so many successes; 0 for fewer than none."""
    return special.bdtr(successes, trials, chance)
