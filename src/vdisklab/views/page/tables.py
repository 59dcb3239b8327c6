"""The tables of any answer as one HTML page, with all their columns and notes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from vdisklab import __version__
from vdisklab.views.layout import Table
from vdisklab.views.page.html import page_style, page_templates, report_policy


def tables_page(tables: Sequence[Table[Any]]) -> str:
    """The whole page. It needs no network, and has no script."""
    template = page_templates().get_template("tables.html")
    page = template.render(
        tables=tables, style=page_style(), policy=report_policy(), version=__version__
    )
    return f"{page}\n"
