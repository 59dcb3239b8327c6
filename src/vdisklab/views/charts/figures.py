"""All figures of a report, in the order of the articles."""

from __future__ import annotations

from collections.abc import Sequence

from vdisklab import numbers
from vdisklab.analysis.pareto import Standing
from vdisklab.answers import figures as answers
from vdisklab.answers.pareto import ParetoCell
from vdisklab.answers.report import Bar, Figure, ReportAnswer
from vdisklab.views.charts import lines, vega
from vdisklab.views.charts.svg import Palette, Spec


def figures(report: ReportAnswer, palette: Palette) -> tuple[Figure, ...]:
    """All figures in the order of the articles; one without numbers names the command to run.

    A search of how many guests each path carries has only its own.
    """
    if report.density is not None:
        return lines.density_figures(report, palette)
    one_host = report.ranked.hosts is None
    of_rounds = (trade_offs_figure, lines.time_series_figure) if one_host else ()
    return (
        *(_bar_figure(recipe, report, palette) for recipe in answers.BAR_CHARTS),
        _safety(report, palette),
        *(figure(report, palette) for figure in of_rounds),
        lines.latency_figure(report, palette),
        *lines.sweep_figures(report, palette),
        *lines.trend_figures(report, palette),
        *((published_figure(report, palette),) if one_host else ()),
    )


