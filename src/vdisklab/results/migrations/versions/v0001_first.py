"""The first schema: campaigns on hosts, runs, and what was measured in them."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Creates all tables of schema 0001."""
    _plans()
    _runs()
    _numbers()


def _time(name: str) -> sa.Column[Any]:
    kind = sa.Text().with_variant(sa.DateTime(timezone=True), "postgresql")
    return sa.Column(name, kind, nullable=False)


def _text(
    name: str, *, primary_key: bool = False, unique: bool | None = None, nullable: bool = False
) -> sa.Column[Any]:
    return sa.Column(name, sa.Text, primary_key=primary_key, unique=unique, nullable=nullable)


def _number(name: str, *, primary_key: bool = False) -> sa.Column[Any]:
    return sa.Column(name, sa.Integer, primary_key=primary_key, nullable=False)


def _parent(name: str, table: str, *, primary_key: bool = False) -> sa.Column[Any]:
    reference = sa.ForeignKey(f"{table}.key", ondelete="CASCADE")
    return sa.Column(name, sa.Integer, reference, primary_key=primary_key, nullable=False)


def _plans() -> None:
    op.create_table(
        "metric",
        _text("name", primary_key=True),
        _text("unit"),
        _text("better"),
    )
    op.create_table(
        "host",
        _number("key", primary_key=True),
        _text("fingerprint", unique=True),
        _text("hostname"),
        _text("machine_id"),
        _text("kernel"),
        _text("cpu"),
        _number("cpus"),
        sa.Column("memory_bytes", sa.BigInteger, nullable=False),
        _text("qemu", nullable=True),
        _text("fio", nullable=True),
        sa.Column("more", sa.JSON, nullable=False),
    )
    op.create_table(
        "campaign",
        _number("key", primary_key=True),
        _text("id", unique=True),
        _text("fingerprint"),
        sa.Column("plan", sa.JSON, nullable=False),
        sa.Column("host", sa.Integer, sa.ForeignKey("host.key"), nullable=False),
        _time("started"),
        _text("label"),
    )
    op.create_index("campaign_by_plan", "campaign", ["fingerprint", "host"])


def _runs() -> None:
    op.create_table(
        "run",
        _number("key", primary_key=True),
        _text("id", unique=True),
        _parent("campaign", "campaign"),
        _text("cell"),
        _text("path"),
        _text("page_cache"),
        _number("block"),
        _number("position"),
        _text("origin"),
        _time("started"),
        sa.Column("wall_seconds", sa.Double, nullable=False),
        _text("accelerator", nullable=True),
        _text("medium", nullable=True),
        sa.Column("commands", sa.JSON, nullable=False),
        _text("failure_kind", nullable=True),
        _text("failure_message", nullable=True),
    )
    cell = ["campaign", "block", "cell"]
    op.create_index("run_by_cell", "run", cell)
    measured = sa.text("failure_kind IS NULL")
    op.create_index(
        "run_measured_once",
        "run",
        cell,
        unique=True,
        sqlite_where=measured,
        postgresql_where=measured,
    )
    op.create_table(
        "state_check",
        _parent("run", "run", primary_key=True),
        _number("ordinal", primary_key=True),
        _text("name"),
        _text("asked", nullable=True),
        _text("seen"),
    )


def _numbers() -> None:
    op.create_table(
        "measurement",
        _number("key", primary_key=True),
        _parent("run", "run"),
        _number("ordinal"),
        _text("name"),
        _text("program"),
        _text("command"),
        _time("started"),
        sa.Column("wall_seconds", sa.Double, nullable=False),
        sa.Column("measured_seconds", sa.Double),
        sa.Column("host_cpu_seconds", sa.Double),
        sa.Column("resident_before", sa.Double),
        sa.Column("resident_after", sa.Double),
        sa.Column("allocated_before", sa.BigInteger),
        sa.Column("allocated_after", sa.BigInteger),
        sa.Column("steal_seconds", sa.Double),
        sa.Column("raw", sa.LargeBinary, nullable=False),
    )
    op.create_index("measurement_by_run", "measurement", ["run", "ordinal"], unique=True)
    op.create_table(
        "counted",
        _parent("measurement", "measurement", primary_key=True),
        _text("observer", primary_key=True),
        sa.Column("read_bytes", sa.BigInteger, nullable=False),
        sa.Column("write_bytes", sa.BigInteger, nullable=False),
        sa.Column("read_operations", sa.BigInteger, nullable=False),
        sa.Column("write_operations", sa.BigInteger, nullable=False),
        sa.Column("flush_operations", sa.BigInteger),
    )
    op.create_table(
        "sample",
        _parent("measurement", "measurement", primary_key=True),
        _number("ordinal", primary_key=True),
        sa.Column("metric", sa.Text, sa.ForeignKey("metric.name"), nullable=False),
        _text("direction"),
        sa.Column("value", sa.Double, nullable=False),
        sqlite_with_rowid=False,
    )
