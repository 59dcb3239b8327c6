"""Diagnostics from the values: drift, slow first rounds, two modes, limits of guest and device."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Annotated

import numpy as np
import numpy.typing as npt

from vdisklab.analysis.additive import fit, usable
from vdisklab.analysis.diagnostics.diagnostic import OfMeasurement
from vdisklab.analysis.distributions import t_isf
from vdisklab.analysis.lasting_noise import lasting_noise
from vdisklab.analysis.measure_words import key_words
from vdisklab.analysis.observations import (
    Floats,
    MeasureKey,
    Observations,
    different,
    median,
    medians,
)
from vdisklab.analysis.paired_ratios import paired_ratios
from vdisklab.path.cell import MeasuredCell
from vdisklab.path.disk_path import Attachment, Layer
from vdisklab.path.segments import PageCache
from vdisklab.results.model import Better
from vdisklab.units import in_percent, named
from vdisklab.value import HIDDEN

TREND_FROM = 5
"""Minimum number of rounds for a trend: with four, Kendall's test cannot reach 5 %."""

SMALLEST_TREND = 0.05
FIRST_RUN_FROM = 4
SLOW_FIRST_BELOW = 0.9
SMALLEST_MODE_RATIO = 1.15
MODES_FROM = (8, 10, 12, 15, 20, 30, 50, 100)
MODES_LIMIT = (15.5, 11.6, 9.1, 7.6, 6.1, 5.0, 4.2, 3.7)
"""99.99 % quantiles of `two_modes` for normal noise (200,000 simulated cells for each n)."""

LASTS = 0.2
"""The least part of noise that lasts from round to round that is worth a sentence: below it, 95 %
intervals hold in 88 % at least (`bench/race.py`)."""

_EXACT_UP_TO = 33
"""The largest number of values without ties whose permutations are counted."""

CEILING_SHARE = 0.95
GUEST_CEILING_SHARE = 0.8
HIGHEST_SHARE = 1.1
"""The host's speed is no limit if a path that bypasses its memory is faster by more than noise: two
queues of a guest may ask for more than the host's job did."""


class Drift(OfMeasurement):
    """All cells drifted the same way over the rounds: `change` is last/first - 1."""

    measure: str
    campaign: str
    rounds: int
    change: float
    p: float

    def __str__(self) -> str:
        what = _subject(self.measure, self.runtime)
        trend = "rose" if self.change > 0 else "fell"
        return (
            f"{what} {trend} by {in_percent(abs(self.change))} over "
            f"{self.rounds} rounds in all cells. Ranks and ratios are taken within rounds and are "
            "not affected; medians are. Compare ratios, and let the disk rest or fill its cache "
            "before measuring (--ramp)."
        )


class SlowFirstRound(OfMeasurement):
    """The first round of a campaign is `factor` (below 1) times as good as the others."""

    measure: str
    campaign: str
    factor: float

    def __str__(self) -> str:
        what = _subject(self.measure, self.runtime)
        return (
            f"{what}: the first round is only {in_percent(self.factor)} as good "
            "as the others. Ratios within it are as valid as others; measure more rounds, or a "
            "longer --ramp."
        )


class RoundsDepend(OfMeasurement):
    """The part of a round's noise that lasts into the next, with its standard error."""

    measure: str
    campaign: str
    part: float
    error: float
    raced: Annotated[bool, HIDDEN] = False
    """True if a race has decided already, so that no other race helps."""

    def __str__(self) -> str:
        what = _subject(self.measure, self.runtime)
        race = "" if self.raced else ", or let `run` race (without --rounds)"
        return (
            f"{what}: about {in_percent(self.part)} of a round's noise lasts "
            "into the next. A race allows for that; ranks, ratios and intervals do not: at 20 % an "
            "interval holds in about 90 % of cases instead of 95 %, at 60 % in 65 to 75 %. "
            f"Measure on a quieter host{race}."
        )


class Bimodal(OfMeasurement):
    """A cell's rounds form two groups, the upper one `apart` times as high (None: the lower one has
    zeros)."""

    cell: MeasuredCell
    measure: str
    apart: float | None
    share_high: float

    def __str__(self) -> str:
        what = key_words(self.measure, seconds=self.runtime)
        distance = "the lower one with zeros" if self.apart is None else f"×{self.apart:.2g} apart"
        return (
            f"{self.cell} in {what}: two groups of rounds, {distance} "
            f"({in_percent(self.share_high)} in the upper one): the median may belong to either. "
            "Compare its runs (`vdisklab runs`, `vdisklab show RUN`) to find the cause."
        )


class GuestCeiling(OfMeasurement):
    """Cells that reach `share` of the guest's speed on the null device, which has no disk."""

    cells: tuple[MeasuredCell, ...]
    measure: str
    ceiling: MeasuredCell
    share: float

    def __str__(self) -> str:
        what = key_words(self.measure, seconds=self.runtime)
        return (
            f"{named(self.cells)} in {what}: up to {in_percent(self.share)} of "
            f"{self.ceiling}, QEMU's null device: the guest's CPU is the limit, not the disk. Give "
            "the guest more (--guest-cpus, queues, iothread) or compare larger requests."
        )


