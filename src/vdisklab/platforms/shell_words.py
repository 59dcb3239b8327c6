"""A shell's text as commands of raw words, as they are written: quotes, variables and all.

bash(1), "Shell grammar".
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from pathlib import PurePath
from typing import NamedTuple

_IN_WORD = r"""\$\((?:[^()\n]|\([^()\n]*\))*\)|`[^`\n]*`|\$\{[^}\n]{0,200}\}|\\.
|'[^']*'|"(?:[^"\\]|\\.)*"|[^\s'"\\;&|()`]"""

_WORD = rf"(?>(?:<[\w./-]+>|(?![<>])(?:{_IN_WORD}))(?:{_IN_WORD})*+)"
_TOKEN = re.compile(
    rf"""(?P<comment>\#[^\n]*+)
    |(?P<redirect>(?:[0-9]*|&)[<>]{{1,3}}(?:&(?:[0-9]+|-))?(?![\w./-]*>))
    |(?P<array>[A-Za-z_]\w*\+?=\((?P<within>(?:\s++|\#[^\n]*+|{_WORD})*+)\))
    |(?P<function>[\w-]+\s*\(\s*\))
    |(?P<end>\n\s*+(?!--?[A-Za-z])|;|&|\||\(|\))
    |(?P<blank>\n\s*+(?=--?[A-Za-z])|[^\S\n]++)
    |(?P<word>{_WORD})""",
    re.VERBOSE | re.DOTALL,
)
"""A line break does not end a command if the next line begins with an option, as printed. `<name>`
is a placeholder that a person wrote, not a redirection."""

SUBSTITUTION = re.compile(r"\$\((?:[^()]|\([^()]*\))*\)|`[^`]*`")
_SHELLS = frozenset(("sh", "bash", "dash", "ash", "ksh", "zsh", "ssh", "at", "batch"))

ARRAY = "\0"
"""Stands before an array's words, and between them."""

DEFINES = "\0()"
"""Stands before the name of a function, where its body follows."""


HERE = "\0<<"
"""Stands before the text that a command gets by `<<`."""

_BREAK = "\v"
"""Stands for a line break that ends no command."""

_LINE_BREAK = f"[\n{_BREAK}]"

_SURE = (":", "true", "set", "shift", "export", "local", "declare", "readonly", "unset", "cd")
_ASSIGNED = re.compile(r"[A-Za-z_]\w*\+?=")


class RawCommand(NamedTuple):
    """A command's words as written, True if a shell runs what it prints, its line, and True if it
    follows `&&` or `||`, so that it may not run."""

    argv: list[str]
    into_shell: bool
    line: int
    joined: bool


def raw_commands(text: str) -> Iterator[RawCommand]:
    """The commands that have words. A function's name is one, with DEFINES before it, and the
    assignment of an array is one word, with ARRAY before each of the array's words.
    """
    before, joining = RawCommand([], False, 0, False), ""
    for argv, end, line in _simple_commands(text):
        if not argv:
            joining += end
            continue
        reader = next((word for word in argv if word not in ("sudo", "exec")), "")
        if before.argv:
            is_read = joining == "|" and PurePath(reader).name in _SHELLS
            yield before._replace(into_shell=is_read)
        joined = joining.startswith(("&&", "||")) and not _always_succeeds(before.argv)
        before, joining = RawCommand(argv, False, line, joined), end
    if before.argv:
        yield before


def _always_succeeds(argv: list[str]) -> bool:
    """True for assignments alone, and commands that do not fail, so that what `&&` joins runs."""
    return argv[:1] == [] or argv[0] in _SURE or all(map(_ASSIGNED.match, argv))


def _as_one_word(substitution: re.Match[str]) -> str:
    """A substitution without blanks, and without quotes, which would end those around it."""
    return re.sub(
        r"\s", lambda blank: "␣" + _BREAK * (blank[0] == "\n"), re.sub(r'\\?"', "", substitution[0])
    )


def _simple_commands(text: str) -> Iterator[tuple[list[str], str, int]]:
    """The raw words of each command, what ends it, and its line; the text after `<<` is a command
    of its own, behind HERE; the assignment of an array is one word, with ARRAY before each of the
    array's words."""
    text = re.sub(f"[{ARRAY}{_BREAK}]", " ", text)
    text = re.sub(r"^[ \t]*#.*", "", text, flags=re.MULTILINE)  # also between continued lines
    text = SUBSTITUTION.sub(_as_one_word, text)
    text = re.sub(r"\\\r?\n", f" {_BREAK}", text)
    argv: list[str] = []
    delimiters: list[str] = []
    lines: Mapping[str, list[int]] = {}
    file_follows = delimiter_follows = False
    position, line, counted, first = 0, 1, 0, 1
    while token := _TOKEN.search(text, position):
        position = token.end()
        if token["blank"] is not None:
            continue
        if not argv:
            line += len(re.findall(_LINE_BREAK, text[counted : token.start()]))
            counted, first = token.start(), line
        if token["word"] is not None:
            delimiters += [token["word"]] if delimiter_follows else []
            argv += [] if file_follows else [token["word"].replace(_BREAK, "")]
        elif token["array"] is not None:
            inside = filter(None, (part["word"] for part in _TOKEN.finditer(token["within"])))
            name = token["array"].partition("(")[0]
            whole = ARRAY.join((name, *inside)) if token["within"].strip() else name
            argv.append(whole.replace(_BREAK, ""))
        elif token["end"] is not None or token["function"] is not None:
            yield argv, token["end"] or "", first
            argv = []
            if token["function"]:
                yield [DEFINES, *re.findall(r"[\w-]+", token["function"])[-1:]], "", first
            if delimiters and token["end"] and token["end"].startswith("\n"):
                lines = lines or _places_of_lines(text)
                body, position = _here(text, token.start() + 1, delimiters, lines)
                delimiters = []
                yield [HERE, body] if body else [], "\n", first
                position = max(position, token.end()) if not body else position
        redirect = token["redirect"] or ""
        file_follows = redirect != "" and "&" not in redirect[1:]
        delimiter_follows = re.fullmatch(r"[0-9]*<<", redirect) is not None
    yield argv, "", first


def _here(
    text: str, start: int, delimiters: list[str], lines: Mapping[str, list[int]]
) -> tuple[str, int]:
    """The texts after `<<` that begin there, and the place behind them; none without its end.
    `lines` has the places of the text's lines by their words."""
    bodies, position = [], start
    for delimiter in delimiters:
        name = re.sub(r"^-|[\"'\\]", "", delimiter)
        places = lines.get(name, [])
        after = bisect_left(places, position)
        if after == len(places):
            return "", start
        bodies.append(text[position : places[after]])
        end = text.find("\n", places[after])
        position = len(text) if end < 0 else end
    return "\n".join(bodies).replace(_BREAK, "\n"), position


def _places_of_lines(text: str) -> Mapping[str, list[int]]:
    """The places of a text's lines, by their words without the blanks around them."""
    found: dict[str, list[int]] = {}
    position = 0
    for line in text.split("\n"):
        found.setdefault(line.strip(), []).append(position)
        position += len(line) + 1
    return found
