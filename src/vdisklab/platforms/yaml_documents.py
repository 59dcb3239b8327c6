"""The mappings of YAML texts, within a budget of depth, repetition and digits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import yaml

from vdisklab.errors import PlanError
from vdisklab.platforms.reading import DEEPEST, Tree

_MOST_DIGITS = 40
_MOST_REPEATED = 100_000
"""Values that a text's aliases may repeat: few bytes of aliases to aliases stand for billions."""


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc] # no stubs
    """Makes plain values only, and reads merge keys: `_require_small` bounds what they copy, as it
    counts the aliases that they stand for.

    Keys stay text, as written. So do numbers with more digits than any setting has: YAML 1.1 allows
    base 60, and the time to read such a number grows with the square of its length.
    """

    def construct_object(self, node: Any, deep: bool = False) -> Any:  # noqa: ANN401
        """The value of a node."""
        is_number = isinstance(node, yaml.ScalarNode) and node.tag.endswith((":int", ":float"))
        if is_number and len(node.value) > _MOST_DIGITS:
            return node.value
        return super().construct_object(node, deep)

    def flatten_mapping(self, node: Any) -> None:  # noqa: ANN401 - yaml has no types
        """Puts the keys of `<<` beside the mapping's own, which win, and makes all of them text.
        Raises ConstructorError for a `<<` of anything else than mappings."""
        super().flatten_mapping(node)
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and not key.tag.endswith(":merge"):
                key.tag = "tag:yaml.org,2002:str"


def _of_a_tag(loader: Any, _suffix: str, node: Any) -> Any:  # noqa: ANN401 - yaml has no types
    """The value of a node with a program's own tag, as Ansible's `!vault`, as if it had none."""
    if isinstance(node, yaml.ScalarNode):
        return loader.construct_scalar(node)
    if isinstance(node, yaml.SequenceNode):
        return loader.construct_sequence(node, deep=True)
    return loader.construct_mapping(node, deep=True)


_Loader.add_multi_constructor("!", _of_a_tag)


def read_documents(text: str, origin: str) -> tuple[Tree, ...]:
    """The mappings of a YAML stream (JSON is YAML), and those in its lists and `items`.

    Raises PlanError for a text that is not YAML.
    """
    try:
        _require_small(text)
        loaded = list(yaml.load_all(text, Loader=_Loader))
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        where = getattr(error, "problem_mark", None)
        line = f" at line {where.line + 1}" if where else ""
        said = getattr(error, "problem", None) or getattr(error, "context", None)
        why = f": {error}" if isinstance(error, _TooLargeError) else f": {said}" if said else ""
        raise PlanError(
            f"{origin} is not plain YAML{line}{why}",
            hint="write it anew: `kubectl get vm,pvc,dv,pv -o yaml`, or `incus list --format yaml`",
        ) from error
    return tuple(_mappings(loaded))


class _TooLargeError(ValueError):
    """A document that is deeper or larger than any configuration."""


def _require_small(text: str) -> None:
    """Raises _TooLargeError for a text with too many levels, or aliases that repeat too much."""
    open_nodes: list[tuple[str | None, int]] = []
    sizes: dict[str, int] = {}
    seen = repeated = 0
    for event in yaml.parse(text, Loader=_Loader):
        if isinstance(event, yaml.AliasEvent):
            if event.anchor not in sizes:
                raise _TooLargeError(f"the alias {event.anchor!r} stands in its own value")
            repeated += sizes[event.anchor]
            seen += sizes[event.anchor]
        elif isinstance(event, yaml.ScalarEvent):
            seen += 1
            if event.anchor is not None:
                sizes[event.anchor] = 1
        elif isinstance(event, yaml.CollectionStartEvent):
            open_nodes.append((event.anchor, seen))
            seen += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, before = open_nodes.pop()
            if anchor is not None:
                sizes[anchor] = seen - before
        if len(open_nodes) > DEEPEST:
            raise _TooLargeError(f"it has more than {DEEPEST} levels")
        if repeated > _MOST_REPEATED:
            raise _TooLargeError(f"its aliases repeat more than {_MOST_REPEATED:,} values")


def _mappings(documents: Sequence[Any]) -> Iterator[Tree]:
    for document in documents:
        if isinstance(document, list):
            yield from (entry for entry in document if isinstance(entry, dict))
        elif isinstance(document, dict):
            items = document.get("items")
            yield from _mappings(items) if isinstance(items, list) else (document,)
