"""Upgrades a database of results to the schema of this version."""

from __future__ import annotations

from pathlib import Path

import sqlalchemy as sa

from vdisklab.errors import DatabaseError
from vdisklab.results.migrations.versions import v0001_first

LATEST = "0001"
VERSION_TABLE = "vdisklab_schema"

_SHOWN_TABLES = 3
_SCRIPTS = Path(__file__).parent
# An arbitrary number, the same in every vdisklab.
_POSTGRESQL_LOCK = 0x76646C62
_versions = sa.Table(
    VERSION_TABLE, sa.MetaData(), sa.Column("version_num", sa.String(32), nullable=False),
    sa.PrimaryKeyConstraint("version_num", name=f"{VERSION_TABLE}_pkc"),
)  # fmt: skip
"""As Alembic makes it (runtime/migration.py, MigrationContext)."""


def schema_version(connection: sa.Connection) -> str | None:
    """The schema version of a database, None for an empty one.

    Raises DatabaseError for a database that has tables, but none of vdisklab's.
    """
    tables = sa.inspect(connection).get_table_names()
    if VERSION_TABLE in tables:
        version = connection.execute(sa.text(f"SELECT version_num FROM {VERSION_TABLE}")).scalar()  # noqa: S608 - a constant
        if version is not None:
            return str(version)
        raise DatabaseError(
            f"the database {connection.engine.url.database} is damaged: its table "
            f"{VERSION_TABLE} is empty",
            hint="restore a copy, or give --db a new file",
        )
    if not tables:
        return None
    named = ", ".join(tables[:_SHOWN_TABLES]) + (", …" if len(tables) > _SHOWN_TABLES else "")
    raise DatabaseError(
        f"the database {connection.engine.url.database} is not vdisklab's: it has other tables "
        f"({named}), and no {VERSION_TABLE}",
        hint="give --db a new file, or an empty PostgreSQL database",
    )


def is_current(connection: sa.Connection, latest: str = LATEST) -> bool:
    """False for an empty or older database; raises DatabaseError for a newer one."""
    version = schema_version(connection)
    if version is not None and version > latest:
        raise DatabaseError(
            f"the database {connection.engine.url.database} was written by a newer vdisklab: "
            f"schema {version}; this one knows up to {latest}",
            hint="update vdisklab, or give --db another database",
        )
    return version == latest


def upgrade(connection: sa.Connection, scripts: Path = _SCRIPTS, latest: str = LATEST) -> None:
    """Runs the missing scripts inside the caller's transaction.

    It must be a writing transaction. If another process migrated the database while this one
    waited for the lock, its scripts are not run again. Raises DatabaseError for an unknown schema.
    """
    if connection.dialect.name == "postgresql":
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_POSTGRESQL_LOCK)))
    if is_current(connection, latest):
        return
    is_first = scripts == _SCRIPTS and latest == v0001_first.revision
    if is_first and schema_version(connection) is None:
        v0001_first.create(connection)
        _versions.create(connection)
        connection.execute(_versions.insert().values(version_num=latest))
        return
    # Imported here, because it is slow to import and rarely needed.
    from alembic import command  # noqa: PLC0415
    from alembic.config import Config  # noqa: PLC0415
    from alembic.util import CommandError  # noqa: PLC0415

    config = Config()
    # Alembic's configuration is an ini file, where per cent signs must be doubled.
    config.set_main_option("script_location", str(scripts).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    try:
        command.upgrade(config, latest)
    except CommandError as error:
        raise DatabaseError(
            f"the database {connection.engine.url.database} has schema "
            f"{schema_version(connection)}, which this vdisklab does not know",
            hint="restore a copy, or give --db a new file",
        ) from error
