"""Metrics over time; and columns that may be unknown for imported results."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Creates the table of series, and removes NOT NULL from four columns."""
    for table, column, kind in (
        ("host", "cpus", sa.Integer()),
        ("host", "memory_bytes", sa.BigInteger()),
        ("run", "wall_seconds", sa.Double()),
        ("measurement", "wall_seconds", sa.Double()),
    ):
        _allow_null(table, column, kind)
    owner = sa.ForeignKey("measurement.key", ondelete="CASCADE")
    op.create_table(
        "series",
        sa.Column("measurement", sa.Integer, owner, primary_key=True, nullable=False),
        sa.Column("ordinal", sa.Integer, primary_key=True, nullable=False),
        sa.Column("metric", sa.Text, sa.ForeignKey("metric.name"), nullable=False),
        sa.Column("direction", sa.Text, nullable=False),
        sa.Column("interval_seconds", sa.Double, nullable=False),
        sa.Column("points", sa.JSON, nullable=False),
    )


def _allow_null(table: str, column: str, kind: sa.types.TypeEngine[Any]) -> None:
    """Removes NOT NULL. SQLite cannot alter a column, and replacing the table would cascade."""
    if op.get_bind().dialect.name == "postgresql":
        op.alter_column(table, column, existing_type=kind, nullable=True)
        return
    op.add_column(table, sa.Column(f"{column}_or_null", kind, nullable=True))
    op.execute(f"UPDATE {table} SET {column}_or_null = {column}")  # noqa: S608 - constants
    op.execute(f"ALTER TABLE {table} DROP COLUMN {column}")
    op.execute(f"ALTER TABLE {table} RENAME COLUMN {column}_or_null TO {column}")
