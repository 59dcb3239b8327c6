"""Alembic's entry point: runs the scripts on the caller's connection, in its transaction."""

from __future__ import annotations

from alembic import context

from vdisklab.results.migrations import VERSION_TABLE

context.configure(
    connection=context.config.attributes["connection"],
    version_table=VERSION_TABLE,
    # SQLite's DDL is transactional too, because the driver does not commit by itself here.
    transactional_ddl=True,
)
with context.begin_transaction():
    context.run_migrations()
