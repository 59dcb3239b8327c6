"""The types of options in a disk path: each parses, formats and describes its values."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Mapping

from vdisklab.errors import PlanError
from vdisklab.units import format_size, parse_size
from vdisklab.value import Value

OptionValue = str | int | bool


NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+_-]{0,39}")
"""A name without characters that are special in disk paths or shells."""


class OptionType(Value, kw_only=True):
    """Parses and formats the values of one option; `expected` describes the valid values.

    `default` is the value of an omitted option; None means that the program below chooses.
    """

    default: OptionValue | None = None

    @property
    @abstractmethod
    def expected(self) -> str:
        """The valid values, for messages."""

    @abstractmethod
    def _read(self, text: str) -> OptionValue | None:
        """The typed value; None if the text is not valid."""

    def parse(self, text: str) -> OptionValue:
        """The typed value; raises ValueError, which describes the valid values."""
        value = self._read(text)
        if value is None:
            raise ValueError(self.expected)
        return value

    def format(self, value: OptionValue) -> str:
        """The canonical spelling of a value, which `parse` accepts."""
        return str(value)


class Choice(OptionType):
    """One of a few words."""

    choices: tuple[str, ...]

    @property
    def expected(self) -> str:
        """The words."""
        return "one of " + ", ".join(self.choices)

    def _read(self, text: str) -> OptionValue | None:
        return text if text in self.choices else None


class Switch(OptionType, kw_only=True):
    """`on` (True) or `off` (False)."""

    default: OptionValue | None = False
    expected = "on or off"

    def _read(self, text: str) -> OptionValue | None:
        return {"on": True, "off": False}.get(text)

    def format(self, value: OptionValue) -> str:
        """`on` or `off`."""
        return "on" if value else "off"


class Number(OptionType):
    """A whole number within bounds, and a power of two if `power_of_two`; `zero` is a word for
    0."""

    low: int
    high: int
    power_of_two: bool = False
    zero: str | None = None

    @property
    def expected(self) -> str:
        """The bounds."""
        kind = "power of two" if self.power_of_two else "whole number"
        word = "" if self.zero is None else f", where 0 is {self.zero}"
        return f"a {kind} from {self.low} to {self.high}{word}"

    def _read(self, text: str) -> OptionValue | None:
        if text == self.zero:
            return 0
        if not re.fullmatch(r"[0-9]{1,9}", text):
            return None
        number = int(text)
        if not self.low <= number <= self.high or (self.power_of_two and number & (number - 1)):
            return None
        return number


class Size(OptionType):
    """A number of bytes within bounds, and a power of two unless `power_of_two` is False."""

    low: int
    high: int
    power_of_two: bool = True

    @property
    def expected(self) -> str:
        """The bounds."""
        kind = "power of two" if self.power_of_two else "size"
        return f"a {kind} from {format_size(self.low)} to {format_size(self.high)}"

    def _read(self, text: str) -> OptionValue | None:
        if any(character.isspace() for character in text):
            return None
        try:
            size = parse_size(text)
        except PlanError:
            return None
        if not self.low <= size <= self.high or (self.power_of_two and size & (size - 1)):
            return None
        return size

    def format(self, value: OptionValue) -> str:
        """The shortest exact spelling."""
        return format_size(int(value))


class Percent(OptionType):
    """A whole percentage from 1 to 100, stored without the `%`."""

    expected = "a share from 1% to 100%"

    def _read(self, text: str) -> OptionValue | None:
        match = re.fullmatch(r"([0-9]{1,3})%?", text)
        return int(match[1]) if match and 1 <= int(match[1]) <= 100 else None

    def format(self, value: OptionValue) -> str:
        """The value with its sign: `10%`."""
        return f"{value}%"


class MountOptions(OptionType):
    """Options of mount(8), joined by `+`: a comma would end an alternative in braces."""

    expected = "options of mount joined by +, such as noatime+commit=60"

    def _read(self, text: str) -> OptionValue | None:
        return text if re.fullmatch(r"[a-z0-9_=.-]+(\+[a-z0-9_=.-]+)*", text) else None


class Order(OptionType):
    """An operation on a running guest's disk; `+` is in place of its colons, which end options."""

    expected = "an operation with + in place of colons, such as backup+workers=1"

    def _read(self, text: str) -> OptionValue | None:
        word = r"[a-z][a-z-]*(=[A-Za-z0-9.%-]+)?"
        return text if re.fullmatch(rf"{word}(\+{word})*", text) else None


class Name(OptionType):
    """A name that the user gives to something."""

    expected = "a name of letters, digits and . + _ -, of at most 40 characters"

    def _read(self, text: str) -> OptionValue | None:
        return text if NAME.fullmatch(text) else None


Schema = Mapping[str, OptionType]
"""The options of one segment by name."""
