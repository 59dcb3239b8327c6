"""How the slowest guest fares as guests are added, with the limit, and how fair the path is."""

from __future__ import annotations

from vdisklab.render import numbers
from vdisklab.render.charts.svg import Palette
from vdisklab.render.charts.vega import WIDTH, Figure, finished, layer, line_styles, quantitative
from vdisklab.render.page.contents import caution_of
from vdisklab.render.tables.density_table import capacity_text
from vdisklab.services.density_answer import DensityAnswer
from vdisklab.services.report_contents import Contents

MOST_PATHS = 5
"""Maximum number of lines: the paths that carry most guests."""


def density_figures(contents: Contents, palette: Palette) -> tuple[Figure, ...]:
    """The figure of a campaign that `density` measured; none for another campaign."""
    answer = contents.density
    if answer is None or not any(path.steps for path in answer.paths):
        return ()
    return (_figure(answer, caution_of(contents), palette),)


def _figure(answer: DensityAnswer, caution: str | None, palette: Palette) -> Figure:
    drawn = [path for path in answer.paths if path.steps][:MOST_PATHS]
    limit = answer.criterion.seconds
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
        f"Line charts of the slowest guest's {answer.criterion.metric} in {unit}, and of Jain's "
        f"fairness index, over the number of guests. Carried guests: {carried}.",
        finished({"vconcat": panels}, values, palette, caution),
        note=f"Each guest has a load of {answer.load} requests a second. Above the dashed line "
        f"({answer.criterion}) a guest is too slow. Dots are runs, lines their medians. Fairness "
        f"is 1 if all guests got the same. Guests carried (95 % interval): {carried}.{more}",
    )
