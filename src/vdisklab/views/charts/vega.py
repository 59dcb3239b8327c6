"""Vega-Lite charts as JSON, rendered by vl-convert (an extra) without a network.

A chart in a page takes its colours from the page's style sheet, so one drawing serves the light and
the dark scheme: it is rendered in colours that nothing else uses, which then become CSS variables.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any

from vdisklab import numbers
from vdisklab.answers.report import Bar, ReportAnswer
from vdisklab.sanitise import sanitise_line
from vdisklab.views.charts.svg import Palette, Spec, converter

WIDTH = 560
SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"

Encoding = Mapping[str, Any]


def nominal(field: str, **more: object) -> Spec:
    """A channel that shows names."""
    return {"field": field, "type": "nominal", **more}


def quantitative(field: str, **more: object) -> Spec:
    """A channel that shows numbers."""
    return {"field": field, "type": "quantitative", **more}


def labels(field: str, *, sort: Sequence[str] | None = None, **more: object) -> Spec:
    """A vertical axis of names, without lines."""
    axis = {"labelLimit": 420, "labelPadding": 6, "domain": False, "ticks": False, "grid": False}
    return nominal(field, sort=sort, title=None, axis=axis, **more)


def line_styles(names: Sequence[str], palette: Palette) -> Spec:
    """The channels that tell up to five lines apart by colour and dashes, with a legend below."""
    dashes = [[1, 0], [6, 3], [2, 2], [8, 3, 2, 3], [12, 4]][: len(names)]
    colours = [palette.highlight, palette.bar, palette.muted, palette.ink, palette.bar]
    legend = {"title": None, "orient": "bottom", "columns": 1, "labelLimit": 500}
    return {
        "color": nominal("label", scale={"domain": names, "range": colours}, legend=legend),
        "strokeDash": nominal("label", scale={"domain": names, "range": dashes}, legend=None),
    }


def layer(mark: str, style: Encoding, *encodings: Encoding, only: str | None = None) -> Spec:
    """One layer: marks in a style, of the values for which the expression `only` is true."""
    channels = {name: channel for encoding in encodings for name, channel in encoding.items()}
    drawn: Spec = {"mark": {"type": mark, **style}, "encoding": channels}
    return drawn if only is None else {**drawn, "transform": [{"filter": only}]}


AS_GIVEN: Encoding = nominal("colour", scale=None)
"""The channel of a colour that the values name."""

INTERVAL: Encoding = {"x": quantitative("low"), "x2": {"field": "high"}}
"""The channels of a line for an interval."""


def with_caveat(report: ReportAnswer) -> str:
    """The warning as the end of a chart's description; empty if no caveat applies."""
    warning = report.caveats.warning
    return "" if warning is None else f" {warning}."


def faceted(spec: Spec, field: str, palette: Palette, spacing: int, **independent: bool) -> Spec:
    """The chart once for each name in `field`, one below the other, with the name above it.

    Each keyword is an axis, and True if each part has its own scale.
    """
    header = {
        "labelAngle": 0, "labelAlign": "left", "labelOrient": "top", "labelAnchor": "start",
        "labelFontWeight": "bold", "labelColor": palette.ink,
    }  # fmt: skip
    scales = {axis: "independent" if own else "shared" for axis, own in independent.items()}
    return {
        "facet": {"row": nominal(field, sort=None, title=None, header=header)},
        "spec": spec,
        "spacing": spacing,
        **({"resolve": {"scale": scales}} if scales else {}),
    }


def finished(
    chart: Spec, values: Sequence[Encoding], palette: Palette, caution: str | None
) -> Spec:
    """The whole specification, with the values, the palette and the caution."""
    text = {"labelColor": palette.ink, "titleColor": palette.ink, "labelFont": "sans-serif",
            "titleFont": "sans-serif", "titleFontWeight": "normal"}  # fmt: skip
    title = {"text": caution, "anchor": "start", "fontSize": 11, "fontWeight": "normal",
             "color": palette.highlight}  # fmt: skip
    return {
        "$schema": SCHEMA,
        "config": {
            "view": {"continuousWidth": 300, "continuousHeight": 300, "stroke": None},
            "axis": {
                "gridColor": palette.grid,
                "domainColor": palette.grid,
                "tickColor": palette.grid,
                **text,
            },
            "legend": {"labelColor": palette.ink, "titleColor": palette.ink},
            "background": palette.paper or "transparent",
            "font": "sans-serif",
            # The reader's font may be wider than the one used to measure text: leave room.
            "padding": {"left": 44, "right": 16, "top": 4, "bottom": 4},
        },
        "data": {"values": list(values)},
        **({"title": title} if caution else {}),
        **chart,
    }


def to_svg(spec: Spec) -> str:
    """The chart as an SVG document."""
    drawn: str = converter().vegalite_to_svg(harmless(spec))
    return drawn


def to_png(spec: Spec) -> bytes:
    """The chart as a PNG image, twice as large: that suits high-resolution screens."""
    drawn: bytes = converter().vegalite_to_png(harmless(spec), scale=2.0)
    return drawn


def harmless(value: Any) -> Any:  # noqa: ANN401 - any JSON value
    """The specification with control characters made visible: XML cannot hold them.

    vl-convert 1.9 aborts the whole process when a label has one.
    """
    if isinstance(value, str):
        return sanitise_line(value)
    if isinstance(value, dict):
        return {key: harmless(item) for key, item in value.items()}
    return [harmless(item) for item in value] if isinstance(value, list) else value


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
    return None if value is None else f"{100 * min(value / top, 1):.2f}%"
