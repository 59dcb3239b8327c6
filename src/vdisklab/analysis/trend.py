"""How a host changes from campaign to campaign: is the newest worse, and when did levels change?

A level is the mean over rounds of a path's logarithms, in which more is better. The newest level is
compared with the earlier ones by Student's t for one more value (a prediction interval): the noise
is the spread between campaigns, which the earlier ones show. `level_changes` dates lasting changes.
Errors are shared out for a look after each of 24 campaigns. `docs/proofs.md` has the errors and the
power.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import StrEnum
from itertools import pairwise
from typing import Annotated, Self

import numpy as np
import numpy.typing as npt

from vdisklab.analysis.distributions import t_isf, t_sf
from vdisklab.analysis.intervals import MIN_ROUNDS
from vdisklab.analysis.level_changes import (
    DATED_FROM,
    DatedChange,
    LevelChange,
    level_changes,
)
from vdisklab.analysis.observations import Floats, MeasureKey, Observations
from vdisklab.analysis.paired_ratios import PRECISION
from vdisklab.path.cell import MeasuredCell
from vdisklab.results.model import Better
from vdisklab.value import Value, replace

ALPHA = 0.05
"""The chance of any wrong statement about a host that has not changed, in LOOKS campaigns."""

LOOKS = 24
"""Two years of monthly looks."""

_LOOK = ALPHA / LOOKS
"""The error of one look at the newest campaign. Half of it says "worse", which is 2.5 % of ALPHA;
dated changes take the rest."""

RECENT = 12
"""A dated loss alarms until so many campaigns came after it."""


class TrendVerdict(StrEnum):
    """What the newest campaign shows of a path, against earlier ones."""

    WORSE = "worse"
    BETTER = "better"
    NONE_SHOWN = "no-change-shown"
    TOO_FEW = "too-few-campaigns"  # fewer than three earlier ones
    NOT_MEASURED = "not-measured"  # in the newest campaign

    @classmethod
    def of(cls, ratio: float) -> Self:
        """Of a change that is shown."""
        return cls.WORSE if ratio < 1 else cls.BETTER


class Newest(Value):
    """The newest level of one series against earlier ones."""

    verdict: TrendVerdict
    change: LevelChange
    p: Annotated[float | None, "for this one alone"]
    p_adjusted: Annotated[
        float | None,
        "for 24 monthly looks, and all paths together or each alone (Bonferroni); this one decides",
    ]
    spread: Annotated[float | None, "standard deviation between the earlier levels: 0.05 is 5 %"]
    earlier: Annotated[tuple[int, ...], "places of the campaigns that it is compared with"]

    @property
    def least_loss(self) -> float | None:
        """The smallest loss that would be shown at this spread: 0.05 is 5 %; None without one."""
        ratio, low = self.change.ratio, self.change.low
        return None if ratio is None or low is None else 1 - low / ratio


class SeriesChange(Value):
    """A dated change of one series."""

    series: int
    dated: DatedChange


class CampaignLevels(Value, eq=False):
    """Levels as series x campaigns, with their squared errors within a campaign; NaN is missing.

    The first series is all paths together, if there are several: what the campaigns add to the
    levels of those paths that more than one campaign measured, which `together` counts.
    """

    cells: tuple[MeasuredCell | None, ...]
    level: Floats
    error: Floats
    together: int


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
        [column for column, round in enumerate(observations.rounds) if round.campaign == campaign]
        for campaign in campaigns
    ]
    grids = [rounds[cells][:, column] for column in columns]
    level = np.column_stack([_means(grid) for grid in grids])
    error = np.column_stack([_errors(grid) for grid in grids])
    names: tuple[MeasuredCell | None, ...] = tuple(
        observations.cells[row] for row in cells.tolist()
    )
    several = np.flatnonzero(np.isfinite(level).sum(axis=1) > 1)
    if len(several) > 1:
        inside = [grid[several] - level[several, number, None] for number, grid in enumerate(grids)]
        together = [_means(deviations.T)[None] for deviations in inside]
        level = np.vstack([_campaign_effects(level[several]), level])
        error = np.vstack(
            [np.column_stack([_errors(deviations) for deviations in together]), error]
        )
        names = (None, *names)
    return CampaignLevels(names, level, error, len(several))


def _campaign_effects(level: Floats) -> Floats:
    """What each campaign adds to the levels of its paths, by least squares, as a mean level.

    Paths may be missing in some campaigns, or new. NaN for a campaign that has no path in common
    with the newest, not even by way of others.
    """
    measured = np.isfinite(level)
    if measured.all():
        return np.asarray(level.mean(axis=0))
    linked: npt.NDArray[np.bool_] = np.zeros(level.shape[1], dtype=np.bool_)
    linked[np.flatnonzero(measured.any(axis=0))[-1]] = True
    while True:
        paths = measured[:, linked].any(axis=1)
        wider = np.asarray(measured[paths].any(axis=0))
        if np.array_equal(wider, linked):
            break
        linked = wider
    path, campaign = np.nonzero(measured & linked)
    design = np.zeros((len(path), sum(level.shape)))
    design[np.arange(len(path)), path] = 1
    design[np.arange(len(path)), len(level) + campaign] = 1
    effects = np.linalg.lstsq(design, level[path, campaign], rcond=None)[0]
    answer: Floats = effects[len(level) :] + effects[: len(level)][paths].mean()
    return np.where(linked, answer, np.nan)


def _means(grid: Floats) -> Floats:
    measured = np.isfinite(grid)
    total = np.where(measured, grid, 0.0).sum(axis=1)
    return np.asarray(total / np.where(measured.any(axis=1), measured.sum(axis=1), np.nan))


def _errors(grid: Floats) -> Floats:
    """The squared standard errors of `_means`; NaN with one value."""
    count = np.isfinite(grid).sum(axis=1)
    squares = np.where(np.isfinite(grid), grid - _means(grid)[:, None], 0.0) ** 2
    return np.asarray(squares.sum(axis=1) / np.where(count > 1, count * (count - 1), np.nan))


def newest_changes(
    found: CampaignLevels,
    changes: Sequence[SeriesChange],
    *,
    without: frozenset[int] = frozenset(),
) -> tuple[Newest, ...]:
    """Each series' newest level against the earlier ones since its last dated step.

    If fewer than three are known since then, those before that step count. Levels that move by a
    dated line are compared as far as the line does not explain them. `without` are places that are
    not compared with. Intervals hold for all series and LOOKS together, as the verdicts.
    """
    last = found.level.shape[1] - 1
    found = replace(found, level=_without_lines(found.level, changes))
    references = []
    for series in range(len(found.level)):
        steps = [
            change.dated.start
            for change in changes
            if change.series == series and not change.dated.each
        ]
        cuts = [0, *(place for place in steps if place < last), last]
        measured = [
            place
            for place in range(last)
            if place not in without and _is_measured(found, series, place)
        ]
        parts = [
            tuple(place for place in measured if low <= place < high)
            for low, high in pairwise(cuts)
        ]
        enough = [part for part in parts if len(part) >= MIN_ROUNDS]
        references.append((enough or [tuple(measured)])[-1])
    tests = [
        _test(found, series, last, part, _tests(found, series))
        for series, part in enumerate(references)
    ]
    adjusted = [
        None if p is None else min(1.0, LOOKS * _tests(found, series) * p)
        for series, (_, p, _) in enumerate(tests)
    ]
    return tuple(
        Newest(
            _verdict(found, series, last, change, adjusted[series]),
            change, p, adjusted[series], spread, references[series],
        )
        for series, (change, p, spread) in enumerate(tests)
    )  # fmt: skip


def _without_lines(level: Floats, changes: Sequence[SeriesChange]) -> Floats:
    """Levels less the lines that were dated."""
    answer, places = level.copy(), np.arange(level.shape[1])
    for change in changes:
        if change.dated.each is not None:
            moved = np.clip(places, change.dated.start, change.dated.end) - change.dated.start
            answer[change.series] -= math.log(change.dated.each) * moved
    return answer


def _tests(found: CampaignLevels, series: int) -> int:
    """By how much an error is divided: half is of all paths together, half of the others."""
    together = found.cells[:1] == (None,)
    if not together:
        return len(found.cells)
    return 2 * (len(found.cells) - 1) if series else 2


def _is_measured(found: CampaignLevels, series: int, place: int) -> bool:
    return bool(np.isfinite(found.level[series, place]))


def _verdict(
    found: CampaignLevels, series: int, last: int, change: LevelChange, p: float | None
) -> TrendVerdict:
    if not _is_measured(found, series, last):
        return TrendVerdict.NOT_MEASURED
    if p is None or change.ratio is None:
        return TrendVerdict.TOO_FEW
    if p > ALPHA:
        return TrendVerdict.NONE_SHOWN
    return TrendVerdict.of(change.ratio)


def _test(
    found: CampaignLevels, series: int, last: int, earlier: Sequence[int], tests: int
) -> tuple[LevelChange, float | None, float | None]:
    """The change, its p-value, and the spread between the earlier levels.

    A newest campaign with larger error within than the earlier ones, because it has fewer rounds,
    is noisier by the difference.
    """
    if not earlier or not _is_measured(found, series, last):
        return LevelChange(), None, None
    levels = found.level[series, list(earlier)]
    difference, count = float(found.level[series, last] - levels.mean()), len(levels)
    if count < MIN_ROUNDS:
        return LevelChange(math.exp(difference)), None, None
    spread = max(float(levels.std(ddof=1)), PRECISION)
    inside = found.error[series, list(earlier)]
    usual = float(inside[np.isfinite(inside)].mean()) if np.isfinite(inside).any() else 0.0
    more = float(found.error[series, last]) - usual
    error = math.sqrt(spread**2 * (1 + 1 / count) + (more if more > 0 else 0.0))
    half = float(t_isf(_LOOK / 2 / tests, count - 1)) * error
    p = min(1.0, 2 * float(t_sf(abs(difference) / error, count - 1)))
    return LevelChange.of(difference, half), p, spread


MOST_EARLIER = 60
"""Five years of monthly campaigns: more than anyone waits for."""

YEAR = 12
"""Campaigns of a year."""


def loss_shown(
    found: CampaignLevels, series: int, spread: float | None, earlier: int
) -> float | None:
    """The smallest loss (0.05 is 5 %) of a series that `earlier` campaigns would show, if all vary
    as these do; None without their `spread`.

    By the interval of `_test`, of a newest campaign with the usual rounds.
    """
    if spread is None:
        return None
    share = _LOOK / 2 / _tests(found, series)
    return -math.expm1(-float(t_isf(share, earlier - 1)) * spread * math.sqrt(1 + 1 / earlier))


def earlier_needed(
    found: CampaignLevels, series: int, spread: float | None, loss: float
) -> int | None:
    """How many earlier campaigns would show a loss of a series; None if MOST_EARLIER would not."""
    for count in range(MIN_ROUNDS, MOST_EARLIER + 1):
        least = loss_shown(found, series, spread, count)
        if least is not None and least <= loss:
            return count
    return None


def series_changes(found: CampaignLevels, matters: float = 0.0) -> tuple[SeriesChange, ...]:
    """The dated changes of all series, by series and time.

    A change of less than `matters`, a share, needs more evidence. So does a single path: each
    series but that of all paths together is one of many that are searched.
    """
    alone, least = doubt(found), abs(math.log1p(-matters))
    return tuple(
        SeriesChange(series, change)
        for series, cell in enumerate(found.cells)
        for change in level_changes(
            found.level[series], matters=least, doubt=1.0 if cell is None else alone
        )
    )


def doubt(found: CampaignLevels) -> int:
    """How many times as high the odds of a single path's change must be."""
    together = found.cells[:1] == (None,)
    return 2 * (len(found.cells) - 1) if together else max(1, len(found.cells))


def dated(found: CampaignLevels) -> npt.NDArray[np.bool_]:
    """The series in which changes are looked for: those that enough campaigns measured."""
    return np.asarray(np.isfinite(found.level).sum(axis=1) >= DATED_FROM)


def lasting_change(changes: Sequence[SeriesChange], series: int, campaigns: int) -> float | None:
    """The ratio of the level now to that before the RECENT dated changes; None without any."""
    recent = [
        change.dated
        for change in changes
        if change.series == series
        and (change.dated.end if change.dated.each else change.dated.start) > campaigns - 1 - RECENT
    ]
    if not recent:
        return None
    return math.prod(dated.change.ratio for dated in recent if dated.change.ratio is not None)
