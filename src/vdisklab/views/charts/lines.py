"""Line charts: bandwidth over time, latency percentiles, and curves over a number.

Such a number is the value of an option, or the number of guests.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace

import numpy as np

from vdisklab import numbers
from vdisklab.analysis.observations import MeasureKey
from vdisklab.analysis.sums import STALL_BELOW, BandwidthSeries, coarser
from vdisklab.answers.density import DensityAnswer
from vdisklab.answers.figures import measured_quantities
from vdisklab.answers.report import Figure, ReportAnswer
from vdisklab.path.cell import MeasuredCell
from vdisklab.path.disk_path import Attachment, DiskPath, Image
from vdisklab.path.segments import PageCache
from vdisklab.results.model import Direction
from vdisklab.views.charts import vega
from vdisklab.views.charts.svg import Palette, Spec
from vdisklab.views.density import capacity_text

MOST_MOMENTS = 90
"""Maximum number of points in a line; longer runs are drawn as means over several seconds."""

MOST_RUNS = 5
"""Maximum number of runs drawn for a cell: the newest."""

SHORTEST = 5.0
"""Seconds of a run below which a line shows nothing that the bars do not."""

RUN_COMMAND = "vdisklab run PATHS… host"


def time_series_figure(report: ReportAnswer, palette: Palette) -> Figure:
    """Bandwidth of the featured cells, run by run, with stalls as crosses."""
    title = "Bandwidth over time, with stalls"
    long = [one for one in report.bandwidth_series if len(one.values) * one.interval >= SHORTEST]
    bandwidth_series = _newest(long)
    if not bandwidth_series:
        return Figure("over-time", title, "", missing=f"{RUN_COMMAND} --runtime 10")
    # One unit for all panels: that of the slowest, which also suits the faster ones.
    tops = [max(series.values) for series in bandwidth_series if max(series.values) > 0]
    scale = numbers.scale(min(tops, default=0.0), "B/s")
    rows = [moment for series in bandwidth_series for moment in _moments(series, scale)]
    unit = scale.suffix.strip()
    spec = over_time(rows, unit, palette, caution=report.caveats.warning)
    values = "; ".join(_described(bandwidth_series))
    alt = f"Line charts of bandwidth in {unit} by the second: {values}.{vega.with_caveat(report)}"
    note = (
        "Each line is one run. A cross marks a stall: a second with less than "
        f"{STALL_BELOW:.0%} of the run's median bandwidth."
    )
    if not all(series.knows_stalls for series in bandwidth_series):
        note += (
            " A line of reads and writes together comes from counters outside the program. It has "
            "no marks, because a pause there may be the program's own."
        )
    if any(len(series.values) > MOST_MOMENTS for series in bandwidth_series):
        note += (
            " Long runs are drawn as means over several seconds; stalls are counted by the second."
        )
    cells = tuple(dict.fromkeys(series.cell for series in bandwidth_series))
    return Figure("over-time", title, alt, spec, note=f"{note} {_longest(report, cells)}".strip(),
                  cells=tuple(cell.label for cell in cells))  # fmt: skip


def _newest(bandwidth_series: Sequence[BandwidthSeries]) -> list[BandwidthSeries]:
    """Only the last runs of each cell."""
    newest: list[BandwidthSeries] = []
    for cell in dict.fromkeys(series.cell for series in bandwidth_series):
        chosen = [series for series in bandwidth_series if series.cell == cell]
        runs = list(dict.fromkeys(series.run for series in chosen))[-MOST_RUNS:]
        newest += [series for series in chosen if series.run in runs]
    return newest


def _panel(series: BandwidthSeries) -> str:
    suffix = "" if series.direction is Direction.NONE else f", {series.direction}"
    return series.measurement if series.direction in series.measurement else (
        f"{series.measurement}{suffix}"
    )  # fmt: skip


def _moments(series: BandwidthSeries, scale: numbers.Scale) -> Iterable[Moment]:
    values, width = coarser(series.values, MOST_MOMENTS)
    stalled = {place // width for place in series.stalls}
    for place, value in enumerate(values):
        middle = (place + 0.5) * width * series.interval
        yield Moment(_panel(series), series.cell.label, f"{series.cell} {series.run}", middle,
                     value / scale.factor, place in stalled)  # fmt: skip


def _described(bandwidth_series: Sequence[BandwidthSeries]) -> Iterable[str]:
    for panel in dict.fromkeys(map(_panel, bandwidth_series)):
        for cell in dict.fromkeys(series.cell for series in bandwidth_series):
            chosen = [
                series
                for series in bandwidth_series
                if series.cell == cell and _panel(series) == panel
            ]
            if chosen:
                every = [value for series in chosen for value in series.values]
                middle = numbers.value(float(np.median(every)), "B/s")
                runs = f"{len(chosen)} run{'' if len(chosen) == 1 else 's'}"
                yield f"{panel}, {cell}: median {middle}{_bad_seconds(chosen, every)} in {runs}"


def _bad_seconds(runs: Sequence[BandwidthSeries], every: Sequence[float]) -> str:
    """The worst second and the number of stalls, if a second without a byte is a stall."""
    if not all(run.knows_stalls for run in runs):
        return ""
    stalls = sum(len(run.stalls) for run in runs)
    seconds = f"{stalls} stalled second{'' if stalls == 1 else 's'}"
    return f", worst {numbers.value(min(every), 'B/s')}, {seconds}"


def _longest(report: ReportAnswer, cells: Sequence[MeasuredCell]) -> str:
    """The longest time without any completion, if programs reported one."""
    sentences = []
    for cell in cells:
        waits = [
            summaries[cell].median
            for key, summaries in report.summaries.items()
            if key.metric == "longest_stall" and cell in summaries
        ]
        if waits and max(waits) > 0:
            sentences.append(f"{cell} {numbers.value(max(waits), 's')}")
    return (
        f"Longest time without a completion (median of runs): {', '.join(sentences)}."
        if sentences
        else ""
    )


_PERCENTILES = {"latency_p50": "50", "latency_p99": "99", "latency_p99.9": "99.9",
                "latency_max": "max"}  # fmt: skip


def latency_figure(report: ReportAnswer, palette: Palette) -> Figure:
    """Latency of small random reads: the answer, the cells compared with it, and the host."""
    title = "Latency percentiles, 4 KiB random reads"
    name = next((k.name for k in report.summaries if k.name.startswith("randread-4k")), None)
    if name is None:
        return Figure("latency", title, "", missing=RUN_COMMAND)
    rows = []
    for cell in report.featured:
        for metric, percentile in _PERCENTILES.items():
            summary = report.of(MeasureKey(name, Direction.READ, metric)).get(cell)
            if summary is not None and summary.median > 0:
                rows.append(SeriesPoint(cell.label, percentile, summary.median * 1e6))
    if not rows:
        return Figure("latency", title, "", missing=RUN_COMMAND)
    values = "; ".join(f"{r.label}, {r.percentile}: {numbers.digits(r.value)}" for r in rows)
    values += f".{vega.with_caveat(report)}"
    spec = percentiles(rows, "µs", palette, caution=report.caveats.warning)
    return Figure(
        "latency", f"{title} ({name})", f"Line chart in microseconds: {values}", spec,
        note="The median over the runs of each run's percentile.",
        cells=tuple(dict.fromkeys(row.label for row in rows)),
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Moment:
    """One interval of one run, at its middle in seconds from the start."""

    panel: str
    label: str
    run: str
    second: float
    value: float
    stalled: bool


def over_time(rows: Sequence[Moment], unit: str, palette: Palette, *, caution: str | None) -> Spec:
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


@dataclass(frozen=True, slots=True)
class SeriesPoint:
    """One percentile of one cell."""

    label: str
    percentile: str
    value: float


def percentiles(
    rows: Sequence[SeriesPoint],
    unit: str,
    palette: Palette,
    *,
    caution: str | None,
    level: str = "percentile",
) -> Spec:
    """A value by `level`, one line per label, on a logarithmic axis."""
    values = [asdict(row) for row in rows]
    order = list(dict.fromkeys(row.percentile for row in rows))
    names = list(dict.fromkeys(row.label for row in rows))
    scale = {"type": "log"}
    channels = {
        "x": vega.nominal("percentile", sort=order, title=level, axis={"labelAngle": 0}),
        "y": vega.quantitative("value", title=unit, scale=scale, axis={"tickCount": 4}),
        **vega.line_styles(names, palette),
    }
    chart = {**vega.layer("line", {"point": True}, channels), "width": vega.WIDTH, "height": 240}
    return vega.finished(chart, values, palette, caution)


FEWEST_LEVELS = 3
"""Values of an option below which two bars say as much as a line."""

MOST_LINES = 5
"""Maximum number of lines in a figure; of a density search, the paths that carry most guests."""

_SWEPT = ("backing", "snapshots", "bitmaps", "iothreads", "queues", "queue_size", "guests")


@dataclass(frozen=True, slots=True)
class _Sweep:
    """The cells that differ in one option only, by its value; `base` is the path without it."""

    option: str
    base: str
    cells: Mapping[int, MeasuredCell]


def sweep_figures(report: ReportAnswer, palette: Palette) -> tuple[Figure, ...]:
    """One figure for each option that was swept; none if no option was."""
    cells = [(cell, cell.path) for cell in report.of(report.measure) if cell.path is not None]
    figures = (_sweep_figure(option, tuple(_sweeps(option, cells)), report, palette)
               for option in _SWEPT if any(_value(path, option) for _, path in cells))  # fmt: skip
    return tuple(figure for figure in figures if figure is not None)


def _value(path: DiskPath, option: str) -> str | int | None:
    return path.attachment.option(option) or (path.image.option(option) if path.image else None)


def _sweeps(option: str, cells: list[tuple[MeasuredCell, DiskPath]]) -> Iterator[_Sweep]:
    groups: dict[tuple[DiskPath, PageCache], dict[int, MeasuredCell]] = {}
    for cell, path in cells:
        if not path.on_host:
            base = (_without(path, option), cell.page_cache)
            groups.setdefault(base, {})[int(_value(path, option) or 0)] = cell
    for (path, page_cache), levels in groups.items():
        if len(levels) >= FEWEST_LEVELS:
            yield _Sweep(option, f"{path} ({page_cache})", dict(sorted(levels.items())))


def _without(path: DiskPath, option: str) -> DiskPath:
    """The path without the option (itself if it is not set)."""
    if _value(path, option) is None:
        return path
    image, attachment = path.image, path.attachment
    if image is not None:
        rest = tuple(item for item in image.options if item[0] != option)
        image = Image(image.format, rest)
    rest = tuple(item for item in attachment.options if item[0] != option)
    return replace(path, image=image, attachment=Attachment(attachment.bus, rest))


def _sweep_figure(
    option: str, sweeps: tuple[_Sweep, ...], report: ReportAnswer, palette: Palette
) -> Figure | None:
    lines: dict[str, list[SeriesPoint]] = {}
    drawn: list[_Sweep] = []
    for sweep in sweeps:
        points = list(_points(sweep, report, named=len(sweeps) > 1))
        more = {point.label for point in points} - lines.keys()
        if len(lines) + len(more) > MOST_LINES and lines:
            break
        drawn += [sweep] if points else []
        for point in points:
            lines.setdefault(point.label, []).append(point)
    rows = [point for label in list(lines)[:MOST_LINES] for point in lines[label]]
    if not rows:
        return None
    unit = f"relative to the lowest {option}"
    spec = percentiles(rows, unit, palette, caution=report.caveats.warning, level=option)
    values = "; ".join(f"{r.label}, {r.percentile}: {numbers.digits(r.value)}" for r in rows)
    rest = len(sweeps) - len(drawn)
    left_out = f" {rest} more paths are not drawn." if rest > 0 else ""
    return Figure(
        f"sweep-{option.replace('_', '-')}",
        f"What each {option} costs or gains",
        f"Line chart, {unit}: {values}.{vega.with_caveat(report)}",
        spec,
        note=f"Medians, divided by the median with the lowest {option}. 1 means no change."
        f"{left_out}",
        cells=tuple(cell.label for sweep in drawn for cell in sweep.cells.values()),
    )


def _points(sweep: _Sweep, report: ReportAnswer, named: bool) -> Iterator[SeriesPoint]:
    first = next(iter(sweep.cells.values()))
    for key in measured_quantities(report):
        summaries = report.of(key)
        if first not in summaries or summaries[first].median <= 0:
            continue
        label = f"{key.name}, {sweep.base}" if named else key.name
        for level, cell in sweep.cells.items():
            if cell in summaries and summaries[cell].median > 0:
                ratio = summaries[cell].median / summaries[first].median
                yield SeriesPoint(label, str(level), ratio)


def density_figures(report: ReportAnswer, palette: Palette) -> tuple[Figure, ...]:
    """The figure of a campaign that `density` measured; none for another campaign."""
    answer = report.density
    if answer is None or not any(path.steps for path in answer.paths):
        return ()
    return (_density_figure(answer, report.caveats.warning, palette),)


def _density_figure(answer: DensityAnswer, caution: str | None, palette: Palette) -> Figure:
    drawn = [path for path in answer.paths if path.steps][:MOST_LINES]
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
    left_out = len([path for path in answer.paths if path.steps]) - len(drawn)
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
