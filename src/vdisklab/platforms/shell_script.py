"""The commands of a shell's text, as words: a script, a history, a log that a shell could run.

Variables and arrays are replaced if their values stand in the same text, and are the only ones
there; all others stay as they are written, so that a reader can name them. So do the parameters of
a script (`$1`, `${2:-none}`), whose values its callers give; their defaults hold for some calls
only. A function that the text calls is read once for each call, with the words of that call; one
that it does not call is read as it stands. Commands in a quoted
word (`sh -c '…'`, `ssh HOST "…"`) are commands, too, and those of a `for` loop over words are read
for each word. A file that `.` or `source` names gives its variables if it is known; otherwise the
commands after it that use variables are in doubt. bash(1), "Shell grammar" and "Expansion".
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import chain, dropwhile, islice, takewhile
from pathlib import PurePath

from vdisklab.platforms.shell_words import (
    ARRAY,
    DEFINES,
    HERE,
    SUBSTITUTION,
    RawCommand,
    raw_commands,
)
from vdisklab.units import whole_number
from vdisklab.value import Value, field

_DEEPEST = 3
"""Quoted commands in quoted commands."""

_LONGEST_VALUE = 1 << 16
_MOST_WORDS = 2000
"""Words of an array: one that a script appends to is copied each time."""

_MOST_EXPANDED = 4 << 20
"""Characters that all values of a text may become: a few lines can double a value each."""


_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)(\+?)=(.*)", re.DOTALL)
_DECLARES = ("export", "local", "declare", "readonly", "typeset")
_LOCAL = ("local", "declare", "typeset")
_KEYWORDS = ("if", "then", "elif", "else", "while", "until", "do", "{", "!", "time", "coproc")
_BRANCHES = {"if": 1, "case": 1, "fi": -1, "esac": -1}
_TESTS = ("[", "[[", "test")
_TELLS = frozenset(
    ("echo", "printf", "grep", "egrep", "pgrep", "pkill", "killall", "pidof", "logger", "which",
     "command", "type", "hash", "apt", "apt-get", "dnf", "yum", "apk", "pacman", "zypper", "brew",
     "dpkg", "rpm", "man", "ls", "cp", "mv", "rm", "ln", "cat", "chmod", "chown", "test", "[",
     "[[", "file", "ldd", "setcap", "strings", "die", "warn", "usage", "help")
)  # fmt: skip
"""Programs whose arguments name other programs, and do not start them."""

_MOST_VALUES = 8
"""Values of one variable, as branches of a script set them: a command is read with each. One that
may have more is not known."""

_MOST_TURNS = 20_000
_MOST_FILES, _MOST_NAMED = 20, 3
_LONGEST_CUT = 1000
_LOOPS = ("for", "while", "until", "select")
_HARMLESS = ("set", ":", "true", "shopt", "umask", "unset", "return", "echo", "printf", "[", "[[",
             "test", "fi", "else", "esac", "case", "done", "}")  # fmt: skip
"""Commands of a sourced file that give no variable a value."""

_SHOWN = 80
_COPIED_IN_A_TURN = 20
"""Variables of a shell that is started apart that are copied in the time of a turn."""

_NAME_ALONE = re.compile(r"[A-Za-z_]\w*")
_ASKED = re.compile(r"(?:\$\{?|^)([A-Za-z_]\w*)")
"""A test asks for `$NAME`, and `-v NAME`."""
_ELEMENT = re.compile(r"([A-Za-z_]\w*)\[([^\]]*)\](\+?)=(.*)", re.DOTALL)
_SETS_OTHERS = re.compile(r"\$\((?:ssh-agent|dircolors|keychain)|`(?:ssh-agent|dircolors|keychain)")
"""Programs that print settings of their own variables, for `eval`."""

_FROM_LIBRARY = re.compile(
    r"(?:load|read|parse|get|set|apply|init|import|include|configure|setup|use|select|choose|"
    r"override|process)_\w+$"
)
"""Names of functions that set variables."""

_WITH_SIGNAL = 2
_OPENRC = re.compile(r"#![^\n]*/(?:openrc-run|runscript)\b")
_LOADERS = ("eatmydata", "nosync")
"""Programs that load a library of their name into what they start."""

_GIVERS = ("sudo", "env", "exec", "nohup", "-i", "-E")
_SOURCES = re.compile(r"(?:^|[\s;&|({])(?:\.|source)[ \t]+[^\s]")
_BESIDE = re.compile(
    r"^(?:\$\(.{0,200}(?:dirname|pwd).{0,200}\)|\$\{(?:0|BASH_SOURCE(?:\[0\])?)%/\*\})/"
)
"""Ways to write a script's own directory."""

_LIST = re.compile(r"([^{}]*)\{([^{},.]+(?:,[^{},.]+)+)\}([^{}]*)")
_RANGE = re.compile(
    r"(?P<before>[^{}]*)\{(?P<from>[0-9]{1,4})\.\.(?P<to>[0-9]{1,4})\}(?P<after>[^{}]*)"
    r"|\$\(seq␣(?:(?P<seq>[0-9]{1,4})␣)?(?P<last>[0-9]{1,4})\)"
)
_Values = tuple[tuple[str, ...], ...]
"""A variable's possible values, each as words."""


_PARAMETERS = "@"
"""The name of a function's or script's parameters among the variables: a list of words."""

_MOST_CALLS = 8
"""Calls in calls of functions."""

_PROGRAM = re.compile(r"qemu-(system|kvm|nbd|storage)|\bkvm\b|\bqm\s|virt-install|nbdkit")
_MAY_RUN = re.compile(r"qemu-|\bkvm\b|\bqm\s|virt-install|[$]\w|nbdkit")
_PLAIN = re.compile(r"[$][^\s'\"\\]*")
_NAME = (
    r"\$\{(?:[^{}]|\$\{[^{}]{0,80}\}){0,200}\}|\$[0-9@*]|\$\w+"
    r"|\$\((?:[^()]|\([^()]*\))*\)|`[^`]*`"
)
_PIECE = re.compile(
    rf"""\\(?P<escaped>.)|'(?P<single>[^']*)'|"(?P<double>(?:[^"\\]|\\.)*)"|(?P<name>{_NAME})
    |(?P<plain>[^\\'"$`]+|.)""",
    re.VERBOSE | re.DOTALL,
)

