"""From answers to documents, from documents to JSON, and what all documents share.

A document is a dataclass whose fields name the answer's attributes, or say `At("ratio.low")` where
the value is; `copy_fields` fills it, with all that is nested in it.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Self, TypeVar, get_args, get_origin, get_type_hints

from vdisklab.analysis.diagnostics.diagnostic import Diagnostic
from vdisklab.analysis.observations import MeasureKey
from vdisklab.path.cell import Cell, MeasuredCell
from vdisklab.path.disk_path import DiskPath
from vdisklab.path.needs import Need
from vdisklab.results.model import HostFacts

Kind = TypeVar("Kind")

TEXTS = (Cell, MeasuredCell, MeasureKey, DiskPath, Need, Path)
"""Types that are text in JSON."""

_AS_TEXT = (datetime, *TEXTS)


class Key(Enum):
    """How a field is written if it is not a plain key; part of its `Annotated` type."""

    INLINE = "inline"
    """Becomes keys of the object itself: a mapping's entries, or another dataclass's fields."""
    ABSENT = "absent"
    """The key is left out when its value is None."""


@dataclasses.dataclass(frozen=True, slots=True)
class Limit:
    """A further keyword of the field's schema, such as `minimum`."""

    keyword: str
    value: float


@dataclasses.dataclass(frozen=True, slots=True)
class At:
    """Where `copy_fields` finds a field's value: attributes of the source, joined by dots."""

    path: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class CampaignEntry:
    """A campaign without its plan."""

    id: str
    label: str
    started: datetime
    host: HostFacts


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class DiagnosticEntry:
    """Something to know about the numbers."""

    kind: Annotated[str, "such as `from-page-cache`; new kinds may be added"]
    text: Annotated[str, "one or two sentences for people"]
    fields: Annotated[Mapping[str, Any], "the kind's own fields", Key.INLINE]

    @classmethod
    def of(cls, finding: Diagnostic) -> Self:
        """The entry of a diagnostic."""
        fields = {
            field.name: getattr(finding, field.name)
            for field in dataclasses.fields(finding)  # type: ignore[arg-type] # each kind is one
        }
        return cls(kind=kind_of(finding), text=str(finding), fields=fields)


def diagnostic_entries(findings: Iterable[Diagnostic]) -> tuple[DiagnosticEntry, ...]:
    """The diagnostics in their order."""
    return tuple(map(DiagnosticEntry.of, findings))


def kind_of(value: object) -> str:
    """A class's name as JSON spells it: `from-page-cache`."""
    return re.sub(r"(?<!^)(?=[A-Z])", "-", type(value).__name__).lower()


def copy_fields(kind: Callable[..., Kind], source: object, **others: object) -> Kind:
    """A dataclass from `others` and, for its other fields, from the source's attributes.

    Values become dataclasses where the fields' types say so: by their `of`, or field by field. A
    field is None if something on the way to its value is. Fields with a default keep it.
    """
    for name, path, hint in _copied(kind):
        if name not in others:
            value: Any = source
            for attribute in path:
                value = None if value is None else getattr(value, attribute)
            others[name] = value if hint is None else _fitted(hint, value)
    return kind(**others)


@cache
def _copied(kind: Any) -> tuple[tuple[str, tuple[str, ...], Any], ...]:  # noqa: ANN401 - a class
    """Each field without a default: its name, where its value is, and its type if it is to fit."""
    hints = get_type_hints(kind, include_extras=True)
    at = {
        name: entry.path
        for name, hint in hints.items()
        for entry in getattr(hint, "__metadata__", ())
        if isinstance(entry, At)
    }
    return tuple(
        (name, tuple(at.get(name, name).split(".")), hint if _holds_dataclass(hint) else None)
        for name, hint in (
            (field.name, hints[field.name])
            for field in dataclasses.fields(kind)
            if field.default is dataclasses.MISSING
        )
    )


def _fitted(hint: Any, value: Any) -> Any:  # noqa: ANN401 - any type
    """The value with dataclasses of the types that a field's type names."""
    if value is None or not _holds_dataclass(hint):
        return value
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is tuple:
        return tuple(_fitted(arguments[0], item) for item in value)
    if origin is Mapping:
        return {key: _fitted(arguments[1], item) for key, item in value.items()}
    if origin is not None:  # Annotated, or a union with None
        return _fitted(arguments[0], value)
    if isinstance(value, hint):
        return value
    return hint.of(value) if hasattr(hint, "of") else copy_fields(hint, value)


@cache
def _holds_dataclass(hint: Any) -> bool:  # noqa: ANN401 - any type
    if dataclasses.is_dataclass(hint):
        return hint not in TEXTS
    return any(map(_holds_dataclass, get_args(hint)))


def to_json(value: Any) -> Any:  # noqa: ANN401 - any value in, JSON out
    """The value in JSON's own types.

    Keys are the fields' names in their order. Raises TypeError for what JSON cannot carry.
    """
    if isinstance(value, Enum):
        return value.value
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, _AS_TEXT):
        return value.isoformat() if isinstance(value, datetime) else str(value)
    if isinstance(value, Mapping):
        return {str(to_json(key)): to_json(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [to_json(item) for item in value]
    return _object(value)


def _object(value: Any) -> dict[str, Any]:  # noqa: ANN401
    plain: dict[str, Any] = {}
    if not dataclasses.is_dataclass(value):
        raise TypeError(f"{type(value).__name__} is not a JSON value")
    kind: Any = type(value)
    for name, role in keys_of(kind).items():
        item = to_json(getattr(value, name))
        if role is Key.INLINE:
            plain.update(item)
        elif role is not Key.ABSENT or item is not None:
            plain[name] = item
    return plain


@cache
def keys_of(kind: type[Any]) -> dict[str, Key | None]:
    """A dataclass's fields in their order, each with its role."""
    hints = get_type_hints(kind, include_extras=True)
    return {
        field.name: next(
            (
                role
                for role in getattr(hints[field.name], "__metadata__", ())
                if isinstance(role, Key)
            ),
            None,
        )
        for field in dataclasses.fields(kind)
    }


def typed_keys(kind: Any) -> Iterator[tuple[str, Any, Key | None]]:  # noqa: ANN401 - a class
    """The keys of a dataclass in JSON with their types and roles; inline dataclasses spread out."""
    hints = get_type_hints(kind, include_extras=True)
    for name, role in keys_of(kind).items():
        part: Any = next(iter(get_args(hints[name])), None) if role is Key.INLINE else None
        if isinstance(part, type) and dataclasses.is_dataclass(part):
            yield from typed_keys(part)
        else:
            yield name, hints[name], role
