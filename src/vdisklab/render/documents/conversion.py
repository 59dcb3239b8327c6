"""From dataclasses to JSON: one function for values, and what all documents share."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from enum import Enum
from functools import cache
from typing import Annotated, Any, TypeVar, cast, get_type_hints

from vdisklab.analysis.diagnostics.kinds import Diagnostic
from vdisklab.path.cell import MeasuredCell
from vdisklab.render.wording import sentence
from vdisklab.results.model import Campaign, HostFacts

Kind = TypeVar("Kind")


class Key(Enum):
    """How a field is written if it is not a plain key; part of its `Annotated` type."""

    INLINE = "inline"
    """A mapping whose entries become keys of the object itself, such as the metrics of `rank`."""
    ABSENT = "absent"
    """The key is left out when its value is None."""


@dataclasses.dataclass(frozen=True, slots=True)
class Limit:
    """A further keyword of the field's schema, such as `minimum`."""

    keyword: str
    value: float


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


def campaign_entries(campaigns: Iterable[Campaign]) -> tuple[CampaignEntry, ...]:
    """The campaigns as documents list them."""
    return tuple(copy_fields(CampaignEntry, campaign) for campaign in campaigns)


def diagnostic_entries(findings: Iterable[Diagnostic]) -> tuple[DiagnosticEntry, ...]:
    """The diagnostics in their order. A field called `kind` becomes `failure`."""
    return tuple(
        DiagnosticEntry(
            kind=kind_of(finding),
            text=sentence(finding),
            fields={
                "failure" if field.name == "kind" else field.name: getattr(finding, field.name)
                for field in dataclasses.fields(finding)
            },
        )
        for finding in findings
    )


def kind_of(value: object) -> str:
    """A class's name as JSON spells it: `from-page-cache`."""
    return re.sub(r"(?<!^)(?=[A-Z])", "-", type(value).__name__).lower()


def copy_fields(kind: Callable[..., Kind], source: object, **others: object) -> Kind:
    """A dataclass from `others` and, for its other fields, from the source's attributes.

    Fields with a default keep it.
    """
    needed = (
        field.name
        for field in dataclasses.fields(cast(Any, kind))
        if field.name not in others and field.default is dataclasses.MISSING
    )
    return kind(**{name: getattr(source, name) for name in needed}, **others)


def to_json(value: Any) -> Any:  # noqa: ANN401 - any value in, JSON out
    """The value in JSON's own types.

    Keys are the fields' names in their order. Raises TypeError for what JSON cannot carry.
    """
    if isinstance(value, Enum):
        return value.value
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, datetime | MeasuredCell):
        return value.isoformat() if isinstance(value, datetime) else value.label
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
