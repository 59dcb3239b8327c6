# ruff: noqa: S608 - the names in the queries are vdisklab's, and repairs are only shown
"""Has SQLite check the tables that an answer reads, and names the row that breaks their rules.

The tables check what is stored in them. SQLite has no checksums, however: a damaged page may hold
anything, and joins and filters would leave out such a row without a word.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import sqlalchemy as sa

from vdisklab.errors import DatabaseError
from vdisklab.path.cell import MeasuredCell
from vdisklab.path.segments import PageCache
from vdisklab.results import model, rows, schema

Row = Mapping[Any, Any]


@dataclass(frozen=True, slots=True)
class Rule:
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
    """A table does not hold what vdisklab stored; says so in SQLite's words."""


def require_sound(connection: sa.Connection, tables: Iterable[sa.Table]) -> None:
    """Raises UnsoundError if answers would leave out a row of these tables, or count it wrongly.

    On 10,000 cells in three rounds (3 million rows, 200 MB) this takes 1.8 s of CPU time, on 20
    cells a few milliseconds.
    """
    tables = tuple(tables)
    for table in tables if connection.dialect.name == "sqlite" else ():
        problem = _unsound_file(connection, table) or _broken_rule(connection, table)
        if problem is not None:
            raise UnsoundError(problem)
    # Each query is read to its end: a generator that waits in a traceback would lock the database.
    if any(list(found) for found in (
        _wrong_metrics(connection) if schema.metric in tables else (),
        _contradictions(connection) if schema.run in tables else (),
        _dangling(connection, tables),
    )):  # fmt: skip
        raise UnsoundError("its rows contradict each other")


def _unsound_file(connection: sa.Connection, table: sa.Table) -> str | None:
    """The faults that SQLite finds in a table's pages and the types of its values."""
    # Not the rules: SQLite tests each of them in three times the time that one query takes.
    connection.exec_driver_sql("PRAGMA ignore_check_constraints = ON")
    try:
        words = connection.exec_driver_sql(f"PRAGMA quick_check({table.name})").scalars().all()
    finally:
        connection.exec_driver_sql("PRAGMA ignore_check_constraints = OFF")
    return None if words == ["ok"] else " ".join(str(words[0]).split())


def _broken_rule(connection: sa.Connection, table: sa.Table) -> str | None:
    """Yields the damage if a row breaks a rule of its table. Works on a read-only file too."""
    broken = " OR ".join(f"NOT ({rule.condition})" for rule in _rules(connection, table))
    query = f"SELECT 1 FROM {table.name} WHERE {broken or 'false'} LIMIT 1"
    found = connection.exec_driver_sql(query).first()
    return None if found is None else f"a row of the table {table.name} breaks its rules"


@dataclass(frozen=True, slots=True)
class Damage:
    """A row that breaks a rule; None for one that cannot be read on its own.

    `repair` is the SQL statement that corrects or removes it.
    """

    table: sa.Table
    row: Row | None
    problem: str
    repair: str

    def __str__(self) -> str:
        """`row 12 of the table run: …`, with the row's primary key."""
        names = [column.name for column in self.table.primary_key]
        values = ["?"] if self.row is None else [_quoted(self.row[name]) for name in names]
        key = "/".join(value.strip("'")[:40] for value in values)
        return f"row {key} of the table {self.table.name}: {self.problem}"

    def way_out(self, connection: sa.Connection, *, by_verb: bool) -> str:
        """The hint: the command that deletes what the row belongs to, or else corrects the row.

        It is a vdisklab command if `by_verb`, which says that vdisklab can open the database.
        """
        statement = self.repair
        owner = _owner(connection, self.table, self.row)
        if owner is not None:
            table, row = owner
            statement = f"DELETE FROM {table.name} WHERE key = {row['key']}"
            if by_verb and isinstance(row["id"], str):
                after = "" if table is schema.campaign else ", which can be measured again"
                command = f"`vdisklab runs --delete {row['id']}`"
                return f"{command} removes that {table.name}{after}"
        sqlite = connection.dialect.name == "sqlite"
        program = ["sqlite3", connection.engine.url.database or ""] if sqlite else ["psql", "-c"]
        cascade = "PRAGMA foreign_keys = ON; " * (sqlite and "DELETE" in statement)
        way = "put the right value in place of …" if "…" in statement else "repair it"
        if owner is not None:
            way = f"remove the {owner[0].name} that the row belongs to"
        command = shlex.join([*program, cascade + statement])
        return f"restore a copy of the database, or {way}: {command}"


