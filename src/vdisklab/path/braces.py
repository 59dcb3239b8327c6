"""Brace expansion as in bash: `{a,b}`, `{1..4}`, `{a..e..2}`, nested.

It scans in the same order as bash, so malformed patterns give the same result: a brace that is
never closed, or that holds neither a comma nor a sequence, is kept literally.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from vdisklab.errors import PlanError

MAX_WORDS = 100_000
MAX_DEPTH = 40
MAX_LENGTH = 4096
MAX_BRACES = 400  # each searches for its end again: time grows with the square

_SEQUENCE = re.compile(
    r"(?P<first>[+-]?[0-9]+)\.\.(?P<last>[+-]?[0-9]+)(?:\.\.(?P<step>[+-]?[0-9]+))?"
    r"|(?P<from>[A-Za-z])\.\.(?P<to>[A-Za-z])(?:\.\.(?P<by>[+-]?[0-9]+))?"
)
_LONGEST_INTEGER = 1 << 63


def expand(pattern: str) -> list[str]:
    """The words that bash expands `pattern` to, in bash's order, without empty words.

    Raises PlanError for more than MAX_WORDS words, MAX_LENGTH characters or MAX_BRACES braces, for
    braces nested deeper than MAX_DEPTH, and for a sequence such as `{a..C}`, which includes
    characters that no disk path has.
    """
    if len(pattern) > MAX_LENGTH:
        raise PlanError(
            f"{_shortened(pattern)} is longer than {MAX_LENGTH} characters",
            hint="write several patterns instead",
        )
    if pattern.count("{") > MAX_BRACES:
        raise PlanError(
            f"{_shortened(pattern)} has more than {MAX_BRACES} braces",
            hint="write several patterns instead",
        )
    return [word for word in _expand(pattern, pattern, 0) if word]


def expand_segments(pattern: str) -> list[str]:
    """Like `expand`, without the extra slash that an empty alternative leaves behind.

    `ext4/{raw,}/none` gives `ext4/raw/none` and `ext4/none`. A path without braces is returned
    unchanged, so an extra slash in it is still an error. So is an empty pattern: it is a mistake
    (an unset shell variable), not an empty alternative.
    """
    if not pattern:
        return [pattern]
    words = expand(pattern)
    if words == [pattern]:
        return words
    collapsed = ("/".join(part for part in word.split("/") if part) for word in words)
    return [word for word in collapsed if word]


def _expand(text: str, pattern: str, depth: int) -> list[str]:
    if depth > MAX_DEPTH:
        raise PlanError(
            f"braces are nested more than {MAX_DEPTH} deep in {_shortened(pattern)}",
            hint="write several patterns instead",
        )
    words = [""]
    while True:
        opened = _opening_brace(text)
        if opened is None:
            return _joined(words, [text], pattern)
        closed = _closing_brace(text, opened + 1)
        assert closed is not None  # noqa: S101 - _opening_brace saw it
        amble = text[opened + 1 : closed]
        words = _joined(words, [text[:opened]], pattern)
        words = _joined(words, _alternatives(amble, pattern, depth), pattern)
        text = text[closed + 1 :]


def _opening_brace(text: str) -> int | None:
    """The position of the first `{` whose matching `}` follows a comma or two dots."""
    for at, character in enumerate(text):
        if character != "{":
            continue
        # As in bash: `{}` at the very beginning is a word of its own (find -exec … {}).
        if at == 0 and text[1:2] in ("", "}"):
            continue
        if _closing_brace(text, at + 1) is not None:
            return at
    return None


def _closing_brace(text: str, start: int) -> int | None:
    """The position of the first `}` after a `,` or `..`: it closes the brace before `start`."""
    level = 0
    divided = False
    for at in range(start, len(text)):
        character = text[at]
        if character == "}" and level == 0 and divided:
            return at
        if character == "{":
            level += 1
        elif character == "}" and level:
            level -= 1
        elif level == 0 and (character == "," or _is_range(text, at)):
            divided = True
    return None


def _is_range(text: str, at: int) -> bool:
    return text.startswith("..", at) and text[at + 2 : at + 3] != "}"


def _alternatives(amble: str, pattern: str, depth: int) -> list[str]:
    """The words that `{amble}` expands to; `{amble}` itself if it has no list or sequence."""
    if "," not in amble:
        sequence = _sequence(amble, pattern)
        return [f"{{{amble}}}"] if sequence is None else sequence
    words: list[str] = []
    for part in _split_at_commas(amble):
        words += _expand(part, pattern, depth + 1)
        _check_number(len(words), pattern)
    return words


def _split_at_commas(amble: str) -> Iterable[str]:
    level = start = 0
    for at, character in enumerate(amble):
        if character == "," and level == 0:
            yield amble[start:at]
            start = at + 1
        elif character == "{":
            level += 1
        elif character == "}" and level:
            level -= 1
    yield amble[start:]


def _sequence(amble: str, pattern: str) -> list[str] | None:
    match = _SEQUENCE.fullmatch(amble)
    if match is None:
        return None
    if match["from"]:
        return _letters(match["from"], match["to"], int(match["by"] or 1), pattern)
    first, last, step = int(match["first"]), int(match["last"]), int(match["step"] or 1)
    if max(abs(first), abs(last), abs(step)) >= _LONGEST_INTEGER:
        return None  # bash's integers have 64 bits; with a larger number bash expands nothing
    numbers = _steps(first, last, step, pattern)
    width = _width(match["first"], match["last"])
    return [f"{number:0{width}d}" for number in numbers]


def _letters(first: str, last: str, step: int, pattern: str) -> list[str]:
    if first.isupper() != last.isupper():
        raise PlanError(
            f"the sequence {first}..{last} in {_shortened(pattern)} mixes upper and lower case",
            hint="write the names one by one, separated by commas",
        )
    return [chr(code) for code in _steps(ord(first), ord(last), step, pattern)]


def _steps(first: int, last: int, step: int, pattern: str) -> range:
    """The numbers from first to last, inclusive; the sign of `step` is ignored."""
    step = abs(step) or 1
    _check_number(abs(last - first) // step + 1, pattern)
    return range(first, last + 1, step) if first <= last else range(first, last - 1, -step)


def _width(*ends: str) -> int:
    """The width to pad numbers to: that of the longer bound if one begins with 0, else 0."""
    padded = any(re.fullmatch(r"-?0[0-9]+", end) for end in ends)
    return max(map(len, ends)) if padded else 0


def _joined(heads: list[str], tails: list[str], pattern: str) -> list[str]:
    _check_number(len(heads) * len(tails), pattern)
    return [head + tail for head in heads for tail in tails]


def _check_number(words: int, pattern: str) -> None:
    if words > MAX_WORDS:
        raise PlanError(
            f"{_shortened(pattern)} expands to more than {MAX_WORDS} paths",
            hint="write fewer alternatives between its braces",
        )


def _shortened(pattern: str) -> str:
    return repr(pattern if len(pattern) <= 60 else pattern[:59] + "…")
