"""Bandwidth second by second: the worst one, and the longest time in which nothing came."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from vdisklab.results.model import Direction, Sample, Series


@dataclass(frozen=True, slots=True)
class Moved:
    """Bytes that were completed between two moments, in seconds from the start."""

    begin: float
    end: float
    size: float


def series_of(direction: Direction, moved: Sequence[Moved], seconds: float) -> Series | None:
    """Bytes per second in each whole second of a run of `seconds`; None when there is none."""
    # A run of 5 seconds is over after 4.999 by the program's own clock.
    whole = math.floor(seconds + 0.005)
    if whole < 1:
        return None
    values = [0.0] * whole
    for piece in moved:
        _spread(values, piece)
    return Series("bandwidth", direction, 1.0, tuple(values))


def _spread(values: list[float], piece: Moved) -> None:
    width = piece.end - piece.begin
    if width <= 0:
        return
    for second in range(int(piece.begin), min(len(values), math.ceil(piece.end))):
        shared = min(piece.end, second + 1) - max(piece.begin, second)
        values[second] += piece.size * shared / width


def longest_gap(moved: Iterable[Moved], seconds: float) -> float:
    """The longest time within a run of `seconds` that no piece with bytes in it covers."""
    longest, until = 0.0, 0.0
    for piece in sorted(moved, key=lambda each: each.begin):
        if piece.size > 0:
            longest = max(longest, piece.begin - until)
            until = max(until, piece.end)
    return max(longest, seconds - until)


def worst_second(series: Series) -> Sample:
    """The smallest of the series' values."""
    return Sample("worst_second", series.direction, min(series.values))
