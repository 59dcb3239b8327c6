"""Names a power cut's columns as answers do."""

from __future__ import annotations

from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Renames three columns; their rules follow."""
    for old, new in (
        ("promises", "acknowledged"), ("afterlives", "post_recovery_states"), ("seen", "observed"),
    ):  # fmt: skip
        op.alter_column("power_cut", old, new_column_name=new)
