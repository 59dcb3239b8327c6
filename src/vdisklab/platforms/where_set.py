"""Where a form says a disk's cache mode, for the user who changes it there."""

from __future__ import annotations

import re
from collections.abc import Sequence

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


def set_to(place: str, mode: str) -> str:
    """What to write at such a place for a cache mode, as a clause: a flag has values of its own."""
    return f"set {place} to {'off' if place.startswith(f'`{NO_FLUSH}`') else mode}"
