"""How a host changes from campaign to campaign: is the newest worse, and when did levels shift?

A level is the mean over rounds of a path's logarithms, in which more is better. The newest level is
compared with the earlier ones by Student's t for one more value (a prediction interval): the noise
is the spread between campaigns, which the earlier ones show.

Shifts are found by binary segmentation with the largest standardised CUSUM (Worsley, On the
likelihood ratio test for a shift in location of normal populations, Journal of the American
Statistical Association 74, 1979). Its distribution without a shift comes from permutations (Antoch
& Hušková, Permutation tests in change point analysis, Statistics & Probability Letters 53, 2001),
which move the campaigns of all paths together, so that the error is that of any path (Westfall &
Young, Resampling-based multiple testing, 1993). `docs/proofs.md` has the errors and the power.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from typing import Annotated

import numpy as np
import numpy.typing as npt

from vdisklab.analysis.distributions import t_isf, t_sf
from vdisklab.analysis.intervals import MIN_ROUNDS
from vdisklab.analysis.observations import Floats, MeasureKey, Observations
from vdisklab.analysis.paired_ratios import PRECISION, holm
from vdisklab.path.cell import MeasuredCell
from vdisklab.results.model import Better

ALPHA = 0.05
"""The chance of any wrong statement about a host that has not changed."""

DATED_FROM = 10
"""Fewest campaigns in which a shift is looked for."""

_EDGE = 2
"""Fewest campaigns on either side of a shift: one alone may be an outlier."""

PERMUTATIONS = 1999
_AT_ONCE = 1_000_000
"""Numbers that are permuted at once: 8 MB in each of a few arrays."""


class TrendVerdict(StrEnum):
    """What the newest campaign shows of a path, against earlier ones."""

    WORSE = "worse"
    BETTER = "better"
    NONE_SHOWN = "no-change-shown"
    TOO_FEW = "too-few-campaigns"  # fewer than three earlier ones
    NOT_MEASURED = "not-measured"  # in the newest campaign


@dataclass(frozen=True, slots=True)
class LevelChange:
    """A ratio of levels, above 1 if the later one is better; None where it is unknown."""

    ratio: Annotated[float | None, "later / earlier level: 0.9 is 10 % worse"] = None
    low: Annotated[float | None, "95 % interval of the ratio, for this one alone"] = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class Newest:
    """The newest level of one series against earlier ones."""

    verdict: TrendVerdict
    change: LevelChange
    p: Annotated[float | None, "for this one alone"]
    p_adjusted: Annotated[
        float | None,
        "for all paths (Holm), and doubled if shifts were looked for; this one decides",
    ]
    spread: Annotated[float | None, "standard deviation between the earlier levels: 0.05 is 5 %"]
    earlier: Annotated[tuple[int, ...], "places of the campaigns that it is compared with"]


@dataclass(frozen=True, slots=True)
class LevelShift:
    """A lasting change of one series: `at` is the place of the first campaign after it."""

    series: int
    at: int
    change: LevelChange
    p: float


@dataclass(frozen=True, slots=True, eq=False)
class CampaignLevels:
    """Levels as series x campaigns, with their squared errors within a campaign; NaN is missing.

    The first series is all paths together, if there are several: the mean of those that every
    campaign measured, which `whole` counts.
    """

    cells: tuple[MeasuredCell | None, ...]
    level: Floats
    error: Floats
    whole: int


def levels(
    observations: Observations, campaigns: Sequence[str], measures: Sequence[MeasureKey]
) -> CampaignLevels:
    """The level of each cell in each campaign: the mean of the measures that it has at all.

    A round counts if it has all of these.
    """
    signs = [1 if key.quantity.better is Better.HIGHER else -1 for key in measures]
    logs = np.stack(
        [sign * observations.logs(key) for sign, key in zip(signs, measures, strict=True)]
    )
    has = np.asarray(np.isfinite(logs).any(axis=2))
    counted = np.where(has[:, :, None], logs, 0.0).sum(axis=0)
    rounds = counted / np.where(has.any(axis=0), has.sum(axis=0), np.nan)[:, None]
    cells = np.flatnonzero(has.any(axis=0))
    columns = [
        [at for at, round in enumerate(observations.rounds) if round.campaign == campaign]
        for campaign in campaigns
    ]
    grids = [rounds[cells][:, column] for column in columns]
    level = np.column_stack([_means(grid) for grid in grids])
    error = np.column_stack([_errors(grid) for grid in grids])
    names: tuple[MeasuredCell | None, ...] = tuple(observations.cells[at] for at in cells.tolist())
    whole = np.isfinite(level).all(axis=1)
    if whole.sum() > 1:
        together = [grid[whole].mean(axis=0, keepdims=True) for grid in grids]
        level = np.vstack([level[whole].mean(axis=0), level])
        error = np.vstack([np.column_stack([_errors(grid) for grid in together]), error])
        names = (None, *names)
    return CampaignLevels(names, level, error, int(whole.sum()))


def _means(grid: Floats) -> Floats:
    known = np.isfinite(grid)
    total = np.where(known, grid, 0.0).sum(axis=1)
    return np.asarray(total / np.where(known.any(axis=1), known.sum(axis=1), np.nan))


def _errors(grid: Floats) -> Floats:
    """The squared standard errors of `_means`; NaN with one value."""
    count = np.isfinite(grid).sum(axis=1)
    squares = np.where(np.isfinite(grid), grid - _means(grid)[:, None], 0.0) ** 2
    return np.asarray(squares.sum(axis=1) / np.where(count > 1, count * (count - 1), np.nan))


def newest_changes(
    found: CampaignLevels, shifts: Sequence[LevelShift], *, without: frozenset[int] = frozenset()
) -> tuple[Newest, ...]:
    """Each series' newest level against the earlier ones since its last shift.

    If fewer than three are known since then, those before that shift count. `without` are places
    that are not compared with. The error is `ALPHA` for all series, half of it if shifts were
    looked for, because they have the other half.
    """
    last = found.level.shape[1] - 1
    shares = 2 if last + 1 >= DATED_FROM else 1
    references = []
    for series in range(len(found.level)):
        cuts = [0, *(one.at for one in shifts if one.series == series), last]
        known = [at for at in range(last) if at not in without and _known(found, series, at)]
        parts = [tuple(at for at in known if low <= at < high) for low, high in pairwise(cuts)]
        enough = [part for part in parts if len(part) >= MIN_ROUNDS]
        references.append((enough or [tuple(known)])[-1])
    tests = [_test(found, series, last, part) for series, part in enumerate(references)]
    judged = [at for at, (_, p, _) in enumerate(tests) if p is not None]
    raised = holm(np.array([tests[at][1] for at in judged], np.float64))
    adjusted = {at: min(1.0, shares * float(p)) for at, p in zip(judged, raised, strict=True)}
    return tuple(
        Newest(
            _verdict(found, series, last, change, adjusted.get(series)),
            change, p, adjusted.get(series), spread, references[series],
        )
        for series, (change, p, spread) in enumerate(tests)
    )  # fmt: skip


def _known(found: CampaignLevels, series: int, at: int) -> bool:
    return bool(np.isfinite(found.level[series, at]))


def _verdict(
    found: CampaignLevels, series: int, last: int, change: LevelChange, p: float | None
) -> TrendVerdict:
    if not _known(found, series, last):
        return TrendVerdict.NOT_MEASURED
    if p is None or change.ratio is None:
        return TrendVerdict.TOO_FEW
    if p > ALPHA:
        return TrendVerdict.NONE_SHOWN
    return TrendVerdict.WORSE if change.ratio < 1 else TrendVerdict.BETTER


def _test(
    found: CampaignLevels, series: int, last: int, earlier: Sequence[int]
) -> tuple[LevelChange, float | None, float | None]:
    """The change, its p-value, and the spread between the earlier levels.

    A newest campaign with larger error within than the earlier ones, because it has fewer rounds,
    is noisier by the difference.
    """
    if not earlier or not _known(found, series, last):
        return LevelChange(), None, None
    known = found.level[series, list(earlier)]
    difference, count = float(found.level[series, last] - known.mean()), len(known)
    if count < MIN_ROUNDS:
        return LevelChange(math.exp(difference)), None, None
    spread = max(float(known.std(ddof=1)), PRECISION)
    inside = found.error[series, list(earlier)]
    usual = float(inside[np.isfinite(inside)].mean()) if np.isfinite(inside).any() else 0.0
    more = float(found.error[series, last]) - usual
    error = math.sqrt(spread**2 * (1 + 1 / count) + (more if more > 0 else 0.0))
    half = float(t_isf(0.025, count - 1)) * error
    p = min(1.0, 2 * float(t_sf(abs(difference) / error, count - 1)))
    return _change(difference, half), p, spread


def _change(difference: float, half: float) -> LevelChange:
    limit = 700.0  # of math.exp
    low, high = max(difference - half, -limit), min(difference + half, limit)
    return LevelChange(math.exp(difference), math.exp(low), math.exp(high))


def dated(found: CampaignLevels) -> npt.NDArray[np.bool_]:
    """The series in which shifts are looked for: those that every campaign measured."""
    enough = found.level.shape[1] >= DATED_FROM
    return np.asarray(np.isfinite(found.level).all(axis=1) & enough)


def level_shifts(found: CampaignLevels, alpha: float = ALPHA / 2) -> tuple[LevelShift, ...]:
    """The shifts of all series, by series and time; none with fewer than ten campaigns.

    Without any shift the chance to find one is `alpha`. Parts on both sides of a shift are searched
    in turn if they have ten campaigns.
    """
    rows = np.flatnonzero(dated(found))
    rng = np.random.default_rng(0)
    cuts = sorted(_cuts(found.level, rows, (0, found.level.shape[1]), alpha, rng))
    shifts = []
    for series in dict.fromkeys(series for series, _, _ in cuts):
        own = [(at, p) for row, at, p in cuts if row == series]
        ends = [0, *(at for at, _ in own), found.level.shape[1]]
        parts = [found.level[series, a:b] for a, b in pairwise(ends)]
        freedom = found.level.shape[1] - len(parts)
        variance = sum(float(((part - part.mean()) ** 2).sum()) for part in parts) / freedom
        for (at, p), before, after in zip(own, parts, parts[1:], strict=False):
            error = math.sqrt(variance * (1 / len(before) + 1 / len(after)))
            half = float(t_isf(0.025, freedom)) * max(error, PRECISION)
            change = _change(float(after.mean() - before.mean()), half)
            shifts.append(LevelShift(series, at, change, p))
    return tuple(shifts)


def _cuts(
    level: Floats,
    rows: npt.NDArray[np.intp],
    span: tuple[int, int],
    alpha: float,
    rng: np.random.Generator,
) -> Iterator[tuple[int, int, float]]:
    """Series, place and p-value of each shift in a span of campaigns."""
    first, end = span
    if end - first < DATED_FROM or not len(rows):
        return
    values = level[rows, first:end]
    own, places = _largest(values)
    beyond = np.zeros(len(rows))
    for part in range(0, PERMUTATIONS, many := max(1, _AT_ONCE // values.size)):
        orders = rng.permuted(
            np.tile(np.arange(end - first), (min(many, PERMUTATIONS - part), 1)), axis=1
        )
        moved, _ = _largest(values[:, orders])
        beyond += (moved.max(axis=0) >= own[:, None] - 1e-12).sum(axis=1)
    p = (1 + beyond) / (1 + PERMUTATIONS)
    found = p <= alpha
    for at in np.unique(places[found]).tolist():
        group = rows[found & (places == at)]
        for series, chance in zip(group.tolist(), p[found & (places == at)].tolist(), strict=True):
            yield series, first + at, chance
        yield from _cuts(level, group, (first, first + at), alpha, rng)
        yield from _cuts(level, group, (first + at, end), alpha, rng)


def _largest(values: Floats) -> tuple[Floats, npt.NDArray[np.intp]]:
    """The share of each row's variance that its best split explains, and the place of the split.

    The share rises with the t statistic of the two parts, and is 0 for a constant row.
    """
    count = values.shape[-1]
    apart = values - values.mean(axis=-1, keepdims=True)
    places = np.arange(_EDGE, count - _EDGE + 1)
    explained = np.cumsum(apart, axis=-1)[..., places - 1] ** 2
    explained *= count / (places * (count - places))
    whole = np.maximum((apart**2).sum(axis=-1), count * PRECISION**2)
    return explained.max(axis=-1) / whole, places[explained.argmax(axis=-1)]
