"""The JSON schema (draft 2020-12) of each document, made from its dataclass."""

from __future__ import annotations

import dataclasses
import inspect
import types
from collections.abc import Mapping
from datetime import datetime
from enum import Enum
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from vdisklab.views.documents import fleets
from vdisklab.views.documents.conversion import TEXTS, Key, Limit, typed_keys

DOCUMENTS: Mapping[str, type] = {
    "fleet-doctor": fleets.FleetDoctorDocument,
    "fleet-status": fleets.FleetStatusDocument,
}
"""Every document by the NAME in its `format`, `vdisklab.NAME/VERSION`."""

_PLAIN: Mapping[object, dict[str, Any]] = {
    str: {"type": "string"},
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    float: {"type": "number"},
    type(None): {"type": "null"},
    datetime: {"type": "string", "format": "date-time"},
    **{kind: {"type": "string"} for kind in TEXTS},
    Any: {},
    object: {},
}

Schema = dict[str, Any]


def document_schema(name: str) -> Schema:
    """The schema of one document."""
    definitions: dict[str, Schema] = {}
    root = _object(DOCUMENTS[name], definitions)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"vdisklab {name}",
        **root,
        **({"$defs": definitions} if definitions else {}),
    }


def _object(kind: type, definitions: dict[str, Schema]) -> Schema:
    """An object with the dataclass's fields as its keys, and no others."""
    keys = tuple(typed_keys(kind))
    others = [_typed(hint, definitions) for _, hint, role in keys if role is Key.INLINE]
    described = {
        key: text for entry in others for key, text in entry.items() if key == "description"
    }
    return {
        "type": "object",
        "description": (inspect.getdoc(kind) or "").partition("\n\n")[0].replace("\n", " "),
        "properties": {
            name: _typed(hint, definitions) for name, hint, role in keys if role is not Key.INLINE
        },
        "required": [name for name, _, role in keys if role is None],
        "additionalProperties": {**others[0]["additionalProperties"], **described}
        if others
        else False,
    }


def _typed(hint: Any, definitions: dict[str, Schema]) -> Schema:  # noqa: ANN401
    """The schema of one type."""
    if hint in _PLAIN:
        return dict(_PLAIN[hint])
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is None:
        return _class(hint, definitions)
    if origin in (Literal, Union, types.UnionType):
        return _choice(hint, definitions)
    if origin is Annotated:
        return _annotated(arguments, definitions)
    if origin is tuple:
        return _array(arguments, definitions)
    if issubclass(origin, Mapping):
        names = _typed(arguments[0], definitions)
        limited = {"propertyNames": names} if "enum" in names else {}
        values = _typed(arguments[1], definitions)
        return {"type": "object", **limited, "additionalProperties": values}
    raise TypeError(f"{hint!r} has no JSON schema")


def _choice(hint: Any, definitions: dict[str, Schema]) -> Schema:  # noqa: ANN401
    """The schema of a Literal or a union; plain types or enumerations become one list."""
    if get_origin(hint) is Literal:
        values = list(get_args(hint))
        return {"const": values[0]} if len(values) == 1 else {"enum": values}
    choices = [_typed(argument, definitions) for argument in get_args(hint)]
    if all(choice.keys() == {"type"} for choice in choices):
        return {"type": [choice["type"] for choice in choices]}
    if all(choice.keys() == {"enum"} or choice == {"type": "null"} for choice in choices):
        return {"enum": [value for choice in choices for value in choice.get("enum", [None])]}
    return {"anyOf": choices}


def _class(hint: type, definitions: dict[str, Schema]) -> Schema:
    """An enumeration, or a reference to a dataclass's own definition."""
    if issubclass(hint, Enum):
        return {"enum": [member.value for member in hint]}
    if not dataclasses.is_dataclass(hint):
        raise TypeError(f"{hint!r} has no JSON schema")
    if hint.__name__ not in definitions:
        definitions[hint.__name__] = _object(hint, definitions)
    return {"$ref": f"#/$defs/{hint.__name__}"}


def _annotated(arguments: tuple[Any, ...], definitions: dict[str, Schema]) -> Schema:
    base, *metadata = arguments
    schema = _typed(base, definitions)
    for entry in metadata:
        if isinstance(entry, str):
            schema["description"] = entry
        elif isinstance(entry, Limit):
            schema[entry.keyword] = entry.value
    return schema


def _array(arguments: tuple[Any, ...], definitions: dict[str, Schema]) -> Schema:
    if arguments[1:] == (Ellipsis,):
        return {"type": "array", "items": _typed(arguments[0], definitions)}
    items = [_typed(argument, definitions) for argument in arguments]
    return {"type": "array", "prefixItems": items, "items": False, "minItems": len(items)}
