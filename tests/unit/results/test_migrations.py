"""Schema versions: what an empty, older, newer or foreign database becomes."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

from vdisklab.errors import DatabaseError
from vdisklab.results import migrations, schema
from vdisklab.results.damage import storage_class
from vdisklab.results.database import Database, open_database, parse_address
from vdisklab.results.store import open_store

from .programs import output_of, start

SCRIPTS = Path(migrations.__file__).parent


@pytest.fixture
def database(url: str) -> Iterator[Database]:
    """What lies below the store."""
    with open_database(parse_address(url), create=True, patience=1.0) as opened:
        yield opened


def scripts_with(directory: Path, body: str) -> Path:
    """A copy of the scripts with one more, `9999`."""
    scripts = directory / "migrations"
    shutil.copytree(SCRIPTS, scripts, ignore=shutil.ignore_patterns("__pycache__"))
    (scripts / "versions" / "v9999_next.py").write_text(
        "import sqlalchemy as sa\n"
        "from alembic import op\n"
        f'revision = "9999"\ndown_revision = "{migrations.LATEST}"\n'
        "branch_labels = depends_on = None\n"
        f"def upgrade():\n    op.create_table('extra', sa.Column('a', sa.Text))\n    {body}\n"
    )
    return scripts


def test_the_newest_script_is_the_version_that_is_asked_for() -> None:
    assert ScriptDirectory(str(SCRIPTS)).get_heads() == [migrations.LATEST]


def test_the_scripts_make_the_tables_of_the_schema(database: Database) -> None:
    schema.measured_once()
    with database.reading() as connection:
        assert compare_metadata(_context(connection), schema.metadata) == []


def _made(connection: sa.Connection) -> dict[str, Any]:
    """Everything in a database that its schema says, in comparable form."""
    if connection.dialect.name == "sqlite":
        rows = connection.exec_driver_sql("SELECT type, name, sql FROM sqlite_master ORDER BY 1, 2")
        return {f"{kind} {name}": " ".join((sql or "").split()) for kind, name, sql in rows}
    tables = connection.exec_driver_sql(
        "SELECT table_name, column_name, data_type, is_nullable, column_default, "
        "character_maximum_length FROM information_schema.columns "
        "WHERE table_schema = current_schema() ORDER BY 1, ordinal_position"
    )
    rules = connection.exec_driver_sql(
        "SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid) FROM pg_constraint "
        "WHERE connamespace = current_schema()::regnamespace ORDER BY 1, 2"
    )
    return {"tables": list(map(tuple, tables)), "rules": list(map(tuple, rules))}


def test_an_empty_database_is_made_as_alembic_makes_it(url: str, tmp_path: Path) -> None:
    """Without Alembic, whose import takes a third of a second; its scripts stay the truth."""
    made = []
    for name in ("directly", "by Alembic"):
        with open_database(parse_address(url), create=True, patience=1.0) as opened:
            with opened.writing() as connection:
                others = " CASCADE" if connection.dialect.name == "postgresql" else ""
                for view in sa.inspect(connection).get_view_names():
                    connection.exec_driver_sql(f"DROP VIEW IF EXISTS {view}{others}")
                found = sa.MetaData()
                found.reflect(connection)
                found.drop_all(connection)
            with opened.writing() as connection:
                if name == "directly":
                    migrations.upgrade(connection)
                else:
                    scripts = tmp_path / "migrations"
                    shutil.copytree(SCRIPTS, scripts)
                    migrations.upgrade(connection, scripts)
            with opened.reading() as connection:
                made.append(_made(connection))
                assert migrations.schema_version(connection) == migrations.LATEST
    assert made[0] == made[1]
    assert len(made[0]) > 1


def _context(connection: sa.Connection) -> MigrationContext:
    """How Alembic compares this database with the tables of the schema."""
    options = {"version_table": migrations.VERSION_TABLE, "compare_type": _differ}
    return MigrationContext.configure(connection, opts=options)


def _differ(
    context: MigrationContext, _inspected: object, _column: object,
    found: sa.types.TypeEngine[Any], wanted: sa.types.TypeEngine[Any],
) -> bool | None:  # fmt: skip
    """Whether two types differ; a STRICT table has few, and None means PostgreSQL's own rule."""
    if context.dialect.name == "postgresql":
        return None
    return storage_class(found) != storage_class(wanted)


def test_an_older_database_is_brought_up_to_date(database: Database, tmp_path: Path) -> None:
    scripts = scripts_with(tmp_path, "pass")
    with database.writing() as connection:
        migrations.upgrade(connection, scripts, latest="9999")
    with database.reading() as connection:
        assert migrations.schema_version(connection) == "9999"
        assert "extra" in sa.inspect(connection).get_table_names()


