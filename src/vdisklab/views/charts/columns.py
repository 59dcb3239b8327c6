"""Stacked columns as a drawing for a page: rectangles in percent, which fit any width."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from vdisklab.views.layout import StackedColumns

_MOST_LABELS = 4
_FILLED = 0.86
"""The share of a column's place that is filled."""


@dataclass(frozen=True, slots=True)
class Rectangle:
    """A part of a column, in percent of the drawing; `part` is its place among the names."""

    part: int
    x: str
    y: str
    width: str
    height: str


def rectangles(figure: StackedColumns) -> Iterator[Rectangle]:
    """The parts that are not empty, the first name's lowest."""
    top = max(map(sum, figure.values), default=0.0)
    place = 100 / max(len(figure.values), 1)
    for number, parts in enumerate(figure.values):
        reached = 0.0
        for part, value in enumerate(parts):
            if value > 0:
                reached += value
                yield Rectangle(
                    part,
                    f"{number * place:.3f}%",
                    f"{100 - 100 * reached / top:.2f}%",
                    f"{place * _FILLED:.3f}%",
                    f"{100 * value / top:.2f}%",
                )


def shown_labels(figure: StackedColumns) -> list[str]:
    """The labels that have room below: of many the first, the last, and some between."""
    last = len(figure.labels) - 1
    if last < _MOST_LABELS:
        return list(figure.labels)
    return [figure.labels[last * place // (_MOST_LABELS - 1)] for place in range(_MOST_LABELS)]
