"""The tables of the database of results; docs/database.md describes them for users.

The newest script in `migrations` creates them, with the rules for their values. Rows are joined by
small integer keys, which mean nothing outside one database. Users and exports see the `id` columns.
"""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Dialect
from sqlalchemy.types import TypeDecorator, TypeEngine

from vdisklab.errors import UnstorableError

# PostgreSQL text cannot contain NUL, and UTF-8 has no lone surrogates.
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")


def storable(text: str) -> str:
    """The text with U+FFFD in place of characters that a database cannot store."""
    return _UNSTORABLE.sub("\N{REPLACEMENT CHARACTER}", text)


class Words(TypeDecorator[str]):
    """Text from outside; a name that is not UTF-8 must not prevent storing a run."""

    impl = sa.Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        """The text to store."""
        del dialect
        return None if value is None else storable(value)


class Finite(TypeDecorator[float]):
    """A finite number: SQLite would silently turn NaN into NULL."""

    impl = sa.Double
    cache_ok = True

    def process_bind_param(self, value: float | None, dialect: Dialect) -> float | None:
        """The value; raises UnstorableError for NaN and infinity."""
        del dialect
        if value is not None and not math.isfinite(value):
            raise UnstorableError(
                f"{value} is not a finite number and is not stored",
                hint="a quantity that was not measured has no sample: leave it out of the file",
            )
        return value


class UtcTime(TypeDecorator[datetime]):
    """A time: `timestamp with time zone`, or in SQLite ISO 8601 text in UTC."""

    impl = sa.Text
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        """What the column is called in this database."""
        if dialect.name == "postgresql":
            return dialect.type_descriptor(sa.DateTime(timezone=True))
        return dialect.type_descriptor(sa.Text())

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> str | datetime | None:
        """The value to store; raises UnstorableError for a time without a zone."""
        if value is None:
            return None
        if value.tzinfo is None:
            raise UnstorableError(
                f"the time {value} has no time zone",
                hint="write the time with its zone, such as 2026-08-01T12:00:00+00:00",
            )
        moment = value.astimezone(UTC)
        if dialect.name == "postgresql":
            return moment
        return moment.isoformat(timespec="microseconds")

    def process_result_value(
        self, value: str | datetime | None, dialect: Dialect
    ) -> datetime | None:
        """The stored time, in UTC."""
        del dialect
        moment = datetime.fromisoformat(value) if isinstance(value, str) else value
        return None if moment is None else moment.astimezone(UTC)


metadata = sa.MetaData()


def _key() -> sa.Column[int]:
    return sa.Column("key", sa.Integer, primary_key=True)


def _parent(name: str, table: str, *, primary: bool = False) -> sa.Column[int]:
    """The key of the row that this row belongs to; both are deleted together."""
    reference = sa.ForeignKey(f"{table}.key", ondelete="CASCADE")
    return sa.Column(name, sa.Integer, reference, primary_key=primary, nullable=False)


def _words(name: str, *, optional: bool = False, unique: bool = False) -> sa.Column[str]:
    return sa.Column(name, Words, nullable=optional, unique=unique or None)


def _seconds(name: str, *, optional: bool = False) -> sa.Column[float]:
    return sa.Column(name, Finite, nullable=optional)


def _count(name: str, *, optional: bool = False) -> sa.Column[int]:
    return sa.Column(name, sa.BigInteger, nullable=optional)


def _place(name: str, *, primary: bool = False) -> sa.Column[int]:
    """A column for a small number, such as a round's."""
    return sa.Column(name, sa.Integer, primary_key=primary, nullable=False)


metric = sa.Table(
    "metric",
    metadata,
    sa.Column("name", Words, primary_key=True),
    _words("unit"),
    _words("better"),
)

# One row per distinct content: `fingerprint` is its hash. A host with an upgraded kernel gets
# another row; ten campaigns on an unchanged host share one.
host = sa.Table(
    "host",
    metadata,
    _key(),
    _words("fingerprint", unique=True),
    _words("hostname"),
    _words("machine_id"),
    _words("kernel"),
    _words("cpu"),
    sa.Column("cpus", sa.Integer),
    _count("memory_bytes", optional=True),
    _words("qemu", optional=True),
    _words("fio", optional=True),
    sa.Column("more", sa.JSON, nullable=False),
)

campaign = sa.Table(
    "campaign",
    metadata,
    _key(),
    _words("id", unique=True),
    _words("fingerprint"),
    sa.Column("plan", sa.JSON, nullable=False),
    sa.Column("host", sa.Integer, sa.ForeignKey("host.key"), nullable=False),
    sa.Column("started", UtcTime, nullable=False),
    _words("label"),
    sa.Index("campaign_by_plan", "fingerprint", "host"),
)

