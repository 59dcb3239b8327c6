# ruff: noqa: S608 - the names in the queries are vdisklab's
"""Has SQLite check the tables that an answer reads, and says which rule a damaged one breaks.

The tables check what is stored in them. SQLite has no checksums, however: a damaged page may hold
anything, and joins and filters would leave out such a row without a word.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import sqlalchemy as sa

from vdisklab.path.cell import MeasuredCell
from vdisklab.path.segments import PageCache
from vdisklab.results import model, schema
from vdisklab.value import Value


class Rule(Value):
    """A rule for a column's values in words (`a number from 0`), and as an SQL condition."""

    table: str
    column: str
    expected: str
    condition: str

    @property
    def constraint(self) -> str:
        """The constraint of the table, whose name is a sentence."""
        name = f"{self.table}.{self.column} is {self.expected}"
        return f'CONSTRAINT "{name}" CHECK ({self.condition})'


class UnsoundError(ValueError):
    """A table does not hold what vdisklab stored."""


def require_sound(connection: sa.Connection, tables: Iterable[sa.Table]) -> None:
    """Raises UnsoundError if answers would leave out a row of these tables, or count it wrongly.

    On 10,000 cells in three rounds (3 million rows, 200 MB) this takes 1.8 s of CPU time, on 20
    cells a few milliseconds.
    """
    tables = tuple(tables)
    for table in tables if connection.dialect.name == "sqlite" else ():
        for problem in _problems(connection, table):
            raise UnsoundError(f"{problem}, in the table {table.name}")
    if schema.metric in tables:
        _require_known_metrics(connection)
    if schema.run in tables:
        _require_cells_of_paths(connection)


def _problems(connection: sa.Connection, table: sa.Table) -> Iterator[str]:
    """What SQLite finds wrong with a table."""
    # Not the rules: SQLite tests each of them in three times the time that one query takes.
    connection.exec_driver_sql("PRAGMA ignore_check_constraints = ON")
    try:
        lines = connection.exec_driver_sql(f"PRAGMA quick_check({table.name})").scalars().all()
    finally:
        connection.exec_driver_sql("PRAGMA ignore_check_constraints = OFF")
    if lines != ["ok"]:
        yield " ".join(str(lines[0]).split())
    strays = connection.exec_driver_sql(f"PRAGMA foreign_key_check({table.name})").all()
    for _, _, parent, _ in strays:
        yield f"a {parent} that a row belongs to is missing"
    checks = sa.inspect(connection).get_check_constraints(table.name)
    broken = " OR ".join(f"NOT ({check['sqltext']})" for check in checks)
    query = "SELECT 1 FROM {} WHERE {} LIMIT 1"
    if checks and connection.exec_driver_sql(query.format(table.name, broken)).first():
        for check in checks:
            failed = query.format(table.name, f"NOT ({check['sqltext']})")
            if connection.exec_driver_sql(failed).first():
                yield f"not every {check['name']}"


def _require_known_metrics(connection: sa.Connection) -> None:
    """Raises UnsoundError for a metric that is unknown, or has another unit here."""
    metrics = connection.exec_driver_sql("SELECT name, unit, better FROM metric").all()
    for name, unit, better in metrics:
        metric = model.METRICS.get(name)
        if metric is None or (unit, better) != (metric.unit, metric.better):
            raise UnsoundError(f"this vdisklab has no metric {name!r:.40} in {unit!r:.40}")


def _require_cells_of_paths(connection: sa.Connection) -> None:
    """Raises UnsoundError for a run whose cell is not that of its path."""
    # `cell` is made of path and page_cache, so there are as many of it as of them and of all three.
    label = "path || ' ' || page_cache"
    numbers = ", ".join(f"count(DISTINCT {value})" for value in ("cell", label, f"cell || {label}"))
    if len(set(connection.exec_driver_sql(f"SELECT {numbers} FROM run").one())) == 1:
        return
    rows = connection.exec_driver_sql("SELECT DISTINCT path, page_cache, cell FROM run").all()
    for path, page_cache, cell in rows:
        if MeasuredCell(path, PageCache(page_cache)).fingerprint != cell:
            raise UnsoundError(f"the cell {cell!r:.40} is not that of its path {path!r:.80}")


def storage_class(kind: sa.types.TypeEngine[Any]) -> str:
    """SQLite's name for the type of a column's values."""
    impl = kind.impl if isinstance(kind, sa.types.TypeDecorator) else kind
    if isinstance(impl, sa.Boolean | sa.Integer):
        return "integer"
    if isinstance(impl, sa.Float):
        return "real"
    return "blob" if isinstance(impl, sa.LargeBinary) else "text"
