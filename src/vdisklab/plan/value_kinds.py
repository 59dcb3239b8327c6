"""How values are written in plan files, on the command line and in messages, and their limits."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

from vdisklab.errors import PlanError
from vdisklab.path.architecture import parse_architecture
from vdisklab.path.braces import expand_segments
from vdisklab.path.disk_path import PathSyntaxError, parse_path
from vdisklab.path.options import NAME
from vdisklab.path.segments import BUS_OPTIONS, Bus
from vdisklab.units import format_size, parse_duration, parse_percentage, parse_rate, parse_size
from vdisklab.validation import Checked
from vdisklab.value import Value, replace

_NonEmpty = Annotated[str, Checked({"min_length": 1})]
_URL = re.compile(r"[a-z][a-z0-9+.-]*:/?/", re.IGNORECASE)


class ValueKind(Value):
    """How values of one type are written.

    `toml` is the type in plan files, as pydantic checks it, `flag` typer's for the command line.
    `parse` turns an argument from the command line into the value, and `spell` the value into an
    argument. `noun`, `hint` and `unit` are used in messages. `input_file` is True if the value is,
    or may be, the name of a file that vdisklab reads.
    """

    toml: Any
    flag: Any
    parse: Callable[[Any], Any] = lambda value: value
    spell: Callable[[Any], str] = str
    noun: str = "a value"
    hint: str = ""
    unit: str = ""
    empty: Any = None
    input_file: bool = False

    @property
    def many(self) -> bool:
        """True when the option can be repeated."""
        return isinstance(self.empty, tuple)


def _text_parsed_by(
    parse: Callable[[str], object], form: Mapping[str, Any] | None = None
) -> Checked:
    """Parses texts with `parse`, and leaves numbers unchanged; its error becomes pydantic's.

    `form` is the JSON schema.
    """

    def read(value: object) -> object:
        if isinstance(value, str):
            try:
                return parse(value)
            except PlanError as error:
                raise ValueError(error.message) from error
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError(f"{value} is not a duration")
        return value

    return Checked(before=read, form=form)


def _number_or_text(number: str, pattern: str) -> Mapping[str, Any]:
    choices = [{"type": number, "minimum": 0}, {"type": "string", "pattern": pattern}]
    return {"anyOf": choices}


Bytes = Annotated[
    int,
    _text_parsed_by(parse_size, _number_or_text("integer", "^[0-9]+ *[kKmMgGtT]?(i?[bB])?$")),
]
Seconds = Annotated[
    float,
    _text_parsed_by(
        parse_duration, _number_or_text("number", r"^[0-9]+(\.[0-9]+)? *([mM]?[sS]|[mM]|[hH])?$")
    ),
]
_Percentage = Annotated[
    float,
    _text_parsed_by(parse_percentage, _number_or_text("number", r"^[0-9]+(\.[0-9]+)? ?%?$")),
]


def _require_readable(pattern: str) -> str:
    """Raises PathSyntaxError, but not for the first word: it may be the name of a target."""
    for text in dict.fromkeys(expand_segments(pattern)):
        try:
            parse_path(text)
        except PathSyntaxError as error:
            if error.position != 1 or not NAME.fullmatch(text.partition("/")[0]):
                raise
    return pattern


_Pattern = Annotated[str, _text_parsed_by(_require_readable)]


def _each(parse: Callable[[Any], Any]) -> Callable[[list[Any]], tuple[Any, ...]]:
    return lambda values: tuple(map(parse, values))


def _path(text: str | Path) -> Path:
    """Raises PlanError for a name that is empty, or that a ledger, QEMU's options or a message
    cannot hold."""
    if text == "":
        raise PlanError("the name of a file is empty", hint="name a file, or leave the option out")
    if not str(text).isprintable():
        raise PlanError(
            f"{str(text)!r} is a name with a control character", hint="rename it, or use another"
        )
    return Path(text)


def _input_file(text: str | Path) -> Path:
    """As `_path`. Raises PlanError for a URL, too, of which Path would make another text."""
    if _URL.match(str(text)):
        raise PlanError(f"{text} is a URL, and no file", hint="download it, and name the file")
    return _path(text)


def several(
    parse: Callable[[str], Any],
    flag: Any,  # noqa: ANN401 - a type
    toml: Any = str,  # noqa: ANN401 - a type
    spell: Callable[[Any], str] = str,
) -> ValueKind:
    """Several values, each read by `parse`; plan files hold a list of `toml`."""
    tuple_of = Annotated[list[toml], Checked(after=_each(parse))]
    return ValueKind(tuple_of, list[flag], _each(parse), spell, hint="a list", empty=())


def texts(parse: Callable[[str], str]) -> ValueKind:
    """Several texts, each read by `parse`; commas make several of one."""

    def each(values: list[str]) -> tuple[str, ...]:
        return tuple(parse(text) for value in values for text in value.split(","))

    toml = Annotated[list[str], Checked(after=each)]
    return ValueKind(toml, list[str], each, hint="a list", empty=())


def values_of(name: str) -> ValueKind:
    """Several values of an option of a path's bus; braces or commas make several of one."""

    def names_in(value: str) -> Iterable[str]:
        return expand_segments(value if "{" in value or "," not in value else f"{{{value}}}")

    def parse(values: list[str]) -> tuple[str, ...]:
        return tuple(_value_of(name, word) for value in values for word in names_in(value))

    toml = Annotated[list[str], Checked(after=parse)]
    return ValueKind(toml, list[str], parse, hint="a list", empty=())


