"""Two cells compared over hosts: on how many one is better, by how much, and who disagrees."""

from __future__ import annotations

import math
from typing import Annotated

import numpy as np

from vdisklab.analysis.distributions import t_isf
from vdisklab.analysis.fleet.host_means import FleetNumbers, rounds_by_host
from vdisklab.analysis.fleet.host_ranks import MIN_HOSTS
from vdisklab.analysis.observations import Floats, MeasureKey, logarithms
from vdisklab.analysis.paired_ratios import Ratio, holm, paired_ratios
from vdisklab.path.cell import MeasuredCell
from vdisklab.results.model import Better
from vdisklab.value import Value, replace


class HostRatio(Value):
    """A / B on one host, from its own rounds."""

    host: str
    ratio: Annotated[
        float | None, "of the host's means: a path that left a race lacks rounds, and is corrected"
    ]
    agrees: Annotated[bool, "here, too, that one is better that is so on the mean host"]
    shown: Annotated[
        bool,
        "the host alone shows a difference (Holm over hosts: 5 % of fleets without any difference "
        "have such a host)",
    ]


class Agreement(Value):
    """A / B in one measure over hosts; with a rate of zero there is no interval."""

    measure: MeasureKey
    a: MeasuredCell
    b: MeasuredCell
    ratio: Annotated[
        Ratio, "A / B within hosts, of the mean host; `pairs` counts hosts, or groups that share"
    ]
    next_low: Annotated[
        float | None, "with 95 % the ratio on another host of this fleet is above this"
    ]
    next_high: float | None
    between: Annotated[
        float | None,
        "standard deviation of the log ratio between hosts, without the noise of their rounds; "
        "null without hosts that have two",
    ]
    a_leads: Annotated[bool, "A is the better one on the mean host"]
    a_better_on: Annotated[int, "hosts on which A is better"]
    hosts: tuple[HostRatio, ...]

    @property
    def agreeing(self) -> int:
        """On how many hosts the path that leads on average is also the better one."""
        return sum(host.agrees for host in self.hosts)

    @property
    def disagreeing(self) -> tuple[HostRatio, ...]:
        """The hosts on which that path is equal or worse; hosts that show it come first."""
        other = [host for host in self.hosts if not host.agrees]
        return tuple(sorted(other, key=lambda host: (not host.shown, host.host)))


def _a_is_better(measure: MeasureKey, ratio: Ratio) -> bool:
    higher = measure.quantity.better is Better.HIGHER
    if ratio.ratio is None:  # one of the two has a zero
        return ratio.a_is_more == higher
    return ratio.ratio > 1 if higher else ratio.ratio < 1


def agreement(
    fleet: FleetNumbers, measure: MeasureKey, a: MeasuredCell, b: MeasuredCell, alpha: float = 0.05
) -> Agreement:
    """Compares two cells over hosts in a measure that the means have."""
    means, units, quantity = fleet.means, fleet.units, measure.quantity
    grid, of_units = means.grid(measure), units.grid(measure)
    row_a, row_b = means.place[a], means.place[b]
    resolution = units.resolution(measure)
    (ratio,) = paired_ratios(
        of_units[row_a],
        of_units[row_b],
        quantity,
        1 - alpha,
        forecast=False,
        resolution=resolution[[row_a]] + resolution[row_b],
    )
    logs = means.logs(measure)
    apart = logs[row_a] - logs[row_b]
    columns = rounds_by_host(fleet.observations, fleet.host_of)
    rounds = fleet.observations.grid(measure)
    names = [means.rounds[place].campaign for place in np.flatnonzero(np.isfinite(apart))]
    width = max((len(columns[name]) for name in names), default=0)
    of_a, of_b = (np.full((len(names), width), np.nan) for _ in range(2))
    for place, name in enumerate(names):
        of_a[place, : len(columns[name])] = rounds[row_a, columns[name]]
        of_b[place, : len(columns[name])] = rounds[row_b, columns[name]]
    pairs = paired_ratios(of_a, of_b, quantity, 1 - alpha, forecast=False) if names else []
    p = np.array([1.0 if entry.p is None else entry.p for entry in pairs])
    tested = np.array([entry.p is not None for entry in pairs], dtype=bool)
    shown = np.zeros(len(pairs), dtype=bool)
    shown[tested] = holm(p[tested]) <= alpha
    finite = apart[np.isfinite(apart)]
    # The logarithm of a rate of zero is a number that nobody measured.
    zero = quantity.step is None and bool((grid[[row_a, row_b]] == 0).any())
    low, high = (None, None) if zero else _next_host(finite, alpha)
    if quantity.step is None and not zero:
        pairs = [
            replace(entry, ratio=math.exp(log)) for entry, log in zip(pairs, finite, strict=True)
        ]
    a_leads, better = (
        _a_is_better(measure, ratio),
        [_a_is_better(measure, entry) for entry in pairs],
    )
    return Agreement(
        measure=measure,
        a=a,
        b=b,
        ratio=ratio,
        next_low=low,
        next_high=high,
        between=None
        if zero
        else _between(finite, logarithms(of_a, quantity) - logarithms(of_b, quantity)),
        a_leads=a_leads,
        a_better_on=sum(better),
        hosts=tuple(
            HostRatio(name, entry.ratio, agrees=a_is == a_leads, shown=sure)
            for name, entry, a_is, sure in zip(names, pairs, better, shown.tolist(), strict=True)
        ),
    )


def _next_host(apart: Floats, alpha: float) -> tuple[float | None, float | None]:
    """The prediction interval for the ratio on one more host.

    It assumes a normal distribution of the log ratios; None with fewer than three hosts.
    """
    hosts = len(apart)
    if hosts < MIN_HOSTS:
        return None, None
    half = float(t_isf(alpha / 2, hosts - 1) * apart.std(ddof=1)) * math.sqrt(1 + 1 / hosts)
    middle = float(apart.mean())
    return math.exp(middle - half), math.exp(middle + half)


def _between(apart: Floats, in_rounds: Floats) -> float | None:
    """The standard deviation of the log ratio between hosts, without the noise of their rounds.

    By moments: the variance of the hosts' means minus the mean variance within hosts of such a
    mean, both from hosts x rounds of log ratios. None if that cannot be estimated.
    """
    observed = np.isfinite(in_rounds)
    count = observed.sum(axis=1)
    several = count >= 2
    if len(apart) < MIN_HOSTS or not several.any():
        return None
    values = np.where(observed, in_rounds, 0.0)[several]
    of_host = count[several]
    mean = values.sum(axis=1) / of_host
    squares = np.where(observed[several], (values - mean[:, None]) ** 2, 0.0).sum(axis=1)
    noise = float(squares.sum() / (of_host - 1).sum())
    variance = float(apart.var(ddof=1)) - noise * float((1 / count[count > 0]).mean())
    return math.sqrt(max(0.0, variance))
