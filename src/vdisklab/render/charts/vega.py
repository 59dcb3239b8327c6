"""Vega-Lite charts, made by Altair and rendered by vl-convert without a network.

A chart in a page takes its colours from the page's style sheet, so that light and dark are one
drawing: it is rendered in colours that nothing else uses, which then become CSS variables.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from xml.etree.ElementTree import Element, tostring

import altair as alt
import vl_convert
from defusedxml.ElementTree import fromstring

from vdisklab.render.charts.drawing import Spec
from vdisklab.render.tables import sanitise_line

WIDTH = 560


@dataclass(frozen=True, slots=True)
class Palette:
    """The colours of a chart; `highlight` marks the answer, `muted` what is beside it."""

    ink: str
    grid: str
    bar: str
    highlight: str
    muted: str
    paper: str | None


LIGHT = Palette("#1b1f24", "#d8dde3", "#3b78b5", "#c4570c", "#8a939d", "#ffffff")
CSS = Palette("#010203", "#010204", "#010205", "#010206", "#010207", None)
_VARIABLES = {CSS.ink: "ink", CSS.grid: "line", CSS.bar: "bar", CSS.highlight: "highlight",
              CSS.muted: "muted"}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Bar:
    """One value with its interval, in the unit that the chart's axis names."""

    label: str
    value: float
    low: float | None
    high: float | None
    group: str = ""
    highlight: bool = False


def bars(
    rows: Sequence[Bar], unit: str, palette: Palette, *, caution: str | None, shared: bool = True
) -> Spec:
    """Horizontal bars from zero, with intervals as lines; several groups stand below another.

    `shared` is False where groups are different quantities: then each has an axis of its own.
    """
    values = [
        {
            "label": row.label, "value": row.value, "low": row.low, "high": row.high,
            "group": row.group, "colour": palette.highlight if row.highlight else palette.bar,
        }
        for row in rows
    ]  # fmt: skip
    base = alt.Chart(alt.InlineData(values=values)).encode(
        y=alt.Y("label:N", sort=None, title=None, axis=labels())
    )
    drawn = base.mark_bar(height=13).encode(
        x=alt.X("value:Q", title=unit, scale=alt.Scale(zero=True)),
        color=alt.Color("colour:N", scale=None),
    )
    lines = base.mark_rule(strokeWidth=1.5, color=palette.ink).encode(x="low:Q", x2="high:Q")
    ends = base.mark_tick(thickness=1.5, height=7, color=palette.ink)
    chart: Any = alt.layer(
        drawn,
        lines,
        ends.encode(x="low:Q"),
        ends.encode(x="high:Q"),
    ).properties(width=WIDTH, height=alt.Step(20))
    if any(row.group for row in rows):
        chart = chart.facet(
            row=alt.Row("group:N", sort=None, title=None,
                        header=alt.Header(labelAngle=0, labelAlign="left", labelOrient="top",
                                          labelAnchor="start",
                                          labelFontWeight="bold", labelColor=palette.ink)),
            spacing=12,
        ).resolve_scale(y="independent", x="shared" if shared else "independent")  # fmt: skip
    return finished(chart, palette, caution)


@dataclass(frozen=True, slots=True)
class Point:
    """A cell in the plane of safety and speed; the front is what nothing beats in both."""

    label: str
    safety: str
    value: float
    front: bool


def plane(
    points: Sequence[Point], order: Sequence[str], unit: str, palette: Palette, *,
    caution: str | None,
) -> Spec:  # fmt: skip
    """Speed against safety; only the front is labelled, as the rest would hide it."""
    values = [
        {
            "label": point.label if point.front else "", "safety": point.safety,
            "value": point.value, "colour": palette.highlight if point.front else palette.muted,
        }
        for point in sorted(points, key=lambda point: point.front)  # the front is drawn last
    ]  # fmt: skip
    base = alt.Chart(alt.InlineData(values=values)).encode(
        x=alt.X("value:Q", title=unit, scale=alt.Scale(zero=True)),
        y=alt.Y("safety:N", sort=list(order), title=None, axis=labels(),
                scale=alt.Scale(domain=list(order))),
        color=alt.Color("colour:N", scale=None),
    )  # fmt: skip
    dots = base.mark_circle(size=70, opacity=0.85)
    words = base.mark_text(align="right", dy=-11, fontSize=11).encode(text="label:N")
    chart = alt.layer(dots, words).properties(width=WIDTH, height=alt.Step(44))
    return finished(chart, palette, caution)


@dataclass(frozen=True, slots=True)
class Step:
    """One percentile of one cell."""

    label: str
    percentile: str
    value: float


