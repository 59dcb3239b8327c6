"""How a run went: a metric second by second."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Makes the table of series."""
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
