"""A table as a value, and its forms: terminal (rich), JSON and CSV. All text is made harmless."""

from __future__ import annotations

import csv
import io
import unicodedata
from collections.abc import Iterable, Sequence
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

    `folds` lets long text wrap. `only_wide` leaves a column out of a narrow terminal,
    `only_data` out of any terminal, `only_shown` out of JSON and CSV.
    """

    key: str
    title: str
    right: bool = False
    folds: bool = False
    only_wide: bool = False
    only_data: bool = False
    only_shown: bool = False


@dataclass(frozen=True, slots=True)
class Value:
    """One value in both forms."""

    raw: Raw
    text: str


@dataclass(frozen=True, slots=True)
class Table:
    """Rows are as long as `columns`. `notes` stand below, one sentence each.

    `verbatim` comes last, line by line and never wrapped, so that it can be pasted.
    """

    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Value, ...], ...]
    notes: tuple[str, ...] = ()
    verbatim: tuple[str, ...] = ()


WIDE = 110
"""From this many characters on the terminal shows the columns marked `only_wide`."""

_FOLDED = 20
"""What is given to a column that folds before columns marked `only_wide` are shown."""

_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")


def text(value: str) -> Value:
    """A text that is the same in every form."""
    return Value(value, value)


def sanitise(outside: str) -> str:
    """Text from outside with everything made visible that a terminal would obey.

    Escape sequences, other control characters, and the Unicode marks that turn the direction
    of writing become `\\x1b`, `\\u202e` and so on. Line feeds and tabs stay.
    """
    if outside.isprintable():  # nearly all are, and it is a hundred times as fast
        return outside
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
    kept = _data_columns(table)
    return [{key: row[place].raw for place, key in kept} for row in table.rows]


def as_csv(table: Table) -> str:
    """RFC 4180 with a header line; what is missing is empty.

    Text that a spreadsheet would run as a formula gets an apostrophe in front (OWASP, "CSV
    injection"); numbers do not need it.
    """
    sink = io.StringIO()
    writer = csv.writer(sink, lineterminator="\r\n")
    kept = _data_columns(table)
    writer.writerow([key for _, key in kept])
    for row in table.rows:
        writer.writerow([_csv_value(row[place].raw) for place, _ in kept])
    return sink.getvalue()


def _data_columns(table: Table) -> list[tuple[int, str]]:
    return [
        (place, column.key) for place, column in enumerate(table.columns) if not column.only_shown
    ]


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
    shown = [place for place, column in enumerate(table.columns) if not column.only_data]
    if width < max(WIDE, _comfortable_width(table, shown)):
        shown = [place for place in shown if not table.columns[place].only_wide]
    rich = RichTable(
        title=Text(sanitise(table.title), style="bold"),
        title_justify="left",
        show_header=any(table.columns[place].title for place in shown),
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


def _comfortable_width(table: Table, shown: Sequence[int]) -> int:
    """Characters that these columns take; one that folds is content with _FOLDED of them."""
    total = 0
    for place in shown:
        column = table.columns[place]
        texts = (*column.title.splitlines(), *(row[place].text for row in table.rows))
        widest = max(map(len, texts), default=0)
        total += 2 + (min(widest, _FOLDED) if column.folds else widest)
    return total


def show(table: Table, console: Console) -> None:
    """Prints the table, its notes and its verbatim lines."""
    if table.rows:
        console.print(as_rich(table, console.width))
    else:
        console.print(Text(sanitise_line(table.title), style="bold"))
    for line in note_lines(table.notes):
        console.print(line)
    for command in table.verbatim:
        console.print(Text(sanitise(command)), soft_wrap=True)
    if table.verbatim:
        console.print()


def note_lines(notes: Iterable[str]) -> list[RenderableType]:
    """Notes as paragraphs that are safe to print."""
    return [Text(f"* {sanitise_line(note)}") for note in notes]
