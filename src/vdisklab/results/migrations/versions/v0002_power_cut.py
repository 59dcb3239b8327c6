"""Verdicts of power cuts."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Creates the table of verdicts."""
    text = sa.Text
    op.create_table(
        "power_cut",
        sa.Column("key", sa.Integer, primary_key=True, nullable=False),
        sa.Column("id", text, unique=True, nullable=False),
        sa.Column("fingerprint", text, nullable=False),
        sa.Column("path", text, nullable=False),
        sa.Column("client", text, nullable=False),
        sa.Column("access", text, nullable=False),
        sa.Column("host", sa.Integer, sa.ForeignKey("host.key"), nullable=False),
        sa.Column(
            "started",
            sa.Text().with_variant(sa.DateTime(timezone=True), "postgresql"),
            nullable=False,
        ),
        sa.Column("wall_seconds", sa.Double, nullable=False),
        sa.Column("survives", sa.Boolean),
        sa.Column("claim", text, nullable=False),
        sa.Column("states", sa.BigInteger, nullable=False),
        sa.Column("possible", sa.Double, nullable=False),
        sa.Column("exhaustive", sa.Boolean, nullable=False),
        sa.Column("promises", sa.BigInteger, nullable=False),
        sa.Column("flushes", sa.BigInteger, nullable=False),
        sa.Column("leaked_states", sa.BigInteger, nullable=False),
        sa.Column("repaired_states", sa.BigInteger, nullable=False),
        sa.Column("afterlives", sa.BigInteger, nullable=False),
        sa.Column("outcomes", sa.JSON, nullable=False),
        sa.Column("settings", sa.JSON, nullable=False),
        sa.Column("seen", sa.JSON, nullable=False),
        sa.Column("bad_case", text),
        sa.Column("bad_outcome", text),
        sa.Column("bad_detail", text),
        sa.Column("failure", text),
    )
    op.create_index("power_cut_by_question", "power_cut", ["fingerprint", "host"])
