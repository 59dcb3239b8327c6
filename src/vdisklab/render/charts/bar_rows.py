"""Bars as rows of a page: text that wraps and keeps its size, and bars that fill the width."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from vdisklab.render import numbers


@dataclass(frozen=True, slots=True)
class Bar:
    """One value with its interval, in the unit that the chart's axis names.

    `unit` is the unit of its group, if the groups of a chart show different quantities.
    """

    label: str
    value: float
    low: float | None
    high: float | None
    group: str = ""
    highlight: bool = False
    unit: str = ""


def page_rows(bars: Sequence[Bar], unit: str, *, shared: bool) -> list[dict[str, Any]]:
    """The groups of bars for the page's template, with positions in percent of the width.

    Without `shared` each group has its own scale.
    """
    top = _top(bars)
    return [
        {
            "name": group,
            "bars": [_row(bar, unit, top if shared else _top(chosen)) for bar in chosen],
        }
        for group, chosen in ((name, list(rows)) for name, rows in groupby(bars, _group))
    ]


def _group(bar: Bar) -> str:
    return bar.group


def _top(bars: Iterable[Bar]) -> float:
    return max((end for bar in bars for end in (bar.value, bar.high or 0.0)), default=1.0) or 1.0


def _row(bar: Bar, unit: str, top: float) -> dict[str, Any]:
    interval = bar.low is not None and bar.high is not None
    unit = bar.unit or unit
    return {
        "label": bar.label,
        "value": f"{numbers.digits(bar.value)} {unit}" if unit else numbers.ratio(bar.value),
        "interval": f"{numbers.ratio_interval(bar.low, bar.high)}" if interval else "",
        "width": _percent(bar.value, top),
        "low": _percent(bar.low, top),
        "high": _percent(bar.high, top),
        "answer": bar.highlight,
    }


def _percent(value: float | None, top: float) -> str | None:
    return None if value is None else f"{100 * value / top:.2f}%"
