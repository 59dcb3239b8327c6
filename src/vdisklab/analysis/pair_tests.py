"""Tests every pair of cells at once, without a list of all pairs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from vdisklab.analysis.additive import Fit
from vdisklab.analysis.distributions import t_isf
from vdisklab.analysis.observations import Floats

Counts = npt.NDArray[np.int64]

GRADES = 48
"""Number of distinct standard errors; with more cells, they are rounded up to one of these."""

STEPS = 25
"""Maximum number of iterations of Holm's procedure; stopping early can only miss a difference."""


def separate(goodness: Floats, model: Fit, alpha: float) -> tuple[Counts, Counts]:
    """For each cell, how many others are shown to be better and worse (Holm over all pairs).

    Holm's step-down procedure without a list of all pairs: count the pairs below the first
    threshold alpha/m. If r of them are rejected, the threshold becomes alpha/(m-r); repeat until
    the count stays the same. Time is about proportional to the number of cells.
    """
    cells = len(goodness)
    pairs = cells * (cells - 1) // 2
    nothing = np.zeros(cells, dtype=np.int64)
    if not pairs:
        return nothing, nothing
    grades = _grades(model)
    better, worse, rejected = nothing, nothing, -1
    for _ in range(STEPS):
        done = int(better.sum())
        if done in (rejected, pairs):
            break
        rejected = done
        better, worse = _count(goodness, grades, alpha / (pairs - done))
    return better, worse


@dataclass(frozen=True, slots=True, eq=False)
class _Grades:
    """Cells sorted into a few classes of equal standard error and degrees of freedom."""

    member: npt.NDArray[np.intp]
    error: Floats
    freedom: Floats


def _grades(model: Fit) -> _Grades:
    """Classes by standard error, rounded up, and by degrees of freedom, rounded down.

    Both make a test stricter. Up to 48 cells each is its own class, and nothing is rounded.
    """
    if len(model.error) <= GRADES:
        return _Grades(np.arange(len(model.error)), model.error, model.freedom)
    floor = max(float(model.error.min()), float(np.median(model.error)) / 100)
    edges = np.geomspace(floor, max(float(model.error.max()), floor) * (1 + 1e-9), GRADES)
    raised = edges[np.searchsorted(edges, model.error)]
    keys = np.stack([raised, np.floor(model.freedom)], axis=1)
    unique, member = np.unique(keys, axis=0, return_inverse=True)
    return _Grades(member.reshape(-1), unique[:, 0], np.maximum(unique[:, 1], 1.0))


def _count(goodness: Floats, grades: _Grades, p: float) -> tuple[Counts, Counts]:
    """Counts, for each cell, the others that differ with a two-sided p-value of at most `p`.

    All cells of a class differ from a given cell beyond the same distance, so a binary search in
    the class's sorted values counts them. Cells are sorted by class, then by value, because
    searching for ascending values is several times faster.
    """
    order = np.lexsort((goodness, grades.member))
    values, member = goodness[order], grades.member[order]
    ends = np.searchsorted(member, np.arange(len(grades.error) + 1))
    better = np.zeros(len(values), dtype=np.int64)
    worse = np.zeros(len(values), dtype=np.int64)
    freedom = grades.freedom
    limit = {df: float(t_isf(p / 2, df)) for df in np.unique(freedom)}
    for grade in range(len(grades.error)):
        inside = values[ends[grade] : ends[grade + 1]]
        least = np.minimum(freedom, freedom[grade])
        distance = np.array([limit[df] for df in least]) * np.hypot(
            grades.error, grades.error[grade]
        )
        reach = distance[member]
        better += len(inside) - np.searchsorted(inside, values + reach, side="right")
        worse += np.searchsorted(inside, values - reach, side="left")
    back_better, back_worse = np.empty_like(better), np.empty_like(worse)
    back_better[order], back_worse[order] = better, worse
    return back_better, back_worse
