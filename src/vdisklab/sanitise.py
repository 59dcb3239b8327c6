"""Text from outside, made harmless for a terminal."""

from __future__ import annotations

import unicodedata


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
