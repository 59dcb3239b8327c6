"""Answers as JSON, their schemas, and their rows as CSV, all from the answers' own classes.

A field's `Annotated` text is its description. CSV's columns are the paths of JSON: `ratio.low`.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Annotated, Any, ClassVar, get_args, get_origin

from vdisklab.as_text import AsText, Saying, adapter, shown_fields
from vdisklab.sanitise import sanitise
from vdisklab.validation import Checked
from vdisklab.value import Value

RARE = object()
"""Marks a part that most answers lack: CSV has its columns only where it is there."""

Count = Annotated[int, Checked({"ge": 0})]
Probability = Annotated[float, Checked({"ge": 0, "le": 1})]

_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")


class Answer(Value):
    """The answer that a verb prints: a value that is also its JSON document.

    `FORMAT` names the document and its version. A new key does not change the version; a key that
    is removed or changes its meaning raises it.
    """

    FORMAT: ClassVar[str]


def document(answer: Answer, sentences: Sequence[str] = ()) -> dict[str, Any]:
    """The answer in JSON's own types; `sentences` are what a terminal shows around its tables."""
    return {"format": answer.FORMAT, **plain(answer), "sentences": list(sentences)}


def plain(value: object) -> Any:  # noqa: ANN401 - any JSON value
    """A value in JSON's own types, with keys in the order of its fields."""
    kind: Any = type(value)
    return adapter(kind).dump_python(value, mode="json")


def schemas(answers: Iterable[type[Answer]]) -> dict[str, Any]:
    """The JSON schema of each document by its format (JSON Schema draft 2020-12)."""
    return {
        answer.FORMAT: _schema(answer)
        for answer in sorted(answers, key=lambda answer: answer.FORMAT)
    }


def _schema(answer: type[Answer]) -> dict[str, Any]:
    kind: Any = answer
    schema = adapter(kind).json_schema(mode="serialization")
    described = {kind.__name__: kind for kind in _objects(answer)}
    for name, definition in {answer.__name__: schema, **schema.get("$defs", {})}.items():
        if name in described:
            _describe(definition, described[name])
    properties = {
        "format": {"const": answer.FORMAT},
        **schema.get("properties", {}),
        "sentences": {
            "type": "array",
            "items": {"type": "string"},
            "description": "what a terminal shows around its tables",
        },
    }
    whole = {**schema, "properties": properties, "required": list(properties)}
    untitled: dict[str, Any] = _untitled(whole)
    return untitled


def _untitled(schema: Any) -> Any:  # noqa: ANN401 - a part of a schema
    """A schema without pydantic's titles, which repeat the names of keys."""
    if isinstance(schema, list):
        return [_untitled(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: _untitled(value)
        for key, value in schema.items()
        if not (key == "title" and isinstance(value, str))
    }


def _describe(definition: dict[str, Any], kind: type) -> None:
    """Adds what a class's docstring and its fields' `Annotated` texts say."""
    definition["description"] = " ".join((kind.__doc__ or "").split("\n\n")[0].split())
    fields = shown_fields(kind)
    definition["required"] = list(fields)
    for name, hint in fields.items():
        texts = [entry for entry in getattr(hint, "__metadata__", ()) if isinstance(entry, str)]
        if texts:
            definition["properties"][name]["description"] = texts[0]


def _objects(hint: Any) -> set[type]:  # noqa: ANN401 - any type
    """The classes that stand for objects in a type, with all that they hold."""
    found: set[type] = set()
    waiting = [hint]
    while waiting:
        part = waiting.pop()
        if isinstance(part, type) and issubclass(part, Value):
            if part not in found and not issubclass(part, AsText | Saying):
                found.add(part)
                waiting += shown_fields(part).values()
        else:
            waiting += get_args(part)
    return found


def as_csv(
    rows: Sequence[object], kind: type, completed: Callable[[Any], Any] = lambda row: row
) -> str:
    """RFC 4180 with a header line: a column for each number or text in the JSON of the rows.

    Lists are joined by spaces, lists of objects left out; a missing value is an empty field. `kind`
    is the rows' class, which has the columns if there are no rows. `completed` gets the JSON of a
    row, and returns it with commands as the user must type them.
    """
    flat = [dict(_leaves(kind, completed(plain(row)), "")) for row in rows]
    flat = flat or [dict(_leaves(kind, None, ""))]
    sink = io.StringIO()
    writer = csv.DictWriter(
        sink, list(dict.fromkeys(key for row in flat for key in row)), restval=""
    )
    writer.writeheader()
    writer.writerows(flat if rows else ())
    return sink.getvalue()


def _leaves(hint: Any, item: Any, path: str) -> Iterator[tuple[str, str]]:  # noqa: ANN401
    """The columns of a JSON value with their text; those of a missing object are empty."""
    if item is None and RARE in getattr(hint, "__metadata__", ()):
        return
    nested = _nested(hint)
    if nested:
        for name, inner in nested.items():
            value = None if item is None else item.get(name)
            yield from _leaves(inner, value, f"{path}.{name}" if path else name)
    elif isinstance(item, Mapping):
        inner = _value_type(hint)
        for key, value in item.items():
            yield from _leaves(inner, value, f"{path}.{key}" if path else key)
    elif not _holds_objects(hint) and (item is not None or _value_type(hint) is None):
        yield path, _field(item)


@cache
def _holds_objects(hint: Any) -> bool:  # noqa: ANN401 - any type
    """True for a list of objects."""
    if get_origin(hint) is Annotated:
        return _holds_objects(get_args(hint)[0])
    return get_origin(hint) in (tuple, list) and bool(_nested(get_args(hint)[0]))


@cache
def _nested(hint: Any) -> dict[str, Any]:  # noqa: ANN401 - any type
    """The fields of the objects that a type stands for; empty if it stands for none."""
    if isinstance(hint, type):
        if issubclass(hint, Value) and not issubclass(hint, AsText | Saying):
            return shown_fields(hint)
        return {}
    if get_origin(hint) in (tuple, list, Mapping, dict):
        return {}
    return {name: inner for part in get_args(hint) for name, inner in _nested_part(part).items()}


def _nested_part(part: Any) -> dict[str, Any]:  # noqa: ANN401 - a part of a type
    return _nested(part) if isinstance(part, type) or get_args(part) else {}


def _value_type(hint: Any) -> Any:  # noqa: ANN401 - any type
    """The type of a mapping's values; None if the type is no mapping."""
    origin = get_origin(hint)
    if origin in (Mapping, dict):
        return get_args(hint)[1]
    return _value_type(get_args(hint)[0]) if origin is Annotated else None


def _field(value: object) -> str:
    """A JSON value as the text of a CSV field.

    Text that a spreadsheet would run as a formula gets an apostrophe in front (OWASP, "CSV
    injection"); numbers do not need it.
    """
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    text = " ".join(map(_item_text, value)) if isinstance(value, list) else str(value)
    clean = sanitise(text)
    return f"'{clean}" if clean.lstrip(" ").startswith(_FORMULA) else clean


def _item_text(item: object) -> str:
    """An item of a list: a value that says itself is its sentence."""
    return str(item.get("text", item)) if isinstance(item, dict) else str(item)
