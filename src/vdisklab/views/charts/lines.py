"""Figures of lines: bandwidth over time, latency percentiles, and curves over a number.

Such a number is the value of an option, or the number of guests. The page's script draws them.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from vdisklab import numbers
from vdisklab.analysis.guest_groups import GroupStep
from vdisklab.analysis.sums import STALL_BELOW
from vdisklab.answers import figures
from vdisklab.answers.during import DuringAnswer
from vdisklab.answers.report import Figure, Lines, ReportAnswer
from vdisklab.units import counted, in_percent
from vdisklab.views import trend
from vdisklab.views.density import capacity_text
from vdisklab.views.during import operation_in_words

MOST_OPERATIONS = 8
"""Maximum number of panels of operations: those that were felt most."""

RUN_COMMAND = "vdisklab run PATHS… host"


def caveat(report: ReportAnswer) -> str:
    """The warning as the end of a description; empty if no caveat applies."""
    warning = report.caveats.warning
    return "" if warning is None else f" {warning}."


def by_level(points: Iterable[figures.LinePoint], x: str, y: str, *, log: bool = True) -> Lines:
    """A line for each label, over levels that are named below the axis, in their order."""
    values: dict[str, dict[str, float]] = {}
    for point in points:
        values.setdefault(point.label, {})[point.level] = point.value
    levels = list(dict.fromkeys(level for line in values.values() for level in line))
    data = (
        range(len(levels)),
        *([line.get(level) for level in levels] for line in values.values()),
    )
    return Lines(x, y, tuple(values), tuple(map(tuple, data)), tuple(levels), log=log)


def time_series_figure(report: ReportAnswer) -> Figure:
    """Bandwidth of the featured cells' newest runs, a panel for each measurement."""
    title = "Bandwidth over time"
    found = figures.over_time(report)
    if found is None:
        return Figure("over-time", title, "", missing=f"{RUN_COMMAND} --runtime 10")
    panels: dict[str, dict[str, dict[float, figures.Moment]]] = {}
    for moment in found.moments:  # later runs take the place of earlier ones
        line = panels.setdefault(moment.panel, {}).setdefault(moment.label, {})
        if any(drawn.run != moment.run for drawn in line.values()):
            line.clear()
        line[moment.second] = moment
    curves = []
    for panel, cells in panels.items():
        times = sorted({second for line in cells.values() for second in line})
        values = [[line[t].value if t in line else None for t in times] for line in cells.values()]
        stalled = {
            moment.second for moment in found.moments if moment.panel == panel and moment.stalled
        }
        said = "; ".join(_described(each) for each in found.summaries if each.panel == panel)
        curves.append(
            Lines(
                "s", found.unit, tuple(cells), (tuple(times), *map(tuple, values)),
                gaps=tuple((second - 0.5, second + 0.5) for second in sorted(stalled)),
                panel=panel, alt=f"Line chart of {panel}, {found.unit}: {said}.",
            )
        )  # fmt: skip
    drawn = dict.fromkeys(name for each in curves for name in each.lines)
    return Figure(
        "over-time", title, " ".join(each.alt for each in curves), curves=tuple(curves),
        note=_waits(found), cells=tuple(drawn),
    )  # fmt: skip


def _waits(found: figures.OverTime) -> str:
    """What a stall is, and the longest ones that programs reported."""
    note = (
        "The newest run of each path. Shaded: a second in which a run had less than "
        f"{in_percent(STALL_BELOW)} of its median bandwidth."
    )
    if not found.knows_stalls:
        note += (
            " A line of reads and writes together comes from counters outside the program. It has "
            "no marks, because a pause there may be the program's own."
        )
    if found.longest:
        waits = ", ".join(f"{cell} {numbers.value(s, 's')}" for cell, s in found.longest.items())
        note += f" Longest time without a completion (median of runs): {waits}."
    return note


def _described(series: figures.SeriesSummary) -> str:
    """The median, and the worst second and stalls if a second without a byte is a stall."""
    bad = "" if series.stalls is None else (
        f", worst {numbers.value(series.worst, 'B/s')}, {counted(series.stalls, 'stalled second')}"
    )  # fmt: skip
    return (
        f"{series.cell}: median {numbers.value(series.median, 'B/s')}{bad} "
        f"in {counted(series.runs, 'run')}"
    )


def latency_figure(report: ReportAnswer) -> Figure:
    """Latency of small random reads: the answer, the cells compared with it, and the host."""
    title = "Latency percentiles, 4 KiB random reads"
    found = figures.latency_curves(report)
    if found is None:
        return Figure("latency", title, "", missing=RUN_COMMAND)
    return Figure(
        "latency", f"{title} ({found.name})",
        f"Line chart in microseconds: {_listed(found.points)}.{caveat(report)}",
        curves=(by_level(found.points, "percentile", "µs"),), cells=found.cells,
        note="The median over the runs of each run's percentile.",
    )  # fmt: skip


def _listed(points: Iterable[figures.LinePoint]) -> str:
    return "; ".join(
        f"{point.label}, {point.level}: {numbers.digits(point.value)}" for point in points
    )


