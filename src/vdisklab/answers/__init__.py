"""Answers: values that say all that is shown of them. The JSON of an answer is the answer."""

from __future__ import annotations

import pkgutil
from collections.abc import Iterator
from importlib import import_module

from vdisklab.documents import Answer


def documents() -> Iterator[type[Answer]]:
    """The class of every answer that this package has."""
    for module in pkgutil.iter_modules(__path__, f"{__name__}."):
        import_module(module.name)
    yield from _kinds(Answer)


def _kinds(kind: type[Answer]) -> Iterator[type[Answer]]:
    for below in kind.__subclasses__():
        if "FORMAT" in vars(below):
            yield below
        yield from _kinds(below)
