"""Prints answers in the format of `--format`."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

from rich.console import Console

from vdisklab.answers.elsewhere import where_measured
from vdisklab.cli.shell.named import NOTHING_NAMED, Named
from vdisklab.cli.shell.options import Format, OutputOptions
from vdisklab.documents import Answer, document
from vdisklab.documents import as_csv as rows_as_csv
from vdisklab.path.named_target import as_typed
from vdisklab.plan.option_rows import OptionRows
from vdisklab.units import whole_number
from vdisklab.value import replace
from vdisklab.views.layout import Column, Table
from vdisklab.views.terminal import show

PIPE_WIDTH = 120
"""Line width if the output is not a terminal and COLUMNS is not set."""


def print_answer(
    answer: Answer,
    tables: Iterable[Table[Any]],
    output: OutputOptions,
    *requests: OptionRows | Named,
    verb: str = "",
) -> None:
    """Prints an answer as tables, as JSON, CSV or HTML; its commands repeat what the requests name.

    `verb` is the command that shows the same with --why and --wide; empty for this process'. In
    CSV, tables with equal columns share one heading; an empty line separates other tables.
    """
    campaigns = getattr(answer, "campaigns", ())
    named = Named.by(*requests).on_targets_of(campaigns)
    tables = tuple(_of_place(tuple(tables), campaigns))
    form = output.form
    if form is Format.JSON:
        said = (sentence for table in tables for sentence in table.sentences)
        for_others = frozenset(line for table in tables for line in table.for_others)
        print(as_json(document(answer, tuple(map(as_typed, said))), named, for_others))
    elif form is Format.CSV:
        heading = ""
        for table in tables:
            if table.kind is None:
                continue
            last, (heading, newline, rows) = heading, csv_of(table, named).partition("\r\n")
            if heading != last:
                sys.stdout.write((newline if last else "") + heading + newline)
            sys.stdout.write(rows)
    elif form is Format.HTML:
        from vdisklab.views.page.tables import tables_page  # noqa: PLC0415 - jinja is slow

        sys.stdout.write(tables_page([completed(table, named) for table in tables]))
    else:
        screen = console()
        again = named.in_text(verb) or named.caller.command or ""
        ends_empty = True
        for table in tables:
            if not ends_empty:
                screen.print()
            whole = completed(table, named)
            ends_empty = show(whole, screen, why=output.why, wide=output.wide, verb=again)


def _of_place(tables: Sequence[Table[Any]], campaigns: Sequence[Any]) -> Iterator[Table[Any]]:
    """The tables, of which the first says that the numbers are another host's, or that their
    directory is gone, and where the printed commands are for."""
    lines = [line for table in tables for line in (*table.sentences, *table.verbatim)]
    where = tuple(where_measured(campaigns, lines))
    for place, table in enumerate(tables):
        said = (*table.intro, *where)
        brief = table.brief and replace(table.brief, intro=said)
        yield replace(table, intro=said, brief=brief) if where and not place else table


def csv_of(table: Table[Any], named: Named = NOTHING_NAMED) -> str:
    """The rows of a table with columns for all their numbers and texts."""
    assert table.kind is not None  # noqa: S101 - asked by the caller
    return rows_as_csv(table.rows, table.kind, named.in_json)


def as_json(value: object, named: Named = NOTHING_NAMED, for_others: Collection[str] = ()) -> str:
    """JSON in ASCII; commands `for_others` are run on another host. Raises ValueError for NaN,
    which no document may hold."""
    return json.dumps(
        named.in_json(value, for_others), indent=2, ensure_ascii=True, allow_nan=False
    )


def completed(table: Table[Any], named: Named) -> Table[Any]:
    """The table, with its commands completed."""
    return replace(
        table,
        columns=tuple(_completed(column, named) for column in table.columns),
        title=named.in_text(table.title),
        intro=tuple(map(named.in_text, table.intro)),
        notes=tuple(map(named.in_text, table.notes)),
        verbatim=tuple(
            line if line in table.for_others else named.in_text(line) for line in table.verbatim
        ),
        brief=None if table.brief is None else completed(table.brief, named),
    )


def _completed(column: Column[Any], named: Named) -> Column[Any]:
    return replace(column, show=lambda row: named.in_text(column.show(row)))


def console() -> Console:
    """Standard output, as wide as the terminal; markup in text is printed literally."""
    columns = os.environ.get("COLUMNS", "")
    # rich takes 0 for a width, at which it prints nothing.
    has_width = sys.stdout.isatty() or bool(whole_number(columns))
    width = None if has_width else PIPE_WIDTH
    return Console(width=width, highlight=False, markup=False, emoji=False)
