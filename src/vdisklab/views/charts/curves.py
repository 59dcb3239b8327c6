"""Curves over a number: over the values of an option, and over the number of guests."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from vdisklab import numbers
from vdisklab.answers.density import DensityAnswer
from vdisklab.answers.report_contents import Contents
from vdisklab.path.cell import MeasuredCell
from vdisklab.path.disk_path import Attachment, DiskPath, Image
from vdisklab.path.segments import PageCache
from vdisklab.views.charts.bars import measured_quantities
from vdisklab.views.charts.lines import SeriesPoint, percentiles
from vdisklab.views.charts.svg import Palette
from vdisklab.views.charts.vega import WIDTH, Figure, finished, layer, line_styles, quantitative
from vdisklab.views.density import capacity_text
from vdisklab.views.page.contents import caution_of, described_caution

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


def sweep_figures(contents: Contents, palette: Palette) -> tuple[Figure, ...]:
    """One figure for each option that was swept; none if no option was."""
    cells = [(cell, cell.path) for cell in contents.of(contents.measure) if cell.path is not None]
    figures = (_sweep_figure(option, tuple(_sweeps(option, cells)), contents, palette)
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
    option: str, sweeps: tuple[_Sweep, ...], contents: Contents, palette: Palette
) -> Figure | None:
    lines: dict[str, list[SeriesPoint]] = {}
    drawn: list[_Sweep] = []
    for sweep in sweeps:
        points = list(_points(sweep, contents, named=len(sweeps) > 1))
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
    spec = percentiles(rows, unit, palette, caution=caution_of(contents), level=option)
    values = "; ".join(f"{r.label}, {r.percentile}: {numbers.digits(r.value)}" for r in rows)
    rest = len(sweeps) - len(drawn)
    left_out = f" {rest} more paths are not drawn." if rest > 0 else ""
    return Figure(
        f"sweep-{option.replace('_', '-')}",
        f"What each {option} costs or gains",
        f"Line chart, {unit}: {values}.{described_caution(contents)}",
        spec,
        note=f"Medians, divided by the median with the lowest {option}. 1 means no change."
        f"{left_out}",
        cells=tuple(cell.label for sweep in drawn for cell in sweep.cells.values()),
    )


def _points(sweep: _Sweep, contents: Contents, named: bool) -> Iterator[SeriesPoint]:
    first = next(iter(sweep.cells.values()))
    for key in measured_quantities(contents):
        summaries = contents.of(key)
        if first not in summaries or summaries[first].median <= 0:
            continue
        label = f"{key.name}, {sweep.base}" if named else key.name
        for level, cell in sweep.cells.items():
            if cell in summaries and summaries[cell].median > 0:
                ratio = summaries[cell].median / summaries[first].median
                yield SeriesPoint(label, str(level), ratio)


def density_figures(contents: Contents, palette: Palette) -> tuple[Figure, ...]:
    """The figure of a campaign that `density` measured; none for another campaign."""
    answer = contents.density
    if answer is None or not any(path.steps for path in answer.paths):
        return ()
    return (_density_figure(answer, caution_of(contents), palette),)


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
    styles = line_styles([path.path for path in drawn], palette)
    tried = sorted({step.guests for path in drawn for step in path.steps})
    axis = {"values": tried, "format": "d", "labelOverlap": True, "grid": False}
    guests = {"x": quantitative("guests", title="guests", axis=axis)}
    colour = {"color": styles["color"]}
    worst = quantitative("value", title=f"slowest guest, {unit}", scale={"type": "log"})
    fair = quantitative("fairness", title="fairness", scale={"domain": [0, 1]})
    panels = [
        {"width": WIDTH, "height": height, "layer": layers}
        for height, layers in (
            (
                220,
                [
                    layer("rule", {"strokeDash": [4, 4], "color": palette.ink},
                          {"y": quantitative("limit", aggregate="min")}),
                    layer("line", {}, guests, styles,
                          {"y": {**worst, "aggregate": "median"}}),
                    layer("point", {"filled": True}, guests, colour, {"y": worst}),
                ],
            ),
            (
                80,
                [layer("line", {"point": True}, guests, styles,
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
        finished({"vconcat": panels}, values, palette, caution),
        note=f"Each guest has a load of {answer.load} requests a second. Above the dashed line "
        f"({answer.until}) a guest is too slow. Dots are runs, lines their medians. Fairness "
        f"is 1 if all guests got the same. Guests carried (95 % interval): {carried}.{more}",
    )
