"""A table on a terminal: no word or number is ever cut, whatever the width.

Where a table does not fit, spare columns go first; then each row is stacked, a line for each
column. Text wraps between words. A word longer than the line runs over it, as a command does, so
that it can be copied.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from vdisklab import numbers
from vdisklab.sanitise import sanitise, sanitise_line
from vdisklab.units import counted
from vdisklab.views.layout import Column, Table

_GAP = "  "
MOST_NOTE_LINES = 5
"""Maximum number of lines of notes below a table, unless all are asked for."""
_NOTHING = ("", numbers.MISSING)


def show(table: Table[Any], console: Console, more: str | None = None) -> None:
    """Prints the table, its notes and its verbatim lines.

    Unless `more` is None, only the first notes are shown, and it says how to see the others.
    """
    lines = list(table_lines(table, console.width))
    lines += map(Text, _note_lines(table, console.width, more))
    if table.verbatim:
        lines += [*(Text(sanitise(command)) for command in table.verbatim), Text()]
    console.print(Text("\n").join(lines), soft_wrap=True)


def _note_lines(table: Table[Any], width: int, more: str | None) -> Iterator[str]:
    notes = [
        wrap(f"* {sanitise_line(note)}", width)
        for note in (*table.notes, *_column_notes(table, width))
    ]
    shown = len(notes)
    if more is not None:
        room = itertools.accumulate(map(len, notes))
        shown = max(1, sum(lines <= MOST_NOTE_LINES for lines in room))
    yield from itertools.chain.from_iterable(notes[:shown])
    if notes[shown:]:
        yield f"* {counted(len(notes[shown:]), 'more note')}: {more}"


def _column_notes(table: Table[Any], width: int) -> Iterator[str]:
    """The notes of the columns that are shown."""
    if table.rows and any(column.note for column in table.columns):
        shown = [_Shown.of(column, table.rows) for column in table.columns]
        yield from (
            entry.column.note for entry in _fitting(shown, width) or shown if entry.column.note
        )


def table_lines(table: Table[Any], width: int) -> Iterator[Text]:
    """Title, heading and rows for a terminal of `width` characters.

    Without rows or columns there is only the title.
    """
    for line in wrap(sanitise(table.title), width):
        yield Text(line, style="bold")
    for sentence in table.intro:
        yield from map(Text, wrap(sanitise_line(sentence), width))
    if not (table.rows and table.columns):
        return
    shown = [_Shown.of(column, table.rows) for column in table.columns]
    fitting = _fitting(shown, width)
    yield Text()
    if fitting is None:
        yield from _stacked(shown, len(table.rows), width)
    else:
        yield from _grid(fitting, width)
    yield Text()
    yield from map(Text, _left_out(shown, fitting or shown, width))


def wrap(text: str, width: int) -> list[str]:
    """The lines of a text, wrapped between words; a word longer than `width` is not broken."""
    lines: list[str] = []
    for paragraph in text.split("\n"):
        line = ""
        for word in paragraph.split():
            longer = f"{line} {word}" if line else word
            if line and cell_len(longer) > width:
                lines.append(line)
                longer = word
            line = longer
        lines.append(line)
    return lines


@dataclass(frozen=True, slots=True, eq=False)
class _Shown:
    """A column with its texts. Widths are in characters of a terminal, where some take two.

    `least` is the minimum width. Spare columns are dropped before a column gets narrower than
    `comfortable`. `natural` is the width of its longest line.
    """

    column: Column[Any]
    texts: list[str]
    styles: list[str]
    least: int
    comfortable: int
    natural: int

    @classmethod
    def of(cls, column: Column[Any], rows: Sequence[Any]) -> _Shown:
        texts = [sanitise(column.show(row)).replace("\t", " ") for row in rows]
        styles = ["" if column.style is None else column.style(row) for row in rows]
        widest = _widest(line for text in texts for line in text.split("\n"))
        heading = _widest(column.title.split())
        least = max(heading, widest)
        if column.folds:
            least = max(heading, _widest(word for text in texts for word in text.split()))
        natural = max(widest, _widest(column.title.split("\n")))
        return cls(column, texts, styles, least, max(least, min(widest, column.folds)), natural)

    @property
    def is_empty(self) -> bool:
        """True if no row has a value."""
        return all(text in _NOTHING for text in self.texts)

    def lines(self, text: str, width: int) -> list[str]:
        """The lines of one cell."""
        return wrap(text, width) if self.column.folds else text.split("\n")


def _widest(texts: Iterator[str] | Sequence[str]) -> int:
    return max(map(cell_len, set(texts)), default=0)


def _fitting(shown: Sequence[_Shown], width: int) -> list[_Shown] | None:
    """The columns that fit after dropping spare ones; None if the others alone do not fit.

    An empty column goes first, then those with the highest `spare`, the rightmost before others.
    """
    left = list(shown)
    while _total(left, lambda entry: entry.comfortable) > width:
        spare = [place for place, entry in enumerate(left) if entry.column.spare]
        if not spare:
            break
        del left[
            max(spare, key=lambda place: (left[place].is_empty, left[place].column.spare, place))
        ]
    return left if _total(left, lambda entry: entry.least) <= width else None


def _left_out(shown: Sequence[_Shown], fitting: Sequence[_Shown], width: int) -> list[str]:
    """A note on the columns that did not fit, unless they are empty."""
    gone = [entry for entry in shown if entry not in fitting and not entry.is_empty]
    if not gone:
        return []
    titles = dict.fromkeys(" ".join(entry.column.title.split()) for entry in gone)
    return wrap(f"* In a wider terminal also: {', '.join(titles)}.", width)


def _total(shown: Sequence[_Shown], width_of: Callable[[_Shown], int]) -> int:
    """The width of a line, which begins with a space."""
    return 1 + sum(map(width_of, shown)) + len(_GAP) * (len(shown) - 1)


def _grid(shown: Sequence[_Shown], width: int) -> Iterator[Text]:
    """Heading, rule and rows, side by side."""
    widths = _widths(shown, width)
    if any(entry.column.title for entry in shown):
        titles = [wrap(entry.column.title, size) for entry, size in zip(shown, widths, strict=True)]
        deepest = max(map(len, titles))
        titles = [[""] * (deepest - len(lines)) + lines for lines in titles]
        yield from _row(shown, widths, titles, ["bold"] * len(shown))
        yield Text(" " + "─" * (sum(widths) + len(_GAP) * (len(widths) - 1)))
    for place in range(len(shown[0].texts)):
        cells = [
            entry.lines(entry.texts[place], size) for entry, size in zip(shown, widths, strict=True)
        ]
        yield from _row(shown, widths, cells, [entry.styles[place] for entry in shown])


def _widths(shown: Sequence[_Shown], width: int) -> list[int]:
    """The width of each column: its minimum, plus a part of the rest where text lacks room."""
    widths = [entry.least for entry in shown]
    for _ in range(width - _total(shown, lambda entry: entry.least)):
        lacking = [entry.natural - size for entry, size in zip(shown, widths, strict=True)]
        if max(lacking) <= 0:
            break
        widths[lacking.index(max(lacking))] += 1
    return widths


def _row(
    shown: Sequence[_Shown],
    widths: Sequence[int],
    cells: Sequence[Sequence[str]],
    styles: Sequence[str],
) -> Iterator[Text]:
    """The lines of one row; its cells may have several lines each."""
    for number in range(max(map(len, cells))):
        line = Text()
        for entry, size, lines, style in zip(shown, widths, cells, styles, strict=True):
            text = lines[number] if number < len(lines) else ""
            pad = " " * (size - cell_len(text))
            line.append(_GAP if line else " ")
            line.append(pad + text if entry.column.right else text + pad, style)
        line.rstrip()
        yield line


def _stacked(shown: Sequence[_Shown], rows: int, width: int) -> Iterator[Text]:
    """Each row as lines of title and value, with an empty line between rows."""
    titles = [" ".join(entry.column.title.split()) for entry in shown]
    margin = 1 + max(map(cell_len, titles)) + len(_GAP)
    for place in range(rows):
        if place:
            yield Text()
        for entry, title in zip(shown, titles, strict=True):
            lines = wrap(entry.texts[place], width - margin)
            for number, line in enumerate(lines if entry.texts[place] else ()):
                heading = "" if number else f" {title}"
                text = Text(heading + " " * (margin - cell_len(heading)))
                text.append(line, entry.styles[place])
                yield text
