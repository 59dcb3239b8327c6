"""How a user spells a row with its options: `backup:workers=1`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

from vdisklab.errors import PlanError
from vdisklab.path.options import OptionValue, Schema


class _Named(Protocol):
    @property
    def name(self) -> str:
        """What the user writes."""

    @property
    def options(self) -> Schema:
        """The options by name."""


_Row = TypeVar("_Row", bound=_Named)


def parse_spelled(
    text: str, rows: Sequence[_Row], noun: str
) -> tuple[_Row, tuple[tuple[str, OptionValue], ...]]:
    """The row that a text names, the longest name first, and its options by name.

    Raises PlanError, which says what a `noun` can be.
    """
    named = [row for row in rows if f"{text}:".startswith(f"{row.name}:")]
    if not named:
        names = ", ".join(row.name for row in rows)
        raise PlanError(f"{text!r} is no {noun}", hint=f"write one of {names}")
    row = max(named, key=lambda row: len(row.name))
    values: dict[str, OptionValue] = {}
    for word in text.removeprefix(row.name).split(":")[1:]:
        name, _, value = word.partition("=")
        if name not in row.options or name in values:
            problem = "twice" if name in values else "unknown to it"
            options = f"options: {', '.join(row.options)}" if row.options else "it has no options"
            raise PlanError(f"{text!r}: the option {name!r} is {problem}", hint=options)
        try:
            values[name] = row.options[name].parse(value)
        except ValueError as error:
            raise PlanError(
                f"{text!r}: {value!r} is no value of {name}", hint=f"write {error}"
            ) from error
    return row, tuple(sorted(values.items()))
