"""Bandwidths as the articles lay them out: a line for each path, a column for each test."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence

from vdisklab.render import numbers
from vdisklab.render.articles import MEDIANS, Medians
from vdisklab.render.tables import Column, Table, Value, text
from vdisklab.units import MIB

_UNITS = {"MiB/s": (MIB, "1,048,576 bytes/s"), "MB/s": (10**6, "1,000,000 bytes/s")}


def grid_table(found: Medians, names: Sequence[str], in_mebi: Collection[str]) -> Table | None:
    """A cell in each row and a measurement in each column; None without a bandwidth.

    `names` are those of the plan, in its order. The unit is MiB/s where all measurements are
    `in_mebi`, those whose program counts so, else MB/s.
    """
    order = {name: place for place, name in enumerate(names)}
    seen = {(name, way) for _, name, way, metric in found.values if metric == "bandwidth"}
    tests = sorted(seen, key=lambda each: (order.get(each[0], len(order)), each[0], each[1]))
    if not tests:
        return None
    ways = Counter(name for name, _ in tests)
    unit = "MiB/s" if ways.keys() <= set(in_mebi) else "MB/s"
    factor, meaning = _UNITS[unit]
    columns = (
        Column("cell", unit, folds=True),
        *(
            Column(f"{name}/{way}", f"{name} {way}" if ways[name] > 1 else name, right=True)
            for name, way in tests
        ),
    )
    rows = tuple(
        (text(cell), *(_in(factor, found.get(cell, *test, "bandwidth")) for test in tests))
        for cell in found.cells
    )
    notes = (f"{MEDIANS} (at most {found.runs}); {unit} = {meaning}",)
    return Table(f"Bandwidth in {unit}", columns, rows, notes)


def _in(unit: int, value: float | None) -> Value:
    return Value(value, numbers.MISSING if value is None else numbers.digits(value / unit))
