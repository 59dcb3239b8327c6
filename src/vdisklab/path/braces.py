"""Brace expansion as in bash: `{a,b}`, `{1..4}`, `{a..e..2}`, nested.

The library bracex gives bash's words, also for malformed patterns: a brace that is never closed, or
that holds neither a comma nor a sequence, is kept literally. They differ where a brace in a brace
follows two dots: `{1..{2,3}}` keeps its outer braces.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from itertools import accumulate

import bracex

from vdisklab.errors import PlanError

MAX_WORDS = 20_000  # a campaign of 10,000 cells has been tried
MAX_DEPTH = 40
MAX_LENGTH = 4096
MAX_BRACES = 400  # each searches for its end again: time grows with the square

_MIXED_CASE = re.compile(r"\{([a-z]\.\.[A-Z]|[A-Z]\.\.[a-z])(\.\.[+-]?[0-9]+)?\}")
_SPECIAL = re.compile(r"[{},$\\]|//|^$|^/|/$|\.\.")
_LEVEL = {"{": 1, "}": -1}


def expand(pattern: str) -> list[str]:
    """The words that bash expands `pattern` to, in bash's order, without empty words.

    Raises PlanError for more than MAX_WORDS words, MAX_LENGTH characters or MAX_BRACES braces, for
    braces nested deeper than MAX_DEPTH, and for a sequence such as `{a..C}`, which includes
    characters that no disk path has.
    """
    shown = repr(pattern if len(pattern) <= 60 else pattern[:59] + "…")
    several = "write several patterns instead"
    if len(pattern) > MAX_LENGTH:
        raise PlanError(f"{shown} is longer than {MAX_LENGTH} characters", hint=several)
    if pattern.count("{") > MAX_BRACES:
        raise PlanError(f"{shown} has more than {MAX_BRACES} braces", hint=several)
    levels = accumulate(
        (_LEVEL.get(character, 0) for character in pattern),
        lambda level, step: max(0, level + step),
        initial=0,
    )
    if max(levels) > MAX_DEPTH:
        raise PlanError(f"braces are nested more than {MAX_DEPTH} deep in {shown}", hint=several)
    if mixed := _MIXED_CASE.search(pattern):
        raise PlanError(
            f"the sequence {mixed[1]} in {shown} mixes upper and lower case",
            hint="write the names one by one, separated by commas",
        )
    try:
        return [
            word for word in bracex.iexpand(pattern, keep_escapes=True, limit=MAX_WORDS) if word
        ]
    except bracex.ExpansionLimitException as error:
        raise PlanError(
            f"{shown} expands to more than {MAX_WORDS} paths",
            hint="write fewer alternatives between its braces",
        ) from error
    except RecursionError as error:  # thousands of commas after a brace that is never closed
        raise PlanError(f"{shown} has too many braces and commas", hint=several) from error


def expand_segments(pattern: str) -> list[str]:
    """Like `expand`, without the extra slash that an empty alternative leaves behind.

    `ext4/{raw,}/none` gives `ext4/raw/none` and `ext4/none`. A path without braces is returned
    unchanged, so an extra slash in it is still an error. So is an empty pattern: it is a mistake
    (an unset shell variable), not an empty alternative.
    """
    if not pattern:
        return [pattern]
    expanded = expand(pattern)
    if expanded == [pattern]:
        return expanded
    collapsed = ("/".join(part for part in word.split("/") if part) for word in expanded)
    return [word for word in collapsed if word]


def shortened(paths: Sequence[str]) -> list[str]:
    """Patterns that `expand` to the same paths in the same order, fewer where neighbours differ in
    one segment after the first: `raw/{none,writeback}`."""
    if any(_SPECIAL.search(path) for path in paths):
        return list(paths)
    found, before = [[[part] for part in path.split("/")] for path in paths], 0
    while len(found) != before:
        before, rest = len(found), found
        found = rest[:1]
        for segments in rest[1:]:
            both = _merged(found[-1], segments)
            found[-1:] = [found[-1], segments] if both is None else [both]
    patterns = ["/".join(map(_braced, segments)) for segments in found]
    return list(paths) if any(len(each) > MAX_LENGTH for each in patterns) else patterns


def _merged(first: list[list[str]], second: list[list[str]]) -> list[list[str]] | None:
    """The segments' alternatives that give the paths of both in their order; None if none do."""
    if len(first) != len(second):
        return None
    differ = [
        place
        for place, pair in enumerate(zip(first, second, strict=True))
        if len({*map(tuple, pair)}) > 1
    ]
    if len(differ) != 1 or differ == [0] or any(len(each) > 1 for each in first[: differ[0]]):
        return None  # what stands further left changes more slowly
    (place,) = differ
    return [*first[:place], [*first[place], *second[place]], *first[place + 1 :]]


def _braced(alternatives: list[str]) -> str:
    """`virtio:qemu={old,new}`: what all begin with, up to a sign, stands before the brace."""
    if len(alternatives) == 1:
        return alternatives[0]
    common = os.path.commonprefix(alternatives)  # noqa: RUF071 - of characters
    start = max(common.rfind(":"), common.rfind("=")) + 1
    return f"{common[:start]}{{{','.join(each[start:] for each in alternatives)}}}"
