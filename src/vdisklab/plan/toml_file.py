"""Reads TOML into a checked model; an error is explained in one sentence."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import TypeVar, get_args

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic.fields import FieldInfo

from vdisklab.errors import PlanError
from vdisklab.units import format_bytes
from vdisklab.validation import refusal

Location = Sequence[str | int]


_LARGEST_FILE = 1 << 20
# TOML's names of types, and what the patterns of its keys mean.
_WANTED: Mapping[str, str] = {
    "string_type": "should be a text in quotes",
    "model_type": "should be a table",
    "string_pattern_mismatch": "should have only lower-case letters, digits, dots, dashes and "
    "underscores",
}


class TomlTable(BaseModel):
    """A table of a TOML file: types are not converted, unknown keys are errors."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


Model = TypeVar("Model", bound=TomlTable)


def text_of(file: Path, what: str, hint: str = "name a readable file in UTF-8") -> str:
    """The text of a user's file; `what` names its kind.

    Raises PlanError if it is unreadable, or implausibly large.
    """
    try:
        with file.open("rb") as source:
            content = source.read(_LARGEST_FILE + 1)
    except OSError as error:
        raise PlanError(f"the {what} {file} cannot be read: {error.strerror}", hint=hint) from error
    if len(content) > _LARGEST_FILE:
        raise PlanError(
            f"the {what} {file} is larger than {format_bytes(_LARGEST_FILE)}", hint=hint
        )
    try:
        return content.decode("utf-8-sig")  # some editors write a byte order mark
    except UnicodeDecodeError as error:
        raise PlanError(f"the {what} {file} is not UTF-8 text", hint=hint) from error


def builtin_texts(folder: str) -> Iterator[tuple[str, str]]:
    """The name and text of each TOML file that comes with vdisklab in `folder`, by name."""
    names = (entry.name for entry in resources.files("vdisklab").joinpath(folder).iterdir())
    for name in sorted(name for name in names if name.endswith(".toml")):
        yield name, resources.files("vdisklab").joinpath(folder, name).read_text("utf-8")


def read_toml(text: str, origin: str, model: type[Model]) -> Model:
    """The model with the text's values. Raises PlanError naming `origin`, the table and the key."""
    try:
        values = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise PlanError(
            f"{origin} is not valid TOML: {error}", hint="put strings in quotes, lists in [ ]"
        ) from error
    try:
        return model.model_validate(values)
    except ValidationError as error:
        message, hint = _explain(error, origin, model)
        raise PlanError(message, hint=hint) from error


def _explain(error: ValidationError, origin: str, model: type[TomlTable]) -> tuple[str, str | None]:
    """The first problem, and a hint."""
    details = error.errors(include_url=False)
    # An unknown key explains a missing one, so it is named first.
    first = min(details, key=lambda detail: detail["type"] != "extra_forbidden")
    location: Location = first["loc"]
    where = describe_place(location, origin)
    match first["type"]:
        case "extra_forbidden":
            keys = _keys_at(model, location[:-1])
            return f"{where} is unknown", _nearest(str(location[-1]), keys)
        case "missing":
            return f"{where} is missing", _description(model, location)
        case "value_error":
            reason: BaseException = first["ctx"]["error"]
            cause = reason.__cause__
            hint = cause.hint if isinstance(cause, PlanError) else _description(model, location)
            return f"{where}: {reason}", hint
        case _:
            return f"{where} {refusal(first, _WANTED)}", _description(model, location)


def describe_place(location: Location, origin: str) -> str:
    """`key 'memory' in table [guest] of plan.toml`, `key 'bs' in the 2nd [[measurement]] of …`."""
    match list(location):
        case [str(key)]:
            return f"key {key!r} of {origin}"
        case [str(key), int(item)]:
            return f"item {item + 1} of key {key!r} of {origin}"
        case [str(table), str(key), *_]:
            return f"key {key!r} in table [{table}] of {origin}"
        case [str(table), int(item), str(key), *_]:
            return f"key {key!r} in the {_ordinal(item + 1)} [[{table}]] of {origin}"
        case _:
            return origin


def _ordinal(number: int) -> str:
    if number % 100 in (11, 12, 13):
        return f"{number}th"
    return f"{number}{ {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10, 'th') }"


def _keys_at(model: type[TomlTable], location: Location) -> list[str]:
    """The keys that the table at `location` may have."""
    table: type[TomlTable] | None = model
    for field in _fields_along(model, location):
        table = _table_in(field.annotation)
    return list(table.model_fields) if table is not None else []


def _description(model: type[TomlTable], location: Location) -> str | None:
    """The description of the innermost key that has one."""
    described = [field.description for field in _fields_along(model, location)]
    return next((text for text in reversed(described) if text), None)


def _fields_along(model: type[TomlTable], location: Location) -> Iterator[FieldInfo]:
    """The declared fields on the way to `location`, outermost first."""
    table: type[TomlTable] | None = model
    for step in location:
        if isinstance(step, int):
            continue
        field = table.model_fields.get(step) if table is not None else None
        if field is None:
            return
        yield field
        table = _table_in(field.annotation)


def _table_in(annotation: object) -> type[TomlTable] | None:
    """The table that a field holds, also inside `list[...]` or `... | None`."""
    if isinstance(annotation, type) and issubclass(annotation, TomlTable):
        return annotation
    inner = (_table_in(argument) for argument in get_args(annotation))
    return next((table for table in inner if table is not None), None)


def _nearest(word: str, vocabulary: Sequence[str]) -> str:
    close = difflib.get_close_matches(word.lower(), vocabulary, n=1, cutoff=0.5)
    start = f"did you mean {close[0]}? " if close else ""
    return f"{start}Possible here: {', '.join(vocabulary)}"
