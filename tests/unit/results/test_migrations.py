# ruff: noqa: S608 - the values in the queries are of these tests
"""Schema versions: what an empty, older, newer or foreign database becomes."""

from __future__ import annotations

import shlex
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

from tests.unit.conftest import Migrate
from vdisklab.errors import DatabaseError
from vdisklab.results import migrations, schema
from vdisklab.results.damage import storage_class
from vdisklab.results.database import Database, open_database, parse_address
from vdisklab.results.model import Direction, Sample
from vdisklab.results.store import open_store

from .postgresql_server import Server
from .programs import output_of, start
from .values import a_run

SCRIPTS = Path(migrations.__file__).parent


@pytest.fixture(autouse=True)
def _scripts_are_run(migrate: Migrate, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(migrations, "upgrade", migrate)


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
    with database.reading() as connection:
        assert compare_metadata(_context(connection), schema.metadata) == []


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


def test_two_that_open_an_empty_database_at_once_make_it_once(url: str) -> None:
    program = """
        import sys
        from vdisklab.results.store import open_store
        with open_store(sys.argv[1]):
            pass
    """
    openers = [start(program, url) for _ in range(4)]
    complaints = [opener.communicate(timeout=60)[1] for opener in openers]
    assert complaints == [""] * 4
    assert [opener.returncode for opener in openers] == [0] * 4


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


def older_database(url: str, version: str) -> None:
    """A database of an older schema, with a run under KVM in an emulated host and its numbers."""
    engine = sa.create_engine(parse_address(url).url)
    noon = "'2026-08-01T12:00:00.000000+00:00'"
    runs = (
        "INSERT INTO run (id, campaign, cell, path, page_cache, block, position, origin, started, "
        "wall_seconds, accelerator, emulated, commands) VALUES ("
    )
    runs = runs.replace("emulated, ", "") if version < "0005" else runs.replace("block", "round")
    verdict = VERDICT.format(started=noon)
    for old, new in RENAMED.items() if version >= "0006" else ():
        verdict = verdict.replace(f" {old}", f" {new}")
    with engine.begin() as connection:
        migrations.upgrade(connection, latest=version)
        for statement in (
            "INSERT INTO metric VALUES ('iops', '1/s', 'higher')",
            "INSERT INTO host (fingerprint, hostname, machine_id, kernel, cpu, cpus, memory_bytes, "
            "more) VALUES ('f', 'lab', 'm', '6.1', 'a CPU', 2, 4096, '{}')",
            "INSERT INTO campaign (id, fingerprint, plan, host, started, label) "
            f"VALUES ('c1', 'f', '{{\"measurements\": []}}', 1, {noon}, 'old')",
            *(
                f"{runs}'r{n}', 1, 'raw', 'raw', 'cold', {n}, 1, 'guest', {noon}, 7, {under}, '[]')"
                for n, under in enumerate(_ACCELERATORS[version >= "0005"], 1)
            ),
            "INSERT INTO measurement (run, ordinal, name, program, command, started, "
            f"wall_seconds, raw) VALUES (1, 0, 'm', 'fio', 'fio', {noon}, 7, {EMPTY[url[:3]]})",
            "INSERT INTO sample VALUES (1, 0, 'iops', 'read', 12.5)",
            *(verdict,) * (version > "0001"),
        ):
            connection.exec_driver_sql(statement)
    engine.dispose()


_ACCELERATORS = (
    ("'kvm-emulated-host'", "'kvm'", "'tcg'", "NULL"),
    ("'kvm', true", "'kvm', false", "'tcg', false", "NULL, false"),
)
"""Of four runs, as stored before 0005 and since."""

VERDICT = (
    "INSERT INTO power_cut (id, fingerprint, path, client, access, host, started, wall_seconds, "
    "survives, claim, states, possible, exhaustive, promises, flushes, leaked_states, "
    "repaired_states, afterlives, outcomes, settings, seen) VALUES ('v1', 'f', 'raw', 'fua', "
    "'nbd', 1, {started}, 7, true, 'kept', 60, 60, true, 24, 6, 0, 0, 3, '{{}}', '{{}}', "
    '\'{{"zfs.pool": "p"}}\')'
)
"""A power cut's verdict, with the names of its columns before 0006."""

RENAMED = {
    "promises": "acknowledged", "afterlives": "post_recovery_states", "seen": "observed",
}  # fmt: skip

EMPTY = {"sql": "x'789c030000000001'", "pos": r"'\x789c030000000001'"}
"""What zlib makes of no output, as each kind of database writes it."""


@pytest.mark.parametrize("version", ["0001", "0002", "0003", "0004", "0005", "0006"])
def test_a_database_of_each_older_schema_keeps_all_it_has(url: str, version: str) -> None:
    older_database(url, version)
    with open_store(url, create=False) as store:
        runs = list(store.runs())
        assert [run.round for run in runs] == [1, 2, 3, 4]
        assert [(run.accelerator, run.emulated) for run in runs] == [
            ("kvm", True), ("kvm", False), ("tcg", False), (None, False),
        ]  # fmt: skip
        assert runs[0].measurements[0].samples == (Sample("iops", Direction.READ, 12.5),)
        assert store.campaign("c1").label == "old"
        assert [
            (cut.acknowledged, cut.post_recovery_states, cut.observed) for cut in store.power_cuts()
        ] == [(24, 3, {"zfs.pool": "p"})] * (version > "0001")
        store.add_run(a_run(store.campaign("c1"), round=5))
        with store._database.reading() as connection:
            assert compare_metadata(_context(connection), schema.metadata) == []
        store.delete_campaign("c1")
        with store._database.reading() as connection:
            for table in ("run", "measurement", "sample"):
                query = f"SELECT count(*) FROM {table}"
                assert connection.exec_driver_sql(query).scalar() == 0


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        ("UPDATE run SET block = 'many' WHERE key = 2",
         "row 2 of the table run: block is 'many' instead of a whole number from 1"),
        ("UPDATE run SET block = 0 WHERE key = 2",
         "row 2 of the table run: block is 0 instead of a whole number from 1"),
        ("UPDATE run SET accelerator = 'x' WHERE key = 3",
         "row 3 of the table run: accelerator is 'x' instead of one of kvm, tcg"),
        ("UPDATE sample SET value = 9e999",
         "row 1/0 of the table sample: value is inf instead of a number from 0"),
        ("UPDATE sample SET value = 'fast'",
         "row 1/0 of the table sample: value is 'fast' instead of a number from 0"),
        ("UPDATE measurement SET raw = 'text'",
         "row 1 of the table measurement: raw is 'text' instead of bytes"),
        ("UPDATE power_cut SET afterlives = -1",
         "row 1 of the table power_cut: afterlives is -1 instead of a whole number from 0"),
        ("UPDATE campaign SET plan = '[1'",
         "row 1 of the table campaign: plan is '[1' instead of a JSON object"),
        ("UPDATE run SET cell = x'00' WHERE key = 1",
         r"row 1 of the table run: cell is b'\x00' instead of text"),
        ("UPDATE measurement SET run = 99",
         "row 1 of the table measurement: its run does not exist"),
        ("UPDATE sample SET metric = 'speed'",
         "row ? of the table sample: its metric does not exist"),
    ],
)  # fmt: skip
def test_an_older_sqlite_database_with_a_broken_row_is_left_as_it_is(
    tmp_path: Path, damage: str, problem: str
) -> None:
    file = tmp_path / "old.sqlite"
    older_database(f"sqlite:///{file}", "0004")
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute(damage)
    before = file.read_bytes()
    with pytest.raises(DatabaseError) as caught, open_store(str(file)):
        pytest.fail("not reached")
    sentence = f"the database {file} cannot be brought up to date: {problem}"
    assert caught.value.message == sentence
    assert file.read_bytes() == before
    assert caught.value.hint is not None
    way_out = shlex.split(caught.value.hint.partition(": ")[2])
    assert way_out[:2] == ["sqlite3", str(file)]
    with closing(sqlite3.connect(file)) as connection:
        connection.executescript(way_out[2])
    with open_store(str(file)) as store:
        list(store.runs())


