"""The articles' bar charts with the user's numbers: one function and one table row per chart."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from vdisklab import numbers
from vdisklab.analysis.candidates import candidates
from vdisklab.analysis.observations import MeasureKey
from vdisklab.analysis.score import Score
from vdisklab.analysis.summary import Summary
from vdisklab.answers.report import Bar, Figure, ReportAnswer
from vdisklab.path.cell import MeasuredCell
from vdisklab.path.disk_path import Attachment, DiskPath
from vdisklab.path.segments import Bus, CacheMode
from vdisklab.results.model import Better
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


MOST_BARS = 14
"""Maximum number of bars in a figure: the best ones; the table has all."""


MOST_GROUPS = 4
"""Maximum number of groups in a figure."""


@dataclass(frozen=True, slots=True)
class _Recipe:
    key: str
    title: str
    rows: Callable[[ReportAnswer], tuple[Sequence[Bar], str]]
    missing: str
    shared: bool = True  # otherwise each group has its own axis
    of_cells: bool = True  # otherwise the bars are measurements of the baseline

    def cells(self, rows: Sequence[Bar], report: ReportAnswer) -> tuple[str, ...]:
        """The cells that the bars show."""
        drawn = [row.label for row in rows] if self.of_cells else [report.baseline.label]
        return tuple(dict.fromkeys(drawn))


def _bar_figure(recipe: _Recipe, report: ReportAnswer, palette: Palette) -> Figure:
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


def _rows(
    summaries: Mapping[MeasuredCell, Summary], cells: Iterable[MeasuredCell], unit: str, *,
    answer: MeasuredCell | None = None, most: int = MOST_BARS,
) -> tuple[list[Bar], str]:  # fmt: skip
    """Bars of some cells, best first, and the axis' unit; cells without the measure have none."""
    drawn = [summaries[cell] for cell in cells if cell in summaries]
    if not drawn:
        return [], unit
    lower = drawn[0].measure.quantity.better is Better.LOWER
    drawn.sort(key=lambda summary: summary.median, reverse=not lower)
    scale = numbers.scale(max(summary.median for summary in drawn), unit)
    return [_bar(row, scale, answer) for row in drawn[:most]], scale.suffix.strip()


def _bar(
    summary: Summary,
    scale: numbers.Scale,
    answer: MeasuredCell | None,
    group: str = "",
    label: str | None = None,
) -> Bar:
    return Bar(
        label or summary.cell.label,
        summary.median / scale.factor,
        None if summary.low is None else summary.low / scale.factor,
        None if summary.high is None else summary.high / scale.factor,
        group,
        summary.cell == answer,
    )


def choice_bars(report: ReportAnswer) -> tuple[Sequence[Bar], str]:
    """The first paths that qualify, with the recommended one and QEMU's default."""
    answer = report.recommendation
    if answer is None:
        return [], ""
    recommendation = answer.recommendation
    chosen = (*answer.order[:6], recommendation.cell, recommendation.default)
    cells = dict.fromkeys(cell for cell in chosen if cell is not None)
    return _ranked_rows(report, cells)


def _ranked_rows(report: ReportAnswer, cells: Iterable[MeasuredCell]) -> tuple[Sequence[Bar], str]:
    """Bars of some cells in the measure that ranks them."""
    measure, answer = report.measure, report.answer
    return _rows(report.of(measure), cells, measure.quantity.unit, answer=answer)


def measured_quantities(report: ReportAnswer) -> list[MeasureKey]:
    """One measure of each measurement: IOPS of random ones, bandwidth of the others."""
    named: dict[str, list[MeasureKey]] = {}
    for key in report.summaries:
        if key.metric in ("iops", "bandwidth"):
            named.setdefault(key.name, []).append(key)
    wanted = {name: "iops" if name.startswith("rand") else "bandwidth" for name in named}
    return [
        next((key for key in keys if key.metric == wanted[name]), keys[0])
        for name, keys in named.items()
    ]


def _baseline(report: ReportAnswer) -> tuple[Sequence[Bar], str]:
    """The host in each measurement, sequential ones first; no bars if the baseline is a guest's."""
    if report.baseline.path is not None and not report.baseline.on_host:
        return (), ""
    measured = [
        (key, report.summaries[key][report.baseline])
        for key in measured_quantities(report)
        if report.baseline in report.summaries[key]
    ]
    groups = {"bandwidth": "Sequential and others", "iops": "Random"}
    shown: list[Bar] = []
    for metric, group in groups.items():
        chosen = [(key, summary) for key, summary in measured if key.metric == metric]
        chosen.sort(key=lambda named: -named[1].median)
        top = chosen[0] if chosen else None
        scale = numbers.scale(top[1].median if top else None, top[0].quantity.unit if top else "1")
        shown += [
            replace(_bar(summary, scale, None, group, key.name), unit=scale.suffix.strip())
            for key, summary in chosen[:MOST_BARS]
        ]
    return shown, ""


