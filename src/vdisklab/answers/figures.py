"""Which cells the report's figures show, and their numbers in the unit of an axis."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from vdisklab import numbers
from vdisklab.analysis.candidates import candidates
from vdisklab.analysis.observations import MeasureKey, median
from vdisklab.analysis.pareto import Standing
from vdisklab.analysis.score import Weighted
from vdisklab.analysis.summary import Summary
from vdisklab.analysis.sums import BandwidthSeries, coarser
from vdisklab.answers.density import DensityAnswer, PathCapacity
from vdisklab.answers.pareto import ParetoAnswer, ParetoCell
from vdisklab.answers.rank import RankAnswer, RankedCell
from vdisklab.answers.report import Bar, ReportAnswer
from vdisklab.answers.trend import TOGETHER, TrendAnswer
from vdisklab.path.cell import MeasuredCell
from vdisklab.path.disk_path import Attachment, DiskPath, Image
from vdisklab.path.durability import Durability, DurabilityKind, PathCrashes
from vdisklab.path.segments import Bus, CacheMode, PageCache
from vdisklab.results.model import Better, Direction
from vdisklab.value import Value, replace

MOST_BARS = 14
"""Maximum number of bars in a figure: the best ones; the table has all."""


MOST_GROUPS = 4
"""Maximum number of groups in a figure."""

MOST_TRADE_OFFS = 12
"""Maximum number of paths in the figure of trade-offs."""

MOST_PUBLISHED = 12
"""Maximum number of a series' values in a chart; its table has all."""

MOST_MOMENTS = 90
"""Maximum number of points in a line; longer runs are drawn as means over several seconds."""

MOST_RUNS = 5
"""Maximum number of runs drawn for a cell: the newest."""

SHORTEST = 5.0
"""Seconds of a run below which a line shows nothing that the bars do not."""

FEWEST_LEVELS = 3
"""Values of an option below which two bars say as much as a line."""

MOST_LINES = 5
"""Maximum number of lines in a figure; of a density search, the paths that carry most guests."""


_PERCENTILES = {"latency_p50": "50", "latency_p99": "99", "latency_p99.9": "99.9",
                "latency_max": "max"}  # fmt: skip

_SWEPT = ("backing", "snapshots", "bitmaps", "iothreads", "queues", "queue_size", "guests")


class BarChart(Value):
    """One of the articles' bar charts: its bars with their unit, or what would measure them."""

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


def ranked_bars(answer: RankAnswer, most: int) -> tuple[Sequence[Bar], str]:
    """The first cells that compete, in the measure that ranks them, and its unit.

    Where that measure is a ratio to the baseline, the intervals are those of the table.
    """
    measure = answer.ranking.measure
    competing = {row.cell: _as_in_table(row, shown) for row in answer.cells
                 if row.competes and (shown := row.shown(measure)) is not None}  # fmt: skip
    chosen = None if answer.choice is None else answer.choice.cell
    return _rows(competing, competing, measure.quantity.unit, answer=chosen, most=most)


def _as_in_table(row: RankedCell, shown: Summary) -> Summary:
    ratio = row.ratio
    if ratio.ratio != shown.median or ratio.low is None:
        return shown
    return replace(shown, low=ratio.low, high=ratio.high)


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
    return _rows(report.of(measure), cells, measure.quantity.shown_unit, answer=answer)


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
        scale = numbers.scale(
            top[1].median if top else None, top[0].quantity.shown_unit if top else "1"
        )
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
    scale = numbers.scale(top, report.measure.quantity.shown_unit)
    shown = [
        _bar(overall[cell], scale, report.answer, str(replace(paths[cell],
             attachment=Attachment())))
        for key in chosen
        for cell in sorted(groups[key], key=lambda cell: -overall[cell].median)
    ]  # fmt: skip
    return shown, scale.suffix.strip()


def _top(score: Weighted) -> Callable[[ReportAnswer], tuple[Sequence[Bar], str]]:
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
    for measured in measured_quantities(report):
        lasting = replace(measured, metric="sustained")  # which ranks paths, if it was measured
        key = lasting if lasting in report.summaries and measured.metric != "iops" else measured
        summaries = report.summaries[key]
        if answer not in summaries or report.baseline not in summaries:
            continue
        pair = summaries[answer], summaries[report.baseline]
        top = max(summary.median for summary in pair)
        scale = numbers.scale(top, key.quantity.shown_unit)
        unit = scale.suffix.strip()
        group = f"{key.name}: {key.metric}"
        shown += [replace(_bar(summary, scale, answer, group), unit=unit) for summary in pair]
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


