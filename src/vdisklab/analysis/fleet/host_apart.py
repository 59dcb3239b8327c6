"""One host on which a path is far from what all other hosts say of it; named without a test."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Annotated

import numpy as np

from vdisklab.analysis.fleet.host_ranks import MIN_HOSTS
from vdisklab.analysis.fleet.outlier_hosts import FAST, SLOW
from vdisklab.analysis.observations import MeasureKey, Observations, median
from vdisklab.path.cell import MeasuredCell
from vdisklab.value import Value

RANGES = 2
"""The host is farther from the nearest other one than this many times the range of the others."""


class HostApart(Value):
    """A path whose ratio to the baseline is alike on all hosts but one."""

    cell: MeasuredCell
    host: str
    ratio: Annotated[float, "cell / baseline on this host"]
    low: Annotated[float, "the least of the same on the other hosts"]
    high: Annotated[float, "the most"]
    others: Annotated[int, "the other hosts"]


def hosts_apart(
    means: Observations, measure: MeasureKey, baseline: MeasuredCell, cells: Sequence[MeasuredCell]
) -> tuple[HostApart, ...]:
    """The paths that one host alone shows otherwise, the farthest first.

    It is a description and no test: two other hosts may be alike by chance. If most paths are apart
    on the same host, the baseline is so there, or the whole host, and no path is named.
    """
    if baseline not in means.place:
        return ()
    compared = [cell for cell in cells if cell != baseline and cell in means.place]
    found = [each for cell in compared if (each := _apart(means, measure, baseline, cell))]
    on = Counter(each.host for each in found)
    few = [each for each in found if len(compared) == 1 or 2 * on[each.host] < len(compared)]
    return tuple(sorted(few, key=lambda each: -_distance(each)))


def _apart(
    means: Observations, measure: MeasureKey, baseline: MeasuredCell, cell: MeasuredCell
) -> HostApart | None:
    rows = [means.place[cell], means.place[baseline]]
    if measure.quantity.step is None and bool((means.grid(measure)[rows] == 0).any()):
        return None  # the logarithm of a rate of zero is a number that nobody measured
    logs = means.logs(measure)
    ratios = logs[rows[0]] - logs[rows[1]]
    measured = np.flatnonzero(np.isfinite(ratios))
    if len(measured) < MIN_HOSTS:
        return None
    place = max(measured, key=lambda column: abs(ratios[column] - median(ratios[measured])))
    others = ratios[measured[measured != place]]
    apart = HostApart(
        cell,
        means.rounds[place].campaign,
        math.exp(ratios[place]),
        math.exp(others.min()),
        math.exp(others.max()),
        len(others),
    )
    slower, distance = apart.ratio < apart.low, _distance(apart)
    far = distance >= (-math.log(SLOW) if slower else math.log(FAST))
    return apart if far and distance >= RANGES * float(np.ptp(others)) else None


def _distance(apart: HostApart) -> float:
    """How far the host is from the nearest other one: a log ratio, below zero if among them."""
    ratio = math.log(apart.ratio)
    return max(math.log(apart.low) - ratio, ratio - math.log(apart.high))