class DeviceCeiling(OfMeasurement):
    """Cells as fast as the same workload on the host: the device is the limit, not the path."""

    cells: tuple[MeasuredCell, ...]
    measure: str
    ceiling: MeasuredCell
    share: float

    def __str__(self) -> str:
        what = key_words(self.measure, seconds=self.runtime)
        return (
            f"{named(self.cells)} in {what}: up to {in_percent(self.share)} of "
            f"{self.ceiling}: the device is the limit and hides faster paths. Compare latency or "
            "CPU time instead."
        )


def _subject(measure: str, runtime: float | None) -> str:
    """The words for a measure at the start of a sentence."""
    said = key_words(measure, rate="the speed of", seconds=runtime)
    return said if said == measure else said[0].upper() + said[1:]


def drift_diagnostics(observations: Observations, measure: MeasureKey) -> tuple[Drift, ...]:
    """A trend over the rounds of each campaign, by Kendall's rank test (Mann 1945, Kendall 1938).

    It tests the mean of all cells of a round. Such a trend affects medians, but not ratios and
    ranks. Trends below 5 % are not reported.
    """
    diagnostics = []
    for campaign, effects in _round_effects(observations, measure).items():
        if len(effects) < TREND_FROM:
            continue
        p = trend_p(effects)
        change = math.exp(slope(effects) * (len(effects) - 1)) - 1
        if p <= 0.05 and abs(change) >= SMALLEST_TREND:
            diagnostics.append(Drift(str(measure), campaign, len(effects), change, p))
    return tuple(diagnostics)


def lasting_diagnostics(
    observations: Observations, measure: MeasureKey
) -> tuple[RoundsDepend, ...]:
    """Noise that lasts from round to round: LASTS at least, by two standard errors."""
    diagnostics = []
    logs = observations.logs(measure)
    for campaign in dict.fromkeys(round.campaign for round in observations.rounds):
        places = [
            column for column, round in enumerate(observations.rounds) if round.campaign == campaign
        ]
        grid = logs[:, places]
        grid = np.where(np.isfinite(grid), grid, np.nan)
        chosen = usable(grid)
        if len(chosen.rows) < 2:
            continue
        found = lasting_noise(fit(grid, chosen).residual)
        if found.shown >= max(LASTS, 2 * found.error):
            part = min(found.shown, 0.99)
            diagnostics.append(RoundsDepend(str(measure), campaign, part, found.error))
    return tuple(diagnostics)


def first_round_diagnostics(
    observations: Observations, measure: MeasureKey
) -> tuple[SlowFirstRound, ...]:
    """First rounds below the 99 % prediction interval of the others, and at least 10 % worse."""
    sign = 1.0 if measure.quantity.better is Better.HIGHER else -1.0
    diagnostics = []
    for campaign, effects in _round_effects(observations, measure).items():
        if len(effects) < FIRST_RUN_FROM:
            continue
        first, rest = sign * effects[0], sign * effects[1:]
        spread = float(rest.std(ddof=1)) * math.sqrt(1 + 1 / len(rest))
        below = float(rest.mean()) - first
        factor = math.exp(-below)
        if factor <= SLOW_FIRST_BELOW and below > float(t_isf(0.01, len(rest) - 1)) * spread:
            diagnostics.append(SlowFirstRound(str(measure), campaign, factor))
    return tuple(diagnostics)


def _round_effects(observations: Observations, measure: MeasureKey) -> dict[str, Floats]:
    """For each campaign: each round's mean logarithm, over the cells that are in all its rounds.

    A rate of zero does not count: a cell that stopped says nothing about the whole round.
    """
    logs = observations.logs(measure)
    if measure.quantity.step is None:
        logs[observations.grid(measure) == 0] = np.nan
    campaigns = [round.campaign for round in observations.rounds]
    effects = {}
    for campaign in dict.fromkeys(campaigns):
        columns = [place for place, owner in enumerate(campaigns) if owner == campaign]
        part = logs[:, columns]
        part = part[:, np.isfinite(part).any(axis=0)]
        whole = part[np.isfinite(part).all(axis=1)]
        if len(whole) and whole.shape[1]:
            effects[campaign] = whole.mean(axis=0)
    return effects