def test_a_migration_that_fails_leaves_nothing(database: Database, tmp_path: Path) -> None:
    scripts = scripts_with(tmp_path, "op.execute('INSERT INTO nowhere VALUES (1)')")
    with pytest.raises(DatabaseError, match="nowhere"), database.writing() as connection:
        migrations.upgrade(connection, scripts, latest="9999")
    with database.reading() as connection:
        assert migrations.schema_version(connection) == migrations.LATEST
        assert "extra" not in sa.inspect(connection).get_table_names()


def test_those_that_open_an_empty_database_at_once_make_it_once(url: str) -> None:
    """Three processes of one program, because most of the time goes into its start."""
    program = """
        import os, sys, traceback
        from vdisklab.results.store import open_store
        children = []
        for _ in range(3):
            child = os.fork()
            if child == 0:
                try:
                    with open_store(sys.argv[1]):
                        pass
                except BaseException:
                    traceback.print_exc()
                    os._exit(1)
                os._exit(0)
            children.append(child)
        sys.exit(sum(os.waitpid(child, 0)[1] != 0 for child in children))
    """
    opener = start(program, url)
    assert opener.communicate(timeout=60)[1] == ""
    assert opener.returncode == 0


def test_a_newer_database_is_refused(url: str, database: Database) -> None:
    with database.writing() as connection:
        connection.exec_driver_sql("UPDATE vdisklab_schema SET version_num = '0042'")
    name = parse_address(url).url.database
    sentence = (
        f"the database {name} was written by a newer vdisklab: schema 0042; "
        f"this one knows up to {migrations.LATEST}"
    )
    with pytest.raises(DatabaseError, match=sentence) as caught, open_store(url):
        pytest.fail("not reached")
    assert caught.value.hint == "update vdisklab, or give --db another database"


def test_another_programs_database_is_left_alone(url: str) -> None:
    engine = sa.create_engine(parse_address(url).url)
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE bookmarks (title TEXT)")
    sentence = (
        f"the database {parse_address(url).url.database} is not vdisklab's: "
        r"it has other tables \(bookmarks\)"
    )
    with pytest.raises(DatabaseError, match=sentence), open_store(url):
        pytest.fail("not reached")
    with engine.connect() as connection:
        assert sa.inspect(connection).get_table_names() == ["bookmarks"]
    engine.dispose()


def test_an_empty_table_of_versions_is_only_named(url: str) -> None:
    engine = sa.create_engine(parse_address(url).url)
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE alembic_version (version_num TEXT)")
    engine.dispose()
    with pytest.raises(DatabaseError, match=r"other tables \(alembic_version\)"), open_store(url):
        pytest.fail("not reached")


def test_an_unknown_older_schema_is_refused(url: str, database: Database) -> None:
    with database.writing() as connection:
        connection.exec_driver_sql("UPDATE vdisklab_schema SET version_num = '0000'")
    with pytest.raises(DatabaseError, match="has schema 0000, which this"), open_store(url):
        pytest.fail("not reached")


def test_an_older_database_that_may_only_be_read_says_what_to_do(open_directory: Path) -> None:
    file = open_directory / "old.sqlite"
    with open_store(str(file)):
        pass
    program = """
        import os, sys
        from pathlib import Path
        from vdisklab.errors import DatabaseError
        from vdisklab.results import migrations
        from vdisklab.results.store import open_store
        migrations.is_current.__defaults__ = ("9999",)
        migrations.upgrade.__defaults__ = (Path(sys.argv[2]), "9999")
        if os.geteuid() == 0:
            os.setuid(65534)
        try:
            with open_store(sys.argv[1], create=False) as store:
                print(len(store.campaigns()))
        except DatabaseError as error:
            print(error)
            print(error.hint)
    """
    scripts = scripts_with(open_directory, "pass")
    file.chmod(0o444)
    open_directory.chmod(0o555)
    try:
        printed = output_of(program, str(file), str(scripts))
    finally:
        open_directory.chmod(0o755)
    assert printed == [
        f"the database {file} cannot be written: it, or its directory, is read-only, and it is an "
        "older vdisklab's (schema 0001), which must be brought up to date before it can be read",
        "copy it into a directory that can be written, and give --db the copy",
    ]


def test_an_sqlite_without_strict_tables_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 34, 1))
    with (
        pytest.raises(DatabaseError, match="too old") as caught,
        open_store(str(tmp_path / "new.sqlite")),
    ):
        pytest.fail("not reached")
    assert caught.value.hint == (
        "use a Python with SQLite 3.38 or later, or PostgreSQL: --db postgresql://…"
    )
