"""The tables of any answer as one HTML page, with all their columns and notes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from markupsafe import Markup

from vdisklab import __version__
from vdisklab.views.charts.columns import rectangles, shown_labels
from vdisklab.views.layout import Table
from vdisklab.views.page.html import page_file, page_style, page_templates, policy_of


def tables_page(tables: Sequence[Table[Any]]) -> str:
    """The whole page. It needs no network; its script only says which tables scroll."""
    script = f"{page_file('scrolls.js')}scrolls.mark(document);\n"
    template = page_templates().get_template("tables.html")
    page = template.render(
        tables=[_without_bars(table) for table in tables],
        rectangles=rectangles,
        shown_labels=shown_labels,
        style=Markup(page_style()),  # noqa: S704 - our own file
        script=Markup(script),  # noqa: S704 - our own file
        policy=policy_of(script),
        version=__version__,
    )
    return f"{page}\n"


def _without_bars(table: Table[Any]) -> Table[Any]:
    """The table without the bars of a terminal, if it has a figure of the same."""
    if table.figure is None:
        return table
    return replace(table, columns=[column for column in table.columns if column.heading])