def _value_of(name: str, word: str) -> str:
    option = BUS_OPTIONS[Bus.VIRTIO][name]
    try:
        return option.format(option.parse(word))
    except ValueError as error:
        raise PlanError(f"{word!r} is not possible for {name}", hint=f"write {error}") from None


def parsed_by(parse: Callable[[str], Any], noun: str, hint: str) -> ValueKind:
    """One value that `parse` reads from a text."""
    toml = Annotated[_NonEmpty, Checked(after=parse)]
    return ValueKind(toml, str, parse, noun=noun, hint=hint)


def one_of(enumeration: type[StrEnum]) -> ValueKind:
    """One word of an enumeration."""
    # TOML has no enumerations, so the words are converted although TomlTable is strict.
    return ValueKind(Annotated[enumeration, Checked({"strict": False})], enumeration)


ARCHITECTURE = ValueKind(
    Annotated[str, _text_parsed_by(parse_architecture)],
    str,
    parse_architecture,
    noun="an architecture",
)
LABEL = ValueKind(str, str)
TEXT = ValueKind(_NonEmpty, str)
PATH = ValueKind(Annotated[_NonEmpty, _text_parsed_by(_require_readable)], str)
PATHS = several(str, str, toml=_Pattern)
SWITCH = ValueKind(bool, bool, empty=False)
WHOLE = ValueKind(int, int, noun="a whole number")
SHARE = ValueKind(float, float, spell="{:g}".format, noun="a number", hint="such as 0.1")
PERCENTAGE = ValueKind(
    _Percentage, str, parse_percentage, lambda share: f"{100 * share:g}%", "a share", "such as 3%"
)
SECONDS = ValueKind(
    Seconds, str, parse_duration, "{:.12g}".format, "a time", "seconds, or 500ms, 1m", unit=" s"
)
SIZE = ValueKind(Bytes, str, parse_size, format_size, "a size", "bytes, or 512M, 1G")
RATE = ValueKind(
    Annotated[int | str, Checked(after=lambda value: parse_rate(str(value)))],
    str,
    parse_rate,
    lambda rate: f"{rate}iops",
    "a rate",
    "such as 500iops",
)
FILE = ValueKind(Annotated[_NonEmpty, Checked(after=_path)], Path, _path)
FILES = several(_path, Path)
INPUT_FILE = ValueKind(
    Annotated[_NonEmpty, Checked(after=_input_file)], str, _input_file, input_file=True
)
NAME_OR_FILE = replace(TEXT, input_file=True)


class Limits(Value):
    """The allowed range of a number; with `above`, `low` itself is excluded."""

    low: int
    high: int | None = None
    above: bool = False
    multiple_of: int = 1

    def admit(self, value: float) -> bool:
        """False for a number outside the range, and for infinity and NaN."""
        if not math.isfinite(value) or value < self.low or (self.above and value == self.low):
            return False
        fits = self.high is None or value <= self.high
        return fits and (self.multiple_of == 1 or value % self.multiple_of == 0)

    def sentence(self, kind: ValueKind) -> str:
        """The hint for a number outside the range, such as `write a whole number from 1 to 100`."""
        low = f"{'above' if self.above else 'from'} {kind.spell(self.low)}{kind.unit}"
        upto = ", at most" if self.above else " to"
        high = "" if self.high is None else f"{upto} {kind.spell(self.high)}{kind.unit}"
        step = f", a multiple of {format_size(self.multiple_of)}" if self.multiple_of > 1 else ""
        return f"write {kind.noun} {low}{high}{step}"
