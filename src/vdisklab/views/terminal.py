"""A table on a terminal: one line for each row, or all of it.

Where a row does not fit, spare columns go first; then long texts are shortened, and a last note
says so. With `wide` nothing is left out at any width: texts wrap between words, and where that is
not enough, each row is stacked, a line for each column. A word longer than the line runs over it,
as a command does, so that it can be copied.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text

from vdisklab import numbers
from vdisklab.path.named_target import as_typed
from vdisklab.sanitise import sanitise, sanitise_line
from vdisklab.units import counted
from vdisklab.value import Value, replace
from vdisklab.views.layout import NAMES, WORDS, Column, Table

_GAP = "  "
_ELLIPSIS = "…"
MOST_NOTE_LINES = 5
"""Maximum number of lines of notes below a table, unless all are asked for."""
FEWEST = 8
"""Minimum number of characters that is left of a text."""
_NOTHING = ("", numbers.MISSING)
_PAGE_CACHE = re.compile(r" \(\w+\)$")
"""The end of a cell's label."""
_OPTIONS = re.compile(r"(?<=[\w)])(?::[a-z_]+=[^:/ ]*)+(?=/| |$)")
"""The options of a path's segment."""
_WORDS = re.compile(r"(?:`[\w./~-]+ [^`\n]*`|(?<=\d) (?=%|m?s\b)|\S)+")
"""Words. A command is one, as its first line would run alone where it is pasted, and so are a
percentage and a number of seconds."""


def show(
    table: Table[Any], console: Console, *, why: bool = False, wide: bool = False, verb: str = ""
) -> bool:
    """Prints `lines_of` the table. True if the last of them is empty."""
    lines = lines_of(table, console.width, why=why, wide=wide, verb=verb)
    console.print(Text("\n").join(lines), soft_wrap=True)
    return bool(lines) and not lines[-1].plain


def lines_of(
    table: Table[Any], width: int, *, why: bool = False, wide: bool = False, verb: str = ""
) -> list[Text]:
    """The table, its notes and its verbatim lines.

    Without `why` only the first notes are there; without `wide` each row takes one line. The last
    notes name the options that show the rest: those of `verb`, or of the running command if it is
    empty. A note that introduces the verbatim lines stands right above them.
    """
    table = table if why or wide else table.brief or table
    shown = _Laid([], [])
    if table.rows and table.columns:
        shown = _wide(table, width) if wide else _narrow(table, width)
    lines = [*_head(table, width), *shown.lines]
    of_columns = (each.note for each in shown.columns if each.note)
    notes = [_note(note, width) for note in (*table.other_notes, *of_columns)]
    room = itertools.accumulate(map(len, notes))
    first = len(notes) if why else max(1, sum(count <= MOST_NOTE_LINES for count in room))
    lines += map(Text, itertools.chain.from_iterable(notes[:first]))

    def with_option(option: str) -> str:
        return f"`{verb} {option}`" if verb else option

    if notes[first:]:
        lines.append(Text(f"* {counted(len(notes[first:]), 'more note')}: {with_option('--why')}"))
    if shown.left_out:
        lines += map(Text, wrap(f"* {with_option('--wide')} shows {shown.left_out}.", width))
    lines += map(
        Text, itertools.chain.from_iterable(_note(note, width) for note in table.introducing)
    )
    if table.verbatim:
        lines += [*(Text(as_typed(sanitise(command))) for command in table.verbatim), Text()]
    return lines


def _note(note: str, width: int) -> list[str]:
    return wrap(f"* {as_typed(sanitise_line(note))}", width)


class _Laid(Value):
    """The lines of a table's rows, the shown columns, and words for what is left out."""

    lines: list[Text]
    columns: list[Column[Any]]
    left_out: str = ""


def _head(table: Table[Any], width: int) -> Iterator[Text]:
    for line in wrap(as_typed(sanitise(table.title)), width):
        yield Text(line, style="bold")
    for sentence in table.intro:
        yield from map(Text, wrap(as_typed(sanitise_line(sentence)), width))


def _narrow(table: Table[Any], width: int) -> _Laid:
    """One line for each row: without spare columns and ends of texts that do not fit."""
    every = [_Shown.of(column, table.rows).on_one_line() for column in table.columns]
    left = _without_spare(every, width)
    sizes = _sizes(left, width)
    while _total(sizes) > width:
        widest = max(
            range(len(left)),
            key=lambda place: (
                bool(left[place].column.folds),
                left[place].wraps_at(sizes[place] - 1),
                sizes[place],
            ),
        )
        if not left[widest].column.folds or sizes[widest] <= FEWEST:
            break
        sizes[widest] -= 1
    cut = [entry.cut(size) for entry, size in zip(left, sizes, strict=True)]
    begun = [
        f"{_ELLIPSIS} at the start of a {entry.column.heading} is {entry.start_left_out}"
        for entry in cut
        if entry.start_left_out
    ]
    gone = [entry for entry in every if entry not in left and not entry.is_empty]
    left_out = list(dict.fromkeys(entry.column.heading for entry in gone))
    whole = f"whole texts ({'; '.join(begun)})" if begun else "whole texts"
    left_out += [whole] * any(
        cut_column.texts != all_of.texts and all_of.column.fit is None
        for cut_column, all_of in zip(cut, left, strict=True)
    )
    return _Laid(
        [Text(), *_grid(cut, sizes), Text()], [entry.column for entry in left], ", ".join(left_out)
    )


