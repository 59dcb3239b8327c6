"""Vega-Lite charts, made by Altair and rendered by vl-convert without a network.

A chart in a page takes its colours from the page's style sheet, so one drawing serves the light and
the dark scheme: it is rendered in colours that nothing else uses, which then become CSS variables.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import altair as alt
import vl_convert

from vdisklab.render.charts.bar_rows import Bar
from vdisklab.render.charts.svg import Palette, Spec
from vdisklab.render.tables.layout import sanitise_line

WIDTH = 560


def labels() -> alt.Axis:
    """An axis of names, without lines."""
    return alt.Axis(labelLimit=420, labelPadding=6, domain=False, ticks=False, grid=False)


def finished(chart: Any, palette: Palette, caution: str | None) -> Spec:  # noqa: ANN401
    """The specification as JSON, with the palette and the caution applied."""
    # The reader's font may be wider than the one used to measure text: leave room.
    room = {"left": 44, "right": 16, "top": 4, "bottom": 4}
    title = alt.Title(
        caution or "", anchor="start", fontSize=11, fontWeight="normal", color=palette.highlight
    )
    text = {"labelColor": palette.ink, "titleColor": palette.ink, "labelFont": "sans-serif",
            "titleFont": "sans-serif", "titleFontWeight": "normal"}  # fmt: skip
    spec: Spec = (
        (chart.properties(title=title) if caution else chart)
        .configure(background=palette.paper or "transparent", font="sans-serif", padding=room)
        .configure_view(stroke=None)
        .configure_axis(
            gridColor=palette.grid, domainColor=palette.grid, tickColor=palette.grid, **text
        )
        .configure_legend(labelColor=palette.ink, titleColor=palette.ink)
        .to_dict()
    )
    return spec


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure. Without a `spec` it is not drawn, and `missing` is the command that would
    measure it.

    `alt` describes its content for people who cannot see it, `note` explains what the axes do
    not show. `cells` are the drawn cells: their diagnostics are listed below the figure. A figure
    of `bars` in `unit` is a list of rows in the page; all groups have one scale if `shared`.
    """

    key: str
    title: str
    alt: str
    spec: Spec | None = None
    missing: str | None = None
    note: str = ""
    cells: tuple[str, ...] = ()
    bars: tuple[Bar, ...] = ()
    unit: str = ""
    shared: bool = True


def panel_rows(palette: Palette, field: str = "panel") -> alt.Row:
    """Facets one below the other, each with its name above it."""
    header = alt.Header(
        labelAngle=0, labelAlign="left", labelOrient="top", labelAnchor="start",
        labelFontWeight="bold", labelColor=palette.ink,
    )  # fmt: skip
    return alt.Row(f"{field}:N", sort=None, title=None, header=header)


def to_svg(spec: Spec) -> str:
    """The chart as an SVG document."""
    return vl_convert.vegalite_to_svg(harmless(spec))


def to_png(spec: Spec, scale: float = 2.0) -> bytes:
    """The chart as a PNG image; `scale` 2 suits high-resolution screens."""
    return vl_convert.vegalite_to_png(harmless(spec), scale=scale)


def harmless(value: Any) -> Any:  # noqa: ANN401 - any JSON value
    """The specification with control characters made visible: XML cannot hold them.

    vl-convert 1.9 aborts the whole process when a label has one.
    """
    if isinstance(value, str):
        return sanitise_line(value)
    if isinstance(value, dict):
        return {key: harmless(item) for key, item in value.items()}
    return [harmless(item) for item in value] if isinstance(value, list) else value