def _bars(
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


def _bar_figure(recipe: answers.BarChart, report: ReportAnswer, palette: Palette) -> Figure:
    rows, unit = recipe.rows(report)
    if not rows:
        return Figure(recipe.key, recipe.title, "", missing=recipe.missing)
    spec = _bars(rows, unit, palette, caution=report.caveats.warning, shared=recipe.shared)
    return Figure(
        recipe.key, recipe.title, _bars_in_words(recipe.title, rows, unit, report), spec,
        cells=recipe.cells(rows, report), bars=tuple(rows), unit=unit, shared=recipe.shared,
    )  # fmt: skip


def _bars_in_words(title: str, rows: Sequence[Bar], unit: str, report: ReportAnswer) -> str:
    shown = "; ".join(
        f"{f'{row.group}, ' if row.group else ''}{row.label}: {numbers.digits(row.value)}"
        f"{f' {row.unit}' if row.unit else ''}"
        + (f" ({numbers.digits(row.low)} to {numbers.digits(row.high)})"
           if row.low is not None and row.high is not None else "")
        for row in rows
    )  # fmt: skip
    place = f", in {unit}" if unit else ""
    return f"Bar chart, {title}{place}: {shown}.{vega.with_caveat(report)}"


def _safety(report: ReportAnswer, palette: Palette) -> Figure:
    """Speed by safety class. A path is on the front if no path that is as safe has a higher median.

    The answer is added to the front: it is chosen by differences within rounds, and may tie.
    """
    title = "Speed against safety"
    found = answers.safety_plane(report)
    if found is None:
        return Figure("safety", title, "", missing="vdisklab run PATHS… host")
    points, order, unit = found.points, found.order, found.unit
    values = "; ".join(
        f"{p.label}: {numbers.digits(p.value)}, {p.safety}" for p in points if p.front
    )
    spec = plane(points, order, unit, palette, caution=report.caveats.warning)
    what = "The answer, and the paths that no other beats in both"
    alt = f"Chart of speed in {unit} against safety. {what}: {values}."
    note = "The answer, and the paths that no other beats in both speed and safety (by medians)."
    cells = tuple(sorted(point.label for point in points if point.front))
    rows = tuple(
        Bar(point.label, point.value, None, None, point.safety, point.label == str(report.answer))
        for name in order
        for point in points
        if point.front and point.safety == name
    )
    return Figure("safety", title, alt, spec, note=note, cells=cells, bars=rows, unit=unit)


def plane(
    points: Sequence[answers.Point], order: Sequence[str], unit: str, palette: Palette, *,
    caution: str | None,
) -> Spec:  # fmt: skip
    """Speed against safety; only the front is labelled, because more labels would hide it."""
    values = [
        {
            "label": point.label if point.front else "", "safety": point.safety,
            "value": point.value, "colour": palette.highlight if point.front else palette.muted,
        }
        for point in sorted(points, key=lambda point: point.front)  # the front is drawn last
    ]  # fmt: skip
    place = {
        "x": vega.quantitative("value", title=unit, scale={"zero": True}),
        "y": vega.labels("safety", sort=list(order), scale={"domain": list(order)}),
        "color": vega.AS_GIVEN,
    }
    words = {"align": "right", "dy": -11, "fontSize": 11}
    chart: Spec = {
        "layer": [
            vega.layer("circle", {"size": 70, "opacity": 0.85}, place),
            vega.layer("text", words, place, {"text": vega.nominal("label")}),
        ],
        "width": vega.WIDTH,
        "height": {"step": 44},
    }
    return vega.finished(chart, values, palette, caution)


_LONGEST = 1.5
"""The end of its axis. Longer intervals are cut, or one of them would make all bars tiny."""


def trade_offs_figure(report: ReportAnswer, palette: Palette) -> Figure:
    """For each measure, the share of the best that a path reaches, with its interval.

    The front is orange; a path that may be beaten is pale, and its name says so.
    """
    answer = report.trade_offs
    if answer is None:
        return Figure("trade-offs", "Best trade-offs", "", missing="vdisklab run PATHS… host")
    shown = answers.drawn_trade_offs(answer)
    values = [
        {
            "panel": _named(one), "measure": name, "share": of.share,
            **{end: min(value, _LONGEST) for end, value in (("low", of.low), ("high", of.high))
               if value is not None},
            "colour": palette.highlight if one.standing is Standing.FRONT else palette.muted,
            "opacity": 1.0 if one.standing is Standing.FRONT else 0.5,
        }
        for one in shown
        for name, of in one.shares.items()
        if of.share is not None
    ]  # fmt: skip
    names_of_rows = {"y": vega.labels("measure", sort=list(answer.measures))}
    shares = {
        "x": vega.quantitative("share", title="share of the best", scale={"zero": True}),
        "color": vega.AS_GIVEN,
        "opacity": vega.quantitative("opacity", scale=None),
    }
    chart: Spec = {
        "layer": [
            vega.layer("bar", {"size": 9}, names_of_rows, shares),
            vega.layer(
                "rule", {"strokeWidth": 1.5, "color": palette.ink}, names_of_rows, vega.INTERVAL
            ),
        ],
        "width": vega.WIDTH - 120,
        "height": {"step": 14},
    }
    spec = vega.finished(
        vega.faceted(chart, "panel", palette, 8), values, palette, report.caveats.warning
    )
    names = ", ".join(answer.measures)
    described = "; ".join(_described(one) for one in shown)
    hidden = len(answer.cells) - len(shown)
    return Figure(
        "trade-offs", "Best trade-offs",
        f"Bars of the share of the best in {names}: {described}.", spec,
        note=f"On the front (orange in pictures): by its means, no other path is better in all of "
        f"{names}. May be beaten (pale in pictures): one is, but that is not shown at 5 %. "
        f"Lines are 95 % intervals, cut at {_LONGEST:g}."
        f"{f' Not drawn: {hidden} more.' if hidden else ''}",
        cells=tuple(one.cell.label for one in shown),
        bars=tuple(
            Bar(name, of.share, of.low, of.high, _named(one), one.cell == report.answer)
            for one in shown
            for name, of in one.shares.items()
            if of.share is not None
        ),
        unit="of the best",
        longest=_LONGEST,
    )  # fmt: skip


def _named(one: ParetoCell) -> str:
    standing = "on the front" if one.standing is Standing.FRONT else "may be beaten"
    return f"{one.cell.label}, {standing}"


def _described(one: ParetoCell) -> str:
    shares = ", ".join(
        f"{name} {numbers.value(of.share, '1')}"
        + (
            ""
            if of.low is None or of.high is None
            else f" ({numbers.digits(of.low)} to {numbers.digits(of.high)})"
        )
        for name, of in one.shares.items()
    )
    return f"{_named(one)}: {shares}"


def ratio_chart(
    rows: Sequence[answers.PublishedRatio], palette: Palette, *, caution: str | None
) -> Spec:
    """Measured ratios as dots with intervals, published ones as diamonds, on a logarithmic axis."""
    measured_name, published_name = "measured here", "published (other hardware)"
    values = [
        {
            "panel": row.panel, "label": row.label, "ratio": value, "who": source,
            "low": row.low if source == measured_name else None,
            "high": row.high if source == measured_name else None,
        }
        for row in rows
        for source, value in ((measured_name, row.ours), (published_name, row.published))
    ]  # fmt: skip
    who = [measured_name, published_name]
    colours = {"domain": who, "range": [palette.bar, palette.highlight]}
    legend = {"title": None, "orient": "bottom", "columns": 2}
    shapes = {"domain": who, "range": ["circle", "diamond"]}
    place = {"y": vega.labels("label"), "color": vega.nominal("who", scale=colours, legend=legend)}
    title = "times the baseline of the same machine"
    ratio = vega.quantitative("ratio", title=title, scale={"type": "log"}, axis={"tickCount": 6})
    chart: Spec = {
        "layer": [
            vega.layer(
                "rule", {"strokeWidth": 1.5}, place, vega.INTERVAL, only="datum.low !== null"
            ),
            vega.layer(
                "point",
                {"size": 70, "filled": True, "opacity": 1},
                place,
                {"x": ratio, "shape": vega.nominal("who", scale=shapes)},
            ),
        ],
        "width": vega.WIDTH - 120,
        "height": {"step": 20},
    }
    return vega.finished(
        vega.faceted(chart, "panel", palette, 12, y=True), values, palette, caution
    )


def published_figure(report: ReportAnswer, palette: Palette) -> Figure:
    """Published ratios as diamonds, measured ones as dots with intervals; a panel per series."""
    title = "Published numbers and yours"
    rows = answers.published_ratios(report)
    if not rows:
        missing = "vdisklab run {raw,qcow2}/{none,writeback,writethrough,unsafe} host"
        return Figure("published", title, "", missing=missing)
    caution = report.caveats.warning
    spec = ratio_chart(rows, palette, caution=f"here {caution}" if caution else None)
    values = "; ".join(
        f"{row.panel}, {row.label}: published {numbers.ratio(row.published)}, "
        f"here {numbers.ratio(row.ours)}"
        for row in rows
    )
    warning = f" Here {caution}." if caution else ""
    cells = tuple(
        dict.fromkeys(
            row.cell.label for answer in report.published for row in answer.comparison.compared
        )
    )
    return Figure(
        "published", title,
        f"Dot chart of ratios to each machine's own baseline: {values}.{warning}",
        spec, note="Published numbers are from other hardware: compare shapes, not values.",
        cells=cells,
    )  # fmt: skip
