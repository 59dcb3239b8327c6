"""The tables, with rules for their values, and views for dashboards and other people's queries.

docs/database.md describes them. Until a release has this schema, it is changed here, and the record
of the coming release is made again (tests/unit/results/releases.py). Afterwards this script stands
still, and a new script makes each change.
"""

from __future__ import annotations

from collections.abc import Iterator

import sqlalchemy as sa
from sqlalchemy.schema import CreateIndex

from vdisklab.results import schema
from vdisklab.results.damage import Rule, storage_class

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

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


_CAMPAIGN_STATE = """
SELECT campaign.id AS campaign, campaign.label, campaign.started, host.hostname, host.kernel,
       host.qemu, host.fio, max(run.started) AS last_run, max(run.round) AS rounds,
       count(DISTINCT run.cell) AS cells, count(*) - count(run.failure_kind) AS measured,
       count(run.failure_kind) AS failed, sum(run.wall_seconds) AS wall_seconds
FROM campaign
JOIN host ON host.key = campaign.host
JOIN run ON run.campaign = campaign.key
GROUP BY campaign.id, campaign.label, campaign.started, host.hostname, host.kernel, host.qemu,
         host.fio
"""

_RESULT = """
SELECT campaign.id AS campaign, campaign.started AS campaign_started, host.hostname, run.id AS run,
       run.path, run.page_cache, run.round, run.started, run.accelerator,
       (run.emulated OR coalesce(run.accelerator, '') = 'tcg') AS emulated, measurement.name,
       measurement.program, sample.direction, sample.metric, metric.unit, metric.better,
       sample.value
FROM sample
JOIN metric ON metric.name = sample.metric
JOIN measurement ON measurement.key = sample.measurement
JOIN run ON run.key = measurement.run
JOIN campaign ON campaign.key = run.campaign
JOIN host ON host.key = campaign.host
WHERE run.failure_kind IS NULL
"""

# Neither SQLite nor PostgreSQL has a median that the other one knows.
_CELL_MEDIAN = """
SELECT campaign, campaign_started, hostname, path, page_cache, name, direction, metric, unit,
       better, count(*) AS rounds, min(value) AS least, max(value) AS most,
       avg(CASE WHEN 2 * place BETWEEN n AND n + 2 THEN value END) AS median
FROM (SELECT result.*, row_number() OVER (cell ORDER BY value) AS place, count(*) OVER cell AS n
      FROM result
      WINDOW cell AS (PARTITION BY campaign, path, page_cache, name, direction, metric)) AS placed
GROUP BY campaign, campaign_started, hostname, path, page_cache, name, direction, metric, unit,
         better
"""

_FAILED_RUN = """
SELECT campaign.id AS campaign, host.hostname, run.id AS run, run.path, run.page_cache, run.round,
       run.started, run.failure_kind, run.failure_message
FROM run
JOIN campaign ON campaign.key = run.campaign
JOIN host ON host.key = campaign.host
WHERE run.failure_kind IS NOT NULL
"""

_OVER_TIME = """
SELECT campaign.id AS campaign, run.id AS run, run.path, run.page_cache, run.round,
       measurement.name, series.metric, series.direction, measurement.started,
       {second} AS second, {point} AS value
FROM series
JOIN measurement ON measurement.key = series.measurement
JOIN run ON run.key = measurement.run
JOIN campaign ON campaign.key = run.campaign
CROSS JOIN {points}
WHERE run.failure_kind IS NULL
"""

_CRASH_VERDICT = """
SELECT power_cut.id AS power_cut, host.hostname, power_cut.path, power_cut.client,
       power_cut.access, power_cut.started, power_cut.survives, power_cut.states,
       power_cut.possible, power_cut.claim, power_cut.failure
FROM power_cut
JOIN host ON host.key = power_cut.host
"""


_DIGITS = "[0-9][0-9]"
_TIME = (
    f"started GLOB '{_DIGITS}{_DIGITS}-{_DIGITS}-{_DIGITS}T{_DIGITS}:[0-5][0-9]:[0-5][0-9]."
    f"{_DIGITS * 3}+00:00' AND substr(started, 12, 2) < '24' AND "
    "date(substr(started, 1, 10), '+0 days') = substr(started, 1, 10)"
)


def upgrade() -> None:
    """As Alembic calls it."""
    # Imported late: an empty database of this very schema is made without Alembic.
    from alembic import op  # noqa: PLC0415

    create(op.get_bind())


def create(connection: sa.Connection) -> None:
    """Creates tables that check themselves, STRICT ones in SQLite, and the views."""
    dialect = connection.dialect.name
    schema.measured_once()
    for table in schema.metadata.sorted_tables:
        rules = list(_rules(table, dialect))
        if dialect == "sqlite":
            connection.exec_driver_sql(_definition(table, rules))
            for index in table.indexes:
                connection.execute(CreateIndex(index))
        else:
            table.create(connection)
            for rule in rules:
                connection.exec_driver_sql(f"ALTER TABLE {rule.table} ADD {rule.constraint}")
    _create_views(connection)


def _rules(table: sa.Table, dialect: str) -> Iterator[Rule]:
    """The rules for each column's values, beyond their type; keys need no rule."""
    for column in table.c:
        if column.name != "key" and not column.foreign_keys:
            name = f"{table.name}.{column.name}"
            kind = getattr(column.type, "impl", column.type)
            for expected, condition in _rule(name, f'"{column.name}"', kind, dialect):
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


def _definition(table: sa.Table, rules: list[Rule]) -> str:
    """The statement that creates a table of SQLite."""
    lines = []
    for column in table.c:
        default = " DEFAULT 0" if column.server_default is not None else ""
        required = "" if column.nullable else " NOT NULL"
        unique = " UNIQUE" if column.unique else ""
        kind = storage_class(column.type).upper()
        lines.append(f'"{column.name}" {kind}{required}{default}{unique}')
    lines.append(f"PRIMARY KEY ({', '.join(column.name for column in table.primary_key)})")
    for reference in table.foreign_keys:
        parent = reference.column
        cascade = f" ON DELETE {reference.ondelete}" if reference.ondelete else ""
        lines.append(f'FOREIGN KEY ("{reference.parent.name}") '
                     f'REFERENCES {parent.table.name} ("{parent.name}"){cascade}')  # fmt: skip
    lines += [rule.constraint for rule in rules]
    options = "STRICT, WITHOUT ROWID" if table.name == "sample" else "STRICT"
    return f"CREATE TABLE {table.name} (\n\t" + ",\n\t".join(lines) + f"\n) {options}"


def _create_views(connection: sa.Connection) -> None:
    """Creates the views. Each second of a series is a row, which both databases write their way."""
    if connection.dialect.name == "sqlite":
        second, point = "json_each.key * series.interval_seconds", "json_each.value"
        points = "json_each(series.points)"
    else:
        second, point = "(each.place - 1) * series.interval_seconds", "each.point::float8"
        points = "json_array_elements_text(series.points) WITH ORDINALITY AS each(point, place)"
    for name, query in (
        ("campaign_state", _CAMPAIGN_STATE),
        ("result", _RESULT),
        ("cell_median", _CELL_MEDIAN),
        ("failed_run", _FAILED_RUN),
        ("over_time", _OVER_TIME.format(second=second, point=point, points=points)),
        ("crash_verdict", _CRASH_VERDICT),
    ):
        connection.exec_driver_sql(f"CREATE VIEW {name} AS {query}")
