"""A table as a value, and two of its forms: records for JSON, and CSV.

Output escapes text from outside. `terminal.py` has the form for people.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from vdisklab.sanitise import sanitise
from vdisklab.views.documents.conversion import Key, keys_of, to_json

Row = TypeVar("Row")

WORDS = 20
"""Width in characters of a column of words, below which spare columns are dropped first."""

NAMES = 40
"""Width of a column of names, such as disk paths, below which spare columns are dropped first."""

_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")


@dataclass(frozen=True)  # no slots: Python 3.11 cannot then call Column[Row](…)
class Column(Generic[Row]):
    """A column on the terminal: its title, and how it shows a row.

    `folds` lets text wrap between words; spare columns are dropped before it is narrower than that.
    A `spare` column is dropped if the table does not fit, those with a higher number first; one
    with 0 is never dropped. `style` is rich's, such as `red`. `note` explains the column, where it
    is shown.
    """

    title: str
    show: Callable[[Row], str]
    right: bool = False
    folds: int = 0
    spare: int = 0
    style: Callable[[Row], str] | None = None
    note: str = ""

    @property
    def heading(self) -> str:
        """The title on one line."""
        return " ".join(self.title.replace("-\n", "").split())


@dataclass(frozen=True)
class Table(Generic[Row]):
    """Rows with the columns that a terminal shows.

    JSON and CSV carry `record(row)`: a dataclass of type `kind`, in SI units and unrounded. A
    table without `kind` has no such form. `intro` stands below the title and `notes` below the
    rows, one sentence each. `verbatim` comes last, line by line and never wrapped, so that it can
    be pasted.
    """

    title: str
    columns: Sequence[Column[Row]]
    rows: Sequence[Row]
    notes: tuple[str, ...] = ()
    verbatim: tuple[str, ...] = ()
    intro: tuple[str, ...] = ()
    kind: type[Any] | None = None
    record: Callable[[Row], Any] = lambda row: row

    @property
    def sentences(self) -> tuple[str, ...]:
        """All that is said around the rows."""
        return (self.title, *self.intro, *self.notes, *(c.note for c in self.columns if c.note))

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys of a row in CSV."""
        if self.rows:
            return tuple(to_json(self.record(self.rows[0])))
        kind: Any = self.kind
        fields = {} if kind is None else keys_of(kind)
        return tuple(name for name, role in fields.items() if role is not Key.INLINE)


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