def test_an_older_postgresql_database_with_a_broken_row_is_left_as_it_is(server: Server) -> None:
    url = server.new_database()
    older_database(url, "0004")
    engine = sa.create_engine(parse_address(url).url)
    with engine.begin() as connection:
        connection.exec_driver_sql("UPDATE sample SET value = 'nan'")
    problem = "row 1/0 of the table sample: value is nan instead of a number from 0"
    with pytest.raises(DatabaseError, match=problem) as caught, open_store(url):
        pytest.fail("not reached")
    assert caught.value.hint is not None
    assert caught.value.hint.endswith("'DELETE FROM run WHERE key = 1'")
    with engine.begin() as connection:
        assert migrations.schema_version(connection) == "0004"
        assert connection.exec_driver_sql("SELECT block FROM run WHERE key = 1").scalar() == 1
        connection.exec_driver_sql("DELETE FROM run WHERE key = 1")
    engine.dispose()
    with open_store(url) as store:
        assert [run.round for run in store.runs()] == [2, 3, 4]


def test_an_older_database_that_may_only_be_read_says_what_to_do(open_directory: Path) -> None:
    file = open_directory / "old.sqlite"
    older_database(f"sqlite:///{file}", "0004")
    program = """
        import os, sys
        from vdisklab.errors import DatabaseError
        from vdisklab.results.store import open_store
        if os.geteuid() == 0:
            os.setuid(65534)
        try:
            with open_store(sys.argv[1], create=False) as store:
                print(len(store.campaigns()))
        except DatabaseError as error:
            print(error)
            print(error.hint)
    """
    file.chmod(0o444)
    open_directory.chmod(0o555)
    try:
        printed = output_of(program, str(file))
    finally:
        open_directory.chmod(0o755)
    assert printed == [
        f"the database {file} cannot be written: it, or its directory, is read-only, and it is an "
        "older vdisklab's (schema 0004), which must be brought up to date before it can be read",
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
