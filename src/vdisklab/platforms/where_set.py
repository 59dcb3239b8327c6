"""Where a form says a disk's cache mode, for the user who changes it there."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from vdisklab.platforms.reading import GuestText

NO_FLUSH = "cache.no-flush"
"""The flag of a -blockdev that drops flushes: it has no mode to set (qapi/block-core.json)."""


def set_in(text: GuestText, name: str, line: int | None = None, of: str = "") -> str:
    """The place of a setting of that name: `of` says whose it is, where its line is not known."""
    if line is not None:
        return f"`{name}` in line {line} of {text.origin}"
    return f"`{name}`{f' of {of}' if of else ''} in {text.origin}"


def set_by_variable(
    reference: str, text: GuestText, files: Sequence[GuestText], overridden: str
) -> str | None:
    """The place of a variable's value, `var.NAME`: the last of the files that sets it, else its
    default in the text; with what is not seen and wins (`overridden`, which has `{}` for its name).
    None if neither sets it.
    """
    name = re.escape(reference.removeprefix("var."))
    if not reference.startswith("var."):
        return None
    wins = f"({overridden.format(reference.removeprefix('var.'))} override it)"
    for file in reversed(files):
        if re.search(rf"(?m)^[ \t]*{name}[ \t]*=", file.text):
            line = only_line(file.text, rf"(?m)^[ \t]*{name}[ \t]*=")
            return f"{set_in(file, reference.removeprefix('var.'), line)} {wins}"
    block = re.search(rf'(?ms)^[ \t]*variable[ \t]+"{name}"[ \t]*\{{.*?\bdefault[ \t]*=', text.text)
    if block is None:
        return None
    return f"{set_in(text, 'default', text.text.count(chr(10), 0, block.end()) + 1)} {wins}"


def only_line(text: str, pattern: str) -> int | None:
    """The number of the one line in which a pattern stands; None if it is none, or not one."""
    numbers = {text.count("\n", 0, match.start()) + 1 for match in re.finditer(pattern, text)}
    return numbers.pop() if len(numbers) == 1 else None


def line_with(text: str, argv: Sequence[str]) -> int | None:
    """The number of the line that starts a command: of the lines with its program the one that has
    the most of its other words. None if that is none, or not one."""
    lines = _logical_lines(text)
    program = re.compile(rf"(?<![\w.-]){re.escape(argv[0])}(?![\w.-])") if argv else None
    having = {
        number: sum(word in line for word in argv[1:])
        for number, line in lines
        if program is not None and program.search(line) and not line.lstrip().startswith("#")
    }
    highest = max(having.values(), default=0)
    most = [number for number, count in having.items() if count == highest]
    return most[0] if len(most) == 1 else None


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """The lines of a text with those that continue them, by the number of the first."""
    first, line = 1, ""
    for number, raw in enumerate(text.split("\n"), 1):
        first = first if line else number
        line += raw.rstrip("\r")
        if line.endswith("\\"):
            line = f"{line[:-1]} "
        else:
            yield first, line
            line = ""
    if line:
        yield first, line


_IN_TEXT = re.compile(r"`(?P<name>[\w.]+)`,? (?P<where>in .+)", re.DOTALL)
_NOT_SET = ", which is not set"


def unset(place: str) -> str:
    """The place where a setting may be written that nobody has written: the default counts."""
    return f"{place}{_NOT_SET}"


def place_to_change(place: str) -> str:
    """The place in the words of somebody who is told to write there."""
    return place.removesuffix(_NOT_SET)


def set_by(place: str) -> str:
    """What decides the cache mode now, as a clause: the place, or the default of an image's program
    if nobody has set it there."""
    if place.endswith(_NOT_SET):
        return f"the image's default ({place_to_change(place)} is not set)"
    return f"set by {place}"


def write_there(place: str, mode: str) -> str:
    """What to write at such a place in a script, so that it makes the disk so, as a clause."""
    match = _IN_TEXT.fullmatch(place)
    if match is None:
        return f"set {place} to {mode}"
    return f"{match['where']} write {match['name']}={mode}"


def set_to(place: str, mode: str) -> str:
    """What to write at such a place for a cache mode, as a clause: a flag has values of its own."""
    place = place_to_change(place)
    return f"set {place} to {'off' if place.startswith(f'`{NO_FLUSH}`') else mode}"