_IN_QUOTES = re.compile(
    rf"""\\(?P<escaped>["\\$`])|(?P<name>{_NAME})|(?P<plain>[^\\$`]+|.)""", re.VERBOSE | re.DOTALL
)

_VARIABLE = re.compile(
    r"\$(?:(?P<plain>[A-Za-z_]\w*|[0-9@*])|\{(?P<name>[A-Za-z_]\w*|[0-9]+|[@*])(?P<all>\[[@*]\])?"
    r"(?::?[-=](?P<default>.*)|:?\+(?P<instead>.*)|:?\?(?P<message>.*)|:(?P<after>[0-9]{1,4})"
    r"|(?P<cut>%%?|\#\#?)(?P<pattern>[^$}]*))?\})",
    re.DOTALL,
)
_PARAMETER = re.compile(r"[0-9]+|[@*]")
_DEFAULT_GIVEN = re.compile(r'"?\$\{(?P<name>[A-Za-z_]\w*):?=[^"]*\}"?')


class ShellCommand(Value):
    """The words of a command, and the variables that it gets in its environment."""

    argv: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    doubt: str = ""
    """Why its variables may have other values, as a clause: a file that is not known sets some."""
    if_set: tuple[str, ...] = ()
    """Its words with `${NAME:-VALUE}` as it is written, where the environment may set NAME; empty
    if they are the same."""
    call: tuple[str, ...] = ()
    """The call of a function whose body it is in, as it is written; the innermost in the text."""
    given: Mapping[str, str] = field(default_factory=dict)
    """The variables before its first word."""
    line: int = 0
    """The line of the text in which it begins; that of a call in a file that it sources."""
    in_function: bool = False
    """True if its parameters (`$1`) are those of a function, and not of the script."""


def tells(argv: Sequence[str]) -> bool:
    """True for a command that only names programs, as `echo` and `apt install` do."""
    first = next((word for word in argv if word not in ("sudo", "exec")), "")
    return PurePath(first).name in _TELLS


def commands_of(
    text: str, files: Mapping[str, str] | None = None, first_line: int = 1
) -> Iterator[ShellCommand]:
    """Each command in the text, and those in its quoted words, in the order of the text; `files`
    has the texts of files that it may source, by the names that `sourced_files` gives;
    `first_line` is the text's own in its file.

    Broken words, such as half a quotation, are left out.
    """
    if _OPENRC.match(text):  # openrc-run(8): the supervisor starts this command
        text = f"{text}\n$command $command_args\n"
    yield from _Reader(files or {}, first_line=first_line).commands(text, 0)


def sourced_files(text: str) -> tuple[str, ...]:
    """The names of the files that a script sources, as far as they are literal."""
    if _SOURCES.search(text) is None:
        return ()
    reader = _Reader({})
    for _ in reader.commands(text, 0):
        pass
    return tuple(islice((name for name in reader.missing if "$" not in name), _MOST_FILES))


class _OpenCall(Value):
    """The variables that a call of a function, or a loop, has set: what they had `before`, and
    those that end with it."""

    before: dict[str, tuple[_Values | None, tuple[str, ...]]] = field(default_factory=dict)
    local: set[str] = field(default_factory=set)
    is_loop: bool = False


class _ShellState(Value):
    """What a shell that is started apart does not change."""

    values: dict[str, _Values]
    opened: dict[str, tuple[str, ...]]
    settled: set[str]
    unset: set[str]
    unknown: dict[str, None]
    branches: int
    groups: list[bool]
    loops: list[bool]


