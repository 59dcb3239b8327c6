"""How pydantic checks a value from a file, a database or a program, and why it refused one.

Nothing here loads pydantic, which takes a tenth of a second: most verbs check no file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date, time
from typing import TYPE_CHECKING, Annotated, Any

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler, ValidationError
    from pydantic_core import CoreSchema, ErrorDetails

_LONGEST = 60

_WANTED: Mapping[str, str] = {
    "string_type": "should be text",
    "bool_type": "should be true or false",
    "bool_parsing": "should be true or false",
    "list_type": "should be a list",
    "tuple_type": "should be a list",
    "too_short": "should not be an empty list",
    "string_too_short": "should not be empty",
    "finite_number": "should be a finite number",
    **dict.fromkeys(
        ("int_type", "int_parsing", "int_from_float", "int_parsing_size"),
        "should be a whole number",
    ),
    **dict.fromkeys(("float_type", "float_parsing"), "should be a number"),
    **dict.fromkeys(
        ("model_type", "model_attributes_type", "dict_type", "mapping_type", "dataclass_type"),
        "should be an object with named values",
    ),
    **dict.fromkeys(
        ("datetime_type", "datetime_parsing", "datetime_from_date_parsing", "timezone_aware"),
        "should be a time with its zone, such as 2026-08-01T12:00:00+00:00",
    ),
}


@dataclass(frozen=True, slots=True, eq=False)  # `typing` wants a hash of it
class Checked:
    """Marks a type, inside `Annotated`, that pydantic checks in a further way.

    `limits` are keywords of pydantic's `Field`, such as `ge`. `before` converts a value
    before the type is checked, `after` the checked value; both refuse one with ValueError. `form`
    is the JSON schema, for a value that may be written in several ways.
    """

    limits: Mapping[str, Any] | None = None
    before: Callable[[Any], Any] | None = None
    after: Callable[[Any], Any] | None = None
    form: Mapping[str, Any] | None = None

    def __get_pydantic_core_schema__(
        self, source: object, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        """The type's schema with the limits, between the two conversions."""
        from pydantic import Field  # noqa: PLC0415 - loaded by who checks a value
        from pydantic_core import core_schema  # noqa: PLC0415

        if self.limits is None:
            schema = handler(source)
        else:
            schema = handler.generate_schema(Annotated[source, Field(**self.limits)])
        if self.before is not None:
            schema = core_schema.no_info_before_validator_function(self.before, schema)
        if self.after is not None:
            schema = core_schema.no_info_after_validator_function(self.after, schema)
        return schema

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        """The form, or else what pydantic makes of the type and its limits."""
        return handler(schema) if self.form is None else dict(self.form)


def first_problem(error: ValidationError, *parents: str) -> str:
    """The first problem as one sentence, such as `runs.0.block should be a whole number, not 'x'`.

    `parents` name the place of the refused value. Without a place the sentence begins with `it`.
    """
    first = error.errors(include_url=False)[0]
    place = ".".join((*parents, *map(str, first["loc"]))) or "it"
    return f"{place[:120]} {refusal(first)}"


def refusal(detail: ErrorDetails, wanted: Mapping[str, str] | None = None) -> str:
    """Why a value is refused; `wanted` has plain words for some of pydantic's types."""
    kind = detail["type"]
    match kind:
        case "missing":
            return "is missing"
        case "extra_forbidden":
            return "is unknown"
        case "value_error":
            return f"is wrong: {detail['ctx']['error']}"
    expected = (wanted or {}).get(kind) or _WANTED.get(kind) or _reworded(detail["msg"])
    return f"{expected[:120]}, not {shown(detail['input'])}"


def _reworded(message: str) -> str:
    """Pydantic's message without its subject, such as `should be at least 1`."""
    limits = message.replace("greater than or equal to", "at least")
    return limits.replace("less than or equal to", "at most").removeprefix("Input ")


def shown(value: object) -> str:
    """A refused value as a user wrote it, shortened."""
    match value:
        case None | "" | []:
            return "nothing"
        case bool():
            return str(value).lower()
        case dict():
            return "an object"
        case date() | time():
            text = value.isoformat()
        case _:
            text = repr(value)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
