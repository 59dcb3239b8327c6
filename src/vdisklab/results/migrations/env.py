"""Alembic's way in: runs the scripts on the connection, and in the transaction, of the caller."""

from __future__ import annotations

from alembic import context

from vdisklab.results.migrations import VERSION_TABLE

context.configure(
    connection=context.config.attributes["connection"],
    version_table=VERSION_TABLE,
    # SQLite's DDL is transactional too, once the driver is kept from committing on its own.
    transactional_ddl=True,
)
with context.begin_transaction():
    context.run_migrations()
