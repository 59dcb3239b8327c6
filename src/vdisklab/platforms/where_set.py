"""Where a form says a disk's cache mode, for the user who changes it there."""

from __future__ import annotations

import re

from vdisklab.platforms.reading import GuestText

NO_FLUSH = "cache.no-flush"
"""The flag of a -blockdev that drops flushes: it has no mode to set (qapi/block-core.json)."""


def set_in(text: GuestText, name: str, line: int | None = None, of: str = "") -> str:
    """The place of a setting of that name: `of` says whose it is, where its line is not known."""
    if line is not None:
        return f"`{name}` in line {line} of {text.origin}"
    return f"`{name}`{f' of {of}' if of else ''} in {text.origin}"


def only_line(text: str, pattern: str) -> int | None:
    """The number of the one line in which a pattern stands; None if it is none, or not one."""
    numbers = {text.count("\n", 0, match.start()) + 1 for match in re.finditer(pattern, text)}
    return numbers.pop() if len(numbers) == 1 else None


def set_to(place: str, mode: str) -> str:
    """What to write at such a place for a cache mode, as a clause: a flag has values of its own."""
    return f"set {place} to {'off' if place.startswith(f'`{NO_FLUSH}`') else mode}"
