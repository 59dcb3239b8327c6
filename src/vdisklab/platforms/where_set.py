"""Where a form says a disk's cache mode, for the user who changes it there."""

from __future__ import annotations

import re

from vdisklab.platforms.reading import GuestText


def set_in(text: GuestText, name: str, line: int | None = None, of: str = "") -> str:
    """The place of a setting of that name: `of` says whose it is, where its line is not known."""
    if line is not None:
        return f"`{name}` in line {line} of {text.origin}"
    return f"`{name}`{f' of {of}' if of else ''} in {text.origin}"


def only_line(text: str, pattern: str) -> int | None:
    """The number of the one line in which a pattern stands; None if it is none, or not one."""
    numbers = {text.count("\n", 0, match.start()) + 1 for match in re.finditer(pattern, text)}
    return numbers.pop() if len(numbers) == 1 else None
