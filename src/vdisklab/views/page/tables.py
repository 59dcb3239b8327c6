"""The tables of any answer as one HTML page, with all their columns and notes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from markupsafe import Markup

from vdisklab import __version__
from vdisklab.value import replace
from vdisklab.views.charts.columns import rectangles, shown_labels
from vdisklab.views.choice import MOST_CHARACTERS
from vdisklab.views.layout import Table
from vdisklab.views.page.html import page_file, page_style, page_templates, policy_of

_CLAUSE = re.compile(r"[.;] ")
_WORD = re.compile(r"[a-z]+(?=[ ,;.])")


def tables_page(tables: Sequence[Table[Any]]) -> str:
    """The whole page. It needs no network; its script only says which tables scroll."""
    script = f"{page_file('scrolls.js')}scrolls.mark(document);\n"
    template = page_templates().get_template("tables.html")
    page = template.render(
        tables=[_with_short_title(_without_bars(table)) for table in tables],
        rectangles=rectangles,
        shown_labels=shown_labels,
        style=Markup(page_style()),  # noqa: S704 - our own file
        script=Markup(script),  # noqa: S704 - our own file
        policy=policy_of(script),
        version=__version__,
    )
    return f"{page}\n"


def _with_short_title(table: Table[Any]) -> Table[Any]:
    """The table with the first sentence of a title that is too long for a heading, or its first
    clause; the rest stands below it. Unchanged if it is one clause."""
    title = table.title
    ends = [] if len(title) <= MOST_CHARACTERS else list(_CLAUSE.finditer(title))
    short = [end for end in ends if end.start() <= MOST_CHARACTERS]
    found = next(iter(short[-1:] or ends), None)
    if found is None:
        return table
    rest = title[found.end() :]
    if _WORD.match(rest):  # a path keeps its spelling
        rest = rest[0].upper() + rest[1:]
    return replace(table, title=title[: found.start()], intro=(rest, *table.intro))


def _without_bars(table: Table[Any]) -> Table[Any]:
    """The table without the bars of a terminal, if it has a figure of the same."""
    if table.figure is None:
        return table
    return replace(table, columns=[column for column in table.columns if column.heading])
