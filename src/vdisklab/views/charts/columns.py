"""Stacked columns as a drawing for a page: rectangles in percent, which fit any width."""

from __future__ import annotations

from collections.abc import Iterator

from vdisklab.value import Value
from vdisklab.views.layout import StackedColumns

_MOST_LABELS = 4
_FILLED = 0.86
"""The share of a column's place that is filled."""


class Rectangle(Value):
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


class ColumnLabel(Value):
    """A label below a column, at its left edge; that of the last column ends at its right edge."""

    text: str
    x: str
    anchor: str


def shown_labels(figure: StackedColumns) -> Iterator[ColumnLabel]:
    """The labels that have room below: of many the first, the last, and some between."""
    count = len(figure.labels)
    last = count - 1
    shown = min(count, _MOST_LABELS)
    for number in range(shown):
        place = number if shown == count else last * number // (shown - 1)
        if number and place == last:
            yield ColumnLabel(figure.labels[place], f"{100 * (last + _FILLED) / count:.3f}%", "end")
        else:
            yield ColumnLabel(figure.labels[place], f"{100 * place / count:.3f}%", "start")