def _owner(
    connection: sa.Connection, table: sa.Table, row: Row | None
) -> tuple[sa.Table, Row] | None:
    """The campaign or run that a row belongs to, if it is there."""
    for owner in (schema.measurement, schema.run):
        if row is not None and owner.name in row and table.name != "campaign":
            query = sa.text(f"SELECT * FROM {owner.name} WHERE key = :key")
            row = connection.execute(query, {"key": row[owner.name]}).mappings().first()
            table = owner
    for owner in (schema.run, schema.campaign):
        if table.name == owner.name and row is not None:
            return owner, row
    return None


def first_damage(connection: sa.Connection, error: Exception) -> tuple[str, str] | None:
    """The fault of the first damaged row, and a hint; None if all rows can be used.

    `error` is what reading them raised.
    """
    tables = schema.metadata.sorted_tables
    damages = chain(
        _wrong_metrics(connection),
        _missing_metrics(connection),
        _dangling(connection, tables),
        *(broken_rows(connection, table, _rules(connection, table)) for table in tables),
        _contradictions(connection),
        _unusable(error),
    )
    for damage in damages:
        return str(damage), damage.way_out(connection, by_verb=True)
    return None


def refused_row(
    connection: sa.Connection,
    tables: Sequence[sa.Table],
    rules: Mapping[str, Sequence[Rule]],
    old_names: Mapping[str, str],
) -> DatabaseError:
    """The error for a database whose rows do not fit into tables with these rules.

    `old_names` has the names that the user's database still has for columns, such as `run.round`.
    """
    damages = chain(
        _dangling(connection, tables),
        *(broken_rows(connection, table, rules[table.name], old_names) for table in tables),
    )
    address = connection.engine.url.database
    for damage in damages:
        return DatabaseError(
            f"the database {address} cannot be brought up to date: {damage}",
            hint=damage.way_out(connection, by_verb=False),
        )
    return DatabaseError(
        f"the database {address} cannot be brought up to date: two of its rows have one key",
        hint="restore a copy of the database",
    )


def _rules(connection: sa.Connection, table: sa.Table) -> list[Rule]:
    """The rules of a table, as the database states them."""
    rules = []
    for check in sa.inspect(connection).get_check_constraints(table.name):
        column, _, expected = str(check["name"]).partition(" is ")
        rules.append(Rule(table.name, column.partition(".")[2], expected, check["sqltext"]))
    return rules


def broken_rows(
    connection: sa.Connection,
    table: sa.Table,
    rules: Sequence[Rule],
    old_names: Mapping[str, str] | None = None,
) -> Iterator[Damage]:
    """The first row that breaks the type or the rule of each column."""
    by_column = {rule.column: rule for rule in rules}
    for column in table.c:
        rule = by_column.get(column.name)
        kind = storage_class(column.type)
        conditions = [f"coalesce({rule.condition}, true)"] if rule else []
        if connection.dialect.name == "sqlite":
            null = ", 'null'" if column.nullable else ""
            conditions.insert(0, f"typeof(\"{column.name}\") IN ('{kind}'{null})")
        if not conditions:
            continue
        query = f"SELECT * FROM {table.name} WHERE NOT ({' AND '.join(conditions)}) LIMIT 1"
        row = connection.exec_driver_sql(query).mappings().first()
        if row is not None:
            name = (old_names or {}).get(f"{table.name}.{column.name}", column.name)
            value = row[column.name]
            shown = "NULL" if value is None else f"{value!r:.40}"
            expected = rule.expected if rule else _KINDS[kind]
            yield Damage(
                table, row, f"{name} is {shown} instead of {expected}", _repair(table, row, name)
            )


_KINDS = {"integer": "a whole number", "real": "a number", "blob": "bytes", "text": "text"}


def storage_class(kind: sa.types.TypeEngine[Any]) -> str:
    """SQLite's name for the type of a column's values."""
    impl = kind.impl if isinstance(kind, sa.types.TypeDecorator) else kind
    if isinstance(impl, sa.Boolean | sa.Integer):
        return "integer"
    if isinstance(impl, sa.Float):
        return "real"
    return "blob" if isinstance(impl, sa.LargeBinary) else "text"


def _repair(table: sa.Table, row: Row, column: str) -> str:
    keys = " AND ".join(f"{key.name} IS {_quoted(row[key.name])}" for key in table.primary_key)
    if table.name == "host":  # campaigns refer to it
        return f"UPDATE {table.name} SET {column} = … WHERE {keys}"
    return f"DELETE FROM {table.name} WHERE {keys}"


