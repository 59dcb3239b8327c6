"""The tables of the database of results; docs/database.md describes them for users.

The newest script in `migrations` creates them, with the rules for their values. Rows are joined by
small integer keys, which mean nothing outside one database. Users and exports see the `id` columns.
"""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime
from functools import cache
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Dialect
from sqlalchemy.types import TypeDecorator, TypeEngine

from vdisklab.errors import UnstorableError

# PostgreSQL text cannot contain NUL, and UTF-8 has no lone surrogates.
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")


metadata = sa.MetaData()


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
        """The column's type in this database."""
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


def _key() -> sa.Column[int]:
    return sa.Column("key", sa.Integer, primary_key=True)


def _parent(name: str, table: str, *, primary: bool = False) -> sa.Column[int]:
    """The key of the row that this row belongs to; both are deleted together."""
    reference = sa.ForeignKey(f"{table}.key", ondelete="CASCADE")
    return sa.Column(name, sa.Integer, reference, primary_key=primary, nullable=False)


def _id(name: str = "id") -> sa.Column[str]:
    return sa.Column(name, Words, unique=True, nullable=False)


def _texts(*names: str, optional: bool = False) -> list[sa.Column[str]]:
    return [sa.Column(name, Words, nullable=optional) for name in names]


def _numbers(*names: str, optional: bool = False) -> list[sa.Column[float]]:
    return [sa.Column(name, Finite, nullable=optional) for name in names]


def _counts(*names: str, optional: bool = False) -> list[sa.Column[int]]:
    return [sa.Column(name, sa.BigInteger, nullable=optional) for name in names]


def _place(name: str, *, primary: bool = False) -> sa.Column[int]:
    """A column for a small number, such as a round's."""
    return sa.Column(name, sa.Integer, primary_key=primary, nullable=False)


metric = sa.Table(
    "metric", metadata, sa.Column("name", Words, primary_key=True), *_texts("unit", "better")
)

# One row per distinct content: `fingerprint` is its hash. A host with an upgraded kernel gets
# another row; ten campaigns on an unchanged host share one.
host = sa.Table(
    "host",
    metadata,
    _key(),
    _id("fingerprint"),
    *_texts("hostname", "machine_id", "kernel", "cpu"),
    sa.Column("cpus", sa.Integer),
    *_counts("memory_bytes", optional=True),
    *_texts("qemu", "fio", optional=True),
    sa.Column("more", sa.JSON, nullable=False),
)

campaign = sa.Table(
    "campaign",
    metadata,
    _key(),
    _id(),
    *_texts("fingerprint"),
    sa.Column("plan", sa.JSON, nullable=False),
    sa.Column("host", sa.Integer, sa.ForeignKey("host.key"), nullable=False),
    sa.Column("started", UtcTime, nullable=False),
    *_texts("label"),
    sa.Index("campaign_by_plan", "fingerprint", "host"),
)

run = sa.Table(
    "run",
    metadata,
    _key(),
    _id(),
    _parent("campaign", "campaign"),
    *_texts("cell", "path", "page_cache"),
    _place("round"),
    _place("position"),
    *_texts("origin"),
    sa.Column("started", UtcTime, nullable=False),
    *_numbers("wall_seconds", optional=True),
    *_texts("accelerator", optional=True),
    sa.Column("emulated", sa.Boolean, nullable=False, server_default=sa.false()),
    *_texts("medium", optional=True),
    sa.Column("commands", sa.JSON, nullable=False),
    *_texts("failure_kind", "failure_message", optional=True),
    sa.Index("run_by_cell", "campaign", "round", "cell"),
)


@cache
def measured_once() -> sa.Index:
    """The index that lets a round measure each cell once: a second measured run would count twice,
    and a failed cell may be measured again.

    It joins the table `run` when it is first asked for, by the script that creates the tables: its
    conditions make SQLAlchemy load the dialect of PostgreSQL, which takes as long as `rich`.
    """
    return sa.Index(
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
    *_texts("name"),
    *_texts("requested", optional=True),
    *_texts("observed"),
)

