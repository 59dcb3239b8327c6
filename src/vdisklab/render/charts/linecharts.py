"""Charts of lines and points: bandwidth over time, and ours beside what was published."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import altair as alt

from vdisklab.render.charts.drawing import Spec
from vdisklab.render.charts.vega import WIDTH, Palette, finished, labels


@dataclass(frozen=True, slots=True)
class Moment:
    """One interval of one run, at its middle in seconds; `width` seconds long."""

    panel: str
    label: str
    run: str
    second: float
    value: float
    stalled: bool


def over_time(rows: Sequence[Moment], unit: str, palette: Palette, *, caution: str | None) -> Spec:
    """Panels below one another: a line for each run, in its cell's colour; crosses are stalls."""
    values = [
        {
            "panel": row.panel, "label": row.label, "run": row.run, "second": row.second,
            "value": row.value, "stalled": row.stalled,
        }
        for row in rows
    ]  # fmt: skip
    names = list(dict.fromkeys(row.label for row in rows))
    colours = [palette.highlight, palette.bar, palette.muted, palette.ink]
    dashes = [[1, 0], [6, 3], [2, 2], [8, 3, 2, 3]]
    base = alt.Chart(alt.InlineData(values=values)).encode(
        x=alt.X("second:Q", title="seconds from the start of the measurement",
                axis=alt.Axis(tickMinStep=1)),
        y=alt.Y("value:Q", title=unit, scale=alt.Scale(zero=True), axis=alt.Axis(tickCount=4)),
        color=alt.Color("label:N", scale=alt.Scale(domain=names, range=colours[: len(names)]),
                        legend=alt.Legend(title=None, orient="bottom", columns=1,
                                          labelLimit=500, symbolType="stroke")),
    )  # fmt: skip
    lines = base.mark_line(strokeWidth=1.6, opacity=0.85, point=alt.OverlayMarkDef(size=12)).encode(
        detail="run:N",
        strokeDash=alt.StrokeDash(
            "label:N", legend=None, scale=alt.Scale(domain=names, range=dashes[: len(names)])
        ),
    )
    crosses = (
        base.transform_filter("datum.stalled")
        .mark_point(shape="cross", angle=45, size=130, filled=True, opacity=1)
        .encode(color=alt.value(palette.ink))
    )
    chart = (
        alt.layer(lines, crosses)
        .properties(width=WIDTH, height=130)
        .facet(row=_panels(palette), spacing=16)
        .resolve_scale(y="independent")
    )  # fmt: skip
    return finished(chart, palette, caution)


@dataclass(frozen=True, slots=True)
class Beside:
    """A published ratio and ours, both over the baseline of their own machine."""

    panel: str
    label: str
    published: float
    ours: float
    low: float | None
    high: float | None


def beside(rows: Sequence[Beside], palette: Palette, *, caution: str | None) -> Spec:
    """Ours as dots with intervals, what was published as diamonds, on a logarithmic axis."""
    ours, theirs = "measured here", "published (other hardware)"
    values = [
        {
            "panel": row.panel, "label": row.label, "ratio": value, "who": who,
            "low": row.low if who == ours else None, "high": row.high if who == ours else None,
        }
        for row in rows
        for who, value in ((ours, row.ours), (theirs, row.published))
    ]  # fmt: skip
    base = alt.Chart(alt.InlineData(values=values)).encode(
        y=alt.Y("label:N", sort=None, title=None, axis=labels()),
        x=alt.X("ratio:Q", title="times the baseline of the same machine",
                scale=alt.Scale(type="log"), axis=alt.Axis(tickCount=6)),
        color=alt.Color("who:N", scale=alt.Scale(domain=[ours, theirs],
                                                 range=[palette.bar, palette.highlight]),
                        legend=alt.Legend(title=None, orient="bottom", columns=2)),
    )  # fmt: skip
    lines = (
        base.transform_filter("datum.low !== null")
        .mark_rule(strokeWidth=1.5)
        .encode(x="low:Q", x2="high:Q")
    )
    shapes = alt.Scale(domain=[ours, theirs], range=["circle", "diamond"])
    dots = base.mark_point(size=70, filled=True, opacity=1).encode(
        shape=alt.Shape("who:N", scale=shapes)
    )
    chart = (
        alt.layer(lines, dots)
        .properties(width=WIDTH - 120, height=alt.Step(20))
        .facet(row=_panels(palette), spacing=12)
        .resolve_scale(y="independent")
    )  # fmt: skip
    return finished(chart, palette, caution)


def _panels(palette: Palette) -> alt.Row:
    """One panel below the other, each with its name above it."""
    header = alt.Header(
        labelAngle=0, labelAlign="left", labelOrient="top", labelAnchor="start",
        labelFontWeight="bold", labelColor=palette.ink,
    )  # fmt: skip
    return alt.Row("panel:N", sort=None, title=None, header=header)