def percentiles(rows: Sequence[Step], unit: str, palette: Palette, *, caution: str | None) -> Spec:
    """Latency by percentile, one line per cell, on a logarithmic axis."""
    values = [{"label": r.label, "percentile": r.percentile, "value": r.value} for r in rows]
    order = list(dict.fromkeys(row.percentile for row in rows))
    names = list(dict.fromkeys(row.label for row in rows))
    dashes = [[1, 0], [6, 3], [2, 2], [8, 3, 2, 3], [12, 4]][: len(names)]
    colours = [palette.highlight, palette.bar, palette.muted, palette.ink, palette.bar]
    chart = (
        alt.Chart(alt.InlineData(values=values))
        .mark_line(point=True)
        .encode(
            x=alt.X("percentile:N", sort=order, title="percentile", axis=alt.Axis(labelAngle=0)),
            y=alt.Y("value:Q", title=unit, scale=alt.Scale(type="log"),
                    axis=alt.Axis(tickCount=4)),
            color=alt.Color("label:N", scale=alt.Scale(domain=names, range=colours),
                            legend=alt.Legend(title=None, orient="bottom", columns=1,
                                              labelLimit=500)),
            strokeDash=alt.StrokeDash("label:N", legend=None,
                                      scale=alt.Scale(domain=names, range=dashes)),
        )
        .properties(width=WIDTH, height=240)
    )  # fmt: skip
    return finished(chart, palette, caution)


def labels() -> alt.Axis:
    """An axis of names, without lines."""
    return alt.Axis(labelLimit=420, labelPadding=6, domain=False, ticks=False, grid=False)


def finished(chart: Any, palette: Palette, caution: str | None) -> Spec:  # noqa: ANN401
    """The specification as JSON, with the palette and the caution applied."""
    # Fonts differ from screen to screen: labels get room for a wider one than was measured with.
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


def to_svg(spec: Spec) -> str:
    """The chart as an SVG document."""
    return vl_convert.vegalite_to_svg(harmless(spec))


def to_png(spec: Spec, scale: float = 2.0) -> bytes:
    """The chart as a PNG image; `scale` 2 is for screens of today."""
    return vl_convert.vegalite_to_png(harmless(spec), scale=scale)


def harmless(value: Any) -> Any:  # noqa: ANN401 - any JSON value
    """The specification with control characters made visible: XML cannot hold them.

    vl-convert 1.9 ends the whole process when one is in a label.
    """
    if isinstance(value, str):
        return sanitise_line(value)
    if isinstance(value, dict):
        return {key: harmless(each) for key, each in value.items()}
    return [harmless(each) for each in value] if isinstance(value, list) else value


_SVG = "{http://www.w3.org/2000/svg}"
_ELEMENTS = frozenset({"svg", "g", "path", "rect", "line", "text", "tspan", "circle", "defs",
                       "clipPath", "title"})  # fmt: skip
_REFERENCE = re.compile(r"url\((?!#)|javascript:|data:", re.IGNORECASE)


def for_page(svg: str, name: str, description: str) -> str:
    """A drawn chart for a page: only drawing elements, colours of the style sheet, a description.

    Labels come from other people's names, so what the renderer made of them is not trusted: any
    element that does not draw, any handler and any reference to elsewhere is left out.
    """
    root: Element = fromstring(svg)
    _keep_drawing(root)
    for attribute in ("class", "version"):
        root.attrib.pop(attribute, None)
    root.set("role", "img")
    root.set("aria-label", description)
    width, height = root.attrib.pop("width", ""), root.attrib.pop("height", "")
    root.set("viewBox", root.get("viewBox") or f"0 0 {width} {height}")
    # Full size on a wide screen, smaller on a narrow one.
    root.set("class", "chart")
    root.set("width", width)
    text = tostring(root, encoding="unicode")
    for colour, variable in _VARIABLES.items():
        text = text.replace(colour, f"var(--{variable})")
    # Identifiers are the page's, so they have to differ from figure to figure.
    text = re.sub(r'(id="|url\(#)', rf"\g<1>{name}-", text)
    return text.replace("ns0:", "").replace("xmlns:ns0", "xmlns")


def _keep_drawing(element: Element) -> None:
    for child in list(element):
        # Comments and instructions have a function for a tag.
        if str(child.tag).removeprefix(_SVG) not in _ELEMENTS:
            element.remove(child)
        else:
            _keep_drawing(child)
    for name, value in list(element.attrib.items()):
        bare = name.rpartition("}")[2].lower()
        if bare.startswith(("on", "aria-")) or bare in ("href", "style", "role") or (
            _REFERENCE.search(value)
        ):  # fmt: skip
            del element.attrib[name]