def _alike(report: ReportAnswer, key: Callable[[DiskPath], object]) -> list[MeasuredCell]:
    """The usable cells with one `key`, which omits what may differ: the answer's, else the most."""
    groups: dict[object, list[MeasuredCell]] = {}
    for cell, path in candidates(report.of(report.measure)).items():
        groups.setdefault(key(path), []).append(cell)
    answer = report.answer
    several = [cells for cells in groups.values() if len(cells) > 1]
    return max(several, key=lambda cells: (answer in cells, len(cells)), default=[])


def _cache_methods(report: ReportAnswer) -> tuple[Sequence[Bar], str]:
    cells = _alike(report, lambda path: (path.layers, path.image, path.attachment))
    return _ranked_rows(report, cells)


def _storage_methods(report: ReportAnswer) -> tuple[Sequence[Bar], str]:
    cells = _alike(report, lambda path: (path.cache, path.attachment))
    return _ranked_rows(report, cells)


def _buses(report: ReportAnswer) -> tuple[Sequence[Bar], str]:
    """IDE and the other buses, with all else equal: for the fastest stores on IDE."""
    overall = report.of(report.measure)
    groups: dict[tuple[object, ...], list[MeasuredCell]] = {}
    ide: dict[tuple[object, ...], float] = {}
    paths = candidates(overall)
    for cell, path in paths.items():
        key = (path.layers, path.image, path.cache)
        groups.setdefault(key, []).append(cell)
        if path.attachment.bus is Bus.IDE:
            ide[key] = max(ide.get(key, 0.0), overall[cell].median)
    chosen = sorted(ide, key=lambda key: -ide[key])[:MOST_GROUPS]
    top = max((overall[cell].median for key in chosen for cell in groups[key]), default=None)
    scale = numbers.scale(top, report.measure.quantity.unit)
    shown = [
        _bar(overall[cell], scale, report.answer, str(replace(paths[cell],
             attachment=Attachment())))
        for key in chosen
        for cell in sorted(groups[key], key=lambda cell: -overall[cell].median)
    ]  # fmt: skip
    return shown, scale.suffix.strip()


def _top(score: Score) -> Callable[[ReportAnswer], tuple[Sequence[Bar], str]]:
    def rows(report: ReportAnswer) -> tuple[Sequence[Bar], str]:
        summaries = report.of(score.key)
        return _rows(summaries, candidates(summaries), "B/s", answer=report.answer, most=8)

    return rows


def _guest_and_host(report: ReportAnswer) -> tuple[Sequence[Bar], str]:
    """The answer and the host, for each measurement."""
    answer = report.answer
    if answer is None:
        return [], "B/s"
    shown: list[Bar] = []
    for key in measured_quantities(report):
        summaries = report.summaries[key]
        if answer not in summaries or report.baseline not in summaries:
            continue
        pair = summaries[answer], summaries[report.baseline]
        top = max(summary.median for summary in pair)
        scale = numbers.scale(top, key.quantity.unit)
        unit = scale.suffix.strip()
        shown += [replace(_bar(one, scale, answer, key.name), unit=unit) for one in pair]
    return shown, ""


def _thin(report: ReportAnswer) -> tuple[Sequence[Bar], str]:
    """Images that differ only in their preallocation."""
    groups: dict[object, list[MeasuredCell]] = {}
    for cell, path in candidates(report.of(report.measure)).items():
        if path.image is not None:
            options = tuple(o for o in path.image.options if o[0] != "preallocation")
            key = (path.layers, path.image.format, options, path.cache, path.attachment)
            groups.setdefault(key, []).append(cell)
    cells = [cell for group in groups.values() if len(group) > 1 for cell in group]
    return _ranked_rows(report, cells)


_BARS = (
    _Recipe("baseline", "Baseline performance: the host itself", _baseline,
            "vdisklab run host PATHS…", shared=False, of_cells=False),
    _Recipe("cache-methods", "Cache methods", _cache_methods,
            f"vdisklab run raw/{{{','.join(list(CacheMode)[1:])}}} host"),
    _Recipe("storage-methods", "Storage methods", _storage_methods,
            "vdisklab run {ext4,xfs,btrfs}/{raw,qcow2}/none host"),
    _Recipe("ide", "IDE performance", _buses, "vdisklab run raw/none/{ide,virtio} host"),
    _Recipe("top-read", "Top performers, weighted read", _top(Score.READ),
            "vdisklab run PATHS… host"),
    _Recipe("top-write", "Top performers, weighted write", _top(Score.WRITE),
            "vdisklab run PATHS… host"),
    _Recipe("top-overall", "Top performers, weighted overall", _top(Score.OVERALL),
            "vdisklab run PATHS… host"),
    _Recipe("guest-host", "Guest against host", _guest_and_host,
            "vdisklab run host PATHS…", shared=False),
    _Recipe("thin", "Thin against allocated", _thin,
            "vdisklab run qcow2:preallocation={off,metadata,full}/none host"),
)  # fmt: skip


def bar_figures(report: ReportAnswer, palette: Palette) -> tuple[Figure, ...]:
    """The bar charts in the order of the articles."""
    return tuple(_bar_figure(recipe, report, palette) for recipe in _BARS)
