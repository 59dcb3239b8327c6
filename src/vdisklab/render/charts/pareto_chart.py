"""The figure of the paths that no other beats in all of several measures."""

from __future__ import annotations

from vdisklab.analysis.pareto import Placed, Standing
from vdisklab.render import numbers
from vdisklab.render.charts.bars import answer_cell
from vdisklab.render.charts.svg import Palette, Spec
from vdisklab.render.charts.vega import (
    AS_GIVEN,
    INTERVAL,
    WIDTH,
    Bar,
    Figure,
    faceted,
    finished,
    labels,
    layer,
    quantitative,
)
from vdisklab.render.page.contents import caution_of
from vdisklab.services.report_contents import Contents

MOST_PATHS = 12
"""Maximum number of paths in the figure."""

LONGEST = 1.5
"""Where the axis ends: longer intervals are cut, or one of them would make all bars tiny."""

TITLE = "Best trade-offs"


def trade_offs_figure(contents: Contents, palette: Palette) -> Figure:
    """For each measure, the share of the best that a path reaches, with its interval.

    The front is orange; a path that may be beaten is pale, and its name says so.
    """
    answer = contents.trade_offs
    if answer is None:
        return Figure("trade-offs", TITLE, "", missing="vdisklab run PATHS… host")
    shown = [one for one in answer.front.cells if one.standing is not Standing.BEATEN][:MOST_PATHS]
    values = [
        {
            "panel": _named(one), "measure": name, "share": share,
            **dict(zip(("low", "high"), (min(end, LONGEST) for end in ends or ()), strict=False)),
            "colour": palette.highlight if one.standing is Standing.FRONT else palette.muted,
            "opacity": 1.0 if one.standing is Standing.FRONT else 0.5,
        }
        for one in shown
        for name, share, ends in zip(answer.names, one.shares, one.intervals, strict=True)
        if share is not None
    ]  # fmt: skip
    names_of_rows = {"y": labels("measure", sort=list(answer.names))}
    shares = {
        "x": quantitative("share", title="share of the best", scale={"zero": True}),
        "color": AS_GIVEN,
        "opacity": quantitative("opacity", scale=None),
    }
    chart: Spec = {
        "layer": [
            layer("bar", {"size": 9}, names_of_rows, shares),
            layer("rule", {"strokeWidth": 1.5, "color": palette.ink}, names_of_rows, INTERVAL),
        ],
        "width": WIDTH - 120,
        "height": {"step": 14},
    }
    spec = finished(faceted(chart, "panel", palette, 8), values, palette, caution_of(contents))
    names = ", ".join(answer.names)
    described = "; ".join(_described(one, answer.names) for one in shown)
    hidden = len(answer.front.cells) - len(shown)
    return Figure(
        "trade-offs", TITLE,
        f"Bars of the share of the best in {names}: {described}.", spec,
        note=f"On the front (orange in pictures): by its means, no other path is better in all of "
        f"{names}. May be beaten (pale in pictures): one is, but that is not shown at 5 %. "
        f"Lines are 95 % intervals, cut at {LONGEST:g}."
        f"{f' Not drawn: {hidden} more.' if hidden else ''}",
        cells=tuple(one.cell.label for one in shown),
        bars=tuple(
            Bar(name, share, low, high, _named(one), one.cell == answer_cell(contents))
            for one in shown
            for name, share, ends in zip(answer.names, one.shares, one.intervals, strict=True)
            if share is not None
            for low, high in [ends or (None, None)]
        ),
        unit="of the best",
        longest=LONGEST,
    )  # fmt: skip


def _named(one: Placed) -> str:
    standing = "on the front" if one.standing is Standing.FRONT else "may be beaten"
    return f"{one.cell.label}, {standing}"


def _described(one: Placed, names: tuple[str, ...]) -> str:
    shares = ", ".join(
        f"{name} {numbers.value(share, '1')}"
        + ("" if ends is None else f" ({numbers.digits(ends[0])} to {numbers.digits(ends[1])})")
        for name, share, ends in zip(names, one.shares, one.intervals, strict=True)
    )
    return f"{_named(one)}: {shares}"
