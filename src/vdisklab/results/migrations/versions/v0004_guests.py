"""Several guests measured at once: the members of a group."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Creates the tables of groups and their members."""
    optional = [sa.Column(name, sa.Double) for name in ("cpu", "steal", "device", "queue")]
    op.create_table(
        "guest_group",
        _measurement(),
        sa.Column("seconds", sa.Double, nullable=False),
        *optional,
        sa.Column("thread", sa.Text),
        sa.Column("thread_cpu", sa.Double),
    )
    numbers = ("start", "iops", "latency_mean", "latency_p50", "latency_p99", "latency_max")
    op.create_table(
        "member",
        _measurement(),
        sa.Column("number", sa.Integer, primary_key=True, nullable=False),
        *(sa.Column(name, sa.Double, nullable=False) for name in numbers),
        sa.Column("offered", sa.BigInteger),
        sa.Column("served", sa.BigInteger, nullable=False),
        sa.Column("evidence", sa.JSON, nullable=False),
    )


def _measurement() -> sa.Column[int]:
    owner = sa.ForeignKey("measurement.key", ondelete="CASCADE")
    return sa.Column("measurement", sa.Integer, owner, primary_key=True, nullable=False)