def _wrong_metrics(connection: sa.Connection) -> Iterator[Damage]:
    """The metrics that this vdisklab has with another unit, or does not know."""
    for row in connection.exec_driver_sql("SELECT * FROM metric").mappings().all():
        known, quoted = model.METRICS.get(row["name"]), _quoted(row["name"])
        if known is None:
            expected = "this vdisklab does not know it"
            users = (
                f"DELETE FROM {table} WHERE metric IS {quoted}" for table in ("sample", "series")
            )
            repair = "; ".join((*users, f"DELETE FROM metric WHERE name IS {quoted}"))
        elif (row["unit"], row["better"]) != (known.unit, known.better):
            expected = f"this vdisklab has {known.unit} ({known.better} is better)"
            values = f"unit = {_quoted(known.unit)}, better = {_quoted(known.better.value)}"
            repair = f"UPDATE metric SET {values} WHERE name IS {quoted}"
        else:
            continue
        stored = f"{row['unit']!r:.40} ({row['better']!r:.40} is better)"
        yield Damage(schema.metric, row, f"it has {stored}; {expected}", repair)


def _missing_metrics(connection: sa.Connection) -> Iterator[Damage]:
    """The metrics whose samples are there, but not their row."""
    used = "SELECT metric FROM sample UNION SELECT metric FROM series"
    for name in connection.exec_driver_sql(f"{used} EXCEPT SELECT name FROM metric").scalars():
        known = model.METRICS.get(name)
        if known is not None:
            values = ", ".join(map(_quoted, (known.name, known.unit, known.better.value)))
            repair = f"INSERT INTO metric VALUES ({values})"
            yield Damage(schema.metric, {"name": name}, "it is missing", repair)


def _dangling(connection: sa.Connection, tables: Iterable[sa.Table]) -> Iterator[Damage]:
    """The rows that refer to missing rows; PostgreSQL has none."""
    if connection.dialect.name != "sqlite":
        return
    for table in tables:
        for _, rowid, parent, _ in connection.exec_driver_sql(
            f"PRAGMA foreign_key_check({table.name})"
        ).all():
            query = f"SELECT * FROM {table.name} WHERE rowid = {rowid}"
            row = None if rowid is None else connection.exec_driver_sql(query).mappings().first()
            problem = f"its {parent} does not exist"
            yield Damage(table, row, problem, _without_strays(connection, parent))


def _without_strays(connection: sa.Connection, parent: str) -> str:
    """Removes all rows that refer to missing rows of a table."""
    known = "name" if parent == "metric" else "key"
    strays = connection.exec_driver_sql("PRAGMA foreign_key_check").all()
    return "; ".join(
        f"DELETE FROM {table} WHERE {parent} NOT IN (SELECT {known} FROM {parent})"
        for table in sorted({stray[0] for stray in strays if stray[2] == parent}, reverse=True)
    )


def _contradictions(connection: sa.Connection) -> Iterator[Damage]:
    """The runs whose cell is not that of their path.

    A host's fingerprint is not held against its facts: an older vdisklab knew fewer of them.
    """
    # `cell` is made of path and page_cache, so there are as many of it as of them and of all three.
    label = "path || ' ' || page_cache"
    numbers = ", ".join(f"count(DISTINCT {value})" for value in ("cell", label, f"cell || {label}"))
    if len(set(connection.exec_driver_sql(f"SELECT {numbers} FROM run").one())) == 1:
        return
    for row in connection.exec_driver_sql("SELECT * FROM run").mappings():
        if MeasuredCell(row["path"], PageCache(row["page_cache"])).fingerprint != row["cell"]:
            problem = f"its cell {row['cell']!r:.40} is not that of its path {row['path']!r:.80}"
            yield Damage(schema.run, row, problem, _repair(schema.run, row, "cell"))


def _unusable(error: Exception) -> Iterator[Damage]:
    """The row that could not be converted, although it breaks no rule."""
    if isinstance(error, rows.UnusableError):
        repair = _repair(error.table, error.row, error.problem)
        yield Damage(error.table, error.row, error.problem, repair)


def _quoted(value: object) -> str:
    """A value as SQL writes it."""
    if isinstance(value, bytes):
        return f"x'{value.hex()}'"
    if value is None or isinstance(value, int | float):
        return "NULL" if value is None else repr(value)
    return "'" + str(value).replace("'", "''") + "'"
