# ruff: noqa: S608 - the names in the queries are vdisklab's, and repairs are only shown
"""Finds the row that makes a database unusable. SQLite has no checksums and checks few values."""

from __future__ import annotations

import itertools
import shlex
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from vdisklab.results import schema
from vdisklab.results.model import METRICS, Metric


def require_references(connection: sa.Connection, *tables: sa.Table) -> None:
    """Raises ValueError if a row of these tables refers to a row that does not exist."""
    if next(_dangling(connection, tables), None) is not None:
        raise ValueError("a row refers to a missing row")


def require_metrics(connection: sa.Connection) -> None:
    """Raises ValueError if a metric is stored in another way than this vdisklab stores it."""
    for row in connection.execute(sa.select(schema.metric)):
        if _strange_metric(row):
            raise ValueError(f"the metric {row.name} is stored differently")


def require_plausible(connection: sa.Connection, table: sa.Table) -> None:
    """Raises ValueError if a number in the table cannot have been counted.

    Sums in SQL ignore text and NULL and add negative numbers; the extremes and the number of values
    show them.
    """
    columns = [
        (column, column.type.least)
        for column in table.c
        if isinstance(column.type, schema.Whole | schema.Finite)
    ]
    ends = [
        sa.func.coalesce(end(column), least)  # an empty table has none
        for column, least in columns
        for end in (sa.func.min, sa.func.max)
    ]
    connection.execute(sa.select(*ends)).one()
    required = [sa.func.count(column) for column, _ in columns if not column.nullable]
    rows, *values = connection.execute(
        sa.select(sa.func.count(), *required).select_from(table)
    ).one()
    if set(values) - {rows}:
        raise ValueError(f"a row of {table.name} lacks a value")


def first_damage(connection: sa.Connection) -> tuple[str, str] | None:
    """What is wrong with the first damaged row, and a hint; None if all rows can be used."""
    tables = schema.metadata.sorted_tables
    damages = itertools.chain(
        _wrong_metrics(connection),
        _dangling(connection, tables),
        *(_wrong_values(connection, table) for table in tables),
    )
    for damage in damages:
        where = f"row {_key(damage)} of the table {damage.table.name}"
        return f"{where}: {damage.problem}", _way_out(connection, damage)
    return None


@dataclass(frozen=True, slots=True)
class _Damage:
    """A damaged row; None for one that cannot be read on its own.

    `repair` is the SQL statement that mends it or removes it.
    """

    table: sa.Table
    row: Any
    problem: str
    repair: str


def _strange_metric(row: Any) -> bool:  # noqa: ANN401 - a row of `metric`
    known = METRICS.get(row.name)
    return known is None or (row.unit, row.better) != (known.unit, known.better)


def _wrong_metrics(connection: sa.Connection) -> Iterator[_Damage]:
    for row in connection.exec_driver_sql("SELECT * FROM metric"):
        if _strange_metric(row):
            known = METRICS.get(row.name)
            expected = (
                "this vdisklab does not know it"
                if known is None
                else f"this vdisklab has {known.unit} ({known.better} is better)"
            )
            stored = f"{row.unit!r:.40} ({row.better!r:.40} is better)"
            repair = _metric_repair(row.name, known)
            yield _Damage(schema.metric, row, f"it has {stored}; {expected}", repair)
    used = "SELECT metric AS name FROM sample UNION SELECT metric FROM series"
    for row in connection.exec_driver_sql(f"{used} EXCEPT SELECT name FROM metric"):
        known = METRICS.get(row.name)
        if known is not None:
            values = ", ".join(map(_quoted, (known.name, known.unit, known.better.value)))
            repair = f"INSERT INTO metric VALUES ({values})"
            yield _Damage(schema.metric, row, "it is missing", repair)


def _metric_repair(name: object, known: Metric | None) -> str:
    """Restores what this vdisklab stores for a metric, or removes one that it does not know."""
    quoted = _quoted(name)
    if known is not None:
        values = f"unit = {_quoted(known.unit)}, better = {_quoted(known.better.value)}"
        return f"UPDATE metric SET {values} WHERE name IS {quoted}"
    users = (f"DELETE FROM {table} WHERE metric IS {quoted}" for table in ("sample", "series"))
    return "; ".join((*users, f"DELETE FROM metric WHERE name IS {quoted}"))


