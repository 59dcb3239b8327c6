"""Names a power cut's columns as answers do."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

_NAMES = {
    "promises": "acknowledged", "afterlives": "post_recovery_states", "seen": "observed"
}  # fmt: skip


def upgrade() -> None:
    """Renames three columns, and their rules, whose names are sentences about the columns."""
    connection = op.get_bind()
    for old, new in _NAMES.items():
        op.alter_column("power_cut", old, new_column_name=new)
    if connection.dialect.name == "postgresql":
        for check in sa.inspect(connection).get_check_constraints("power_cut"):
            name = str(check["name"])
            if _renamed(name) != name:
                op.execute(
                    f'ALTER TABLE power_cut RENAME CONSTRAINT "{name}" TO "{_renamed(name)}"'
                )
        return
    # SQLite cannot rename a rule. No other table refers to this one.
    query = "SELECT sql FROM sqlite_master WHERE tbl_name = 'power_cut' AND sql IS NOT NULL "
    table, *indexes = connection.exec_driver_sql(f"{query} ORDER BY type DESC").scalars()
    connection.exec_driver_sql("ALTER TABLE power_cut RENAME TO old_power_cut")
    connection.exec_driver_sql(_renamed(table))
    connection.exec_driver_sql("INSERT INTO power_cut SELECT * FROM old_power_cut")
    connection.exec_driver_sql("DROP TABLE old_power_cut")
    for index in indexes:
        connection.exec_driver_sql(index)


def _renamed(text: str) -> str:
    for old, new in _NAMES.items():
        text = text.replace(f"power_cut.{old} is", f"power_cut.{new} is")
    return text