measurement = sa.Table(
    "measurement",
    metadata,
    _key(),
    _parent("run", "run"),
    _place("ordinal"),
    *_texts("name", "program", "command"),
    sa.Column("started", UtcTime, nullable=False),
    *_numbers(
        "wall_seconds",
        "measured_seconds",
        "host_cpu_seconds",
        "resident_before",
        "resident_after",
        optional=True,
    ),
    *_counts("allocated_before", "allocated_after", optional=True),
    *_numbers("steal_seconds", "sync_seconds", optional=True),
    *_counts("sync_bytes", optional=True),
    sa.Column("raw", sa.LargeBinary, nullable=False),
    sa.Index("measurement_by_run", "run", "ordinal", unique=True),
)

counted = sa.Table(
    "counted",
    metadata,
    _parent("measurement", "measurement", primary=True),
    sa.Column("observer", Words, primary_key=True),
    *_counts("read_bytes", "write_bytes", "read_operations", "write_operations"),
    *_counts("flush_operations", optional=True),
    *_numbers("read_seconds", "write_seconds", "flush_seconds", optional=True),
)

# By far the largest table. In SQLite it is its own index (no row ids), which halves it.
sample = sa.Table(
    "sample",
    metadata,
    _parent("measurement", "measurement", primary=True),
    _place("ordinal", primary=True),
    sa.Column("metric", Words, sa.ForeignKey("metric.name"), nullable=False),
    *_texts("direction"),
    *_numbers("value"),
    sqlite_with_rowid=False,
)

# A metric over time, one row for each direction: `points` holds the mean of each interval.
series = sa.Table(
    "series",
    metadata,
    _parent("measurement", "measurement", primary=True),
    _place("ordinal", primary=True),
    sa.Column("metric", Words, sa.ForeignKey("metric.name"), nullable=False),
    *_texts("direction"),
    *_numbers("interval_seconds"),
    sa.Column("points", sa.JSON, nullable=False),
)

# Guests that were measured at once: how long all of them ran, and how busy the host was.
guest_group = sa.Table(
    "guest_group",
    metadata,
    _parent("measurement", "measurement", primary=True),
    *_numbers("seconds"),
    *_numbers("cpu", "steal", "device", "queue", optional=True),
    *_texts("thread", optional=True),
    *_numbers("thread_cpu", optional=True),
)

# One row for each guest of a group. `evidence` has what was counted of this guest alone.
member = sa.Table(
    "member",
    metadata,
    _parent("measurement", "measurement", primary=True),
    _place("number", primary=True),
    *_numbers("start", "iops", "latency_mean", "latency_p50", "latency_p99", "latency_max"),
    *_counts("offered", optional=True),
    *_counts("served"),
    sa.Column("evidence", sa.JSON, nullable=False),
)

# One row per verdict; `fingerprint` identifies the test, so that it is not repeated.
power_cut = sa.Table(
    "power_cut",
    metadata,
    _key(),
    _id(),
    *_texts("fingerprint", "path", "client", "access"),
    sa.Column("host", sa.Integer, sa.ForeignKey("host.key"), nullable=False),
    sa.Column("started", UtcTime, nullable=False),
    *_numbers("wall_seconds"),
    sa.Column("survives", sa.Boolean),
    *_texts("claim"),
    *_counts("states"),
    *_numbers("possible"),
    sa.Column("exhaustive", sa.Boolean, nullable=False),
    *_counts("acknowledged", "flushes", "leaked_states", "repaired_states", "post_recovery_states"),
    sa.Column("outcomes", sa.JSON, nullable=False),
    sa.Column("settings", sa.JSON, nullable=False),
    sa.Column("observed", sa.JSON, nullable=False),
    *_texts("bad_case", "bad_outcome", "bad_detail", "failure", optional=True),
    sa.Index("power_cut_by_question", "fingerprint", "host"),
)