def _wide(table: Table[Any], width: int) -> _Laid:
    """All columns and whole texts: wrapped if that fits, else stacked."""
    every = [_Shown.of(column, table.rows) for column in table.columns]
    fits = _total(entry.least for entry in every) <= width
    told = [entry for entry in every if not entry.is_empty] or every
    rows = _grid(every, _sizes(every, width)) if fits else _stacked(told, len(table.rows), width)
    return _Laid([Text(), *rows, Text()], list(table.columns))


def wrap(text: str, width: int) -> list[str]:
    """The lines of a text, wrapped between words. A word longer than `width` is not broken, nor is
    a command in backquotes: a terminal then wraps it so that it can be pasted.
    """
    lines: list[str] = []
    for paragraph in text.split("\n"):
        line = ""
        for word in _WORDS.findall(paragraph):
            longer = f"{line} {word}" if line else word
            if line not in ("", "*") and cell_len(longer) > width:  # no mark of a note alone
                lines.append(line)
                longer = word
            line = longer
        lines.append(line)
    return lines


class _Shown(Value, eq=False):
    """A column with its texts. Widths are in characters of a terminal, where some take two.

    `least` is the minimum width, `natural` the width of its longest line.
    """

    column: Column[Any]
    texts: list[str]
    styles: list[str]
    rows: Sequence[Any]
    least: int
    natural: int
    start_left_out: str = ""
    """With what all texts begin, if that was left out to keep them different."""

    @classmethod
    def of(cls, column: Column[Any], rows: Sequence[Any]) -> _Shown:
        texts = [as_typed(sanitise(column.show(row))).replace("\t", " ") for row in rows]
        styles = ["" if column.style is None else column.style(row) for row in rows]
        natural = _widest(line for text in (*texts, column.title) for line in text.split("\n"))
        words_in_cells = (word for text in texts for word in text.split())
        of_cells = _widest(words_in_cells) if column.folds else natural
        least = max(_widest(_WORDS.findall(column.title)), of_cells)
        return cls(column, texts, styles, rows, least, natural)

    @property
    def is_empty(self) -> bool:
        """True if no row has a value."""
        return all(text in _NOTHING for text in self.texts)

    def wraps_at(self, width: int) -> bool:
        """True if a column of whole texts is still readable so wide: it is not narrower than a
        column of words, or its texts take two lines at most."""
        if not self.column.whole or width >= NAMES:
            return False
        if width >= WORDS or self.natural > NAMES:
            return width >= WORDS
        lines = [wrap(text, width) for text in self.texts]
        return all(len(each) <= 2 and _widest(each) <= width for each in lines)

    def on_one_line(self) -> _Shown:
        """The column with each text on one line, which may be shortened to what `folds` allows."""
        texts = [" ".join(text.split("\n")) for text in self.texts]
        widest, title = _widest(texts), self.column.title
        shortest = FEWEST if self.column.fit is not None else self.column.folds or widest
        least = max(min(widest, shortest), _widest(_WORDS.findall(title)))
        return replace(
            self, texts=texts, least=least, natural=max(widest, _widest(title.split("\n")))
        )

    def cut(self, width: int) -> _Shown:
        """The column with texts that are longer than this shortened: paths first by the options of
        their segments, so that format and cache mode stay, and over two lines, the second for the
        page cache; names in the middle, and sentences at their end, if the part in which they
        differ stays; else in another place. What all long names begin with is left out, if it alone
        is wider, or that keeps more of them different."""
        if self.natural <= width or self.column.whole:
            return self
        if self.column.fit is not None:
            return replace(self, texts=[self.column.fit(row, width) for row in self.rows])
        for values in (False, True):
            without = [_without_options(text, width, values=values) for text in self.texts]
            parts = [_PAGE_CACHE.sub("", text) for text in without]
            fits = _widest(parts if self.column.folds == NAMES else without) <= width
            if fits and len(set(without)) == len(set(self.texts)):
                return replace(self, texts=without)  # the page cache wraps
        usual = (width - 1) // 2 if self.column.folds == NAMES else 0
        ends = [usual, *range(width - 1)]
        cut = _most_different(self.texts, width, ends)
        start = _common_start([text for text in self.texts if cell_len(text) > width])
        shorter = [
            f"{_ELLIPSIS}{text.removeprefix(start)}" if start and text.startswith(start) else text
            for text in self.texts
        ]
        other = _most_different(shorter, width, ends)
        if cell_len(start) > width or (start and len(set(other)) > len(set(cut))):
            return replace(self, texts=other, start_left_out=start)
        return replace(self, texts=cut)

    def lines(self, text: str, width: int) -> list[str]:
        """The lines of one cell."""
        return wrap(text, width) if self.column.folds else text.split("\n")


