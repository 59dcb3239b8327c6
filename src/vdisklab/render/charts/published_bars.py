"""What articles printed, drawn beside what was measured here: shapes compare, values do not."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from vdisklab.analysis.published import Shape, ShapeRow
from vdisklab.render import numbers
from vdisklab.render.charts.figure import Figure
from vdisklab.render.charts.linecharts import Beside, beside
from vdisklab.render.charts.vega import Palette
from vdisklab.render.page.contents import Contents
from vdisklab.render.published import PublishedAnswer

MOST_ROWS = 12
"""So many numbers of a series are drawn; its table has them all."""


def published_figure(contents: Contents, palette: Palette) -> Figure:
    """Published ratios as diamonds, ours as dots with intervals; a panel for each series."""
    title = "Published numbers beside yours"
    rows = [row for answer in contents.published for row in _rows(answer)]
    if not rows:
        missing = "vdisklab run {raw,qcow2}/{none,writeback,writethrough,unsafe} host"
        return Figure("published", title, "", missing=missing)
    caution = contents.caution
    spec = beside(rows, palette, caution=f"here {caution}" if caution else None)
    told = "; ".join(
        f"{row.panel}, {row.label}: published {numbers.ratio(row.published)}, "
        f"here {numbers.ratio(row.ours)}"
        for row in rows
    )
    said = f" Here {caution}." if caution else ""
    cells = tuple(
        dict.fromkeys(
            row.cell.label for answer in contents.published for row in compared_rows(answer)
        )
    )
    return Figure(
        "published", title, f"Dot chart of ratios to each machine's own baseline: {told}.{said}",
        spec, note="Published numbers are of other hardware: shapes compare, values do not.",
        cells=cells,
    )  # fmt: skip


def compared_rows(answer: PublishedAnswer) -> Sequence[ShapeRow]:
    """The rows of a series that have a counterpart here."""
    return [row for row in answer.comparison.rows if row.shape is not Shape.NOT_MEASURED]


def _rows(answer: PublishedAnswer) -> Iterable[Beside]:
    series = answer.comparison.tables[0].series
    panel = f"{series}, over {answer.comparison.baseline.label}"
    for row in compared_rows(answer)[:MOST_ROWS]:
        if row.ours.ratio:
            label = f"{row.cell.label}, {row.number.measure}"
            yield Beside(panel, label, row.published, row.ours.ratio, row.ours.low, row.ours.high)
