"""All figures of a report, in the order of the articles: bars or lines."""

from __future__ import annotations

from collections.abc import Sequence

from vdisklab import numbers
from vdisklab.analysis.pareto import Standing
from vdisklab.answers import figures as answers
from vdisklab.answers.life import LifeAnswer
from vdisklab.answers.pareto import ParetoCell
from vdisklab.answers.report import Bar, Figure, ReportAnswer
from vdisklab.views.charts import lines

_UNTIL_READY = {"make": "make", "attach": "attach", "first-write": "first write and flush"}
"""The steps until a disk is ready, and their names."""

_LONGEST = 1.5
"""The end of its axis. Longer intervals are cut, or one of them would make all bars tiny."""


def figures(report: ReportAnswer) -> tuple[Figure, ...]:
    """All figures in the order of the articles; one without numbers names the command to run.

    A search of how many guests each path carries has only its own, and so have operations and the
    lives of disks.
    """
    if report.density is not None:
        return lines.density_figures(report)
    if report.operations is not None:
        return lines.operation_figures(report.operations)
    if report.lives is not None:
        return life_figures(report.lives)
    one_host = report.ranked.hosts is None
    return (
        *(_bar_figure(recipe, report) for recipe in answers.BAR_CHARTS),
        _safety(report),
        *((_trade_offs(report), lines.time_series_figure(report)) if one_host else ()),
        lines.latency_figure(report),
        *lines.sweep_figures(report),
        *lines.trend_figures(report),
        *((_published(report),) if one_host else ()),
    )


def life_figures(answer: LifeAnswer) -> tuple[Figure, ...]:
    """What the time until a disk is ready went to, a bar for each path and way."""
    drawn = [life for life in answer.lives if life.ready is not None][: answers.MOST_BARS]
    if not drawn:
        return ()
    title = "Where the time goes until a disk is ready"
    scale = numbers.scale(max(life.ready or 0.0 for life in drawn), "s")
    rows = tuple(
        Bar(
            f"{life.path} by {life.made}{'' if life.disks == 1 else f', {life.disks} at once'}",
            (life.ready or 0.0) / scale.factor, None, None, highlight=False,
            parts=tuple((life.seconds(step) or 0.0) / scale.factor for step in _UNTIL_READY),
        )
        for life in drawn
    )  # fmt: skip
    names, unit = tuple(_UNTIL_READY.values()), scale.suffix.strip()
    shown = "; ".join(
        f"{row.label}: {numbers.digits(row.value)}, of which "
        + ", ".join(
            f"{name} {numbers.digits(part)}" for name, part in zip(names, row.parts, strict=True)
        )
        for row in rows
    )
    hidden = len([life for life in answer.lives if life.ready is not None]) - len(drawn)
    return (
        Figure(
            "life", title, f"Stacked bars, {title}, in {unit}: {shown}.", bars=rows, unit=unit,
            parts=names,
            note="Medians over rounds; a sum of medians may differ from the median of sums."
            f"{f' Not shown: {hidden} more.' if hidden else ''}",
        ),
    )  # fmt: skip


def _bar_figure(recipe: answers.BarChart, report: ReportAnswer) -> Figure:
    rows, unit = recipe.rows(report)
    if not rows:
        return Figure(recipe.key, recipe.title, "", missing=recipe.missing)
    return Figure(
        recipe.key, recipe.title, _in_words(recipe.title, rows, unit, report),
        cells=recipe.cells(rows, report), bars=tuple(rows), unit=unit, shared=recipe.shared,
    )  # fmt: skip


def _in_words(title: str, rows: Sequence[Bar], unit: str, report: ReportAnswer) -> str:
    shown = "; ".join(
        f"{f'{row.group}, ' if row.group else ''}{row.label}: {numbers.digits(row.value)}"
        f"{f' {row.unit}' if row.unit else ''}"
        + (f" ({numbers.digits(row.low)} to {numbers.digits(row.high)})"
           if row.low is not None and row.high is not None else "")
        for row in rows
    )  # fmt: skip
    place = f", in {unit}" if unit else ""
    return f"Bar chart, {title}{place}: {shown}.{lines.caveat(report)}"


def _safety(report: ReportAnswer) -> Figure:
    """The fastest path of each safety class, and the answer."""
    title = "Speed against safety"
    found = answers.safety_plane(report)
    if found is None:
        return Figure("safety", title, "", missing="vdisklab run PATHS… host")
    rows = tuple(
        Bar(point.label, point.value, None, None, point.safety, point.label == str(report.answer))
        for point in found.points
    )
    note = "The fastest path of each safety class (by medians), the safest class first; the answer."
    return Figure(
        "safety", title, _in_words(title, rows, found.unit, report), note=note, bars=rows,
        unit=found.unit, cells=tuple(sorted(point.label for point in found.points)),
    )  # fmt: skip


def _trade_offs(report: ReportAnswer) -> Figure:
    """For each measure, the share of the best that a path reaches, with its interval."""
    answer, title = report.trade_offs, "Best trade-offs"
    if answer is None:
        return Figure("trade-offs", title, "", missing="vdisklab run PATHS… host")
    shown = answers.drawn_trade_offs(answer)
    rows = tuple(
        Bar(name, of.share, of.low, of.high, _named(cell), cell.cell == report.answer)
        for cell in shown
        for name, of in cell.shares.items()
        if of.share is not None
    )
    hidden = len(answer.cells) - len(shown)
    return Figure(
        "trade-offs", title, _in_words(title, rows, "of the best", report),
        note=f"On the front: by its means, no other path is better in all of "
        f"{', '.join(answer.measures)}. May be beaten: one is, but that is not shown at 5 %. "
        f"Lines are 95 % intervals, cut at {_LONGEST:g}."
        f"{f' Not shown: {hidden} more.' if hidden else ''}",
        cells=tuple(cell.cell.label for cell in shown), bars=rows, unit="of the best",
        longest=_LONGEST,
    )  # fmt: skip


def _named(cell: ParetoCell) -> str:
    standing = "on the front" if cell.standing is Standing.FRONT else "may be beaten"
    return f"{cell.cell.label}, {standing}"


def _published(report: ReportAnswer) -> Figure:
    """Published ratios beside those measured here, each to its own machine's baseline."""
    title = "Published numbers and yours"
    found = answers.published_ratios(report)
    if not found:
        missing = "vdisklab run {raw,qcow2}/{none,writeback,writethrough,unsafe} host"
        return Figure("published", title, "", missing=missing)
    rows = tuple(
        bar
        for row in found
        for bar in (
            Bar(row.label, row.ours, row.low, row.high, row.panel, highlight=True),
            Bar(f"{row.label}, published", row.published, None, None, row.panel),
        )
    )
    cells = dict.fromkeys(
        row.cell.label for answer in report.published for row in answer.comparison.compared
    )
    return Figure(
        "published", title, _in_words(title, rows, "", report), bars=rows, cells=tuple(cells),
        note="Published numbers are from other hardware: compare shapes, not values.",
    )  # fmt: skip
