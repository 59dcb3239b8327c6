"""A table as a value, and its forms: terminal (rich), records for JSON, and CSV.

Output escapes text from outside.
"""

from __future__ import annotations

import csv
import io
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from rich.box import SIMPLE_HEAD
from rich.console import Console, RenderableType
from rich.table import Table as RichTable
from rich.text import Text

from vdisklab.render.documents.conversion import Key, keys_of, to_json

Row = TypeVar("Row")

WIDE = 110
"""Terminal width in characters from which columns marked `only_wide` are shown."""

_FOLDED = 20
"""Width that a folding column gets before columns marked `only_wide` are shown."""

_NARROW = 12
"""Width that a folding column keeps on a narrow terminal, where other columns go first."""

_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")


@dataclass(frozen=True)  # no slots: Python 3.11 cannot then call Column[Row](…)
class Column(Generic[Row]):
    """A column on the terminal: its title, and how it shows a row.

    `folds` lets long text wrap, `only_wide` leaves the column out of a narrow terminal,
    `spare` out of one where it does not fit.
    """

    title: str
    show: Callable[[Row], str]
    right: bool = False
    folds: bool = False
    only_wide: bool = False
    spare: bool = False


@dataclass(frozen=True)
class Table(Generic[Row]):
    """Rows with the columns that a terminal shows.

    JSON and CSV carry `record(row)`: a dataclass of type `kind`, in SI units and unrounded. A
    table without `kind` has no such form. `notes` follow the table, one sentence each. `verbatim`
    comes last, line by line and never wrapped, so that it can be pasted.
    """

    title: str
    columns: Sequence[Column[Row]]
    rows: Sequence[Row]
    notes: tuple[str, ...] = ()
    verbatim: tuple[str, ...] = ()
    kind: type[Any] | None = None
    record: Callable[[Row], Any] = lambda row: row

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys of a row in CSV."""
        if self.rows:
            return tuple(to_json(self.record(self.rows[0])))
        kind: Any = self.kind
        fields = {} if kind is None else keys_of(kind)
        return tuple(name for name, role in fields.items() if role is not Key.INLINE)


def sanitise(outside: str) -> str:
    """Text from outside, with everything that would control a terminal made visible.

    Escape sequences, other control characters, and the Unicode marks that turn the direction
    of writing become `\\x1b`, `\\u202e` and so on. Line feeds and tabs stay.
    """
    if outside.isprintable():  # true for nearly all texts, and a hundred times as fast
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


def as_csv(table: Table[Any]) -> str:
    """RFC 4180 with a header line; a missing value is an empty field.

    Text that a spreadsheet would run as a formula gets an apostrophe in front (OWASP, "CSV
    injection"); numbers do not need it.
    """
    sink = io.StringIO()
    writer = csv.writer(sink, lineterminator="\r\n")
    writer.writerow(table.keys)
    for row in table.rows:
        writer.writerow(map(_csv_value, to_json(table.record(row)).values()))
    return sink.getvalue()


def _csv_value(raw: str | float | bool | None) -> str:
    if raw is None:
        return ""
    if isinstance(raw, bool):
        return "true" if raw else "false"
    if isinstance(raw, str):
        clean = sanitise(raw)
        return f"'{clean}" if clean.lstrip(" ").startswith(_FORMULA) else clean
    return repr(raw)


def as_rich(table: Table[Any], width: int) -> RichTable:
    """The table for a terminal of `width` characters; no markup is read from its texts."""
    shown = [(column, [column.show(row) for row in table.rows]) for column in table.columns]
    comfortable = sum(2 + _comfortable_width(column, texts) for column, texts in shown)
    if width < max(WIDE, comfortable):
        shown = _fitting([entry for entry in shown if not entry[0].only_wide], width)
    rich = RichTable(
        title=Text(sanitise(table.title), style="bold"),
        title_justify="left",
        show_header=any(column.title for column, _ in shown),
        box=SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        pad_edge=False,
    )
    for column, _ in shown:
        rich.add_column(
            Text(column.title),
            justify="right" if column.right else "left",
            overflow="fold",
            no_wrap=not column.folds,
        )
    for texts in zip(*(texts for _, texts in shown), strict=True):
        rich.add_row(*(Text(sanitise(text)) for text in texts))
    return rich


def _fitting(
    shown: list[tuple[Column[Any], list[str]]], width: int
) -> list[tuple[Column[Any], list[str]]]:
    """The columns without as many of the rightmost `spare` ones as do not fit."""
    while sum(2 + _comfortable_width(*entry, folded=_NARROW) for entry in shown) > width + 2:
        spare = [place for place, (column, _) in enumerate(shown) if column.spare]
        if not spare:
            break
        del shown[spare[-1]]
    return shown


def _comfortable_width(column: Column[Any], texts: Sequence[str], *, folded: int = _FOLDED) -> int:
    """The width of a column in characters; at most `folded` for one that folds."""
    widest = max(map(len, (*column.title.splitlines(), *texts)), default=0)
    return min(widest, folded) if column.folds else widest


def show(table: Table[Any], console: Console) -> None:
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
