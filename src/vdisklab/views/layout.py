"""A table as a value; `terminal.py` has its form for people, and escapes text from outside."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

from vdisklab.value import Value

Row = TypeVar("Row")

WORDS = 20
"""Width in characters of a column of words, below which spare columns are dropped first."""

NAMES = 40
"""Width of a column of names, such as disk paths, below which spare columns are dropped first."""


class Column(Value, Generic[Row]):
    """A column on the terminal: its title, and how it shows a row.

    `folds` lets text wrap between words; spare columns are dropped before it is narrower than that.
    A `spare` column is dropped if the table does not fit, those with a higher number first; one
    with 0 is never dropped. `style` is rich's, such as `red`. `note` explains the column, where it
    is shown. `phone` tells whether a page shows the column on a phone; None: if it is not spare.
    Text of a `whole` column takes several lines where others are shortened. `fit` shows a row in so
    many characters, as a bar does: it shrinks before names are shortened.
    """

    title: str
    show: Callable[[Row], str]
    right: bool = False
    folds: int = 0
    spare: int = 0
    style: Callable[[Row], str] | None = None
    note: str = ""
    whole: bool = False
    phone: bool | None = None
    fit: Callable[[Row, int], str] | None = None

    @property
    def on_phone(self) -> bool:
        """True if a page shows the column on a phone."""
        return not self.spare if self.phone is None else self.phone

    @property
    def heading(self) -> str:
        """The title on one line."""
        return " ".join(self.title.replace("-\n", "").split())


class StackedColumns(Value):
    """A figure above a table on a page: a column for each label, of stacked parts.

    `values` has a number for each of `names`, by label; `top` says how much the highest column is,
    with its unit. `alt` is the figure in words.
    """

    alt: str
    names: Sequence[str]
    labels: Sequence[str]
    values: Sequence[Sequence[float]]
    top: str


class Table(Value, Generic[Row]):
    """Rows with the columns that a terminal shows.

    CSV has the rows themselves, dataclasses of type `kind`, in SI units and unrounded. A table
    without `kind` has no such form. `intro` stands below the title and `notes` below the
    rows, one sentence each. `verbatim` comes last, line by line and never wrapped, so that it can
    be pasted. `brief` is shown instead to who asks neither why nor for the wide form. `figure` is
    shown on a page only. `for_others` are those verbatim lines that are run on another host, where
    the program has another name.
    """

    title: str
    columns: Sequence[Column[Row]]
    rows: Sequence[Row]
    notes: tuple[str, ...] = ()
    verbatim: tuple[str, ...] = ()
    intro: tuple[str, ...] = ()
    kind: type[Any] | None = None
    brief: Table[Row] | None = None
    figure: StackedColumns | None = None
    for_others: frozenset[str] = frozenset()

    @property
    def introducing(self) -> tuple[str, ...]:
        """The note that introduces the verbatim lines, and stands right above them; none or one."""
        last = self.notes[-1:] if self.verbatim else ()
        return tuple(note for note in last if note.endswith(":"))

    @property
    def other_notes(self) -> tuple[str, ...]:
        """The notes without it."""
        return self.notes[: len(self.notes) - len(self.introducing)]

    @property
    def sentences(self) -> tuple[str, ...]:
        """All that is said around the rows."""
        return (self.title, *self.intro, *self.notes, *(c.note for c in self.columns if c.note))
