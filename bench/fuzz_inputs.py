"""Damaged texts from whole ones: mutations that know numbers, strings, brackets, elements, lines.

Every mutation is drawn from a `random.Random`, so a seed reproduces it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from random import Random

ROOT = Path(__file__).parents[1]
DATA = ROOT / "tests" / "data"

_TOKENS = re.compile(
    r"-?[0-9]+(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?|\"[^\"\n]{0,400}\"|'[^'\n]{0,400}'|[^\W\d][\w.-]*"
)
_BRACKETS = re.compile(r"[\[\](){}]|<(/?)([A-Za-z][\w:.-]*)[^<>]*?(/?)>")
_OPENING = {"]": "[", ")": "(", "}": "{"}
_LONGEST_SPAN = 20_000
_MOST_SPANS = 6_000

_NASTY = (
    "", "0", "-0", "-1", "1", "00", "+1", "1_0", "٣", "²", "0x10", "1e999", "-1e999", "1e-400",
    "1e308",
    "½", "１", "0x" + "f" * 5000, "1:" * 3000 + "1", "2001-01-01", "[" * 500 + "]" * 500,
    '{"a":' * 980 + "1" + "}" * 980, "<a>" * 1000 + "</a>" * 1000,
    "<backingStore>" * 400 + "</backingStore>" * 400, "a" + ".b" * 500 + "=c",
    "nan", "NaN", "Infinity", "-inf", "true", "null", "none", "9" * 18, "9" * 31, "9" * 400,
    "9" * 4400, "18446744073709551616", "9223372036854775808", "4294967296", "2147483648", "65536",
    "[]", "{}", '""', "''", "[[]]", "[{}]", '{"a":1}', "[" * 3000, "{" * 3000, '{"a":' * 3000,
    "(" * 300, "<a>" * 300, "a" * 3000, "/" * 300, "../..", "%s%n", "\0", "\x1b[2J", "\x7f",
    "\ufeff", "\ud800", "\u2028", "\x85", "\r\n", "\r", "\t", "\n\n", " ", ",", ":", "=", "/", "#",
    ";", "[", "]", "{", "}", "{0..99999999}", "{a,b}", "{a", "a}", "{,}", "<", ">", "&a;", "&#0;",
    "<!--", "]]>", "\\", "\\u0000", "\\ud800", "\x00\x00\x00\x00", "\xff\xff\xff\xff",
    "\xff" * 8, "\x7f" + "\xff" * 7, "\x80" + "\0" * 7, "\0" * 8, "é", "名", "😀", "-", "--",
    ".", "..",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Seed:
    """A whole text, and the ranges of it that mean something."""

    text: str
    spans: tuple[tuple[int, int], ...]


def seed_of(text: str) -> Seed:
    """The text with its numbers, strings, words, bracketed groups, elements and lines."""
    spans = [match.span() for match in _TOKENS.finditer(text)]
    spans += _groups(text)
    place = 0
    for line in text.splitlines(keepends=True):
        spans.append((place, place + len(line)))
        place += len(line)
    short = [span for span in spans if 0 < span[1] - span[0] <= _LONGEST_SPAN]
    step = -(-len(short) // _MOST_SPANS) or 1
    return Seed(text, tuple(short[::step]) or ((0, len(text)),))


def _groups(text: str) -> Iterable[tuple[int, int]]:
    """From each opening bracket or tag to its closing one."""
    opened: list[tuple[str, int]] = []
    for match in _BRACKETS.finditer(text):
        sign, name = match[0], match[2]
        if name and match[3]:
            yield match.span()
        elif (name and not match[1]) or sign in "[({":
            opened.append((name or sign, match.start()))
        else:
            wanted = name or _OPENING[sign]
            if opened and opened[-1][0] == wanted:
                yield opened.pop()[1], match.end()


class Mutator:
    """Makes inputs from the seeds of one parser."""

    def __init__(self, seeds: Iterable[str]) -> None:
        self._seeds = tuple(map(seed_of, seeds))

    def make(self, random: Random) -> str:
        """A seed with one to four ranges replaced, removed, repeated or swapped for another's."""
        number = random.random
        seeds, seed = self._seeds, self._seeds[int(number() * len(self._seeds))]
        text, spans = seed.text, seed.spans
        kind = number()
        if kind < 0.04:
            place = int(number() * (len(text) + 1))
            return text[:place]
        if kind < 0.07:
            other = seeds[int(number() * len(seeds))].text
            return text[: int(number() * len(text))] + other[int(number() * len(other)) :]
        edits: list[tuple[int, int, str]] = []
        for _ in range(1 + int(number() * number() * 4)):
            if number() < 0.25:
                begin = int(number() * (len(text) + 1))
                end = min(len(text), begin + int(number() * number() * 12))
            else:
                begin, end = spans[int(number() * len(spans))]
            edits.append((begin, end, self._put(random, text[begin:end])))
        edits.sort()
        parts: list[str] = []
        done = 0
        for begin, end, put in edits:
            if begin >= done:
                parts += (text[done:begin], put)
                done = end
        parts.append(text[done:])
        return "".join(parts)

    def _put(self, random: Random, old: str) -> str:
        number = random.random
        kind = number()
        if kind < 0.5:
            return _NASTY[int(number() * len(_NASTY))]
        if kind < 0.62:
            return ""
        if kind < 0.72:
            return old * (2 + int(number() * 3))
        if kind < 0.78:
            return old + _NASTY[int(number() * len(_NASTY))]
        if kind < 0.84 and old:
            place = int(number() * len(old))
            return old[:place] + chr(ord(old[place]) ^ (1 << int(number() * 8))) + old[place + 1 :]
        other = self._seeds[int(number() * len(self._seeds))]
        begin, end = other.spans[int(number() * len(other.spans))]
        return other.text[begin:end]


@dataclass(frozen=True, slots=True)
class Parser:
    """A parser, whole inputs of it, and its share of the inputs.

    Bytes are given as text of Latin-1. `patience` multiplies the time limit of an input.
    """

    name: str
    share: float
    seeds: tuple[str, ...]
    read: Callable[[str], object]
    patience: float = 1.0


def recorded(*names: str) -> tuple[str, ...]:
    """Recorded texts below tests/data."""
    return tuple((DATA / name).read_text("utf-8") for name in names)


def write_file(file: Path, text: str) -> Path:
    """The file, with a text of Latin-1 as its bytes."""
    file.write_bytes(text.encode("latin-1", errors="replace"))
    return file
