"""Line charts: bandwidth over time with its stalls, and latency percentiles."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass

import numpy as np

from vdisklab import numbers
from vdisklab.analysis.observations import MeasureKey
from vdisklab.analysis.sums import STALL_BELOW, BandwidthSeries, coarser
from vdisklab.answers.report_contents import Contents
from vdisklab.path.cell import MeasuredCell
from vdisklab.results.model import Direction
from vdisklab.views.charts.svg import Palette, Spec
from vdisklab.views.charts.vega import (
    WIDTH,
    Figure,
    faceted,
    finished,
    layer,
    line_styles,
    nominal,
    quantitative,
)
from vdisklab.views.page.contents import caution_of, described_caution

MOST_MOMENTS = 90
"""Maximum number of points in a line; longer runs are drawn as means over several seconds."""

MOST_RUNS = 5
"""Maximum number of runs drawn for a cell: the newest."""

SHORTEST = 5.0
"""Seconds of a run below which a line shows nothing that the bars do not."""

RUN_COMMAND = "vdisklab run PATHS… host"


def time_series_figure(contents: Contents, palette: Palette) -> Figure:
    """Bandwidth of the featured cells, run by run, with stalls as crosses."""
    title = "Bandwidth over time, with stalls"
    long = [one for one in contents.bandwidth_series if len(one.values) * one.interval >= SHORTEST]
    bandwidth_series = _newest(long)
    if not bandwidth_series:
        return Figure("over-time", title, "", missing=f"{RUN_COMMAND} --runtime 10")
    # One unit for all panels: that of the slowest, which also suits the faster ones.
    tops = [max(series.values) for series in bandwidth_series if max(series.values) > 0]
    scale = numbers.scale(min(tops, default=0.0), "B/s")
    rows = [moment for series in bandwidth_series for moment in _moments(series, scale)]
    unit = scale.suffix.strip()
    spec = over_time(rows, unit, palette, caution=caution_of(contents))
    values = "; ".join(_described(bandwidth_series))
    alt = (
        f"Line charts of bandwidth in {unit} by the second: {values}.{described_caution(contents)}"
    )
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
    return Figure("over-time", title, alt, spec, note=f"{note} {_longest(contents, cells)}".strip(),
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


def _longest(contents: Contents, cells: Sequence[MeasuredCell]) -> str:
    """The longest time without any completion, if programs reported one."""
    sentences = []
    for cell in cells:
        waits = [
            summaries[cell].median
            for key, summaries in contents.summaries.items()
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


def latency_figure(contents: Contents, palette: Palette) -> Figure:
    """Latency of small random reads: the answer, the cells compared with it, and the host."""
    title = "Latency percentiles, 4 KiB random reads"
    name = next((k.name for k in contents.summaries if k.name.startswith("randread-4k")), None)
    if name is None:
        return Figure("latency", title, "", missing=RUN_COMMAND)
    rows = []
    for cell in contents.featured:
        for metric, percentile in _PERCENTILES.items():
            summary = contents.of(MeasureKey(name, Direction.READ, metric)).get(cell)
            if summary is not None and summary.median > 0:
                rows.append(SeriesPoint(cell.label, percentile, summary.median * 1e6))
    if not rows:
        return Figure("latency", title, "", missing=RUN_COMMAND)
    values = "; ".join(f"{r.label}, {r.percentile}: {numbers.digits(r.value)}" for r in rows)
    values += f".{described_caution(contents)}"
    spec = percentiles(rows, "µs", palette, caution=caution_of(contents))
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
        "x": quantitative("second", title=seconds, axis={"tickMinStep": 1}),
        "y": quantitative("value", title=unit, scale={"zero": True}, axis={"tickCount": 4}),
    }
    legend = {"title": None, "orient": "bottom", "columns": 1, "labelLimit": 500,
              "symbolType": "stroke"}  # fmt: skip
    kinds = {
        "color": nominal(
            "label", scale={"domain": names, "range": colours[: len(names)]}, legend=legend
        ),
        "detail": nominal("run"),
        "strokeDash": nominal(
            "label", scale={"domain": names, "range": dashes[: len(names)]}, legend=None
        ),
    }
    line = {"strokeWidth": 1.6, "opacity": 0.85, "point": {"size": 12}}
    cross = {"shape": "cross", "angle": 45, "size": 130, "filled": True, "opacity": 1}
    ink = {"color": {"value": palette.ink}}
    chart: Spec = {
        "layer": [
            layer("line", line, place, kinds),
            layer("point", cross, place, ink, only="datum.stalled"),
        ],
        "width": WIDTH,
        "height": 130,
    }
    return finished(faceted(chart, "panel", palette, 16, y=True), values, palette, caution)


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
        "x": nominal("percentile", sort=order, title=level, axis={"labelAngle": 0}),
        "y": quantitative("value", title=unit, scale=scale, axis={"tickCount": 4}),
        **line_styles(names, palette),
    }
    chart = {**layer("line", {"point": True}, channels), "width": WIDTH, "height": 240}
    return finished(chart, values, palette, caution)
