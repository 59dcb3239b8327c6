"""The factors of paths: what cells may have in common, as input to models of their speed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from vdisklab.path.cell import MeasuredCell
from vdisklab.path.durability import promise_of

Levels = npt.NDArray[np.int64]
"""Cells x factors; two cells with the same number in a column have the same level."""


def factor_levels(cells: Sequence[MeasuredCell]) -> Levels:
    """The levels of all factors in which these cells differ.

    Factors are the kinds of the host layers, the image format, the cache mode, the bus, each option
    of these, and the state of the page cache. An omitted option has the level of its default. A
    name that is not a disk path is a level of its own. If several factors divide the cells in the
    same way, only one of them is kept.
    """
    rows = [dict(_factors(cell)) for cell in cells]
    names = dict.fromkeys(name for row in rows for name in row)
    columns = {tuple(_numbered([row.get(name, "") for row in rows])): None for name in names}
    chosen = [column for column in columns if max(column) > 0]
    return np.array(chosen, dtype=np.int64).reshape(len(chosen), len(cells)).T


def _numbered(names: Sequence[str]) -> Iterator[int]:
    """Numbers in the order of first occurrence, so equal partitions have equal numbers."""
    number: dict[str, int] = {}
    for word in names:
        yield number.setdefault(word, len(number))


def _factors(cell: MeasuredCell) -> Iterator[tuple[str, str]]:
    path = cell.path
    if path is None:
        yield "name", cell.label
        return
    yield "page cache", cell.page_cache
    yield "layers", "/".join(layer.kind for layer in path.layers)
    # A cache mode means something else on servers that promise something else.
    yield "cache", f"{path.cache} {promise_of(path) or ''}".rstrip()
    yield "format", path.image.format if path.image else ""
    yield "bus", path.attachment.bus
    for layer in path.layers:
        yield from ((f"{layer.kind}:{name}", str(value)) for name, value in layer.options)
    for name, value in path.image.options if path.image else ():
        yield f"format:{name}", str(value)
    for name, value in path.attachment.options:
        yield f"bus:{name}", str(value)