_SALTERS = " (Salter, with bursts)"

BAR_CHARTS = (
    BarChart("baseline", "Baseline performance: the host itself", _baseline,
            "vdisklab run host PATHS…", shared=False, of_cells=False),
    BarChart("cache-methods", "Cache methods", _cache_methods,
            f"vdisklab run raw/{{{','.join(list(CacheMode)[1:])}}} host"),
    BarChart("storage-methods", "Storage methods", _storage_methods,
            "vdisklab run {ext4,xfs,btrfs}/{raw,qcow2}/none host"),
    BarChart("ide", "IDE performance", _buses, "vdisklab run raw/none/{ide,virtio} host"),
    BarChart("top-read", f"Top performers, weighted read{_SALTERS}", _top(Weighted.READ),
            "vdisklab run PATHS… host"),
    BarChart("top-write", f"Top performers, weighted write{_SALTERS}", _top(Weighted.WRITE),
            "vdisklab run PATHS… host"),
    BarChart("top-overall", f"Top performers, weighted overall{_SALTERS}", _top(Weighted.OVERALL),
            "vdisklab run PATHS… host"),
    BarChart("guest-host", "Guest against host", _guest_and_host,
            "vdisklab run host PATHS…", shared=False),
    BarChart("thin", "Thin against allocated", _thin,
            "vdisklab run qcow2:preallocation={off,metadata,full}/none host"),
)  # fmt: skip


_KEPT_ALL, _KEPT_FLUSHED = "kept all without a flush, tested", "kept all that was flushed, tested"
_SAFE_ALL, _SAFE_FLUSHED = "safe without a flush, not tested", "safe once flushed, not tested"
_LOST, _LOSES = "lost flushed data, tested", "loses flushed data, not tested"
_SAFETIES = (_KEPT_ALL, _KEPT_FLUSHED, _SAFE_ALL, _SAFE_FLUSHED, _LOSES, _LOST)


def _safety_of(verdict: Durability) -> str:
    """The safety of a cell: from judged power cuts if there are any, otherwise by rule."""
    tested = verdict.tested or PathCrashes("")
    flushed, unflushed = tested.flushed.kept, tested.unflushed.kept
    if flushed is False or verdict.kind is DurabilityKind.LOST_IN_TEST:
        return _LOST
    if not verdict.kind.acceptable:
        return _LOSES
    if flushed and unflushed:
        return _KEPT_ALL
    if flushed:
        return _KEPT_FLUSHED
    return _SAFE_ALL if verdict.flush_free else _SAFE_FLUSHED


class Point(Value):
    """A cell's safety class and its median, in the unit of its plane."""

    label: str
    safety: str
    value: float


class SafetyPlane(Value):
    """Speed by safety class, the safest first."""

    points: Sequence[Point]
    unit: str


def safety_plane(report: ReportAnswer) -> SafetyPlane | None:
    """The fastest path of each safety class; None without paths, or if lower is better.

    The answer is added: it is chosen by differences within rounds, and may not have the highest
    median.
    """
    overall = report.of(report.measure)
    paths = {cell: path for cell, path in candidates(overall).items() if cell in overall}
    if not paths or report.measure.quantity.better is Better.LOWER:
        return None
    unit = report.measure.quantity.shown_unit
    scale = numbers.scale(max(overall[cell].median for cell in paths), unit)
    verdicts = {row.cell: row.power_cut for row in report.ranked.cells if row.power_cut is not None}
    points = []
    for safety in _SAFETIES:
        of_class = [cell for cell in paths if _safety_of(verdicts[cell]) == safety]
        of_class.sort(key=lambda cell: -overall[cell].median)
        points += [
            Point(cell.label, safety, overall[cell].median / scale.factor)
            for place, cell in enumerate(of_class)
            if place == 0 or cell == report.answer
        ]
    return SafetyPlane(points, scale.suffix.strip())


class Moment(Value):
    """One interval of one run, at its middle in seconds from the start."""

    panel: str
    label: str
    run: str
    second: float
    value: float
    stalled: bool


class SeriesSummary(Value):
    """All drawn runs of a cell in one panel, in bytes a second."""

    panel: str
    cell: MeasuredCell
    median: float
    worst: float
    stalls: int | None  # None if a second without a byte may be the program's own pause
    runs: int


