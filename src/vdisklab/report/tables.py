"""A table as a value, and its forms: terminal (rich), JSON and CSV. All text is made harmless."""

from __future__ import annotations

import csv
import io
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass

from rich.box import SIMPLE_HEAD
from rich.console import Console, RenderableType
from rich.table import Table as RichTable
from rich.text import Text

Raw = str | int | float | bool | None
"""A value as JSON and CSV carry it: in SI units, unrounded."""


@dataclass(frozen=True, slots=True)
class Column:
    """`key` names the value in JSON and CSV, `title` is for the terminal.

    `folds` lets long text wrap; `only_wide` and `only_data` leave a column out of a narrow
    terminal, and of any terminal.
    """

    key: str
    title: str
    right: bool = False
    folds: bool = False
    only_wide: bool = False
    only_data: bool = False


@dataclass(frozen=True, slots=True)
class Value:
    """One value in both forms."""

    raw: Raw
    text: str


@dataclass(frozen=True, slots=True)
class Table:
    """Rows are as long as `columns`. `notes` stand below, one sentence each."""

    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Value, ...], ...]
    notes: tuple[str, ...] = ()


WIDE = 110
"""From this many characters on the terminal shows the columns marked `only_wide`."""

_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")


def text(value: str) -> Value:
    """A text that is the same in every form."""
    return Value(value, value)


def sanitise(outside: str) -> str:
    """Text from outside with everything made visible that a terminal would obey.

    Escape sequences, other control characters, and the Unicode marks that turn the direction
    of writing become `\\x1b`, `\\u202e` and so on. Line feeds and tabs stay.
    """
    return "".join(
        char
        if char in "\n\t" or unicodedata.category(char) not in ("Cc", "Cf", "Cs", "Zl", "Zp")
        else char.encode("unicode_escape").decode("ascii")
        for char in outside
    )


def sanitise_line(outside: str) -> str:
    """Like `sanitise`, on one line."""
    return " ".join(sanitise(outside).split())


def as_records(table: Table) -> list[dict[str, Raw]]:
    """The rows as JSON objects, by the columns' keys."""
    keys = [column.key for column in table.columns]
    return [{key: value.raw for key, value in zip(keys, row, strict=True)} for row in table.rows]


def as_csv(table: Table) -> str:
    """RFC 4180 with a header line; what is missing is empty.

    Text that a spreadsheet would run as a formula gets an apostrophe in front (OWASP, "CSV
    injection"); numbers do not need it.
    """
    sink = io.StringIO()
    writer = csv.writer(sink, lineterminator="\r\n")
    writer.writerow([column.key for column in table.columns])
    for row in table.rows:
        writer.writerow([_csv_value(value.raw) for value in row])
    return sink.getvalue()


def _csv_value(raw: Raw) -> str:
    if raw is None:
        return ""
    if isinstance(raw, bool):
        return "true" if raw else "false"
    if isinstance(raw, str):
        clean = sanitise(raw)
        return f"'{clean}" if clean.lstrip(" ").startswith(_FORMULA) else clean
    return repr(raw)


def as_rich(table: Table, width: int) -> RichTable:
    """The table for a terminal of `width` characters; no markup is read from its texts."""
    shown = [
        place
        for place, column in enumerate(table.columns)
        if not column.only_data and (width >= WIDE or not column.only_wide)
    ]
    rich = RichTable(
        title=Text(sanitise_line(table.title), style="bold"),
        title_justify="left",
        box=SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        pad_edge=False,
    )
    for place in shown:
        column = table.columns[place]
        rich.add_column(
            Text(column.title),
            justify="right" if column.right else "left",
            overflow="fold",
            no_wrap=not column.folds,
        )
    for row in table.rows:
        rich.add_row(*(Text(sanitise(row[place].text)) for place in shown))
    return rich


def show(table: Table, console: Console) -> None:
    """Prints the table and its notes."""
    if table.rows:
        console.print(as_rich(table, console.width))
    else:
        console.print(Text(sanitise_line(table.title), style="bold"))
    for line in note_lines(table.notes):
        console.print(line)


def note_lines(notes: Iterable[str]) -> list[RenderableType]:
    """Notes as paragraphs that are safe to print."""
    return [Text(f"* {sanitise_line(note)}") for note in notes]
