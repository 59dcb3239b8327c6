"""Printing an answer in the format that `--format` names."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Sequence

from rich.console import Console

from vdisklab.cli.options import Format
from vdisklab.render.document import Json
from vdisklab.render.tables.layout import Table, as_csv, show

PIPE_WIDTH = 120
"""Line width if the output is not a terminal and COLUMNS is not set."""


def emit(form: Format, tables: Sequence[Table], document: Callable[[], Json]) -> None:
    """Prints tables, one JSON document, or CSV.

    In CSV, tables with equal columns share one heading; other tables follow after an empty line.
    """
    if form is Format.JSON:
        print(dumps(document()))
    elif form is Format.CSV:
        for place, table in enumerate(tables):
            heading, newline, rows = as_csv(table).partition("\r\n")
            if place == 0:
                sys.stdout.write(heading + newline)
            elif table.columns != tables[place - 1].columns:
                sys.stdout.write(newline + heading + newline)
            sys.stdout.write(rows)
    else:
        screen = console()
        for table in tables:
            show(table, screen)


def dumps(value: Json) -> str:
    """JSON in ASCII. Raises ValueError for NaN, which no document may hold."""
    return json.dumps(value, indent=2, ensure_ascii=True, allow_nan=False)


def console() -> Console:
    """Standard output, as wide as the terminal; markup in texts is printed as it is."""
    width = None
    if not sys.stdout.isatty() and not os.environ.get("COLUMNS"):
        width = PIPE_WIDTH
    return Console(width=width, highlight=False, markup=False, emoji=False)