class OverTime(Value):
    """Bandwidth over time; `means` is true if long runs are drawn as means.

    `longest` has the seconds without any completion, where programs reported some.
    """

    moments: Sequence[Moment]
    summaries: Sequence[SeriesSummary]
    unit: str
    cells: Sequence[MeasuredCell]
    knows_stalls: bool
    means: bool
    longest: Mapping[MeasuredCell, float]


def over_time(report: ReportAnswer) -> OverTime | None:
    """Bandwidth of the featured cells' newest runs; None if no run was long enough."""
    featured = (series for series in newest_series(report) if series.cell in report.featured)
    newest = list(featured)
    if not newest:
        return None
    # One unit for all panels: that of the slowest, which also suits the faster ones.
    tops = [max(series.values) for series in newest if max(series.values) > 0]
    scale = numbers.scale(min(tops, default=0.0), "B/s")
    cells = tuple(dict.fromkeys(series.cell for series in newest))
    return OverTime(
        [moment for series in newest for moment in _moments(series, scale)],
        tuple(_series_summaries(newest)),
        scale.suffix.strip(),
        cells,
        knows_stalls=all(series.knows_stalls for series in newest),
        means=any(len(series.values) > MOST_MOMENTS for series in newest),
        longest=_longest(report, cells),
    )


def newest_series(report: ReportAnswer) -> Iterator[BandwidthSeries]:
    """The last runs of each cell that were long enough."""
    of_cell: dict[MeasuredCell, list[BandwidthSeries]] = {}
    for series in report.bandwidth_series:
        if len(series.values) * series.interval >= SHORTEST:
            of_cell.setdefault(series.cell, []).append(series)
    for of_one_cell in of_cell.values():
        runs = list(dict.fromkeys(series.run for series in of_one_cell))[-MOST_RUNS:]
        yield from (series for series in of_one_cell if series.run in runs)


def series_name(series: BandwidthSeries) -> str:
    """The measurement, and its direction unless that is in its name."""
    suffix = "" if series.direction is Direction.NONE else f", {series.direction}"
    return series.measurement if series.direction in series.measurement else (
        f"{series.measurement}{suffix}"
    )  # fmt: skip


