"""How long the requests took that each observer counted."""

from __future__ import annotations

from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Adds three columns to `counted`, with the rule that every number of seconds has."""
    sqlite = op.get_bind().dialect.name == "sqlite"
    kind, end = ("REAL", "9e999") if sqlite else ("DOUBLE PRECISION", "'infinity'")
    for name in ("read_seconds", "write_seconds", "flush_seconds"):
        rule = f'"counted.{name} is a number from 0" CHECK ({name} >= 0 AND {name} < {end})'
        op.execute(f"ALTER TABLE counted ADD COLUMN {name} {kind} CONSTRAINT {rule}")