@dataclass(slots=True)
class _Reader:
    """`values` has each variable's possible values, each as words; none for one that is too long.

    A variable that is set again before a command used it may have either value. `choice` numbers
    the values that `expand` takes, of at most `most`; `read` are the names that it has met.
    `branches` are those that are open, and `after_test` is True for `[ … ] && NAME=VALUE`: what
    they set may hold or not, unless the test `looks_for_file`, which is there. `in_order` counts
    the loops and sourced files that are open, in which an assignment replaces the one before.
    `unknown` are the lines that may set any variable, as clauses, of `line` in `file`, which is
    empty for the text itself; `missing` are the files that it sources and does not know; `settled`
    are the names that got their values after the last of these. `joined` is True for a command
    after `&&` or `||`; `groups` and `loops` are those that are open, and True if they may not run.
    `tested` are names that a test asks for before the text sets them, `referred` the variables
    that stand for others (`declare -n`), `evaluated` counts the texts of `eval` in each other.
    `in_loop` are the commands of an open loop, each of which is read once; `turns` is how many
    may still be. `called` has the first word of each command, `functions` the bodies of those among
    them that the text defines, of which `to_keep` commands may still be kept, `entered` those that
    were read, `calls` the calls that are open, and `open_calls` what each of them has set.
    `by_environment` has the words of variables as `opened`
    spells them: with the defaults of unset variables not taken. `maybe_unset` are the names that
    only a branch has set. `uncalled` counts the open bodies of functions without a call.
    """

    files: Mapping[str, str]
    first_line: int = 1
    values: dict[str, tuple[tuple[str, ...], ...]] = dataclasses.field(default_factory=dict)
    used: set[str] = dataclasses.field(default_factory=set)
    exported: dict[str, str] = dataclasses.field(default_factory=dict)
    budget: int = _MOST_EXPANDED
    choice: int = 0
    most: int = 1
    read: set[str] = dataclasses.field(default_factory=set)
    branches: int = 0
    after_test: bool = False
    looks_for_file: bool = False
    in_order: int = 0
    unknown: dict[str, None] = dataclasses.field(default_factory=dict)
    missing: dict[str, None] = dataclasses.field(default_factory=dict)
    settled: set[str] = dataclasses.field(default_factory=set)
    in_loop: set[tuple[str, ...]] = dataclasses.field(default_factory=set)
    turns: int = _MOST_TURNS
    called: set[str] = dataclasses.field(default_factory=set)
    functions: dict[str, list[RawCommand]] = dataclasses.field(default_factory=dict)
    to_keep: int = _MOST_TURNS
    entered: set[str] = dataclasses.field(default_factory=set)
    calls: list[list[str]] = dataclasses.field(default_factory=list)
    open_calls: list[_OpenCall] = dataclasses.field(default_factory=list)
    maybe_unset: set[str] = dataclasses.field(default_factory=set)
    uncalled: int = 0
    line: int = 1
    file: str = ""
    joined: bool = False
    groups: list[bool] = dataclasses.field(default_factory=list)
    loops: list[bool] = dataclasses.field(default_factory=list)
    tested: set[str] = dataclasses.field(default_factory=set)
    referred: dict[str, str] = dataclasses.field(default_factory=dict)
    evaluated: int = 0
    by_environment: dict[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    opened: bool = False

    def commands(self, text: str, depth: int) -> Iterator[ShellCommand]:
        if depth < _DEEPEST:
            for inner in SUBSTITUTION.finditer(text):
                if _PROGRAM.search(inner[0]):
                    yield from self.commands(inner[0].strip("$()`"), depth + 1)
        commands = self._turns(self._parsed(text))
        if depth == 0:
            commands = chain(commands, self._turns(self._never_entered()))
        for raw in commands:
            self._stand_at(raw, depth)
            if raw.argv[0] == HERE:
                yield from self._apart(raw.argv[1], depth, {})
                continue
            for command in self._read(raw.argv):
                yield command
                if raw.into_shell and tells(command.argv):
                    script = " ".join(command.argv[1:]).replace(r"\n", "\n")
                    yield from self._apart(script, depth, {})
                if not (tells(command.argv) or _starts(command.argv)):
                    given = _given_to(command)
                    for word in command.argv:
                        if re.search(r"\s", word) and _MAY_RUN.search(word):
                            yield from self._apart(word, depth, given)

    def _stand_at(self, raw: RawCommand, depth: int) -> None:
        """Notes the place of a command, which is the text's own."""
        self.joined = raw.joined
        if depth == 0:
            self.line = raw.line + self.first_line - 1

    def _apart(self, text: str, depth: int, given: Mapping[str, str]) -> Iterator[ShellCommand]:
        """The commands of a text that another shell runs, with the variables that are `given` to
        it: what it sets ends with it."""
        if depth >= _DEEPEST:
            return
        self.turns -= len(self.values) // _COPIED_IN_A_TURN
        kept = self._state() if self.turns >= 0 else None
        for name, value in given.items():
            self._give(name, ((value,),), ())
            self.settled.add(name)
        exported, self.exported = self.exported, {**self.exported, **given}
        yield from self.commands(text, depth + 1)
        self.exported = exported
        if kept is not None:
            self._restore(kept)

    def _state(self) -> _ShellState:
        return _ShellState(
            {**self.values}, {**self.by_environment}, {*self.settled}, {*self.maybe_unset},
            {**self.unknown}, self.branches, [*self.groups], [*self.loops],
        )  # fmt: skip

    def _restore(self, kept: _ShellState) -> None:
        self.values, self.by_environment, self.settled = kept.values, kept.opened, kept.settled
        self.maybe_unset, self.unknown, self.branches = kept.unset, kept.unknown, kept.branches
        self.groups, self.loops, self.after_test = kept.groups, kept.loops, False

    def _parsed(self, text: str) -> Sequence[RawCommand]:
        """The commands of a text as they are written; notes what it calls."""
        commands = [raw._replace(argv=_as_assigned(raw.argv)) for raw in raw_commands(text)]
        each = (_after_keywords(raw.argv) for raw in commands)
        rest = (command[len([*_leading(command)]) :] for command in each)
        self.called |= {command[0] for command in rest if command}
        return commands

    def _turns(self, commands: Iterable[RawCommand]) -> Iterator[RawCommand]:
        """The commands, those of a loop over words once for each word, and those of a function once
        for each call."""
        stack = [iter(commands)]
        while stack:
            raw = next(stack[-1], None)
            command = [] if raw is None else _after_keywords(raw.argv)
            if raw is None:
                stack.pop()
            elif name := _defined(command):
                first = raw._replace(argv=command[2:])
                stack.append(self._defined_as(name, first, stack[-1]))
            elif self._calls_function(command):
                self.joined = raw.joined
                stack.append(self._each_call(raw.argv))
            elif command[:1] != ["for"] or command[2:3] != ["in"]:
                yield raw
            else:
                self._entered(raw.argv[: len(raw.argv) - len(command)])
                body = [*_body(stack[-1])]
                stack.append(self._each_turn(command[1], command[3:], body))

    def _each_turn(
        self, name: str, values: Sequence[str], body: Sequence[RawCommand]
    ) -> Iterator[RawCommand]:
        self.in_order += 1
        each = self._values_of_loop(values)
        opened = self._open(lambda: tuple(word for part in values for word in self.expand(part)))
        spelled = (" ".join(opened),) if opened else ()
        self.open_calls.append(_OpenCall(is_loop=True))
        for value in each:
            self.turns -= 1 + len(body)
            if self.turns < 0:
                break
            self._give(name, ((value,),), spelled)
            self.settled.add(name)
            yield from body
        self._leave(may_hold=any(map(is_unknown, each)))  # which may be none
        self.in_order -= 1

    def _never_entered(self) -> Iterator[RawCommand]:
        """The commands of functions whose calls were not understood, with unknown parameters."""
        for name, body in [*self.functions.items()]:
            if name not in self.entered:
                self.entered.add(name)
                self._give(_PARAMETERS, None, ())
                self.calls.append([name])
                yield from body
                self.calls.pop()

    def _defined_as(
        self, name: str, first: RawCommand, after: Iterator[RawCommand]
    ) -> Iterator[RawCommand]:
        """Keeps the body of a function that is called; the commands of another one, in its place.
        The `first` of them may stand beside its name."""
        beside = [first] if first.argv else []
        if name not in self.called or self.to_keep < 0:
            if self.uncalled >= _MOST_CALLS:
                yield from beside
                return
            self.uncalled += 1
            yield from _function_body(chain(beside, after))
            self.uncalled -= 1
            return
        body = [*_function_body(chain(beside, after))]
        self.to_keep -= len(body)
        if body[:1] and body[0].argv[:1] == ["{"]:
            self.functions[name] = body
        else:
            yield from body

    def _calls_function(self, command: Sequence[str]) -> bool:
        rest = command[len([*_leading(command)]) :]
        if not rest or rest[0] not in self.functions or len(self.calls) >= _MOST_CALLS:
            return False
        return all(call[0] != rest[0] for call in self.calls)  # its own name in it is a program's

    def _each_call(self, raw: Sequence[str]) -> Iterator[RawCommand]:
        """The commands of a function, with the words of a call as its parameters."""
        rest = self._entered(raw)
        assigned = [*_leading(rest)]
        name, *passed = rest[len(assigned) :]
        body = self.functions[name]
        self.read.clear()

        def expanded() -> tuple[str, ...]:
            return tuple(word for part in passed for word in self.expand(part))

        each = tuple(dict.fromkeys(self._each(expanded)))
        by_environment = self._open(expanded)
        is_sure = not self.unknown or self.read <= self.settled
        names = (_PARAMETERS, *(match[1] for match in assigned))
        kept = [(key, self.values.get(key), self.by_environment.get(key)) for key in names]
        for match in assigned:
            self._assign(match[1], match[3], more=False, may_hold=False)
        self.calls.append([name, *passed])
        self.in_order += 1
        self.entered.add(name)
        branches, may_hold = self.branches, self._may_hold()
        groups, loops = len(self.groups), len(self.loops)
        for number, argv in enumerate(each):
            self.turns -= 1 + len(body)
            if self.turns < 0:
                break
            self._give(_PARAMETERS, None if _shifts_in_loop(body) else (argv,), by_environment)
            (self.settled.add if is_sure else self.settled.discard)(_PARAMETERS)
            self.branches, self.after_test, self.joined = 0, False, False  # it holds in its body
            self.open_calls.append(_OpenCall())
            yield from body
            self._leave(may_hold=may_hold or number > 0)
            del self.groups[groups:], self.loops[loops:]
        self.branches, self.after_test = branches, False
        self.in_order -= 1
        self.calls.pop()
        for key, values, opened in kept:
            self._give(key, values, opened or ())

    def _leave(self, *, may_hold: bool) -> None:
        """Ends a call: its local variables have the values from before it, the others those that it
        gave them, beside the values from before it if the call may hold or not."""
        done = self.open_calls.pop()
        for name, (values, opened) in done.before.items():
            if name in done.local:
                self._give(name, values, opened)
                continue
            for outer in self.open_calls[-1:]:
                outer.before.setdefault(name, (values, opened))
            if may_hold:
                now = self.values.get(name, ())
                self._give(name, _either(values, now), self.by_environment.get(name, ()))
                self._may_be_unset(name, before=values)

    def _may_be_unset(self, name: str, *, before: _Values | None) -> None:
        """Notes that a branch has set a variable, which had no value before it."""
        self.settled.discard(name)
        if before is None:
            self.maybe_unset.add(name)
        self.most = max(self.most, len(self.values.get(name, ())) + 1)

    def _give(
        self, name: str, values: tuple[tuple[str, ...], ...] | None, by_environment: tuple[str, ...]
    ) -> None:
        """Gives a variable these values; None for a variable that has none."""
        self.values.pop(name, None)
        self.by_environment.pop(name, None)
        if values is not None:
            self.values[name] = values
        if values is not None and by_environment:
            self.by_environment[name] = by_environment

    def _open(self, expanded: Callable[[], tuple[str, ...]]) -> tuple[str, ...]:
        """The words with the defaults of the environment's variables not taken; empty if they are
        the same."""
        closed, self.opened = expanded(), True
        try:
            opened = expanded()
        finally:
            self.opened = False
        return () if opened == closed else opened

    def _shift(self, after: Sequence[str]) -> None:
        """`shift` and `shift N`; in a branch it may hold or not."""
        number = whole_number(after[0]) if after else 1
        values = self.values.get(_PARAMETERS)
        if values is None:
            return
        if number is None or self._may_hold():
            self._give(_PARAMETERS, None, ())
            return
        opened = self.by_environment.get(_PARAMETERS, ())[number:]
        self._give(_PARAMETERS, tuple(value[number:] for value in values), opened)

    def _values_of_loop(self, raw: Sequence[str]) -> Sequence[str]:
        values = [value for part in raw for word in self.expand(part) for value in _each_of(word)]
        return values or ["$@"]

    def _source(self, word: str, *, may_hold: bool) -> Iterator[ShellCommand]:
        """The commands of a sourced file, which should be assignments alone."""
        name = _BESIDE.sub("", " ".join(self.expand(word)))
        text = self.files.get(name)
        if text is None or self.in_order > _DEEPEST:
            self._does_not_know(name, "is not known" if is_unknown(name) else "was not found")
            return
        branches, self.branches = self.branches, 1 if may_hold else 0
        place, self.file = (self.line, self.file), name[:_SHOWN]
        self.in_order += 1
        for raw in self._turns(self._parsed(text)):
            self.joined, self.line = raw.joined, raw.line
            for command in self._read(raw.argv if raw.argv[0] != HERE else [":"]):
                if command.argv[:1] and command.argv[0] not in _HARMLESS:
                    self._may_set_any(f"runs {_shown(command.argv[0])}, which is not understood")
                yield command
        self.in_order -= 1
        self.branches = branches
        self.line, self.file = place

    def _does_not_know(self, name: str, why: str) -> None:
        self.missing.setdefault(name)
        self._may_set_any(f"reads {name[:_SHOWN]}, which {why}")

    def _may_set_any(self, what: str) -> None:
        """Notes that the line does what may set any variable."""
        of_file = f" of {self.file}" if self.file else ""
        self.unknown.setdefault(f"line {self.line}{of_file} {what}")
        self.settled.clear()

    def _doubt(self) -> str:
        """Why the variables that were read may have other values; empty if they have these."""
        names = sorted(self.read - self.settled)
        if not self.unknown or not names:
            return ""
        lines = islice(self.unknown, _MOST_NAMED)
        return f"{'; '.join(lines)}: {_may_differ(names)}"

    def _read(self, raw: Sequence[str]) -> Iterator[ShellCommand]:
        """The command with each of its variables' values; none for assignments alone."""
        rest = self._entered(raw)
        if self._sets_parameters(rest):
            return
        may_hold = self._may_hold()
        self._note_test(rest)
        plain = rest[1:] if rest[:1] in (["command"], ["builtin"]) else rest
        program = next(iter(plain), "")
        if program in ("eval", ".", "source") or (program == "trap" and len(plain) > _WITH_SIGNAL):
            yield from self._run_here(plain, may_hold=may_hold)
            return
        self._read_names(plain)
        if program in (*_DECLARES, "unset"):
            self._set_declared(plain, may_hold=may_hold)
            return
        if self.missing and _FROM_LIBRARY.match(program) and program not in self.functions:
            self._may_set_any(f"runs {_shown(program)} of a file that was not found")
        if program == "alias":
            self._set_alias(plain)
            return
        assigned = [*_leading(rest)]
        if len(assigned) < len(rest) and not all(map(_ELEMENT.match, rest[len(assigned) :])):
            yield from self._with_values(rest[len(assigned) :], assigned)
            return
        for match in filter(None, map(_ASSIGNMENT.fullmatch, rest)):
            self._assign(match[1], match[3], more=bool(match[2]), may_hold=may_hold)
        for match in filter(None, map(_ELEMENT.fullmatch, rest)):
            self._assign_element(match)

    def _sets_parameters(self, rest: Sequence[str]) -> bool:
        """True for `shift` and `set -- …`, which are done."""
        if rest[:1] == ["shift"]:
            self._shift(rest[1:])
        elif rest[:2] == ["set", "--"]:
            self._assign(_PARAMETERS, ARRAY + ARRAY.join(rest[2:]), more=False, may_hold=False)
        else:
            return False
        return True

    def _run_here(self, plain: Sequence[str], *, may_hold: bool) -> Iterator[ShellCommand]:
        """The commands that this shell gets from elsewhere: from a file, a word, a command."""
        if plain[0] in ("eval", "trap"):
            yield from self._evaluated(plain)
        elif len(plain) == 1:  # . <(a command)
            self._may_set_any("reads settings from a command")
        else:
            maybe = self.branches > 0 or (may_hold and not self.looks_for_file)
            yield from self._source(plain[1], may_hold=maybe)

    def _set_alias(self, plain: Sequence[str]) -> None:
        """`alias NAME='COMMAND …'`, which is a function of its words."""
        for match in filter(None, map(_ASSIGNMENT.fullmatch, plain[1:])):
            text = " ".join(self.expand(match[3]))
            first = next(raw_commands(text), None)
            if first is not None and match[1] in self.called and match[1] not in self.functions:
                argv = ["{", *first.argv, '"$@"']
                self.functions[match[1]] = [
                    first._replace(argv=argv),
                    first._replace(argv=["}"]),
                ]

    def _may_hold(self) -> bool:
        """True if what the next command sets may hold or not."""
        return self.branches > 0 or self.after_test or self.joined

    def _note_test(self, rest: Sequence[str]) -> None:
        """Notes a test, and what it asks for."""
        self.after_test = bool(rest) and rest[0] in _TESTS
        if self.after_test:
            self.looks_for_file = not {"-f", "-r", "-e", "-s"}.isdisjoint(rest)
        if self.after_test or rest[:1] == ["case"]:
            asked = (name for word in rest for name in _ASKED.findall(word))
            self.tested |= {name for name in asked if name not in self.values}

    def _evaluated(self, plain: Sequence[str]) -> Iterator[ShellCommand]:
        """The commands in the words of `eval`, which set this shell's variables. Those of `trap`
        may never run. What cannot be read may set any variable."""
        is_trap = plain[0] == "trap"
        spelled = plain[1:2] if is_trap else plain[1:]
        self.read.clear()

        def expanded() -> tuple[str, ...]:
            return tuple(word for part in spelled for word in self.expand(part))

        texts = dict.fromkeys(" ".join(each) for each in self._each(expanded))
        open_branches, line = self.branches, self.line
        self.branches += is_trap or len(texts) > 1
        for text in texts:
            if self.evaluated < _DEEPEST:
                self.evaluated += 1
                yield from self.commands(text, 1)
                self.evaluated -= 1
            self.line = line
            if not is_trap and (self.evaluated >= _DEEPEST or _sets_unknown(text)):
                self._may_set_any("runs eval")
        self.branches = open_branches

    def _read_names(self, plain: Sequence[str]) -> None:
        """Notes the variables that `read`, `mapfile`, `printf -v`, `getopts` and `select` set."""
        after = plain[len([*_leading(plain)]) :]
        for raw in _names_read(after):
            spelled = {word for each in self._each(lambda raw=raw: tuple(self.expand(raw)))  # type: ignore[misc] # raw
                     for word in each}  # fmt: skip
            for word in spelled:
                if _NAME_ALONE.fullmatch(word):
                    self._give(self.referred.get(word, word), (), ())  # from elsewhere
                elif is_unknown(word):
                    self._may_set_any(f"runs {after[0]} {_shown(raw)}")

    def _set_declared(self, plain: Sequence[str], *, may_hold: bool) -> None:
        """Sets what `export NAME=VALUE`, `declare "NAME=VALUE"`, `local` and `unset` do."""
        if plain[0] == "unset":
            for name in filter(_NAME_ALONE.fullmatch, plain[1:]):
                self._assign(name, ARRAY, more=False, may_hold=may_hold)
            return
        self._declare(plain)
        for raw in (word for word in plain[1:] if not word.startswith("-")):
            match = _ASSIGNMENT.fullmatch(raw)
            if match is not None:
                if self._refers(plain, match):
                    continue
                self._assign(match[1], match[3], more=bool(match[2]), may_hold=may_hold)
                self._export(plain[0], match[1])
                continue
            self.read.clear()
            each = (tuple(self.expand(raw)) for self.choice in range(self.most))
            spelled = dict.fromkeys(word for choice in each for word in choice)
            self.choice = 0
            for word in spelled:
                given = _ASSIGNMENT.fullmatch(word)
                if given is not None:
                    quoted = "'" + given[3].replace("'", "'\\''") + "'"
                    self._assign(
                        given[1], quoted, more=False, may_hold=may_hold or len(spelled) > 1
                    )
                    self._export(plain[0], given[1])
                elif is_unknown(word.partition("=")[0]):
                    self._may_set_any(f"runs {plain[0]} {_shown(raw)}")

    def _refers(self, plain: Sequence[str], match: re.Match[str]) -> bool:
        """True for `declare -n` and `local -n`; notes the variable that another one stands for."""
        if not any(re.fullmatch(r"-\w*n\w*", word) for word in plain[1:]):
            return False
        self.referred[match[1]] = "".join(self.expand(match[3]))
        return True

    def _export(self, program: str, name: str) -> None:
        if program == "export":
            self.exported[name] = " ".join(next(iter(self.values.get(name, ())), ()))

    def _assign_element(self, match: re.Match[str]) -> None:
        """`NAME[INDEX]=VALUE`: a further word of the array, or another one in its place."""
        name, number = self.referred.get(match[1], match[1]), whole_number(match[2])
        values = self.values.get(name)
        if number is None or not values or number >= len(values[0]):
            self._assign(name, ARRAY + match[4], more=True, may_hold=False)
            return
        self.read.clear()
        word = " ".join(self.expand(match[4]))
        new = tuple(
            (*value[:number], f"{value[number]}{word}" if match[3] else word, *value[number + 1 :])
            for value in values
            if number < len(value)
        )
        may_hold = self._may_hold()
        self._give(name, _either(values, new) if may_hold else new, ())
        self.most = max(self.most, len(self.values[name]))

    def _declare(self, command: Sequence[str]) -> None:
        """Notes the variables that end with the open call."""
        call = next((each for each in reversed(self.open_calls) if not each.is_loop), None)
        if command[0] not in _LOCAL or call is None or "-g" in command:
            return
        for word in command[1:]:
            name = re.split(r"\+?=", word)[0].strip("'\"")
            call.before.setdefault(name, (self.values.get(name), self.by_environment.get(name, ())))
            call.local.add(name)

    def _entered(self, raw: Sequence[str]) -> list[str]:
        """A command's words after its keywords; counts the branches that they open and end: also
        what follows `&&` in braces, and loops that may have no turn."""
        rest = _after_keywords(raw)
        keywords = [*takewhile(_KEYWORDS.__contains__, raw)]
        opening = [*keywords, *rest[:1]]  # `then if …`
        self.branches = max(0, self.branches + sum(_BRANCHES.get(word, 0) for word in opening))
        for word in keywords:
            if word == "{":
                self._open_block(self.groups, may_hold=self.joined or self.after_test)
                self.joined = self.after_test = False
            elif word in ("while", "until"):
                self._open_block(self.loops, may_hold=rest[:1] not in ([":"], ["true"]))
        if rest[:1] in (["for"], ["select"]):
            self._open_block(self.loops, may_hold=False)
        elif rest[:1] in (["}"], ["done"]):
            blocks = self.groups if rest[0] == "}" else self.loops
            self.branches = max(0, self.branches - blocks.pop()) if blocks else self.branches
        return rest

    def _open_block(self, blocks: list[bool], *, may_hold: bool) -> None:
        blocks.append(may_hold)
        self.branches += may_hold

    def _with_values(
        self, raw: Sequence[str], assigned: Sequence[re.Match[str]]
    ) -> Iterator[ShellCommand]:
        seen: set[tuple[str, ...]] = set()
        self.read.clear()

        def expanded() -> tuple[str, ...]:
            return tuple(word for part in raw for word in self.expand(part))

        if_set = self._open(expanded)
        call = tuple(self.calls[0]) if self.calls else ()
        for argv in self._each(expanded):
            variables = {match[1]: " ".join(self.expand(match[3])) for match in assigned}
            if argv not in seen and not (self.in_order and argv in self.in_loop):
                yield ShellCommand(
                    argv, {**self.exported, **variables}, self._doubt(), if_set, call,
                    variables, self.line, in_function=bool(self.calls) or self.uncalled > 0,
                )  # fmt: skip
            seen.add(argv)
        self.in_loop = {*self.in_loop, *seen} if self.in_order else set()
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
        name = self.referred.get(name, name)
        if is_unknown(name):
            self._may_set_any(f"sets the variable that {_shown(name)} names")
            return
        is_array = raw.startswith(ARRAY)
        self.read.clear()

        def expanded() -> tuple[str, ...]:
            if is_array:
                return tuple(word for part in raw[1:].split(ARRAY) for word in self.expand(part))
            return (" ".join(self.expand(f'"{raw}"' if _PLAIN.fullmatch(raw) else raw)),)

        each = tuple(self._each(expanded))
        new = tuple(dict.fromkeys(each))
        opened = self._open(expanded)
        had = self.values.get(name)
        before = had or ()
        if name != _PARAMETERS and not more:  # what is added stays: disks
            for call in self.open_calls[-1:]:
                call.before.setdefault(name, (had, self.by_environment.get(name, ())))
        sure = (
            self.read <= self.settled and not may_hold and not (more and name not in self.settled)
        )
        (self.settled.add if sure else self.settled.discard)(name)
        in_order = self.in_order > 0 or name in self.used or name == _PARAMETERS
        if more and (opened or name in self.by_environment):
            old, added = self.by_environment.get(name, (before or ((),))[0]), opened or new[0]
            opened = old + added if is_array else ("".join((*old, *added)),)
        if more:
            longer = dict.fromkeys(_longer(before or ((),), each, is_array=is_array))
            overrides = may_hold and not is_array and re.search(r"\s-|^-", raw) is None
            new = _either(had, tuple(longer)) if overrides else tuple(longer)
        elif may_hold or not (in_order or re.search(rf"\$\{{?{name}\b", raw)):
            new = _either(had if may_hold else before or None, new)
        if had is None and may_hold and not is_array and name in self.tested:
            opened = (f"${{{name}:-{' '.join(new[0])}}}",)  # the environment may have set it
        fits = sum(len(word) for value in new for word in value) <= _LONGEST_VALUE
        fits = fits and sum(map(len, new)) <= _MOST_WORDS
        self._give(name, new if fits else (), opened if fits else ())
        self.most = max(self.most, len(new))
        self.maybe_unset.discard(name)
        if may_hold:
            self._may_be_unset(name, before=had)
        self.used.discard(name)

    def expand(self, raw: str) -> list[str]:
        """The words that a word becomes; an unknown variable stays as it is written."""
        argv: list[str] = []
        now: str | None = None
        for match in _PIECE.finditer(raw):
            if match["name"] is not None:
                parts = self._value(match["name"], quoted=False)
                pieces = [
                    part
                    for value in parts
                    for part in ([value] if self.opened and "${" in value else value.split())
                ]
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
        name = match["name"] or match["plain"]
        name = self.referred.get(name, name)
        if _PARAMETER.fullmatch(name):
            return _PARAMETERS in self.values
        has_default = match["default"] is not None
        return bool(self.values.get(name)) or (has_default and name not in self.values)

    def _value(self, spelled: str, *, quoted: bool) -> Sequence[str]:
        """The words in place of `$NAME`, `${NAME}`, `${NAME[@]}`, `${NAME:-DEFAULT}`."""
        match = _VARIABLE.fullmatch(spelled)
        if match is None:
            return [spelled]
        name = match["name"] or match["plain"]
        name = self.referred.get(name, name)
        is_parameter = _PARAMETER.fullmatch(name) is not None
        variable = _PARAMETERS if is_parameter else name
        values = self.values.get(variable)
        if is_parameter and values is None:  # a caller gives its value
            return [spelled]
        self.read.add(variable)
        if not values:
            default = match["default"] if variable not in self.values else None
            return [spelled if default is None or self.opened else self._default(default)]
        has_other = match["default"] is not None or match["instead"] is not None
        if has_other and variable in self.maybe_unset:
            values = (*values, ())
        value = values[min(self.choice, len(values) - 1)]
        if self.opened:
            value = self.by_environment.get(variable, value)
        if is_parameter:
            value = _parameter(value, name, match, spelled)
        self.budget -= sum(map(len, value))
        if self.budget < 0:
            return [spelled]
        return self._modified(match, value, quoted=quoted)

    def _default(self, text: str) -> str:
        """What the words after `:-` and `:+` become."""
        return " ".join(self._in_quotes(text.strip("\"'"))) if "$" in text else text.strip("\"'")

    def _modified(
        self, match: re.Match[str], value: tuple[str, ...], *, quoted: bool
    ) -> Sequence[str]:
        """A variable's words after `:-`, `:+`, `%`, `#` and `[@]`."""
        is_list = match["all"] or (match["name"] or match["plain"]) in ("@", "*")
        is_empty = not any(value)
        if match["default"] is not None and is_empty:
            return [self._default(match["default"])]
        if match["instead"] is not None:
            return [] if is_empty else [self._default(match["instead"])]
        if match["cut"] is not None:
            value = tuple(_cut(each, match["cut"], match["pattern"]) for each in value)
        joins = match["all"] == "[*]" or (match["name"] or match["plain"]) == "*"
        if is_list and not (joins and quoted):
            return value
        return [self._between().join(value)] if is_list else value[:1]

    def _between(self) -> str:
        """What stands between the words of `"$*"`: the first character of IFS."""
        character = "".join(next(iter(self.values.get("IFS", ())), ()))[:1]
        return character if character in (",", ":", ";", "/", "|") else " "


def is_unknown(word: str) -> bool:
    """True for a word of which a part is not known."""
    return "$" in word or "`" in word or "{{" in word


def _names_read(after: Sequence[str]) -> Iterator[str]:
    """The words that name what `read`, `mapfile`, `printf -v`, `getopts` and `select` set."""
    if after[:1] in (["read"], ["mapfile"], ["readarray"]):
        yield from (word for word in after[1:] if not word.startswith("-"))
    elif after[:2] == ["printf", "-v"] or after[:1] == ["getopts"]:
        yield from after[2:3]
    elif after[:1] == ["select"]:
        yield from after[1:2]


def _sets_unknown(text: str) -> bool:
    """True for the text of an `eval` with a command that is not known."""
    for raw in raw_commands(text):
        rest = [*_after_keywords(raw.argv)]
        rest = rest[len([*_leading(rest)]) :]
        if rest[:1] and is_unknown(rest[0]) and not _SETS_OTHERS.match(rest[0]):
            return True
    return False


def _may_differ(names: Sequence[str]) -> str:
    """The variables that may have other values, as a clause."""
    shown = [f"${name}" for name in names[:_MOST_NAMED]]
    more = len(names) - len(shown)
    shown += [f"{more} more"] if more else []
    if len(shown) == 1:
        return f"{shown[0]} may have another value"
    return f"{', '.join(shown[:-1])} and {shown[-1]} may have other values"


def _shown(raw: str) -> str:
    """A word as it is written, to be shown."""
    plain = raw.replace("␣", " ")
    return plain if len(plain) <= _SHOWN else f"{plain[:_SHOWN]}…"


def _given_to(command: ShellCommand) -> Mapping[str, str]:
    """The variables that a command is given alone, also by `env` and `sudo`."""
    first = next((word for word in command.argv if word not in _GIVERS), "")
    behind = dropwhile(_GIVERS.__contains__, command.argv)
    given = {match[1]: match[3] for match in _leading([*behind])} if first else {}
    loader = next((name for word in command.argv if (name := PurePath(word).name) in _LOADERS), "")
    preloaded = {"LD_PRELOAD": f"lib{loader}.so"} if loader else {}
    return {**preloaded, **command.given, **given}


def _either(before: _Values | None, new: _Values) -> _Values:
    """The values of a variable that has those before or new ones; none if they are too many, or
    were."""
    if before == ():
        return before
    both = tuple(dict.fromkeys((*(before or ()), *new)))
    return both if len(both) <= _MOST_VALUES else ()


def _longer(before: _Values, each: _Values, *, is_array: bool) -> Iterator[tuple[str, ...]]:
    """The values to which others are added, for each choice of values."""
    for choice, added in enumerate(each):
        old = before[min(choice, len(before) - 1)]
        yield old + added if is_array else ("".join((*old, *added)),)


def _parameter(
    parameters: tuple[str, ...], name: str, match: re.Match[str], spelled: str
) -> tuple[str, ...]:
    """The words of `$1`, `$@`, `${@:2}` of these parameters; as written behind an unknown list."""
    if name in ("@", "*"):
        return parameters[max(0, (whole_number(match["after"] or "1") or 1) - 1) :]
    number = whole_number(name) or 0
    several = (word in ("$@", "$*") or word.startswith(("$(", "`")) for word in parameters)
    unknown = next((place for place, is_unknown in enumerate(several) if is_unknown), None)
    if number == 0 or (unknown is not None and number > unknown):
        return (spelled,)
    return parameters[number - 1 : number] or ("",)


def _as_assigned(raw: list[str]) -> list[str]:
    """`: ${NAME:=VALUE}` as `NAME=${NAME:=VALUE}`, what it does; another command as it is."""
    given = [_DEFAULT_GIVEN.fullmatch(word) for word in raw[1:]]
    if raw[:1] != [":"] or not given or None in given:
        return raw
    return [f"{match['name']}={match[0]}" for match in given if match is not None]


def _cut(text: str, how: str, pattern: str) -> str:
    """What `${NAME%PATTERN}` leaves, and `%%`, `#`, `##`: without the shortest or longest match at
    the end or the beginning."""
    at_end, longest = how[0] == "%", len(how) > 1
    glob = pattern.translate({ord(mark): None for mark in "\\\"'"})
    if len(text) > _LONGEST_CUT:
        return text
    for place in sorted(range(len(text) + 1), reverse=at_end is not longest):
        if fnmatchcase(text[place:] if at_end else text[:place], glob):
            return text[:place] if at_end else text[place:]
    return text


def _each_of(word: str) -> Sequence[str]:
    """The words of a range or list that a shell counts through: `{1..3}`, `{a,b}`, `$(seq 3)`."""
    if match := _LIST.fullmatch(word):
        return [f"{match[1]}{each}{match[3]}" for each in match[2].split(",")]
    match = _RANGE.fullmatch(word)
    if match is None:
        return [word]
    first = whole_number(match["from"] or match["seq"] or "1") or 0
    last = whole_number(match["to"] or match["last"]) or 0
    numbers = range(first, last + 1)
    return [f"{match['before'] or ''}{n}{match['after'] or ''}" for n in numbers[:_MOST_WORDS]]


def _after_keywords(raw: Sequence[str]) -> list[str]:
    """A command's words after those that open or continue a list of commands."""
    return list(dropwhile(_KEYWORDS.__contains__, raw))


def _body(commands: Iterator[RawCommand]) -> Iterator[RawCommand]:
    """The commands up to the `done` that ends a loop, which is read, too."""
    open_loops = 1
    for raw in commands:
        spelled = raw.argv
        opening = [*takewhile(_KEYWORDS.__contains__, spelled), *_after_keywords(spelled)[:1]]
        open_loops += sum(word in _LOOPS for word in opening) - (opening[-1:] == ["done"])
        if not open_loops:
            return
        yield raw


def _defined(command: Sequence[str]) -> str | None:
    """The name of a function whose body follows: `NAME()`, `function NAME`."""
    return command[1] if len(command) > 1 and command[0] in (DEFINES, "function") else None


def _function_body(commands: Iterator[RawCommand]) -> Iterator[RawCommand]:
    """The commands of a function in braces; of another one its first, as a subshell's end is not
    seen."""
    depth = 0
    for raw in commands:
        opening = [*takewhile(_KEYWORDS.__contains__, raw.argv)]
        depth += opening.count("{") - (raw.argv[len(opening) : len(opening) + 1] == ["}"])
        yield raw
        if depth <= 0:
            return


def _shifts_in_loop(body: Iterable[RawCommand]) -> bool:
    """True if a loop in a function takes its parameters away: its first turn is not all of them."""
    depth = 0
    for raw in body:
        spelled = raw.argv
        first = [*takewhile(_KEYWORDS.__contains__, spelled), *_after_keywords(spelled)[:1]]
        depth += sum(word in _LOOPS for word in first) - (first[-1:] == ["done"])
        if depth > 0 and first[-1:] == ["shift"]:
            return True
    return False


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
