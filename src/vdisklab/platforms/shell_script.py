"""The commands of a shell's text, as words: a script, a history, a log that a shell could run.

Variables and arrays are replaced if their values stand in the same text, and are the only ones
there; all others stay as they are written, so that a reader can name them. Commands in a quoted
word (`sh -c '…'`, `ssh HOST "…"`) are commands, too. bash(1), "Shell grammar" and "Expansion".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, pairwise
from pathlib import PurePath

_DEEPEST = 3
"""Quoted commands in quoted commands."""

_LONGEST_VALUE = 1 << 16
_MOST_WORDS = 2000
"""Words of an array: one that a script appends to is copied each time."""

_MOST_EXPANDED = 4 << 20
"""Characters that all values of a text may become: a few lines can double a value each."""


_IN_WORD = r"""\$\((?:[^()\n]|\([^()\n]*\))*\)|`[^`\n]*`|\$\{[^}\n]{0,200}\}|\\.
|'[^']*'|"(?:[^"\\]|\\.)*"|[^\s'"\\;&|()`]"""

_WORD = rf"(?>(?:<[\w./-]+>|(?![<>])(?:{_IN_WORD}))(?:{_IN_WORD})*+)"
_TOKEN = re.compile(
    rf"""(?P<comment>\#[^\n]*+)
    |(?P<redirect>(?:[0-9]*|&)[<>]{{1,3}}(?:&(?:[0-9]+|-))?(?![\w./-]*>))
    |(?P<array>[A-Za-z_]\w*\+?=\((?P<within>(?:\s++|\#[^\n]*+|{_WORD})*+)\))
    |(?P<function>[\w-]+\s*\(\s*\))
    |(?P<end>\n\s*+(?!-)|;|&|\||\(|\))
    |(?P<blank>\n\s*+(?=-)|[^\S\n]++)
    |(?P<word>{_WORD})""",
    re.VERBOSE | re.DOTALL,
)
"""A line break does not end a command if the next line begins with an option, as printed. `<name>`
is a placeholder that a person wrote, not a redirection."""

_SUBSTITUTION = re.compile(r"\$\((?:[^()]|\([^()]*\))*\)|`[^`]*`")
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)(\+?)=(.*)", re.DOTALL)
_DECLARES = ("export", "local", "declare", "readonly", "typeset")
_KEYWORDS = ("if", "then", "elif", "else", "while", "until", "do", "{", "!", "time", "coproc")
_BRANCHES = {"if": 1, "case": 1, "fi": -1, "esac": -1}
_TESTS = ("[", "[[", "test")
_SHELLS = frozenset(("sh", "bash", "dash", "ash", "ksh", "zsh", "ssh"))
_TELLS = frozenset(
    ("echo", "printf", "grep", "egrep", "pgrep", "pkill", "killall", "pidof", "logger", "which",
     "command", "type", "hash", "apt", "apt-get", "dnf", "yum", "apk", "pacman", "zypper", "brew",
     "dpkg", "rpm", "man", "ls", "cp", "mv", "rm", "ln", "cat", "chmod", "chown", "test", "[",
     "[[", "file", "ldd", "setcap", "strings", "die", "warn", "usage", "help")
)  # fmt: skip
"""Programs whose arguments name other programs, and do not start them."""

_MOST_VALUES = 4
"""Values of one variable, as branches of a script set them: a command is read with each."""

_ARRAY = "\0"
"""Stands before an array's words, and between them."""

_PROGRAM = re.compile(r"qemu-(system|kvm|nbd|storage)|\bkvm\b|\bqm\s|virt-install|nbdkit")
_MAY_RUN = re.compile(r"qemu-|\bkvm\b|\bqm\s|virt-install|[$]\w|nbdkit")
_PLAIN = re.compile(r"[$][^\s'\"\\]*")
_NAME = r"\$\{[^}]{0,200}\}|\$\w+|\$\((?:[^()]|\([^()]*\))*\)|`[^`]*`"
_PIECE = re.compile(
    rf"""\\(?P<escaped>.)|'(?P<single>[^']*)'|"(?P<double>(?:[^"\\]|\\.)*)"|(?P<name>{_NAME})
    |(?P<plain>[^\\'"$`]+|.)""",
    re.VERBOSE | re.DOTALL,
)

_IN_QUOTES = re.compile(
    rf"""\\(?P<escaped>["\\$`])|(?P<name>{_NAME})|(?P<plain>[^\\$`]+|.)""", re.VERBOSE | re.DOTALL
)

_VARIABLE = re.compile(
    r"\$(?:(?P<plain>[A-Za-z_]\w*)|\{(?P<name>[A-Za-z_]\w*)(?P<all>\[[@*]\])?(?::?[-=](?P<default>[^$}]*))?\})"
)


@dataclass(frozen=True, slots=True)
class ShellCommand:
    """The words of a command, and the variables that it gets in its environment."""

    argv: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)


def tells(argv: Sequence[str]) -> bool:
    """True for a command that only names programs, as `echo` and `apt install` do."""
    first = next((word for word in argv if word not in ("sudo", "exec")), "")
    return PurePath(first).name in _TELLS


def commands_of(text: str) -> Iterator[ShellCommand]:
    """Each command in the text, and those in its quoted words, in the order of the text.

    Broken words, such as half a quotation, are left out.
    """
    yield from _Reader().commands(text, 0)


@dataclass(slots=True)
class _Reader:
    """`values` has each variable's possible values, each as words; none for one that is too long.

    A variable that is set again before a command used it may have either value. `choice` numbers
    the values that `expand` takes, of at most `most`; `read` are the names that it has met.
    `branches` are those that are open, and `after_test` is True for `[ … ] && NAME=VALUE`: what
    they set may hold or not.
    """

    values: dict[str, tuple[tuple[str, ...], ...]] = field(default_factory=dict)
    used: set[str] = field(default_factory=set)
    exported: dict[str, str] = field(default_factory=dict)
    budget: int = _MOST_EXPANDED
    choice: int = 0
    most: int = 1
    read: set[str] = field(default_factory=set)
    branches: int = 0
    after_test: bool = False

    def commands(self, text: str, depth: int) -> Iterator[ShellCommand]:
        if depth < _DEEPEST:
            for inner in _SUBSTITUTION.finditer(text):
                if _PROGRAM.search(inner[0]):
                    yield from self.commands(inner[0].strip("$()`"), depth + 1)
        for raw, into_shell in _with_shells(_simple_commands(text)):
            for command in self._read(raw):
                yield command
                if depth < _DEEPEST and into_shell and tells(command.argv):
                    script = " ".join(command.argv[1:]).replace(r"\n", "\n")
                    yield from self.commands(script, depth + 1)
                if depth < _DEEPEST and not (tells(command.argv) or _starts(command.argv)):
                    for word in command.argv:
                        if re.search(r"\s", word) and _MAY_RUN.search(word):
                            yield from self.commands(word, depth + 1)

    def _read(self, raw: Sequence[str]) -> Iterator[ShellCommand]:
        """The command with each of its variables' values; none for assignments alone."""
        rest = list(raw)
        self.branches = max(0, self.branches + _BRANCHES.get(rest[0], 0))
        while rest and rest[0] in _KEYWORDS:
            rest.pop(0)
        may_hold = self.branches > 0 or self.after_test
        self.after_test = bool(rest) and rest[0] in _TESTS
        declared = bool(rest) and rest[0] in _DECLARES
        exports = declared and rest[0] == "export"
        if declared:
            rest = [word for word in rest[1:] if not word.startswith("-")]
        assigned = [*_leading(rest)]
        if len(assigned) < len(rest) and not declared:
            yield from self._with_values(rest[len(assigned) :], assigned)
            return
        for match in filter(None, map(_ASSIGNMENT.fullmatch, rest)):
            self._assign(match[1], match[3], more=bool(match[2]), may_hold=may_hold)
            if exports:
                self.exported[match[1]] = " ".join(next(iter(self.values[match[1]]), ()))

    def _with_values(
        self, raw: Sequence[str], assigned: Sequence[re.Match[str]]
    ) -> Iterator[ShellCommand]:
        seen: set[tuple[str, ...]] = set()
        self.read.clear()
        for argv in self._each(lambda: tuple(word for part in raw for word in self.expand(part))):
            variables = {match[1]: " ".join(self.expand(match[3])) for match in assigned}
            if argv not in seen:
                yield ShellCommand(argv, {**self.exported, **variables})
            seen.add(argv)
        self.used |= self.read

    def _each(self, make: Callable[[], tuple[str, ...]]) -> Iterator[tuple[str, ...]]:
        """What `make` gives with each choice of values."""
        for choice in range(self.most):
            self.choice = choice
            yield make()
        self.choice = 0

    def _assign(self, name: str, raw: str, *, more: bool, may_hold: bool) -> None:
        """Keeps the value of an assignment for later commands, beside the one before if only that
        may hold."""
        is_array = raw.startswith(_ARRAY)

        def expanded() -> tuple[str, ...]:
            if is_array:
                return tuple(word for part in raw[1:].split(_ARRAY) for word in self.expand(part))
            return (" ".join(self.expand(f'"{raw}"' if _PLAIN.fullmatch(raw) else raw)),)

        new = tuple(dict.fromkeys(self._each(expanded)))
        before = self.values.get(name, ())
        if more:
            last = new[0]
            new = tuple(
                old + last if is_array else ("".join((*old, *last)),) for old in before or ((),)
            )
        elif may_hold or (name not in self.used and not re.search(rf"\$\{{?{name}\b", raw)):
            new = tuple(dict.fromkeys((*before, *new)))[-_MOST_VALUES:]
        fits = sum(len(word) for value in new for word in value) <= _LONGEST_VALUE
        fits = fits and sum(map(len, new)) <= _MOST_WORDS
        self.values[name] = new if fits else ()
        self.most = max(self.most, len(new))
        self.used.discard(name)

    def expand(self, raw: str) -> list[str]:
        """The words that a word becomes; an unknown variable stays as it is written."""
        argv: list[str] = []
        now: str | None = None
        for match in _PIECE.finditer(raw):
            if match["name"] is not None:
                parts = self._value(match["name"], quoted=False)
                pieces = [part for value in parts for part in value.split()]
                if match["name"].startswith("$(") or not self._knows(match["name"]):
                    pieces = list(parts)
            elif match["double"] is not None:
                pieces = self._in_quotes(match["double"])
            else:
                pieces = ["".join(filter(None, match.group("escaped", "single", "plain")))]
            for number, piece in enumerate(pieces):
                if number and now is not None:
                    argv.append(now)
                    now = None
                now = (now or "") + piece
        return argv if now is None else [*argv, now]

    def _in_quotes(self, text: str) -> list[str]:
        pieces = [""]
        for match in _IN_QUOTES.finditer(text):
            if match["name"] is None:
                pieces[-1] += match["escaped"] or match["plain"] or ""
                continue
            parts = self._value(match["name"], quoted=True)
            if not parts:
                continue
            pieces[-1] += parts[0]
            pieces += parts[1:]
        return [] if pieces == [""] and "[@]" in text else pieces

    def _knows(self, spelled: str) -> bool:
        match = _VARIABLE.fullmatch(spelled)
        if match is None:
            return False
        has_default = match["default"] is not None
        values = self.values.get(match["name"] or match["plain"])
        return bool(values) or (has_default and match["name"] not in self.values)

    def _value(self, spelled: str, *, quoted: bool) -> Sequence[str]:
        """The words in place of `$NAME`, `${NAME}`, `${NAME[@]}`, `${NAME:-DEFAULT}`."""
        match = _VARIABLE.fullmatch(spelled)
        if match is None:
            return [spelled]
        name = match["name"] or match["plain"]
        self.read.add(name)
        values = self.values.get(name)
        if not values:
            default = match["default"] if name not in self.values else None
            return [spelled if default is None else default.strip("\"'")]
        value = values[min(self.choice, len(values) - 1)]
        self.budget -= sum(map(len, value))
        if self.budget < 0:
            return [spelled]
        if match["all"] == "[@]" or (match["all"] and not quoted):
            return value
        return [" ".join(value)] if match["all"] else value[:1]


def _leading(argv: Sequence[str]) -> Iterator[re.Match[str]]:
    """The assignments before a command's first word."""
    for word in argv:
        match = _ASSIGNMENT.fullmatch(word)
        if match is None:
            return
        yield match


def _starts(argv: Sequence[str]) -> bool:
    """True for a guest's own command, whose words are no further commands."""
    return any(re.fullmatch(r"qemu-(system-\w+|kvm)", PurePath(word).name) for word in argv)


def _with_shells(commands: Iterable[tuple[list[str], str]]) -> Iterator[tuple[list[str], bool]]:
    """The commands that have words, and True for each whose output a shell runs: `echo … | sh`."""
    for (argv, end), (after, _) in pairwise(chain(commands, [([], "")])):
        if argv:
            reader = next((word for word in after if word not in ("sudo", "exec")), "")
            yield argv, end == "|" and PurePath(reader).name in _SHELLS


def _simple_commands(text: str) -> Iterator[tuple[list[str], str]]:
    """The raw words of each command, and what ends it; the assignment of an array is one, with
    _ARRAY before each of the array's words."""
    text = re.sub(r"^[ \t]*#.*", "", text, flags=re.MULTILINE)  # also between continued lines
    text = _SUBSTITUTION.sub(lambda match: re.sub(r"\s", "␣", match[0]), text)  # one word
    argv: list[str] = []
    file_follows = False
    for token in _TOKEN.finditer(re.sub(r"\\\r?\n", " ", text.replace(_ARRAY, " "))):
        if token["blank"] is not None:
            continue
        if token["word"] is not None:
            argv += [] if file_follows else [token["word"]]
        elif token["array"] is not None:
            inside = filter(None, (part["word"] for part in _TOKEN.finditer(token["within"])))
            name = token["array"].partition("(")[0]
            argv.append(_ARRAY.join((name, *inside)) if token["within"].strip() else name)
        elif token["end"] is not None or token["function"] is not None:
            yield argv, token["end"] or ""
            argv = []
        file_follows = token["redirect"] is not None and "&" not in token["redirect"][1:]
    yield argv, ""
