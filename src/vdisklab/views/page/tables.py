"""The tables of any answer as one HTML page, with all their columns and notes."""

from __future__ import annotations

from collections.abc import Sequence
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
        tables=tables,
        rectangles=rectangles,
        shown_labels=shown_labels,
        style=Markup(page_style()),  # noqa: S704 - our own file
        script=Markup(script),  # noqa: S704 - our own file
        policy=policy_of(script),
        version=__version__,
    )
    return f"{page}\n"