run = sa.Table(
    "run",
    metadata,
    _key(),
    _words("id", unique=True),
    _parent("campaign", "campaign"),
    _words("cell"),
    _words("path"),
    _words("page_cache"),
    _place("round"),
    _place("position"),
    _words("origin"),
    sa.Column("started", UtcTime, nullable=False),
    _seconds("wall_seconds", optional=True),
    _words("accelerator", optional=True),
    sa.Column("emulated", sa.Boolean, nullable=False, server_default=sa.false()),
    _words("medium", optional=True),
    sa.Column("commands", sa.JSON, nullable=False),
    _words("failure_kind", optional=True),
    _words("failure_message", optional=True),
    sa.Index("run_by_cell", "campaign", "round", "cell"),
)

# A round measures each cell once: a second measured run would count twice. A failed cell may be
# measured again.
sa.Index(
    "run_measured_once",
    run.c.campaign,
    run.c.round,
    run.c.cell,
    unique=True,
    sqlite_where=run.c.failure_kind.is_(None),
    postgresql_where=run.c.failure_kind.is_(None),
)

# Not `check`, which every query would have to quote.
state_check = sa.Table(
    "state_check",
    metadata,
    _parent("run", "run", primary=True),
    _place("ordinal", primary=True),
    _words("name"),
    _words("requested", optional=True),
    _words("observed"),
)

measurement = sa.Table(
    "measurement",
    metadata,
    _key(),
    _parent("run", "run"),
    _place("ordinal"),
    _words("name"),
    _words("program"),
    _words("command"),
    sa.Column("started", UtcTime, nullable=False),
    _seconds("wall_seconds", optional=True),
    _seconds("measured_seconds", optional=True),
    _seconds("host_cpu_seconds", optional=True),
    _seconds("resident_before", optional=True),
    _seconds("resident_after", optional=True),
    _count("allocated_before", optional=True),
    _count("allocated_after", optional=True),
    _seconds("steal_seconds", optional=True),
    sa.Column("raw", sa.LargeBinary, nullable=False),
    sa.Index("measurement_by_run", "run", "ordinal", unique=True),
)

counted = sa.Table(
    "counted",
    metadata,
    _parent("measurement", "measurement", primary=True),
    sa.Column("observer", Words, primary_key=True),
    _count("read_bytes"),
    _count("write_bytes"),
    _count("read_operations"),
    _count("write_operations"),
    _count("flush_operations", optional=True),
)

# By far the largest table. In SQLite it is its own index (no row ids), which halves it.
sample = sa.Table(
    "sample",
    metadata,
    _parent("measurement", "measurement", primary=True),
    _place("ordinal", primary=True),
    sa.Column("metric", Words, sa.ForeignKey("metric.name"), nullable=False),
    _words("direction"),
    sa.Column("value", Finite, nullable=False),
    sqlite_with_rowid=False,
)

# A metric over time, one row for each direction: `points` holds the mean of each interval.
series = sa.Table(
    "series",
    metadata,
    _parent("measurement", "measurement", primary=True),
    _place("ordinal", primary=True),
    sa.Column("metric", Words, sa.ForeignKey("metric.name"), nullable=False),
    _words("direction"),
    _seconds("interval_seconds"),
    sa.Column("points", sa.JSON, nullable=False),
)

# Guests that were measured at once: how long all of them ran, and how busy the host was.
guest_group = sa.Table(
    "guest_group",
    metadata,
    _parent("measurement", "measurement", primary=True),
    _seconds("seconds"),
    _seconds("cpu", optional=True),
    _seconds("steal", optional=True),
    _seconds("device", optional=True),
    _seconds("queue", optional=True),
    _words("thread", optional=True),
    _seconds("thread_cpu", optional=True),
)

# One row for each guest of a group. `evidence` has what was counted of this guest alone.
member = sa.Table(
    "member",
    metadata,
    _parent("measurement", "measurement", primary=True),
    _place("number", primary=True),
    _seconds("start"),
    _seconds("iops"),
    _seconds("latency_mean"),
    _seconds("latency_p50"),
    _seconds("latency_p99"),
    _seconds("latency_max"),
    _count("offered", optional=True),
    _count("served"),
    sa.Column("evidence", sa.JSON, nullable=False),
)

# One row per verdict; `fingerprint` identifies the test, so that it is not repeated.
power_cut = sa.Table(
    "power_cut",
    metadata,
    _key(),
    _words("id", unique=True),
    _words("fingerprint"),
    _words("path"),
    _words("client"),
    _words("access"),
    sa.Column("host", sa.Integer, sa.ForeignKey("host.key"), nullable=False),
    sa.Column("started", UtcTime, nullable=False),
    _seconds("wall_seconds"),
    sa.Column("survives", sa.Boolean),
    _words("claim"),
    _count("states"),
    sa.Column("possible", Finite, nullable=False),
    sa.Column("exhaustive", sa.Boolean, nullable=False),
    _count("promises"),
    _count("flushes"),
    _count("leaked_states"),
    _count("repaired_states"),
    _count("afterlives"),
    sa.Column("outcomes", sa.JSON, nullable=False),
    sa.Column("settings", sa.JSON, nullable=False),
    sa.Column("seen", sa.JSON, nullable=False),
    _words("bad_case", optional=True),
    _words("bad_outcome", optional=True),
    _words("bad_detail", optional=True),
    _words("failure", optional=True),
    sa.Index("power_cut_by_question", "fingerprint", "host"),
)
