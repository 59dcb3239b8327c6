"""All figures of a report, in the order of the articles: bars or lines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from vdisklab import numbers
from vdisklab.analysis.pareto import Standing
from vdisklab.answers import figures as answers
from vdisklab.answers.life import LifeAnswer
from vdisklab.answers.pareto import ParetoCell
from vdisklab.answers.report import Bar, Figure, ReportAnswer
from vdisklab.units import counted
from vdisklab.views.charts import lines
from vdisklab.views.life import made_by

_LIFE = {
    "make": "make",
    "attach": "attach",
    "first-write": "first write and flush",
    "settle": "settled after",
    "reset": "reset",
    "delete": "delete",
}
"""The steps of a disk's life, and their names."""

_LIFE_GROUPS = {
    "until the disk is ready": ("make", "attach", "first-write"),
    "after that": ("settle", "reset", "delete"),
}
"""The steps that are drawn together, on a scale of their own."""

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
    """What the time of each disk went to, a bar for each path and way: until the disk is ready, and
    after that. All steps that were measured are drawn."""
    steps = [step for step in _LIFE if any(life.seconds(step) is not None for life in answer.lives)]
    rows = tuple(bar for group in _LIFE_GROUPS for bar in _life_bars(answer, group, steps))
    if not rows:
        return ()
    title, names = "Where the time goes in the life of a disk", [_LIFE[step] for step in steps]
    shown = "; ".join(
        f"{row.group}, {row.label}: {numbers.digits(row.value)} {row.unit}, of which "
        + ", ".join(
            f"{name} {numbers.digits(part)}"
            for name, part in zip(names, row.parts, strict=True)
            if part
        )
        for row in rows
    )
    return (
        Figure(
            "life", title, f"Stacked bars, {title}: {shown}.", bars=rows,
            parts=tuple(names), note=_life_note(answer), shared=False,
        ),
    )  # fmt: skip


def _life_bars(answer: LifeAnswer, group: str, steps: Sequence[str]) -> Iterator[Bar]:
    """A bar for each disk that has a step of the group, in the order of the table."""
    of_group = _LIFE_GROUPS[group]
    drawn = [
        (life, [(life.seconds(step) or 0.0) if step in of_group else 0.0 for step in steps])
        for life in answer.lives
        if any(life.seconds(step) is not None for step in of_group)
    ]
    scale = numbers.scale(max((sum(parts) for _, parts in drawn), default=0.0), "s")
    for life, parts in drawn:
        # The number is that of the table: a sum of medians may differ from the median of sums.
        whole = life.ready if "first-write" in of_group else None
        yield Bar(
            f"{life.path} by {made_by(life)}",
            (sum(parts) if whole is None else whole) / scale.factor,
            None, None, group, unit=scale.suffix.strip(),
            parts=tuple(part / scale.factor for part in parts),
        )  # fmt: skip


def _life_note(answer: LifeAnswer) -> str:
    """What the bars do not show: steps and disks without a time."""
    said = [
        "Medians over rounds: a disk's steps together may differ from “ready”, which is the median "
        "of the sums."
    ]
    failed = [f"{life.path} by {made_by(life)}" for life in answer.lives if life.ready is None]
    if failed:
        said.append(f"Failed, and without a bar: {', '.join(failed)}.")
    used = [life for life in answer.lives if life.in_guests and life.ready is not None]
    unsettled = [life for life in used if life.seconds("settle") is None]
    if unsettled:
        said.append(
            f"{counted(len(unsettled), 'disk')} had not settled within the runtime, and "
            f"{'lacks' if len(unsettled) == 1 else 'lack'} “settled after”."
        )
    return " ".join(said)


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
        f"{f'{row.group}, ' if row.group else ''}{row.label}: "
        f"{numbers.scaled(row.value, row.unit)}"
        + _between(row, unit)
        for row in rows
    )  # fmt: skip
    place = f", in {unit}" if unit else ""
    return f"Bar chart, {title}{place}: {shown}.{lines.caveat(report)}"


def _between(row: Bar, unit: str) -> str:
    if row.low is None or row.high is None:
        return ""
    if not (row.unit or unit) and numbers.is_too_wide(row.low, row.high):
        ends = numbers.known_interval(row.low, row.high)
        return "" if ends is None else f" ({ends})"
    return f" ({numbers.digits(row.low)} to {numbers.digits(row.high)})"


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
            Bar(f"{row.label}, yours", row.ours, row.low, row.high, row.panel),
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