def _dangling(connection: sa.Connection, tables: Iterable[sa.Table]) -> Iterator[_Damage]:
    """The rows that refer to missing rows; PostgreSQL has none."""
    if connection.dialect.name != "sqlite":
        return
    for table in tables:
        for _, rowid, parent, _ in connection.exec_driver_sql(
            f"PRAGMA foreign_key_check({table.name})"
        ):
            query = f"SELECT * FROM {table.name} WHERE rowid = {rowid}"
            row = None if rowid is None else connection.exec_driver_sql(query).first()
            known = "name" if parent == "metric" else "key"
            strays = f"{table.name} WHERE {parent} NOT IN (SELECT {known} FROM {parent})"
            repair = f"PRAGMA foreign_keys = ON; DELETE FROM {strays}"
            yield _Damage(table, row, f"its {parent} does not exist", repair)


def _wrong_values(connection: sa.Connection, table: sa.Table) -> Iterator[_Damage]:
    """The values that cannot have been stored by vdisklab."""
    readers = [
        (place, column.name, reader)
        for place, column in enumerate(table.c)
        if (reader := column.type.dialect_impl(connection.dialect).result_processor(
            connection.dialect, None)) is not None
    ]  # fmt: skip
    names = ", ".join(column.name for column in table.c)
    for row in connection.exec_driver_sql(f"SELECT {names} FROM {table.name}"):
        for place, name, reader in readers:
            try:
                reader(row[place])
            except schema.WrongValueError as error:
                problem = f"{name} {error}"
            except (ValueError, TypeError, RecursionError):
                problem = f"{name} is {row[place]!r:.40} instead of JSON"
            else:
                continue
            yield _Damage(table, row, problem, _value_repair(table, row, name))


def _value_repair(table: sa.Table, row: Any, column: str) -> str:  # noqa: ANN401 - any row
    keys = " AND ".join(
        f"{key.name} IS {_quoted(getattr(row, key.name))}" for key in table.primary_key
    )
    if table is schema.host:
        return f"UPDATE host SET {column} = … WHERE {keys}"
    return f"DELETE FROM {table.name} WHERE {keys}"


def _key(damage: _Damage) -> str:
    """The row's primary key, such as `12` or `7/qemu`."""
    if damage.row is None:
        return "?"
    columns = damage.table.primary_key
    values = (getattr(damage.row, column.name) for column in columns)
    return "/".join("NULL" if value is None else f"{value!s:.40}" for value in values)


def _way_out(connection: sa.Connection, damage: _Damage) -> str:
    """The hint: the command that deletes the damaged run or campaign, if the row belongs to one.

    Otherwise the one that mends or removes the row.
    """
    table, row = damage.table, damage.row
    if table is schema.campaign:
        return f"`vdisklab runs --delete {row.id}` removes that campaign"
    for owner in (schema.measurement, schema.run):
        if row is not None and owner.name in table.c:
            query = sa.text(f"SELECT * FROM {owner.name} WHERE key = :key")
            row = connection.execute(query, {"key": getattr(row, owner.name)}).first()
            table = owner
    if table is schema.run and row is not None:
        return f"`vdisklab runs --delete {row.id}` removes that run, which can be measured again"
    sqlite = connection.dialect.name == "sqlite"
    program = ["sqlite3", connection.engine.url.database or ""] if sqlite else ["psql", "-c"]
    command = shlex.join([*program, damage.repair])
    way = "put the right value in place of …" if "…" in damage.repair else "repair it"
    return f"restore a copy of the database, or {way}: {command}"


def _quoted(value: object) -> str:
    """A value as SQL writes it."""
    if isinstance(value, bytes):
        return f"x'{value.hex()}'"
    if value is None or isinstance(value, int | float):
        return "NULL" if value is None else repr(value)
    return "'" + str(value).replace("'", "''") + "'"
