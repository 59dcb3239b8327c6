"""Do hosts of different kinds need different paths? A test, and an answer for each kind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated

import numpy as np
import numpy.typing as npt

from vdisklab.analysis.fleet.host_ranks import MIN_HOSTS, pair_tests_over_hosts
from vdisklab.analysis.observations import Floats, MeasureKey, Observations
from vdisklab.analysis.paired_ratios import holm
from vdisklab.analysis.summary import value_or_none
from vdisklab.documents import Probability
from vdisklab.path.cell import MeasuredCell
from vdisklab.results.model import Better
from vdisklab.value import Value

SHUFFLES = 1999
"""Permutations of the hosts: the smallest p-value is 1 in 2000."""


class BetterPath(Value):
    """A cell that is shown to beat the fleet's one on the hosts of one class."""

    cell: MeasuredCell
    ratio: Annotated[float | None, "above 1; null if a rate of zero makes it unknown"]
    p: Annotated[Probability, "corrected for all cells of all classes (Holm)"]


def profiles_differ(
    means: Observations,
    measure: MeasureKey,
    class_of: Mapping[str, str],
    cells: Sequence[MeasuredCell],
) -> float | None:
    """The p-value of the hypothesis that hosts of all classes have the same differences between
    cells.

    A permutation test (Anderson, Austral Ecology 26, 2001): the hosts' profiles (logarithms less
    the host's mean) vary more between classes than with hosts assigned to classes by chance.
    None if there are not two classes of two hosts, or no two cells that all hosts have.
    """
    hosts = [round.campaign for round in means.rounds]
    names = sorted({class_of[host] for host in hosts})
    member = np.array([names.index(class_of[host]) for host in hosts])
    logs = means.ranked_logs(measure)[[means.place[cell] for cell in cells]]
    common = np.isfinite(logs).all(axis=1)
    sizes = np.bincount(member, minlength=1)
    if (sizes >= 2).sum() < 2 or common.sum() < 2:
        return None
    profile = (logs[common] - logs[common].mean(axis=0)).T
    profile = profile - profile.mean(axis=0)
    rng = np.random.default_rng(0)  # the same answer each time
    shuffled = rng.permuted(np.tile(member, (SHUFFLES, 1)), axis=1)
    distance = between_classes(profile, member[None])
    beyond = int((between_classes(profile, shuffled) >= distance * (1 - 1e-12)).sum())
    return (1 + beyond) / (1 + SHUFFLES)


def between_classes(profile: Floats, members: npt.NDArray[np.intp]) -> Floats:
    """For each row of `members` (classes by host), the sum of squares between classes; `profile` is
    hosts x cells with column means of zero."""
    squares = np.zeros(len(members))
    for name in np.unique(members[0]):
        inside = (members == name).astype(np.float64)
        squares += ((inside @ profile) ** 2).sum(axis=1) / inside[0].sum()
    return squares


def better_paths(
    means: Observations,
    measure: MeasureKey,
    class_of: Mapping[str, str],
    cells: Sequence[MeasuredCell],
    *,
    chosen: MeasuredCell,
    alpha: float = 0.05,
) -> dict[str, tuple[BetterPath, ...]]:
    """For each class the cells that are shown to beat the fleet's `chosen` one there, best first.

    Paired t-tests over the hosts of a class, corrected by Holm over all classes and cells. So at
    most 5 % of the fleets whose classes need no other path get one. A class of fewer than three
    hosts is not tested.
    """
    sign = 1.0 if measure.quantity.better is Better.HIGHER else -1.0
    logs = sign * means.ranked_logs(measure)[[means.place[cell] for cell in cells]]
    resolution = means.resolution(measure)[[means.place[cell] for cell in cells]]
    first = cells.index(chosen)
    names = sorted(set(class_of.values()))
    zero = means.grid(measure)[[means.place[cell] for cell in cells]] == 0
    lead, p, ratio = (np.full((len(names), len(cells)), np.nan) for _ in range(3))
    for place, name in enumerate(names):
        columns = [class_of[round.campaign] == name for round in means.rounds]
        table = logs[:, columns]
        if np.isfinite(table).any(axis=1).sum() < 2 or sum(columns) < MIN_HOSTS:
            continue
        mean, chance = pair_tests_over_hosts(table[:, np.isfinite(table).any(axis=0)], resolution)
        lead[place], p[place] = mean[:, first], chance[:, first]
        unknown = zero[:, columns].any(axis=1) & (measure.quantity.step is None)
        with np.errstate(over="ignore"):
            ratio[place] = np.where(unknown | unknown[first], np.nan, np.exp(lead[place]))
    p[:, first] = np.nan
    adjusted = np.ones_like(p)
    tested = np.isfinite(p)
    adjusted[tested] = holm(p[tested])
    return {
        name: tuple(
            BetterPath(cells[row], value_or_none(ratio[place], row), float(adjusted[place, row]))
            for row in np.argsort(-np.nan_to_num(lead[place], nan=-np.inf))
            if lead[place, row] > 0 and adjusted[place, row] <= alpha
        )
        for place, name in enumerate(names)
    }
