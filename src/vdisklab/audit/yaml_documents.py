"""Reads YAML (and JSON, which is YAML) that is not trusted, and looks values up in it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import yaml

from vdisklab.errors import PlanError

_DEEPEST = 100
"""Levels of lists and mappings that a document may have; the C composer recurses for each."""

Tree = Mapping[str, Any]
"""A mapping of a YAML document."""


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc] # no stubs
    """Makes plain values only; refuses merge keys, whose copies can grow without bound."""

    def flatten_mapping(self, node: Any) -> None:  # noqa: ANN401 - yaml has no types
        """Raises ConstructorError for `<<`."""
        if any(key.tag == "tag:yaml.org,2002:merge" for key, _ in node.value):
            raise yaml.constructor.ConstructorError(None, None, "merge keys", node.start_mark)


def read_documents(text: str, origin: str) -> tuple[Tree, ...]:
    """The mappings of a YAML stream, and those in its lists and `items`.

    Raises PlanError for a text that is not YAML.
    """
    try:
        _require_shallow(text)
        loaded = list(yaml.load_all(text, Loader=_Loader))
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        where = getattr(error, "problem_mark", None)
        line = f" at line {where.line + 1}" if where else ""
        raise PlanError(
            f"{origin} is not plain YAML{line}",
            hint="write it anew: `kubectl get vm,pvc,dv -o yaml`, or `incus list --format yaml`",
        ) from error
    return tuple(_mappings(loaded))


def _require_shallow(text: str) -> None:
    """Raises ValueError for a document that is nested too deeply to be composed."""
    depth = 0
    for event in yaml.parse(text, Loader=_Loader):
        depth += isinstance(event, yaml.CollectionStartEvent)
        depth -= isinstance(event, yaml.CollectionEndEvent)
        if depth > _DEEPEST:
            raise ValueError(f"more than {_DEEPEST} levels")


def _mappings(documents: Sequence[Any]) -> Iterator[Tree]:
    for document in documents:
        if isinstance(document, list):
            yield from (entry for entry in document if isinstance(entry, dict))
        elif isinstance(document, dict):
            items = document.get("items")
            yield from _mappings(items) if isinstance(items, list) else (document,)


def tree(value: object, *keys: str) -> Tree:
    """The mapping below these keys; an empty one if there is none."""
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value if isinstance(value, dict) else {}


def branches(value: object, *keys: str) -> tuple[Tree, ...]:
    """The mappings in the list that these keys lead to; none if there is no list."""
    listed = tree(value, *keys[:-1]).get(keys[-1])
    return (
        tuple(entry for entry in listed if isinstance(entry, dict))
        if isinstance(listed, list)
        else ()
    )


def word(value: object, *keys: str) -> str | None:
    """The text or number below these keys, as text; None if there is none."""
    leaf = tree(value, *keys[:-1]).get(keys[-1])
    return str(leaf) if isinstance(leaf, str | int | float) and not isinstance(leaf, bool) else None