def bimodal_diagnostics(observations: Observations, measure: MeasureKey) -> tuple[Bimodal, ...]:
    """Cells with eight rounds or more whose values form two groups, after removing round effects.

    The statistic is the distance of the two means over the spread within the groups. It must
    exceed its 99.99 % quantile for a single normal mode: about one cell in 10,000 is named wrongly.
    """
    grid, logs = observations.grid(measure), observations.logs(measure)
    count = np.isfinite(logs).sum(axis=1)
    if not (count >= MODES_FROM[0]).any():
        return ()
    centre = medians(logs[count > 0])
    # The round effect is a median, so that one cell in its other mode does not change it.
    with np.errstate(invalid="ignore"):
        measured = np.isfinite(logs[count > 0]).any(axis=0)
        round = np.zeros(logs.shape[1])
        if (count > 0).sum() > 2:
            round[measured] = medians((logs[count > 0] - centre[:, None])[:, measured].T)
    adjusted = np.sort(logs - round, axis=1)  # NaN last
    steps = 3 * observations.resolution(
        measure
    )  # values that are one step apart belong to one mode
    by_row: dict[int, Bimodal] = {}
    for n in different(count[count >= MODES_FROM[0]]):
        limit = float(np.interp(n, MODES_FROM, MODES_LIMIT))
        rows = np.flatnonzero(count == n)
        values = adjusted[rows, :n]
        distance, cut = two_modes(values)
        for place in np.flatnonzero(distance > limit):
            change = int(cut[place])
            low, high = float(values[place, :change].mean()), float(values[place, change:].mean())
            if high - low >= max(math.log(SMALLEST_MODE_RATIO), steps[rows[place]]):
                cell = observations.cells[rows[place]]
                # Zeros are the lowest values.
                stopped = measure.quantity.step is None and (grid[rows[place]] == 0).any()
                apart = None if stopped else math.exp(high - low)
                share = 1 - change / int(n)
                by_row[int(rows[place])] = Bimodal(cell, str(measure), apart, share)
    return tuple(by_row[row] for row in sorted(by_row))


def two_modes(values: Floats) -> tuple[Floats, npt.NDArray[np.int64]]:
    """For each row: the largest distance of two group means in units of the spread within, and the
    split.

    Rows are sorted; each group has at least two values and at least a fifth of all.
    """
    rows, n = values.shape
    centred = values - values.mean(axis=1, keepdims=True)
    sums, squares = centred.cumsum(axis=1), (centred**2).cumsum(axis=1)
    best, change = np.zeros(rows), np.full(rows, n // 2, dtype=np.int64)
    least = max(2, math.ceil(n / 5))
    for cut in range(least, n - least + 1):
        low, high = sums[:, cut - 1] / cut, (sums[:, -1] - sums[:, cut - 1]) / (n - cut)
        within = squares[:, -1] - cut * low**2 - (n - cut) * high**2
        spread = np.sqrt(np.maximum(within, 1e-18) / (n - 2))
        distance = (high - low) / spread
        better = distance > best
        best[better], change[better] = distance[better], cut
    return best, change


def ceiling_diagnostics(
    observations: Observations, measure: MeasureKey, cached: Iterable[MeasuredCell]
) -> tuple[GuestCeiling | DeviceCeiling, ...]:
    """Guests that are limited by the virtual machine or by the device, not by their path.

    The null device (`null/…`) shows the guest's speed without a disk, `host` the device's speed
    without a guest. Cells that were served from the page cache (`cached`) are not compared with
    the device.
    """
    diagnostics: list[GuestCeiling | DeviceCeiling] = []
    nulls = [cell for cell in observations.cells if cell.is_null]
    hosts = [cell for cell in observations.cells if cell.on_host]
    disks = [
        cell
        for cell in observations.cells
        if cell.path is not None and not cell.is_null and not cell.on_host
    ]
    for ceiling in nulls:
        others = [cell for cell in disks if _attachment(cell) == _attachment(ceiling)]
        near = _reaching(observations, measure, others, ceiling, GUEST_CEILING_SHARE)
        if near:
            diagnostics.append(GuestCeiling(tuple(near), str(measure), ceiling, max(near.values())))
    memory = set(cached)
    for ceiling in hosts:
        others = [
            cell
            for cell in disks
            if cell not in memory
            and cell.page_cache is not PageCache.WARM
            and _layers(cell) == _layers(ceiling)
        ]
        near = _reaching(observations, measure, others, ceiling, CEILING_SHARE)
        if near and max(near.values()) <= HIGHEST_SHARE:
            diagnostics.append(
                DeviceCeiling(tuple(near), str(measure), ceiling, max(near.values()))
            )
    return tuple(diagnostics)


def _attachment(cell: MeasuredCell) -> Attachment | None:
    return None if cell.path is None else cell.path.attachment


def _layers(cell: MeasuredCell) -> tuple[Layer, ...]:
    return () if cell.path is None else cell.path.layers


def _reaching(
    observations: Observations,
    measure: MeasureKey,
    cells: Sequence[MeasuredCell],
    ceiling: MeasuredCell,
    least: float,
) -> dict[MeasuredCell, float]:
    """Cells that reach at least `least` of the ceiling, by ratios within rounds.

    A cell better than the ceiling (above 1.05) is not limited by it and is left out.
    """
    if not cells:
        return {}
    grid = observations.grid(measure)
    places = [observations.place[cell] for cell in cells]
    base = observations.place[ceiling]
    ratios = paired_ratios(grid[places], grid[base : base + 1], measure.quantity, forecast=False)
    higher = measure.quantity.better is Better.HIGHER
    shares = {
        cell: ratio.ratio if higher else 1 / ratio.ratio
        for cell, ratio in zip(cells, ratios, strict=True)
        if ratio.ratio
    }
    return {cell: share for cell, share in shares.items() if least <= share <= 1.05}


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
    return float(median((values[last] - values[first]) / (last - first)))


def _permutations(count: int) -> list[int]:
    """How many permutations of `count` values have 0, 1, 2, … inversions."""
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
