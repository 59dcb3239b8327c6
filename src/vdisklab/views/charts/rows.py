"""Bars as rows of a page: their lengths, intervals and words."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any

from vdisklab import numbers
from vdisklab.answers.report import Bar


def page_rows(
    bars: Sequence[Bar], unit: str, *, shared: bool, longest: float = math.inf
) -> list[dict[str, Any]]:
    """The groups of bars for the page's template, with positions in percent of the width.

    Without `shared` each group has its own scale. What is longer than `longest` is cut.
    """
    top = min(_top(bars), longest)
    return [
        {
            "name": group,
            "bars": [_row(bar, unit, top if shared else _top(chosen)) for bar in chosen],
        }
        for group, chosen in (
            (name, list(rows)) for name, rows in groupby(bars, lambda bar: bar.group)
        )
    ]


def _top(bars: Iterable[Bar]) -> float:
    ends = (end for bar in bars for end in (bar.value, bar.high or 0.0, sum(bar.parts)))
    return max(ends, default=1.0) or 1.0


def _row(bar: Bar, unit: str, top: float) -> dict[str, Any]:
    interval = bar.low is not None and bar.high is not None
    unit = bar.unit or unit
    shown = numbers.RATIO.interval if unit else numbers.ratio_interval
    return {
        "label": bar.label,
        "value": numbers.scaled(bar.value, unit) if unit else numbers.ratio(bar.value),
        "interval": shown(bar.low, bar.high) if interval else "",
        "width": _percent(bar.value, top),
        "low": _percent(bar.low, top),
        "high": _percent(bar.high, top),
        "answer": bar.highlight,
        "parts": list(_parts(bar, top)),
    }


def _parts(bar: Bar, top: float) -> Iterator[dict[str, str | None]]:
    """The parts of a stacked bar, from the left."""
    reached = 0.0
    for part in bar.parts:
        yield {"x": _percent(reached, top), "width": _percent(part, top)}
        reached += part


def _percent(value: float | None, top: float) -> str | None:
    return None if value is None else f"{100 * min(value / top, 1):.2f}%"
