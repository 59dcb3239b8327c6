"""Finds the row that makes a database unusable. SQLite has no checksums and checks few values."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from vdisklab.results import schema
from vdisklab.results.model import METRICS


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

    Sums in SQL ignore text and add negative numbers; the extremes show both.
    """
    columns = [
        column for column in table.c if isinstance(column.type, schema.Whole | schema.Finite)
    ]
    ends = [end(column) for column in columns for end in (sa.func.min, sa.func.max)]
    connection.execute(sa.select(*ends)).one()


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
    """A damaged row; None for one that cannot be read on its own."""

    table: sa.Table
    row: Any
    problem: str


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
            yield _Damage(schema.metric, row, f"it has {stored}; {expected}")


def _dangling(connection: sa.Connection, tables: Iterable[sa.Table]) -> Iterator[_Damage]:
    """The rows that refer to missing rows; PostgreSQL has none."""
    if connection.dialect.name != "sqlite":
        return
    for table in tables:
        for _, rowid, parent, _ in connection.exec_driver_sql(
            f"PRAGMA foreign_key_check({table.name})"
        ):
            query = f"SELECT * FROM {table.name} WHERE rowid = {rowid}"  # noqa: S608 - our names
            row = None if rowid is None else connection.exec_driver_sql(query).first()
            yield _Damage(table, row, f"its {parent} does not exist")


def _wrong_values(connection: sa.Connection, table: sa.Table) -> Iterator[_Damage]:
    """The values that cannot have been stored by vdisklab."""
    readers = [
        (place, column.name, reader)
        for place, column in enumerate(table.c)
        if (reader := column.type.dialect_impl(connection.dialect).result_processor(
            connection.dialect, None)) is not None
    ]  # fmt: skip
    names = ", ".join(column.name for column in table.c)
    for row in connection.exec_driver_sql(f"SELECT {names} FROM {table.name}"):  # noqa: S608 - our names
        for place, name, reader in readers:
            try:
                reader(row[place])
            except schema.WrongValueError as error:
                yield _Damage(table, row, f"{name} is {error}")
            except (ValueError, TypeError, RecursionError):
                yield _Damage(table, row, f"{name} is {row[place]!r:.40} instead of JSON")


def _key(damage: _Damage) -> str:
    """The row's primary key, such as `12` or `7/qemu`."""
    if damage.row is None:
        return "?"
    columns = damage.table.primary_key
    return "/".join(f"{getattr(damage.row, column.name)!s:.40}" for column in columns)


def _way_out(connection: sa.Connection, damage: _Damage) -> str:
    """The hint: the command that deletes the damaged run or campaign, if the row belongs to one."""
    table, row = damage.table, damage.row
    if table is schema.campaign:
        return f"`vdisklab runs --delete {row.id}` removes that campaign"
    for owner in (schema.measurement, schema.run):
        if row is not None and owner.name in table.c:
            query = sa.text(f"SELECT * FROM {owner.name} WHERE key = :key")  # noqa: S608 - our names
            row = connection.execute(query, {"key": getattr(row, owner.name)}).first()
            table = owner
    if table is schema.run and row is not None:
        return f"`vdisklab runs --delete {row.id}` removes that run, which can be measured again"
    return "restore a copy of the database, or correct that row with an SQL program"
