"""How values stand in JSON: some as text, some with the sentence that they say.

Answers are their own documents (`documents.py`). These classes live below all rooms, because cells,
measures, needs and diagnostics are such values.
"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, Any, get_type_hints

from vdisklab.value import HIDDEN, Value

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler, TypeAdapter
    from pydantic_core import CoreSchema


class AsText:
    """Makes JSON hold `str(value)`."""

    __slots__ = ()

    @classmethod
    def __get_pydantic_core_schema__(
        cls, source: object, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        """An instance of the class in Python, text in JSON."""
        from pydantic_core import core_schema  # noqa: PLC0415 - the core does without pydantic

        del source, handler
        return core_schema.json_or_python_schema(
            core_schema.str_schema(),
            core_schema.is_instance_schema(cls),
            serialization=core_schema.to_string_ser_schema(),
        )


class Saying:
    """A value that says itself: `str(value)` is one or two sentences for people.

    In JSON it has the keys `kind` (its class's name, such as `from-page-cache`) and `text`, and its
    own fields.
    """

    __slots__ = ()

    @property
    def kind(self) -> str:
        """The class's name as JSON spells it: `from-page-cache`."""
        return re.sub(r"(?<!^)(?=[A-Z])", "-", type(self).__name__).lower()

    @classmethod
    def __get_pydantic_core_schema__(
        cls, source: object, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        """An instance of the class, whichever subclass it is; JSON has that subclass's fields."""
        from pydantic_core import core_schema  # noqa: PLC0415 - the core does without pydantic

        del source, handler
        return core_schema.is_instance_schema(
            cls, serialization=core_schema.plain_serializer_function_ser_schema(_said)
        )

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        """New kinds may be added, so their fields are left open."""
        del schema, handler
        text = {"type": "string"}
        keys = {
            "kind": {**text, "description": "such as `from-page-cache`; new kinds may be added"},
            "text": {**text, "description": "one or two sentences for people"},
        }
        return {
            "type": "object",
            "description": "something to know, with its own fields",
            "properties": keys,
            "required": list(keys),
        }


def _said(value: Saying) -> dict[str, Any]:
    kind: Any = type(value)
    fields = {
        name: adapter(hint).dump_python(getattr(value, name), mode="json")
        for name, hint in shown_fields(kind).items()
    }
    return {"kind": value.kind, "text": str(value), **fields}


@cache
def adapter(hint: Any) -> TypeAdapter[Any]:  # noqa: ANN401 - any type
    """What turns values of a type into JSON's own types."""
    # Imported late: most verbs print tables, and pydantic takes a tenth of a second.
    from pydantic import TypeAdapter  # noqa: PLC0415

    return TypeAdapter(hint)


@cache
def shown_fields(kind: type[Value]) -> dict[str, Any]:
    """The types of the fields that JSON has."""
    hints = get_type_hints(kind, include_extras=True)
    return {
        name: hints[name]
        for name in kind.__struct_fields__
        if HIDDEN not in getattr(hints[name], "__metadata__", ())
    }
