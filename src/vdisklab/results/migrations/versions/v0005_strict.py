"""Tables that check themselves; the names of today; and whether a run's host was emulated."""

from __future__ import annotations

from collections.abc import Iterator

import sqlalchemy as sa
from alembic import op
from sqlalchemy.exc import IntegrityError

from vdisklab.results.damage import Rule, refused_row, storage_class

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

_TABLES = ("metric", "host", "campaign", "run", "state_check", "measurement", "counted", "sample",
           "series", "guest_group", "member", "power_cut")  # fmt: skip
"""Each after the tables that it refers to."""

_OLD_NAMES = {
    "run.round": "block", "state_check.requested": "asked", "state_check.observed": "seen"
}  # fmt: skip
_WORDS = {
    "metric.better": ("higher", "lower"),
    "run.page_cache": ("cold", "warm", "bypassed"),
    "run.origin": ("guest", "host", "lab", "imported"),
    "run.accelerator": ("kvm", "tcg"),
    "counted.observer": ("guest", "qemu", "device"),
    "sample.direction": ("read", "write", "trim", "none"),
    "series.direction": ("read", "write", "trim", "none"),
}
_FAILURES = ("state", "storage", "guest", "workload", "too-slow", "internal")
_FROM_ONE = ("run.round", "run.position", "member.number")
_LISTS = ("run.commands", "series.points")


def upgrade() -> None:
    """Rebuilds SQLite's tables as STRICT ones with rules; gives PostgreSQL's the same rules.

    Raises DatabaseError that names the first row that breaks a rule; then nothing is changed.
    """
    connection = op.get_bind()
    for name, old in _OLD_NAMES.items():
        table, _, column = name.partition(".")
        op.alter_column(table, old, new_column_name=column)
    no = sa.false() if connection.dialect.name == "postgresql" else sa.text("0")
    op.add_column("run", sa.Column("emulated", sa.Boolean, nullable=False, server_default=no))
    op.execute("UPDATE run SET emulated = (accelerator = 'kvm-emulated-host') "
               "WHERE accelerator IS NOT NULL")  # fmt: skip
    op.execute("UPDATE run SET accelerator = 'kvm' WHERE accelerator = 'kvm-emulated-host'")
    stored = sa.MetaData()
    stored.reflect(connection, only=_TABLES)
    tables = [stored.tables[name] for name in _TABLES]
    rules = {table.name: list(_rules(table, connection.dialect.name)) for table in tables}
    try:
        with connection.begin_nested():
            if connection.dialect.name == "sqlite":
                _rebuild(connection, tables, rules)
            else:
                for rule in (rule for table in tables for rule in rules[table.name]):
                    op.execute(f"ALTER TABLE {rule.table} ADD {rule.constraint}")
    except IntegrityError as error:
        raise refused_row(connection, tables, rules, _OLD_NAMES) from error


def _rules(table: sa.Table, dialect: str) -> Iterator[Rule]:
    """The rules for each column's values, beyond their type; keys need no rule."""
    for column in table.c:
        if column.name != "key" and not column.foreign_keys:
            name = f"{table.name}.{column.name}"
            for expected, condition in _rule(name, f'"{column.name}"', column.type, dialect):
                yield Rule(table.name, column.name, expected, condition)


def _rule(
    name: str, column: str, kind: sa.types.TypeEngine[object], dialect: str
) -> Iterator[tuple[str, str]]:
    """A rule for a column's values in words, and as an SQL condition. PostgreSQL has more types."""
    sqlite = dialect == "sqlite"
    if name in _WORDS:
        yield f"one of {', '.join(_WORDS[name])}", f"{column} IN {_WORDS[name]}"
    elif name == "run.failure_kind":
        yield "a kind of failure", f"{column} IN {_FAILURES}"
    elif name == "run.failure_message":
        yield "text exactly if failure_kind is", f"({column} IS NULL) = (failure_kind IS NULL)"
    elif name.endswith(".started") and sqlite:
        yield "a time", _TIME
    elif isinstance(kind, sa.Boolean) and sqlite:
        yield "0 or 1", f"{column} IN (0, 1)"
    elif isinstance(kind, sa.JSON):
        expected, word = ("list", "array") if name in _LISTS else ("object", "object")
        shape = f"json_type({column}) = '{word}'"
        valid = f"CASE WHEN json_valid({column}) THEN {shape} ELSE 0 END"
        yield f"a JSON {expected}", valid if sqlite else shape.replace("json_type", "json_typeof")
    elif isinstance(kind, sa.Integer):
        least = 1 if name in _FROM_ONE else 0
        limit = (1 << 63 if isinstance(kind, sa.BigInteger) else 1 << 31) - 1
        yield f"a whole number from {least}", f"{column} BETWEEN {least} AND {limit}"
    elif isinstance(kind, sa.Float):
        # NaN is above infinity in PostgreSQL; SQLite has none.
        end = "9e999" if sqlite else "'infinity'"
        yield "a number from 0", f"{column} >= 0 AND {column} < {end}"


_DIGITS = "[0-9][0-9]"
_TIME = (
    f"started GLOB '{_DIGITS}{_DIGITS}-{_DIGITS}-{_DIGITS}T{_DIGITS}:[0-5][0-9]:[0-5][0-9]."
    f"{_DIGITS * 3}+00:00' AND substr(started, 12, 2) < '24' AND "
    "date(substr(started, 1, 10), '+0 days') = substr(started, 1, 10)"
)


def _rebuild(
    connection: sa.Connection, tables: list[sa.Table], rules: dict[str, list[Rule]]
) -> None:
    """Copies all rows into new tables. A table is dropped after those that refer to it: SQLite
    would delete the rows that belong to it."""
    query = "SELECT sql FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL"
    indexes = connection.exec_driver_sql(query).scalars().all()
    for table in tables:
        names = ", ".join(f'"{column.name}"' for column in table.c)
        connection.exec_driver_sql(_definition(connection, table, rules[table.name]))
        copy = f"INSERT INTO new_{table.name} ({names}) SELECT {names} FROM {table.name}"  # noqa: S608
        connection.exec_driver_sql(copy)
    for table in reversed(tables):
        connection.exec_driver_sql(f"DROP TABLE {table.name}")
    for table in tables:
        connection.exec_driver_sql(f"ALTER TABLE new_{table.name} RENAME TO {table.name}")
    for statement in indexes:
        connection.exec_driver_sql(statement)


def _definition(connection: sa.Connection, table: sa.Table, rules: list[Rule]) -> str:
    """The statement that creates the new table."""
    lines = []
    for column in table.c:
        default = " DEFAULT 0" if column.server_default is not None else ""
        required = "" if column.nullable else " NOT NULL"
        lines.append(f'"{column.name}" {storage_class(column.type).upper()}{required}{default}')
    keys = ", ".join(f'"{column.name}"' for column in table.primary_key)
    lines.append(f"PRIMARY KEY ({keys})")
    for unique in sa.inspect(connection).get_unique_constraints(table.name):
        lines.append(f"UNIQUE ({', '.join(unique['column_names'])})")
    for reference in table.foreign_keys:
        parent = reference.column
        cascade = f" ON DELETE {reference.ondelete}" if reference.ondelete else ""
        lines.append(f'FOREIGN KEY ("{reference.parent.name}") '
                     f'REFERENCES new_{parent.table.name} ("{parent.name}"){cascade}')  # fmt: skip
    lines += [rule.constraint for rule in rules]
    options = "STRICT, WITHOUT ROWID" if table.name == "sample" else "STRICT"
    return f"CREATE TABLE new_{table.name} (\n\t" + ",\n\t".join(lines) + f"\n) {options}"