def sweep_figures(report: ReportAnswer) -> Iterator[Figure]:
    """One figure for each option that was swept."""
    for found in figures.sweeps(report):
        unit = f"relative to the lowest {found.name}"
        left_out = f" {found.left_out} more paths are not drawn." if found.left_out else ""
        yield Figure(
            f"sweep-{found.name.replace('_', '-')}", f"What each {found.name} costs or gains",
            f"Line chart, {unit}: {_listed(found.points)}.{caveat(report)}",
            curves=(by_level(found.points, found.name, "lowest = 1"),), cells=found.cells,
            note=f"Medians, divided by the median with the lowest {found.name}. 1 means no change."
            f"{left_out}",
        )  # fmt: skip


def trend_figures(report: ReportAnswer) -> Iterator[Figure]:
    """The trend figure, if this host has earlier campaigns of the plan; otherwise none."""
    if report.trend is None:
        return
    found, unit = figures.trend_curves(report.trend), "first campaign = 1"
    more = f" Not drawn: {counted(found.left_out, 'more path')}." if found.left_out else ""
    yield Figure(
        "trend", "This host over time",
        f"Line chart, {unit}: {_listed(found.points)}.{caveat(report)}",
        curves=(by_level(found.points, found.name, unit, log=False),), cells=found.cells,
        note=" ".join(trend.story(report.trend)) + more,
    )  # fmt: skip


def density_figures(report: ReportAnswer) -> tuple[Figure, ...]:
    """The figures of a campaign that `density` measured; none for another campaign."""
    answer = report.density
    if answer is None or not any(path.steps for path in answer.paths):
        return ()
    drawn, left_out = figures.drawn_paths(answer)
    scale = numbers.scale(answer.until.seconds, "s")
    unit, limit = scale.suffix.strip(), answer.until.seconds / scale.factor
    tried = sorted({step.guests for path in drawn for step in path.steps})
    worst = {
        path.path: _medians(path.steps, lambda step: step.worst, scale.factor) for path in drawn
    }
    fair = {path.path: _medians(path.steps, lambda step: step.fairness) for path in drawn}
    worst[f"the limit, {answer.until}"] = dict.fromkeys(tried, limit)
    carried = "; ".join(f"{path.path}: {capacity_text(path)}" for path in drawn)
    more = f" {left_out} more paths are not drawn." if left_out else ""
    return (
        Figure(
            "density", "How many guests each path carries",
            f"Line chart of the slowest guest's {answer.until.metric} in {unit} over the number of "
            f"guests. Carried guests: {carried}.",
            curves=(_over(tried, worst, unit, log=True),),
            note=f"Each guest has a load of {answer.load} requests a second. Above the limit a "
            f"guest is too slow. Medians of the runs. Guests carried (95 % interval): {carried}."
            f"{more}",
        ),
        Figure(
            "fairness", "Fairness", "Line chart of Jain's index over the number of guests.",
            curves=(_over(tried, fair, ""),), note="1 if all guests got the same.",
        ),
    )  # fmt: skip


def _medians(
    steps: Iterable[GroupStep], value_of: Callable[[GroupStep], float], factor: float = 1.0
) -> dict[int, float]:
    """The median of one of the steps' numbers, by the number of guests."""
    found: dict[int, list[float]] = {}
    for step in steps:
        found.setdefault(step.guests, []).append(value_of(step) / factor)
    return {guests: statistics.median(values) for guests, values in found.items()}


def _over(
    tried: Sequence[int], values: Mapping[str, Mapping[int, float]], unit: str, *, log: bool = False
) -> Lines:
    data = (tried, *([line.get(guests) for guests in tried] for line in values.values()))
    return Lines("guests", unit, tuple(values), tuple(map(tuple, data)), log=log)


def operation_figures(answer: DuringAnswer) -> tuple[Figure, ...]:
    """Latency over time with the operation's span shaded: the newest run of each that was felt
    most."""
    curves: list[Lines] = []
    for cost in answer.costs:
        if not cost.runs_over_time or len(curves) == MOST_OPERATIONS:
            continue
        run = max(cost.runs_over_time, key=lambda each: each.round)
        scale = numbers.scale(max((value or 0.0 for value in run.longest), default=0.0), "s")
        # the last value is drawn to the end of its interval, too
        times = tuple(place * run.interval for place in range(len(run.longest) + 1))
        longest = (*run.longest, *run.longest[-1:])
        values = tuple(None if value is None else value / scale.factor for value in longest)
        span = () if run.begin is None or run.end is None else ((run.begin, run.end),)
        panel = f"{cost.operation} on {cost.path}, round {run.round}"
        unit = scale.suffix.strip()
        curves.append(
            Lines(
                "seconds", unit, ("longest latency",), (times, values), gaps=span, panel=panel,
                steps=True,
                alt=f"Line chart of the longest latency over time, {panel}, in {unit}: "
                f"{operation_in_words(cost)}.",
            )
        )  # fmt: skip
    if not curves:
        return ()
    hidden = sum(bool(cost.runs_over_time) for cost in answer.costs) - len(curves)
    return (
        Figure(
            "operations", "What the guest felt while the operation ran",
            " ".join(each.alt for each in curves), curves=tuple(curves),
            note="Each step is an interval of a quarter of a second. Its height is the longest "
            "latency of the requests that were due in it, from when they were due. Shaded, below "
            "a mark: from the order until the "
            f"operation had ended.{f' Not shown: {hidden} more.' if hidden else ''}",
        ),
    )  # fmt: skip
