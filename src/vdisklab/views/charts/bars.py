"""The articles' bar charts with the user's numbers, drawn."""

from __future__ import annotations

from collections.abc import Sequence

from vdisklab import numbers
from vdisklab.answers.figures import BAR_CHARTS, BarChart
from vdisklab.answers.report import Bar, Figure, ReportAnswer
from vdisklab.views.charts import vega
from vdisklab.views.charts.svg import Palette, Spec


def bars(
    rows: Sequence[Bar], unit: str, palette: Palette, *, caution: str | None, shared: bool = True
) -> Spec:
    """Horizontal bars from zero, with intervals as lines; groups are drawn below each other.

    `shared` is False if the groups show different quantities: then each group has its own axis.
    """
    values = [
        {
            "label": row.label, "value": row.value, "low": row.low, "high": row.high,
            "group": f"{row.group} ({row.unit})" if row.unit else row.group,
            "colour": palette.highlight if row.highlight else palette.bar,
        }
        for row in rows
    ]  # fmt: skip
    names = {"y": vega.labels("label")}
    value = vega.quantitative("value", title=unit or None, scale={"zero": True})
    ends = {"thickness": 1.5, "height": 7, "color": palette.ink}
    chart: Spec = {
        "layer": [
            vega.layer("bar", {"height": 13}, names, {"x": value, "color": vega.AS_GIVEN}),
            vega.layer("rule", {"strokeWidth": 1.5, "color": palette.ink}, names, vega.INTERVAL),
            vega.layer("tick", ends, names, {"x": vega.quantitative("low")}),
            vega.layer("tick", ends, names, {"x": vega.quantitative("high")}),
        ],
        "width": vega.WIDTH,
        "height": {"step": 20},
    }
    if any(row.group for row in rows):
        chart = vega.faceted(chart, "group", palette, 12, y=True, x=not shared)
    return vega.finished(chart, values, palette, caution)


def _bar_figure(recipe: BarChart, report: ReportAnswer, palette: Palette) -> Figure:
    rows, unit = recipe.rows(report)
    if not rows:
        return Figure(recipe.key, recipe.title, "", missing=recipe.missing)
    spec = bars(rows, unit, palette, caution=report.caveats.warning, shared=recipe.shared)
    return Figure(
        recipe.key, recipe.title, _described(recipe.title, rows, unit, report), spec,
        cells=recipe.cells(rows, report), bars=tuple(rows), unit=unit, shared=recipe.shared,
    )  # fmt: skip


def _described(title: str, rows: Sequence[Bar], unit: str, report: ReportAnswer) -> str:
    shown = "; ".join(
        f"{f'{row.group}, ' if row.group else ''}{row.label}: {numbers.digits(row.value)}"
        f"{f' {row.unit}' if row.unit else ''}"
        + (f" ({numbers.digits(row.low)} to {numbers.digits(row.high)})"
           if row.low is not None and row.high is not None else "")
        for row in rows
    )  # fmt: skip
    place = f", in {unit}" if unit else ""
    return f"Bar chart, {title}{place}: {shown}.{vega.with_caveat(report)}"


def bar_figures(report: ReportAnswer, palette: Palette) -> tuple[Figure, ...]:
    """The bar charts in the order of the articles."""
    return tuple(_bar_figure(recipe, report, palette) for recipe in BAR_CHARTS)