def _moments(series: BandwidthSeries, scale: numbers.Scale) -> Iterator[Moment]:
    values, width = coarser(series.values, MOST_MOMENTS)
    stalled = {place // width for place in series.stalls}
    for place, value in enumerate(values):
        middle = (place + 0.5) * width * series.interval
        yield Moment(series_name(series), series.cell.label, f"{series.cell} {series.run}", middle,
                     value / scale.factor, place in stalled)  # fmt: skip


def _series_summaries(bandwidth_series: Sequence[BandwidthSeries]) -> Iterator[SeriesSummary]:
    groups: dict[str, dict[MeasuredCell, list[BandwidthSeries]]] = {}
    for series in bandwidth_series:
        groups.setdefault(series_name(series), {}).setdefault(series.cell, []).append(series)
    for panel, by_cell in groups.items():
        for cell in dict.fromkeys(series.cell for series in bandwidth_series):
            if runs := by_cell.get(cell):
                every = [value for run in runs for value in run.values]
                counted = all(run.knows_stalls for run in runs)
                stalls = sum(len(run.stalls) for run in runs) if counted else None
                middle = median(every)
                yield SeriesSummary(panel, cell, middle, min(every), stalls, len(runs))


def _longest(
    report: ReportAnswer, cells: Iterable[MeasuredCell]
) -> Mapping[MeasuredCell, float]:  # fmt: skip
    waits = [of for key, of in report.summaries.items() if key.metric == "longest_stall"]
    longest = {cell: max((of[cell].median for of in waits if cell in of), default=0.0)
               for cell in cells}  # fmt: skip
    return {cell: seconds for cell, seconds in longest.items() if seconds > 0}


class LinePoint(Value):
    """A point of the line `label`, at a percentile or at a value of an option."""

    label: str
    level: str
    value: float


class Curves(Value):
    """Lines of some cells: of a measurement, or of an option; `left_out` counts other paths."""

    name: str
    points: Sequence[LinePoint]
    cells: tuple[str, ...]
    left_out: int = 0


def latency_curves(report: ReportAnswer) -> Curves | None:
    """Featured cells' latency of small random reads in µs; None if it was not measured."""
    name = next((key.name for key in report.summaries if key.name.startswith("randread-4k")), None)
    if name is None:
        return None
    points = []
    for cell in report.featured:
        for metric, percentile in _PERCENTILES.items():
            summary = report.of(MeasureKey(name, Direction.READ, metric)).get(cell)
            if summary is not None and summary.median > 0:
                points.append(LinePoint(cell.label, percentile, summary.median * 1e6))
    cells = tuple(dict.fromkeys(point.label for point in points))
    return Curves(name, points, cells) if points else None


def campaign_names(answer: TrendAnswer) -> list[str]:
    """The days of the campaigns, with times where a day has several, else ids: all differ."""
    days, times = (
        [f"{campaign.started:{form}}" for campaign in answer.campaigns]
        for form in ("%Y-%m-%d", "%Y-%m-%d %H:%M")
    )
    return [
        day if days.count(day) == 1 else time if times.count(time) == 1 else f"{day} {campaign.id}"
        for day, time, campaign in zip(days, times, answer.campaigns, strict=True)
    ]


def trend_curves(answer: TrendAnswer) -> Curves:
    """The levels of all paths together and of the paths that changed most, campaign by campaign."""
    names = campaign_names(answer)
    rows = answer.paths[:MOST_LINES]
    points = [
        LinePoint(row.path, name, level)
        for row in rows
        for name, level in zip(names, row.levels, strict=True)
        if level is not None
    ]
    cells = tuple(row.path for row in rows if row.path != TOGETHER)
    return Curves("campaign", points, cells, len(answer.paths) - len(rows))


class _Sweep(Value):
    """The cells that differ in one option only, by its value; `base` is the path without it."""

    base: str
    cells: Mapping[int, MeasuredCell]


def sweeps(report: ReportAnswer) -> Iterator[Curves]:
    """For each option that was swept: values relative to that at the option's lowest value."""
    cells = [(cell, cell.path) for cell in report.of(report.measure) if cell.path is not None]
    for option in _SWEPT:
        if any(_value(path, option) for _, path in cells):
            found = _swept(option, tuple(_sweeps(option, cells)), report)
            if found.points:
                yield found


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
            yield _Sweep(f"{path} ({page_cache})", dict(sorted(levels.items())))


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


def _swept(option: str, swept: tuple[_Sweep, ...], report: ReportAnswer) -> Curves:
    lines: dict[str, list[LinePoint]] = {}
    drawn: list[_Sweep] = []
    for sweep in swept:
        points = list(_points(sweep, report, named=len(swept) > 1))
        more = {point.label for point in points} - lines.keys()
        if len(lines) + len(more) > MOST_LINES and lines:
            break
        drawn += [sweep] if points else []
        for point in points:
            lines.setdefault(point.label, []).append(point)
    return Curves(
        option,
        [point for label in list(lines)[:MOST_LINES] for point in lines[label]],
        tuple(cell.label for sweep in drawn for cell in sweep.cells.values()),
        len(swept) - len(drawn),
    )


def _points(sweep: _Sweep, report: ReportAnswer, named: bool) -> Iterator[LinePoint]:
    first = next(iter(sweep.cells.values()))
    for key in measured_quantities(report):
        summaries = report.of(key)
        if first not in summaries or summaries[first].median <= 0:
            continue
        label = f"{key.name}, {sweep.base}" if named else key.name
        for level, cell in sweep.cells.items():
            if cell in summaries and summaries[cell].median > 0:
                ratio = summaries[cell].median / summaries[first].median
                yield LinePoint(label, str(level), ratio)


def drawn_paths(answer: DensityAnswer) -> tuple[Sequence[PathCapacity], int]:
    """The measured paths that carry most guests, and the number of measured ones left out."""
    measured = [path for path in answer.paths if path.steps]
    return measured[:MOST_LINES], max(0, len(measured) - MOST_LINES)


def drawn_trade_offs(answer: ParetoAnswer) -> Sequence[ParetoCell]:
    """The first paths that are on the front or may be."""
    unbeaten = [cell for cell in answer.cells if cell.standing is not Standing.BEATEN]
    return unbeaten[:MOST_TRADE_OFFS]


class PublishedRatio(Value):
    """A published ratio and ours, each to the baseline of its own machine."""

    panel: str
    label: str
    published: float
    ours: float
    low: float | None
    high: float | None


def published_ratios(report: ReportAnswer) -> Sequence[PublishedRatio]:
    """The first ratios of each published series that have a counterpart here; a panel each."""
    return [
        PublishedRatio(
            f"{comparison.tables[0].series}, over {comparison.baseline.label}",
            f"{row.cell.label}, {row.number.measure}",
            row.published,
            row.ours.ratio,
            row.ours.low,
            row.ours.high,
        )
        for comparison in (answer.comparison for answer in report.published)
        for row in comparison.compared[:MOST_PUBLISHED]
        if row.ours.ratio
    ]
