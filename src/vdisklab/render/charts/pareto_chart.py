"""The figure of the paths that no other beats in all of several measures."""

from __future__ import annotations

import altair as alt

from vdisklab.analysis.pareto import Placed, Standing
from vdisklab.render import numbers
from vdisklab.render.charts.bar_rows import Bar
from vdisklab.render.charts.bars import answer_cell
from vdisklab.render.charts.svg import Palette
from vdisklab.render.charts.vega import WIDTH, Figure, finished, labels, panel_rows
from vdisklab.render.page.contents import caution_of
from vdisklab.services.report_contents import Contents

MOST_PATHS = 12
"""Maximum number of paths in the figure."""

TITLE = "Best trade-offs"


def trade_offs_figure(contents: Contents, palette: Palette) -> Figure:
    """For each measure, the share of the best that a path reaches; the front is orange."""
    answer = contents.trade_offs
    if answer is None:
        return Figure("trade-offs", TITLE, "", missing="vdisklab run PATHS… host")
    shown = [one for one in answer.front.cells if one.standing is not Standing.BEATEN][:MOST_PATHS]
    values = [
        {
            "panel": one.cell.label, "measure": name, "share": share,
            "colour": palette.highlight if one.standing is Standing.FRONT else palette.muted,
        }
        for one in shown
        for name, share in zip(answer.names, one.shares, strict=True)
    ]  # fmt: skip
    bars = alt.Chart(alt.InlineData(values=values)).encode(
        y=alt.Y("measure:N", sort=list(answer.names), title=None, axis=labels()),
        x=alt.X("share:Q", title="share of the best", scale=alt.Scale(domain=[0, 1])),
        color=alt.Color("colour:N", scale=None),
    )  # fmt: skip
    chart = (
        bars.mark_bar(size=9)
        .properties(width=WIDTH - 120, height=alt.Step(14))
        .facet(row=panel_rows(palette), spacing=8)
    )
    spec = finished(chart, palette, caution_of(contents))
    names = ", ".join(answer.names)
    described = "; ".join(_described(one, answer.names) for one in shown)
    hidden = len(answer.front.cells) - len(shown)
    return Figure(
        "trade-offs", TITLE,
        f"Bars of the share of the best in {names}: {described}.", spec,
        note=f"On the front (orange in pictures): by its means, no other path is better in all of "
        f"{names}. Of the others one is, but that is not shown at 5 %. {hidden} more are not "
        "drawn.",
        cells=tuple(one.cell.label for one in shown),
        bars=tuple(
            Bar(name, share, None, None, _grouped(one), one.cell == answer_cell(contents))
            for one in shown
            for name, share in zip(answer.names, one.shares, strict=True)
        ),
        unit="of the best",
    )  # fmt: skip


def _grouped(one: Placed) -> str:
    return f"{one.cell.label}{', on the front' if one.standing is Standing.FRONT else ''}"


def _described(one: Placed, names: tuple[str, ...]) -> str:
    shares = ", ".join(
        f"{name} {numbers.digits(share)}" for name, share in zip(names, one.shares, strict=True)
    )
    return f"{one.cell.label}: {shares}"
