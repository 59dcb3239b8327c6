"""Hosts that are much slower or faster than others with the same facts: the disk to replace."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Annotated

import numpy as np

from vdisklab.analysis.additive import PRECISION, round_effects
from vdisklab.analysis.distributions import t_isf
from vdisklab.analysis.observations import Floats, MeasureKey, Observations
from vdisklab.path.cell import MeasuredCell
from vdisklab.path.segments import PageCache
from vdisklab.results.model import Better
from vdisklab.value import Value

MIN_PEERS = 5
"""Minimum number of hosts with the same facts to call one of them an outlier."""

LEAST = 0.10
"""A host within 10 % of its peers is not called an outlier, however alike they are."""

SLOW, FAST = 0.63, 2.0
"""Beyond these ratios to its peers a host is far off, whatever the tails of their distribution."""

TAIL, HEAVY_TAIL = 4, 3
"""Degrees of freedom of Student's t. Closer hosts must be too far off for the first one's tails; an
alarm needs a host that is too far off for the second one's.
"""

FEW = 15
"""Among fewer hosts at most one outlier is sought, and only a rate of zero is an alarm.

Rosner's limits are right from 15 on, and fewer hosts say little about tails.
"""


class OnePath(Value):
    """The path that makes more than half of a host's difference from its peers."""

    cell: MeasuredCell
    ratio: Annotated[float, "this path's speed on the host, relative to the mean of its peers"]
    others: Annotated[float, "the same of the mean of the host's other paths"]
    count: Annotated[int, "the other paths"]


class OutlierHost(Value):
    """A host that is slower or faster than others with the same facts."""

    host: str
    measure: MeasureKey
    ratio: Annotated[
        float,
        "its speed relative to the mean of its normal peers, over all cells: 0.6 is 40 % slower in "
        "any measure, also in latencies; 0 is a rate of zero",
    ]
    peers: Annotated[int, "other hosts with the same facts"]
    alarm: Annotated[
        bool,
        "something is wrong with it: it does nothing, or is farther off than a healthy host, even "
        "if hosts' levels have heavy tails; otherwise only its speed is a fact",
    ]
    path: Annotated[
        OnePath | None, "the path by which it differs; null if it does so by several"
    ] = None


class OutlierSearch(Value):
    """The outliers, the slowest first, and the hosts that have too few peers for an answer."""

    outliers: tuple[OutlierHost, ...]
    unchecked: Annotated[
        tuple[str, ...], "hosts that were not checked: fewer than 5 have the same facts"
    ]
    alpha: Annotated[
        float, "share of healthy fleets with an alarm, at most; more hosts than that are named"
    ]


def find_outliers(
    means: Observations,
    measures: Collection[MeasureKey],
    groups: Collection[Collection[str]],
    alpha: float = 0.05,
) -> OutlierSearch:
    """Tests each host against those of its group (hosts with the same facts), in each measure.

    A host's level is its effect in the additive model cells + hosts of the `host_means`. Outliers
    are found by the generalised extreme studentised deviate (Rosner, Technometrics 25, 1983), which
    finds several bad hosts at once. Its level is `alpha` divided by groups and measures: at most 5
    % of fleets whose hosts differ only by log-normal chance have an outlier. Because that assumes
    thin tails, a host must also be far off, or farther than heavy tails would explain; an `alarm`
    needs the latter, with heavier tails.
    """
    large = [set(group) for group in groups if len(group) >= MIN_PEERS]
    unchecked = sorted(host for group in groups if len(group) < MIN_PEERS for host in group)
    tests = max(1, len(large) * len(measures))
    outliers: list[OutlierHost] = []
    for measure in measures:
        level, zeros = levels(means, measure), _with_zeros(means, measure)
        for group in large:
            level_of = {host: value for host, value in level.items() if host in group}
            values = np.array(list(level_of.values()))
            places = extreme(values, alpha / tests)
            # The logarithm of a rate of zero is a number that nobody measured.
            stopped = np.array([host in zeros for host in level_of], dtype=np.bool_)
            normal = np.delete(values, places)[~np.delete(stopped, places)]
            for place in places if len(normal) else ():
                apart = float(values[place] - normal.mean())
                far_off = apart <= math.log(SLOW) or apart >= math.log(FAST)
                if far_off or abs(apart) >= _tail(normal, alpha / tests, TAIL):
                    heavy = _tail(normal, alpha / tests, HEAVY_TAIL)
                    alarm = stopped[place] or (len(level_of) >= FEW and abs(apart) > heavy)
                    ratio = 0.0 if stopped[place] else math.exp(apart)
                    host = list(level_of)[place]
                    path = None if stopped[place] else _one_path(means, measure, host, level_of)
                    outliers.append(
                        OutlierHost(host, measure, ratio, len(level_of) - 1, bool(alarm), path)
                    )
    return OutlierSearch(
        tuple(sorted(outliers, key=lambda outlier: outlier.ratio)), tuple(unchecked), alpha
    )


