"""Losses that an earlier look at the newest campaign showed, and that have not gone since.

The look after a loss compares its campaign with earlier ones of which one is slow itself: the
spread is larger, and nothing may be shown until the loss is dated some campaigns later. So the
looks of the last campaigns are repeated here. A loss that alarmed then stands until a campaign is
more than half of the way back. As only an earlier alarm can stand, the chance of any false alarm in
LOOKS campaigns stays as it is.
"""

from __future__ import annotations

import math

import numpy as np

from vdisklab.analysis.intervals import MIN_ROUNDS
from vdisklab.analysis.level_changes import ChangeKind
from vdisklab.analysis.observations import Floats
from vdisklab.analysis.trend import (
    RECENT,
    CampaignLevels,
    Newest,
    SeriesChange,
    TrendVerdict,
    lasting_change,
    newest_changes,
    series_changes,
)
from vdisklab.value import Value, replace


class StandingLoss(Value):
    """A loss of one series: the campaign that first showed it, and the level since / before."""

    start: int
    ratio: float


class _Open(Value):
    start: int
    before: tuple[int, ...]


def standing_losses(
    found: CampaignLevels, matters: float, *, without: frozenset[int] = frozenset()
) -> tuple[StandingLoss | None, ...]:
    """For each series the loss that stands in the newest campaign; None without one.

    A look at a campaign of `without` shows no loss: it is repeated, and not compared with.
    """
    last = found.level.shape[1] - 1
    opened: list[_Open | None] = [None] * len(found.level)
    for place in range(max(MIN_ROUNDS, last - RECENT + 1), last):
        if place in without:
            continue
        seen = replace(found, level=found.level[:, : place + 1], error=found.error[:, : place + 1])
        changes = series_changes(seen, matters)
        newest = newest_changes(seen, changes, without=without)
        for series, row in enumerate(newest):
            still = _still(opened[series], found.level[series], place)
            opened[series] = still or _shown(seen, series, row, changes, matters)
    standing = (_still(loss, level, last) for loss, level in zip(opened, found.level, strict=True))
    return tuple(
        None if loss is None or loss.start <= last - RECENT else _sized(loss, level)
        for loss, level in zip(standing, found.level, strict=True)
    )


def _still(loss: _Open | None, level: Floats, place: int) -> _Open | None:
    """The loss, unless the campaign at a place is more than half of the way back."""
    if loss is None or place <= loss.start or not math.isfinite(level[place]):
        return loss
    since = float(np.nanmean(level[loss.start : place]))
    before = float(level[list(loss.before)].mean())
    return loss if level[place] < (since + before) / 2 else None


def _shown(
    seen: CampaignLevels,
    series: int,
    row: Newest,
    changes: tuple[SeriesChange, ...],
    matters: float,
) -> _Open | None:
    """The loss that the newest of these campaigns alarms of, suddenly or by a dated step."""
    count, ratio = seen.level.shape[1], row.change.ratio
    lasting = lasting_change(changes, series, count)
    steps = [change.dated for change in changes if change.series == series]
    if lasting is not None and lasting < 1 - matters and steps[-1].kind is ChangeKind.STEP:
        first = steps[-2].start if len(steps) > 1 else 0
        measured = np.flatnonzero(np.isfinite(seen.level[series, : steps[-1].start]))
        before = tuple(place for place in measured.tolist() if place >= first)
        if before and (steps[-1].change.ratio or 1.0) < 1:
            return _Open(steps[-1].start, before)
    if row.verdict is TrendVerdict.WORSE and ratio is not None and ratio < 1 - matters:
        return _Open(count - 1, row.earlier)
    return None


def _sized(loss: _Open, level: Floats) -> StandingLoss | None:
    """Its size; None if all in all nothing is lost."""
    since, before = float(np.nanmean(level[loss.start :])), level[list(loss.before)].mean()
    return StandingLoss(loss.start, math.exp(since - before)) if since < before else None
