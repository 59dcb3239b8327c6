"""docs/json.md's tables of keys, made from the documents' dataclasses."""

from __future__ import annotations

import dataclasses
import inspect
import types
from collections.abc import Iterator, Mapping
from datetime import datetime
from enum import Enum
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from vdisklab.path.cell import MeasuredCell
from vdisklab.views.documents.conversion import TEXTS, Key, typed_keys
from vdisklab.views.documents.schemas import DOCUMENTS

_START, _END = "<!-- documents -->\n", "<!-- end of documents -->"
_WORDS: Mapping[object, str] = {
    str: "text",
    bool: "boolean",
    int: "integer",
    float: "number",
    datetime: "time",
    **dict.fromkeys(TEXTS, "text"),
    MeasuredCell: "cell",
    Any: "any",
}


def json_page(page: str) -> str:
    """The page with the reference between its two marks (`script/json-page` writes it)."""
    before, start, rest = page.partition(_START)
    _, end, after = rest.partition(_END)
    return f"{before}{start}\n{''.join(_documents())}{end}{after}"


def _documents() -> Iterator[str]:
    """A section for each document, and for each nested object at its first use."""
    described: set[type] = set()
    for name, kind in DOCUMENTS.items():
        yield f"## `vdisklab.{name}/1`\n\n{_keys(kind)}\n"
        for nested in _nested(kind):
            if nested not in described:
                described.add(nested)
                yield f"### {nested.__name__}\n\n{_keys(nested)}\n"


def _keys(kind: type) -> str:
    rows = (_row(*key) for key in typed_keys(kind) if key[0] != "format")
    summary = (inspect.getdoc(kind) or "").partition("\n\n")[0].replace("\n", " ")
    return f"{summary}\n\n| key | type | meaning |\n|---|---|---|\n{''.join(rows)}"


def _row(name: str, hint: Any, role: Key | None) -> str:  # noqa: ANN401 - any type
    meaning = next((text for text in get_args(hint)[1:] if isinstance(text, str)), "")
    key = "other keys" if role is Key.INLINE else f"`{name}`"
    if role is Key.ABSENT:
        meaning = f"{meaning}; may be absent".removeprefix("; ")
    return f"| {key} | {_type(hint)} | {meaning} |\n"


def _type(hint: Any) -> str:  # noqa: ANN401 - any type
    """A type in a few words."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is None:
        return _WORDS[hint] if hint in _WORDS else _class(hint)
    if origin is Literal:
        return ", ".join(f"`{value}`" for value in arguments)
    if origin in (Union, types.UnionType):
        words = [_type(argument) for argument in arguments if argument is not type(None)]
        return " or ".join([*words, *(["null"] if type(None) in arguments else [])])
    if origin is tuple:
        return f"list of {_type(arguments[0])}"
    # otherwise Annotated (the type is first) or a mapping (the type of its values is second)
    return _type(arguments[0]) if origin is Annotated else f"object: {_type(arguments[1])}"


def _class(hint: type) -> str:
    if issubclass(hint, Enum):
        return ", ".join(f"`{member.value}`" for member in hint)
    return f"[{hint.__name__}](#{hint.__name__.lower()})"


def _nested(kind: type) -> Iterator[type]:
    """The dataclasses nested in a document, from the top down, without other documents."""
    for _, hint, _ in typed_keys(kind):
        for part in _parts(hint):
            is_object = isinstance(part, type) and dataclasses.is_dataclass(part)
            if is_object and part not in (*TEXTS, *DOCUMENTS.values()):
                yield part
                yield from _nested(part)


def _parts(hint: Any) -> Iterator[Any]:  # noqa: ANN401 - any type
    yield hint
    for argument in get_args(hint):
        yield from _parts(argument)