def _tail(normal: Floats, alpha: float, freedom: int) -> float:
    """How far a healthy host may be from the mean of the normal ones, with tails of Student's t."""
    spread = float(normal.std(ddof=1)) * math.sqrt((freedom - 2) / freedom)
    tail = float(t_isf(alpha / (2 * len(normal)), freedom)) * spread
    return max(-math.log1p(-LEAST), tail)


def levels(means: Observations, measure: MeasureKey) -> Mapping[str, float]:
    """Each host's effect on its cells; more is better. Warm cells are left out: they say nothing
    about a disk.
    """
    _, logs = _on_disk(means, measure)
    observed = np.isfinite(logs)
    rows, columns = np.flatnonzero(observed.any(axis=1)), np.flatnonzero(observed.any(axis=0))
    if not len(rows):
        return {}
    table = logs[np.ix_(rows, columns)]
    measured = np.isfinite(table)
    level = table.mean(axis=0) if measured.all() else round_effects(table, measured)
    hosts = [means.rounds[column].campaign for column in columns]
    return dict(zip(hosts, level.tolist(), strict=True))


def _on_disk(means: Observations, measure: MeasureKey) -> tuple[Sequence[MeasuredCell], Floats]:
    """The cells that are not warm, unless all are, and their logarithms; more is better."""
    cold = [
        place for place, each in enumerate(means.cells) if each.page_cache is not PageCache.WARM
    ]
    chosen = cold or list(range(len(means.cells)))
    sign = 1.0 if measure.quantity.better is Better.HIGHER else -1.0
    return [means.cells[place] for place in chosen], sign * means.logs(measure)[chosen]


def _one_path(
    means: Observations, measure: MeasureKey, host: str, group: Collection[str]
) -> OnePath | None:
    """The path without which less than half of the host's difference from its group is left; None
    if there is no such path, or only one path."""
    cells, logs = _on_disk(means, measure)
    names = [each.campaign for each in means.rounds]
    peers = [place for place, name in enumerate(names) if name in group and name != host]
    there = logs[:, names.index(host)]
    has = np.isfinite(there) & np.isfinite(logs[:, peers]).all(axis=1)
    if has.sum() < 2:
        return None
    apart = there[has] - logs[has][:, peers].mean(axis=1)
    farthest = int(np.abs(apart).argmax())
    others = np.delete(apart, farthest)
    if abs(others.mean()) >= abs(apart.mean()) / 2:
        return None
    cell = cells[np.flatnonzero(has)[farthest]]
    ratio, rest = math.exp(apart[farthest]), math.exp(others.mean())
    return OnePath(cell, ratio, rest, len(others))


def _with_zeros(means: Observations, measure: MeasureKey) -> set[str]:
    """The hosts with a rate of zero."""
    if measure.quantity.step is not None:
        return set()
    columns = np.flatnonzero((means.grid(measure) == 0).any(axis=0))
    return {means.rounds[column].campaign for column in columns}


def extreme(values: Floats, alpha: float) -> list[int]:
    """The indices of the outliers among values, the most extreme first.

    The most extreme value is removed again and again; the outliers are all those up to the last one
    beyond its limit. They are at most a fifth of the values, and one of fewer than 15.
    """
    count = len(values)
    if count < MIN_PEERS:
        return []
    left = list(range(count))
    removed: list[int] = []
    outliers = 0
    for step in range(1, (count // 5 if count >= FEW else 1) + 1):
        rest = values[left]
        apart = np.abs(rest - rest.mean())
        farthest = int(np.argmax(apart))
        statistic = float(apart[farthest]) / max(float(rest.std(ddof=1)), PRECISION)
        freedom = len(left) - 2
        t = float(t_isf(alpha / (2 * len(left)), freedom))
        limit = (len(left) - 1) * t / math.sqrt((freedom + t**2) * len(left))
        removed.append(left.pop(farthest))
        if statistic > limit:
            outliers = step
    return removed[:outliers]