def _without_options(path: str, width: int, *, values: bool) -> str:
    """A path with `…` in place of the options of as many segments as make it fit, the longest
    first: `qcow2:…/default (cold)`; with their `values` if these tell paths apart:
    `qcow2:…64k/none`. Another text is returned as it is."""
    for options in sorted(_OPTIONS.findall(path), key=len, reverse=True):
        if cell_len(path) <= width:
            break
        kept = ",".join(re.findall("=([^:]*)", options)) if values else ""
        path = path.replace(options, f":{_ELLIPSIS}{kept}", 1)
    return path


def _most_different(texts: Sequence[str], width: int, ends: Sequence[int]) -> list[str]:
    """The texts in `width` columns, shortened in the first of these places that leaves most of them
    different."""
    tries = ([_shortened(text, width, end) for text in texts] for end in ends)
    return max(tries, key=lambda shortened: len(set(shortened)))


def _common_start(texts: Sequence[str]) -> str:
    """What names begin with, up to a separator; empty if that is nothing, and for sentences."""
    if len(set(texts)) < 2 or any(" " in text for text in texts):
        return ""
    least, most = min(texts), max(texts)
    alike = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(least, most, strict=False))
    start = "".join(character for character, _ in alike)
    return start[: max(start.rfind("/"), start.rfind(":")) + 1]


def _shortened(text: str, width: int, end: int) -> str:
    """A text in `width` columns of the terminal, `end` of them for its end."""
    if cell_len(text) <= width:
        return text
    start = set_cell_size(text, width - end - 1).rstrip()
    return f"{start}{_ELLIPSIS}{set_cell_size(text[::-1], end)[::-1].lstrip()}"


def _widest(texts: Iterable[str]) -> int:
    return max(map(cell_len, set(texts)), default=0)


def _without_spare(shown: Sequence[_Shown], width: int) -> list[_Shown]:
    """The columns that fit with whole names; if no choice of columns does, with shortened ones.

    An empty column goes first, then those with the highest `spare`, the rightmost before others.
    """
    left = list(shown)
    for of in (_whole_name, lambda entry: entry.least):
        left = list(shown)
        while _total(map(of, left)) > width:
            spare = [
                (entry.is_empty, entry.column.spare, place)
                for place, entry in enumerate(left)
                if entry.column.spare
            ]
            if not spare:
                break
            del left[max(spare)[-1]]
        else:
            break
    return left


def _whole_name(shown: _Shown) -> int:
    return shown.natural if shown.column.folds == NAMES else shown.least


def _total(widths: Iterable[int]) -> int:
    """The width of a line, which begins with a space."""
    every = list(widths)
    return 1 + sum(every) + len(_GAP) * (len(every) - 1)


def _grid(shown: Sequence[_Shown], sizes: Sequence[int]) -> Iterator[Text]:
    """Heading, rule and rows, side by side."""
    if any(entry.column.title for entry in shown):
        titles = [wrap(entry.column.title, size) for entry, size in zip(shown, sizes, strict=True)]
        deepest = max(map(len, titles))
        titles = [[""] * (deepest - len(lines)) + lines for lines in titles]
        yield from _row(shown, sizes, titles, ["bold"] * len(shown))
        yield Text(" " + "─" * (_total(sizes) - 1))
    for place in range(len(shown[0].texts)):
        cells = [
            entry.lines(entry.texts[place], size) for entry, size in zip(shown, sizes, strict=True)
        ]
        yield from _row(shown, sizes, cells, [entry.styles[place] for entry in shown])


def _sizes(shown: Sequence[_Shown], width: int) -> list[int]:
    """The width of each column: its minimum, plus a part of the rest where text lacks room."""
    sizes = [entry.least for entry in shown]
    for _ in range(width - _total(sizes)):
        lacking = [entry.natural - size for entry, size in zip(shown, sizes, strict=True)]
        if max(lacking) <= 0:
            break
        sizes[lacking.index(max(lacking))] += 1
    return sizes


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
    """Each row as lines of title and value, with an empty line between rows; of a row that has
    nothing in a column, without that line."""
    titles = [" ".join(entry.column.title.split()) for entry in shown]
    margin = 1 + max(map(cell_len, titles)) + len(_GAP)
    for place in range(rows):
        if place:
            yield Text()
        for entry, title in zip(shown, titles, strict=True):
            if entry.texts[place] in _NOTHING and not entry.is_empty:
                continue
            lines = wrap(entry.texts[place], width - margin)
            for number, line in enumerate(lines if entry.texts[place] else ()):
                heading = "" if number else f" {title}"
                text = Text(heading + " " * (margin - cell_len(heading)))
                text.append(line, entry.styles[place])
                yield text
