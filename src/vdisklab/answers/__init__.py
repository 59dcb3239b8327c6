"""Answers: values that say all that is shown of them. The JSON of an answer is the answer."""

from __future__ import annotations

import pkgutil
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

from vdisklab.documents import Answer


def documents() -> Iterator[type[Answer]]:
    """The class of every answer: those of this package, and of `answer.py` in a leaf's folder.

    Subclasses outside this package, such as those of tests, are left out.
    """
    for module in pkgutil.iter_modules(__path__, f"{__name__}."):
        import_module(module.name)
    (room,) = __path__
    for file in sorted(Path(room).parent.glob("*/answer.py")):
        import_module(f"vdisklab.{file.parent.name}.answer")
    yield from (kind for kind in _kinds(Answer) if kind.__module__.startswith("vdisklab."))


def _kinds(kind: type[Answer]) -> Iterator[type[Answer]]:
    for below in kind.__subclasses__():
        if "FORMAT" in vars(below):
            yield below
        yield from _kinds(below)
