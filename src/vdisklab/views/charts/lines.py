"""Line charts: bandwidth over time, latency percentiles, and curves over a number.

Such a number is the value of an option, or the number of guests.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict

from vdisklab import numbers
from vdisklab.analysis.sums import STALL_BELOW
from vdisklab.answers import figures
from vdisklab.answers.density import DensityAnswer
from vdisklab.answers.report import Figure, ReportAnswer
from vdisklab.units import counted
from vdisklab.views import trend
from vdisklab.views.charts import vega
from vdisklab.views.charts.svg import Palette, Spec
from vdisklab.views.density import capacity_text

RUN_COMMAND = "vdisklab run PATHS… host"


def time_series_figure(report: ReportAnswer, palette: Palette) -> Figure:
    """Bandwidth of the featured cells, run by run, with stalls as crosses."""
    title = "Bandwidth over time, with stalls"
    found = figures.over_time(report)
    if found is None:
        return Figure("over-time", title, "", missing=f"{RUN_COMMAND} --runtime 10")
    spec = time_panels(found.moments, found.unit, palette, caution=report.caveats.warning)
    values = "; ".join(map(_described, found.summaries))
    alt = f"Line charts of bandwidth in {found.unit} by the second: {values}."
    note = (
        "Each line is one run. A cross marks a stall: a second with less than "
        f"{STALL_BELOW:.0%} of the run's median bandwidth."
    )
    if not found.knows_stalls:
        note += (
            " A line of reads and writes together comes from counters outside the program. It has "
            "no marks, because a pause there may be the program's own."
        )
    if found.means:
        note += (
            " Long runs are drawn as means over several seconds; stalls are counted by the second."
        )
    if found.longest:
        waits = ", ".join(f"{cell} {numbers.value(s, 's')}" for cell, s in found.longest.items())
        note += f" Longest time without a completion (median of runs): {waits}."
    return Figure("over-time", title, f"{alt}{vega.with_caveat(report)}", spec, note=note,
                  cells=tuple(cell.label for cell in found.cells))  # fmt: skip


def _described(one: figures.SeriesSummary) -> str:
    """The median, and the worst second and stalls if a second without a byte is a stall."""
    runs = f"{one.runs} run{'' if one.runs == 1 else 's'}"
    bad = "" if one.stalls is None else (
        f", worst {numbers.value(one.worst, 'B/s')}, "
        f"{one.stalls} stalled second{'' if one.stalls == 1 else 's'}"
    )  # fmt: skip
    return f"{one.panel}, {one.cell}: median {numbers.value(one.median, 'B/s')}{bad} in {runs}"


def latency_figure(report: ReportAnswer, palette: Palette) -> Figure:
    """Latency of small random reads: the answer, the cells compared with it, and the host."""
    title = "Latency percentiles, 4 KiB random reads"
    found = figures.latency_curves(report)
    if found is None:
        return Figure("latency", title, "", missing=RUN_COMMAND)
    spec = percentiles(found.points, "µs", palette, caution=report.caveats.warning)
    values = f"{_listed(found.points)}.{vega.with_caveat(report)}"
    return Figure(
        "latency", f"{title} ({found.name})", f"Line chart in microseconds: {values}", spec,
        note="The median over the runs of each run's percentile.", cells=found.cells,
    )  # fmt: skip


def _listed(points: Iterable[figures.LinePoint]) -> str:
    return "; ".join(f"{one.label}, {one.level}: {numbers.digits(one.value)}" for one in points)


def time_panels(
    rows: Sequence[figures.Moment], unit: str, palette: Palette, *, caution: str | None
) -> Spec:
    """A panel for each measurement: a line for each run, coloured by cell; stalls are crosses."""
    values = [asdict(row) for row in rows]
    names = list(dict.fromkeys(row.label for row in rows))
    colours = [palette.highlight, palette.bar, palette.muted, palette.ink]
    dashes = [[1, 0], [6, 3], [2, 2], [8, 3, 2, 3]]
    seconds = "seconds from the start of the measurement"
    place = {
        "x": vega.quantitative("second", title=seconds, axis={"tickMinStep": 1}),
        "y": vega.quantitative("value", title=unit, scale={"zero": True}, axis={"tickCount": 4}),
    }
    legend = {"title": None, "orient": "bottom", "columns": 1, "labelLimit": 500,
              "symbolType": "stroke"}  # fmt: skip
    kinds = {
        "color": vega.nominal(
            "label", scale={"domain": names, "range": colours[: len(names)]}, legend=legend
        ),
        "detail": vega.nominal("run"),
        "strokeDash": vega.nominal(
            "label", scale={"domain": names, "range": dashes[: len(names)]}, legend=None
        ),
    }
    line = {"strokeWidth": 1.6, "opacity": 0.85, "point": {"size": 12}}
    cross = {"shape": "cross", "angle": 45, "size": 130, "filled": True, "opacity": 1}
    ink = {"color": {"value": palette.ink}}
    chart: Spec = {
        "layer": [
            vega.layer("line", line, place, kinds),
            vega.layer("point", cross, place, ink, only="datum.stalled"),
        ],
        "width": vega.WIDTH,
        "height": 130,
    }
    return vega.finished(
        vega.faceted(chart, "panel", palette, 16, y=True), values, palette, caution
    )


def percentiles(
    rows: Sequence[figures.LinePoint],
    unit: str,
    palette: Palette,
    *,
    caution: str | None,
    level: str = "percentile",
    log: bool = True,
) -> Spec:
    """A value by `level`, one line per label, on a logarithmic axis, or one that fits."""
    values = [{"label": row.label, "percentile": row.level, "value": row.value} for row in rows]
    order = list(dict.fromkeys(row.level for row in rows))
    names = list(dict.fromkeys(row.label for row in rows))
    scale: Spec = {"type": "log"} if log else {"zero": False}
    axis = {"labelAngle": 0, "labelOverlap": True}
    channels = {
        "x": vega.nominal("percentile", sort=order, title=level, axis=axis),
        "y": vega.quantitative("value", title=unit, scale=scale, axis={"tickCount": 4}),
        **vega.line_styles(names, palette),
    }
    chart = {**vega.layer("line", {"point": True}, channels), "width": vega.WIDTH, "height": 240}
    return vega.finished(chart, values, palette, caution)


def sweep_figures(report: ReportAnswer, palette: Palette) -> tuple[Figure, ...]:
    """One figure for each option that was swept; none if no option was."""
    return tuple(_sweep_figure(found, report, palette) for found in figures.sweeps(report))


def _sweep_figure(found: figures.Curves, report: ReportAnswer, palette: Palette) -> Figure:
    option = found.name
    unit = f"relative to the lowest {option}"
    caution = report.caveats.warning
    spec = percentiles(found.points, unit, palette, caution=caution, level=option)
    left_out = f" {found.left_out} more paths are not drawn." if found.left_out else ""
    return Figure(
        f"sweep-{option.replace('_', '-')}",
        f"What each {option} costs or gains",
        f"Line chart, {unit}: {_listed(found.points)}.{vega.with_caveat(report)}",
        spec,
        note=f"Medians, divided by the median with the lowest {option}. 1 means no change."
        f"{left_out}",
        cells=found.cells,
    )


def trend_figures(report: ReportAnswer, palette: Palette) -> tuple[Figure, ...]:
    """The figure of a campaign that has earlier ones of its plan on its host; none for another."""
    if report.trend is None:
        return ()
    found, unit = figures.trend_curves(report.trend), "relative to the first campaign"
    spec = percentiles(
        found.points, unit, palette, caution=report.caveats.warning, level=found.name, log=False
    )
    more = f" Not drawn: {counted(found.left_out, 'more path')}." if found.left_out else ""
    figure = Figure(
        "trend",
        "This host over time",
        f"Line chart, {unit}: {_listed(found.points)}.{vega.with_caveat(report)}",
        spec,
        note=" ".join(trend.story(report.trend)) + more,
        cells=found.cells,
    )
    return (figure,)


def density_figures(report: ReportAnswer, palette: Palette) -> tuple[Figure, ...]:
    """The figure of a campaign that `density` measured; none for another campaign."""
    answer = report.density
    if answer is None or not any(path.steps for path in answer.paths):
        return ()
    return (_density_figure(answer, report.caveats.warning, palette),)


def _density_figure(answer: DensityAnswer, caution: str | None, palette: Palette) -> Figure:
    drawn, left_out = figures.drawn_paths(answer)
    limit = answer.until.seconds
    scale = numbers.scale(limit, "s")
    values = [
        {"label": path.path, "guests": step.guests, "value": step.worst / scale.factor,
         "fairness": step.fairness, "limit": limit / scale.factor}
        for path in drawn
        for step in path.steps
    ]  # fmt: skip
    unit = scale.suffix.strip()
    styles = vega.line_styles([path.path for path in drawn], palette)
    tried = sorted({step.guests for path in drawn for step in path.steps})
    axis = {"values": tried, "format": "d", "labelOverlap": True, "grid": False}
    guests = {"x": vega.quantitative("guests", title="guests", axis=axis)}
    colour = {"color": styles["color"]}
    worst = vega.quantitative("value", title=f"slowest guest, {unit}", scale={"type": "log"})
    fair = vega.quantitative("fairness", title="fairness", scale={"domain": [0, 1]})
    panels = [
        {"width": vega.WIDTH, "height": height, "layer": layers}
        for height, layers in (
            (
                220,
                [
                    vega.layer("rule", {"strokeDash": [4, 4], "color": palette.ink},
                          {"y": vega.quantitative("limit", aggregate="min")}),
                    vega.layer("line", {}, guests, styles,
                          {"y": {**worst, "aggregate": "median"}}),
                    vega.layer("point", {"filled": True}, guests, colour, {"y": worst}),
                ],
            ),
            (
                80,
                [vega.layer("line", {"point": True}, guests, styles,
                       {"y": {**fair, "aggregate": "median"}})],
            ),
        )
    ]  # fmt: skip
    carried = "; ".join(f"{path.path}: {capacity_text(path)}" for path in drawn)
    more = f" {left_out} more paths are not drawn." if left_out else ""
    return Figure(
        "density",
        "How many guests each path carries",
        f"Line charts of the slowest guest's {answer.until.metric} in {unit}, and of Jain's "
        f"fairness index, over the number of guests. Carried guests: {carried}.",
        vega.finished({"vconcat": panels}, values, palette, caution),
        note=f"Each guest has a load of {answer.load} requests a second. Above the dashed line "
        f"({answer.until}) a guest is too slow. Dots are runs, lines their medians. Fairness "
        f"is 1 if all guests got the same. Guests carried (95 % interval): {carried}.{more}",
    )
