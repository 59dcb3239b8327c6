"""Kendall's rank correlation with time, and Theil and Sen's slope."""

from __future__ import annotations

import math

import numpy as np

from vdisklab.analysis.observations import Floats

_EXACT_UP_TO = 33
"""The largest number of values without ties whose permutations are counted."""


def trend_p(values: Floats) -> float:
    """The two-sided p-value of a trend of values in their order (Mann 1945, Kendall 1938).

    Exact for up to 33 values without ties, else from the normal approximation (Kendall, Rank
    Correlation Methods, 1970); 1 if all values are equal.
    """
    count = len(values)
    signs = np.sign(values[None, :] - values[:, None])[np.triu_indices(count, 1)]
    ties = np.unique(values, return_counts=True)[1]
    if (ties == 1).all() and count <= _EXACT_UP_TO:
        fewer = int(min((signs > 0).sum(), (signs < 0).sum()))
        return min(1.0, 2 * sum(_permutations(count)[: fewer + 1]) / math.factorial(count))
    spread = count * (count - 1) * (2 * count + 5) - (ties * (ties - 1) * (2 * ties + 5)).sum()
    if not spread:
        return 1.0
    return math.erfc(abs(float(signs.sum())) / math.sqrt(spread / 18) / math.sqrt(2))


def slope(values: Floats) -> float:
    """The median slope of all pairs of values (Theil 1950, Sen 1968)."""
    first, last = np.triu_indices(len(values), 1)
    return float(np.median((values[last] - values[first]) / (last - first)))


def _permutations(count: int) -> list[int]:
    """How many permutations of so many values have 0, 1, 2, … inversions."""
    ways = [1]
    for size in range(2, count + 1):
        sums = [0, *ways]
        for place in range(1, len(sums)):
            sums[place] += sums[place - 1]
        total = len(ways) + size - 1
        ways = [
            sums[min(place + 1, len(ways))] - sums[max(0, place + 1 - size)]
            for place in range(total)
        ]
    return ways
