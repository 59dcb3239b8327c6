"""Values: frozen, and equal if all that they hold is equal.

They are msgspec's structs. A frozen dataclass is the same to its users, but each start of the
program writes, compiles and runs the code of its methods anew, which takes some forty times as long
(docs/decisions/0034-values-are-structs.md).
"""

from __future__ import annotations

import dataclasses
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    ParamSpec,
    Protocol,
    TypeVar,
    dataclass_transform,
    get_type_hints,
)

import msgspec
from msgspec import field
from msgspec.structs import force_setattr

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler
    from pydantic_core import CoreSchema

__all__ = ["HIDDEN", "Value", "field", "force_setattr", "replace"]

_Changes = ParamSpec("_Changes")
_Changed_co = TypeVar("_Changed_co", covariant=True)

HIDDEN = object()
"""Marks a field, inside `Annotated`, that documents leave out."""


class _Replaceable(Protocol[_Changes, _Changed_co]):
    def __replace__(self, *_: _Changes.args, **changes: _Changes.kwargs) -> _Changed_co: ...


@dataclass_transform(frozen_default=True, field_specifiers=(msgspec.field,))
class Value(msgspec.Struct, frozen=True):
    """The base of values.

    A keyword of the class says what differs: `kw_only=True`, `order=True`, `eq=False` (it equals
    itself alone), `dict=True` (it has cached properties). `__post_init__` may set its fields by
    `force_setattr`.
    """

    @classmethod
    def __get_pydantic_core_schema__(
        cls, source: object, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        """An object with the fields; pydantic does not know structs. A `HIDDEN` field is read, and
        not written."""
        from pydantic_core import core_schema  # noqa: PLC0415 - the core does without pydantic

        del source
        ref = f"{cls.__module__}.{cls.__qualname__}:{id(cls)}"
        itself = Annotated[Any, _Itself(ref)]
        hints = get_type_hints(cls, localns={cls.__name__: itself}, include_extras=True)
        read, written = {}, {}
        for declared in msgspec.structs.fields(cls):
            hint = hints[declared.name]
            schema = handler.generate_schema(hint)
            read[declared.name] = core_schema.typed_dict_field(schema, required=declared.required)
            if HIDDEN not in getattr(hint, "__metadata__", ()):
                written[declared.name] = core_schema.typed_dict_field(schema)
        return core_schema.no_info_wrap_validator_function(
            lambda value, checked: value if isinstance(value, cls) else cls(**checked(value)),
            core_schema.typed_dict_schema(read),
            ref=ref,
            serialization=core_schema.plain_serializer_function_ser_schema(
                lambda value: {name: getattr(value, name) for name in written},
                return_schema=core_schema.typed_dict_schema(written),
            ),
        )


@dataclasses.dataclass(frozen=True, slots=True)
class _Itself:
    """A value within a value of its class."""

    ref: str

    def __get_pydantic_core_schema__(
        self, source: object, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        from pydantic_core import core_schema  # noqa: PLC0415 - the core does without pydantic

        del source, handler
        return core_schema.definition_reference_schema(self.ref)


def replace(
    value: _Replaceable[_Changes, _Changed_co], /, *_: _Changes.args, **changes: _Changes.kwargs
) -> _Changed_co:
    """A copy of a value or of a dataclass with other fields, as `copy.replace` of Python 3.13."""
    before: Any = value
    as_it_is = msgspec.structs if isinstance(before, Value) else dataclasses
    after: _Changed_co = as_it_is.replace(before, **changes)
    return after
