"""Words in a list of options, `key=value,…`, in whose place a shell or a template puts others:
`$OPTS`, `${MORE:+,$MORE}`, `$(command)`, `{{ x }}`. Each may be options of its own, such as
`cache=unsafe`. bash(1), "Expansion".
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_REPLACED = re.compile(
    r"""\$\{(?:[^{}]|\$\{[^{}]*+\})*+\}|\$\((?:[^()]|\((?:[^()]|\([^()]*+\))*+\))*+\)|`[^`]*+`
    |\{\{(?:[^}]|\}(?!\}))*+(?:\}\})?|\$(?:\w++|[@*\#?!-])
    |\$[({].*|`.*""",
    re.VERBOSE | re.DOTALL,
)

_WORDED = frozenset(
    ("if", "format", "driver", "media", "cache", "cache.direct", "cache.no-flush",
     "cache.writeback", "aio", "discard", "detect-zeroes", "werror", "rerror", "snapshot",
     "readonly", "read-only", "write-cache", "bus", "iothread")
)  # fmt: skip
"""Keys whose value is one word: what a shell puts behind the word is a further option."""

_IMAGE_NAME = re.compile(r".*\.(raw|img|qcow2?|qed|vmdk|vdi|vhdx?|iso)", re.DOTALL)
_SHOWN = 40


def parts_of(text: str) -> Iterator[str]:
    """The options of a list, in which two commas stand for one (qemu-option.c); the commas of a
    word that is replaced divide none."""
    ends = {match.start(): match.end() for match in _REPLACED.finditer(text)}
    start = position = 0
    for place in sorted({*(match.start() for match in re.finditer(",", text)), *ends}):
        if place < position:
            continue
        if place in ends:
            position = ends[place]
        elif text.startswith(",,", place):
            position = place + 2
        else:
            yield text[start:place].replace(",,", ",")
            start = position = place + 1
    yield text[start:].replace(",,", ",")


def unknown_in(part: str, *, is_first: bool) -> tuple[str, str]:
    """The word in an option that may be further options, and the option without the word; both as
    they are if none may be: the value of a key is one value."""
    replaced = _REPLACED.findall(part)
    key, equals, value = _REPLACED.sub("\0", part).partition("=")
    if not replaced or (is_first and not equals):
        return "", part
    if "\0" in key:
        return _shown(replaced[0]), ""
    before = value.rstrip("\0")
    behind = "".join(replaced[len(replaced) - (len(value) - len(before)) :])
    if behind and before and (key in _WORDED or _IMAGE_NAME.fullmatch(before)):
        return _shown(behind), part.removesuffix(behind)
    with_comma = next((word for word in replaced if word.startswith("${") and "," in word), "")
    return _shown(with_comma), part.removesuffix(with_comma) if with_comma else part


def is_replaced(word: str) -> bool:
    """True for a word of which a part is replaced."""
    return _REPLACED.search(word) is not None


def _shown(word: str) -> str:
    """A word as it is written, without the blanks' placeholder; the beginning of a long one."""
    plain = word.replace("␣", " ")
    return plain if len(plain) <= _SHOWN else f"{plain[:_SHOWN]}…"
