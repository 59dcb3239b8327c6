"""What goes wrong with databases ends in one sentence with a way out."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

from vdisklab.errors import DamagedError, DatabaseBusyError, DatabaseError, extra_hint
from vdisklab.results import schema
from vdisklab.results.database import parse_address
from vdisklab.results.model import Direction, Sample
from vdisklab.results.store import Store, open_store
from vdisklab.value import replace

from .damaging import unchecked
from .postgresql_server import PASSWORD, Server
from .programs import output_of, start
from .super_journal import lay_trap
from .values import BROKEN, HOST, a_campaign, a_measurement, a_power_cut, a_run


def refusal(url: str, *, create: bool = True, patience: float = 0.1) -> DatabaseError:
    """How opening the database is refused; there must be a hint, and one line of each."""
    with (
        pytest.raises(DatabaseError) as caught,
        open_store(url, create=create, patience=patience) as store,
    ):
        list(store.runs())
    assert caught.value.hint
    assert "\n" not in caught.value.message + caught.value.hint
    return caught.value


def filled(file: Path, runs: int = 40) -> Path:
    campaign = a_campaign(id="campaign")
    with open_store(os.fspath(file)) as store:
        store.add_campaign(campaign)
        for round in range(1, runs + 1):
            raw = os.urandom(2000).hex()
            measured = a_measurement(raw=raw)
            store.add_run(a_run(campaign, round=round, measurements=(measured,)))
    return file


class TestAddress:
    @pytest.mark.parametrize("text", ["lab.sqlite", "sqlite:///lab.sqlite"])
    def test_files(self, text: str) -> None:
        address = parse_address(text)
        assert address.file == Path("lab.sqlite")
        assert str(address) == "lab.sqlite"

    def test_a_path_is_taken_as_it_is(self, tmp_path: Path) -> None:
        file = tmp_path / "50% of?a=b #1.sqlite"
        with open_store(os.fspath(file)) as store:
            store.add_campaign(a_campaign())
        assert file.exists()

    def test_home_is_expanded(self) -> None:
        assert parse_address("~/lab.sqlite").file == Path.home() / "lab.sqlite"

    @pytest.mark.parametrize("scheme", ["postgresql", "postgres", "postgresql+psycopg"])
    def test_postgresql_goes_through_psycopg(self, scheme: str) -> None:
        address = parse_address(f"{scheme}://me@db.example:5433/lab")
        assert address.url.drivername == "postgresql+psycopg"
        assert str(address) == "postgresql://me@db.example:5433/lab"

    @pytest.mark.parametrize(
        "text",
        [
            "postgresql://me:s3cret@db.example/lab",
            "postgresql://me@db.example/lab?password=s3cret",
            "postgresql://me:s3cret@/lab?host=/run/pg&password=s3cret&sslmode=require",
        ],
    )
    def test_the_password_is_never_shown(self, text: str) -> None:
        address = parse_address(text)
        assert "s3cret" not in str(address)
        assert "***" not in str(address)
        assert address.without_secrets("bad: s3cret!") == "bad: ***!"

    @pytest.mark.parametrize(
        ("text", "sentence"),
        [
            ("mysql://me:s3cret@h/db", "mysql is not a database that vdisklab can use"),
            ("postgresql://me:s3cret@h:port/db", "the address of the database is not valid"),
            ("://s3cret", "the address of the database is not valid"),
            ("sqlite://", "names no file"),
            ("sqlite:///:memory:", "names no file"),
            ("", "names no file"),
            ("sqlite:///lab.sqlite?mode=ro", "takes no options"),
        ],
    )
    def test_others_are_refused(self, text: str, sentence: str) -> None:
        with pytest.raises(DatabaseError, match=sentence) as caught:
            parse_address(text)
        assert caught.value.hint is not None
        assert "s3cret" not in caught.value.message + caught.value.hint


class TestSqlite:
    def test_no_directory_is_made(self, tmp_path: Path) -> None:
        file = tmp_path / "a" / "b" / "lab.sqlite"
        assert "there is no directory" in refusal(os.fspath(file)).message
        assert not (tmp_path / "a").exists()

    def test_at_rest_it_is_one_file_that_can_be_copied(self, tmp_path: Path) -> None:
        file = filled(tmp_path / "lab.sqlite", runs=2)
        assert [path.name for path in tmp_path.iterdir()] == ["lab.sqlite"]
        (tmp_path / "copy.sqlite").write_bytes(file.read_bytes())
        with open_store(os.fspath(tmp_path / "copy.sqlite")) as store:
            assert len(list(store.runs())) == 2
            with store._database.reading() as connection:
                assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "delete"
                assert connection.exec_driver_sql("PRAGMA foreign_keys").scalar() == 1
                assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == 3

    def test_a_missing_file_is_not_made_for_readers(self, tmp_path: Path) -> None:
        file = tmp_path / "lab.sqlite"
        assert refusal(os.fspath(file), create=False).message == f"there is no database {file}"
        assert not file.exists()

    def test_a_directory_is_no_database(self, tmp_path: Path) -> None:
        assert "is a directory" in refusal(os.fspath(tmp_path)).message

    @pytest.mark.parametrize("text", ["x", "These are my notes. " * 100])
    def test_a_text_file_is_no_database(self, tmp_path: Path, text: str) -> None:
        file = tmp_path / "notes.txt"
        file.write_text(text)
        assert refusal(os.fspath(file)).message == f"the database {file} is not a database"
        assert file.read_text() == text

    @pytest.mark.parametrize(
        ("place", "sentence"),
        [
            ("/proc/lab.sqlite", "cannot be opened or created"),
            ("/proc/a/lab", "there is no directory"),
        ],
    )
    def test_a_directory_that_takes_no_files(self, place: str, sentence: str) -> None:
        assert sentence in refusal(place).message

    def test_a_file_in_the_way_of_the_directory(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        assert "Not a directory" in refusal(os.fspath(tmp_path / "file" / "lab.sqlite")).message

    def test_a_journal_that_names_a_file_removes_nothing(self, tmp_path: Path) -> None:
        file, victim = tmp_path / "r.sqlite", tmp_path / "victim"
        victim.touch()
        with open_store(str(file)):
            pass
        lay_trap(file, victim)
        said = refusal(os.fspath(file))
        assert said.message.startswith(f"the journal {file}-journal is not vdisklab's: it names a")
        assert victim.exists()

    @pytest.mark.parametrize("replaced", [True, False])
    def test_a_file_that_goes_in_mid_run_is_said_to_have_gone(
        self, tmp_path: Path, *, replaced: bool
    ) -> None:
        """SQLite writes on into a file that nobody finds any more."""
        file = tmp_path / "r.sqlite"
        with open_store(str(file)) as store:
            store.add_campaign(a_campaign(id="campaign"))
            file.rename(tmp_path / "elsewhere")
            if replaced:
                with open_store(str(file)):
                    pass
            word = "replaced by another file" if replaced else "deleted or renamed"
            with pytest.raises(DatabaseError, match=f"was {word} while this command"):
                store.add_campaign(a_campaign(id="c0ffee02"))

    def test_a_truncated_file_is_damaged(self, tmp_path: Path) -> None:
        file = filled(tmp_path / "lab.sqlite")
        os.truncate(file, file.stat().st_size // 2)
        assert refusal(os.fspath(file)).message == f"the database {file} is damaged"

    def test_overwritten_pages_are_noticed(self, tmp_path: Path) -> None:
        file = filled(tmp_path / "lab.sqlite")
        size = file.stat().st_size
        with file.open("r+b") as stream:
            stream.seek(size // 4)
            stream.write(b"\xde\xad\xbe\xef" * (size // 8))
        assert refusal(os.fspath(file)).message == f"the database {file} is damaged"

    @pytest.mark.parametrize(
        "damage",
        [
            "UPDATE measurement SET raw = x'00'",
            "UPDATE run SET commands = '[not JSON'",
            "UPDATE run SET started = 'yesterday'",
            "UPDATE run SET origin = 'moon'",
            "UPDATE run SET cell = CAST(x'ff' AS TEXT)",
        ],
    )
    def test_a_value_that_we_did_not_write_is_damage(self, tmp_path: Path, damage: str) -> None:
        file = filled(tmp_path / "lab.sqlite", runs=1)
        with unchecked(file) as vandal:
            vandal.execute(damage)
        error = refusal(os.fspath(file))
        assert error.message.startswith(f"the database {file} is damaged")

    def test_a_locked_database_is_said_to_be_locked(self, tmp_path: Path) -> None:
        file = filled(tmp_path / "lab.sqlite", runs=1)
        holder = sqlite3.connect(file, isolation_level=None)
        holder.execute("BEGIN EXCLUSIVE")
        assert "is locked by another program" in refusal(os.fspath(file)).message
        holder.execute("ROLLBACK")
        holder.execute("BEGIN IMMEDIATE")
        with open_store(os.fspath(file), patience=0.1) as store:
            (run,) = store.runs()  # a writer that has not finished does not keep readers out
            with pytest.raises(DatabaseBusyError, match="is locked by another program"):
                store.add_run(a_run(store.campaigns()[0], round=2))
            holder.execute("ROLLBACK")
            store.add_run(a_run(store.campaigns()[0], round=2))
        holder.close()
        assert run.round == 1

    def test_a_lock_is_awaited(self, tmp_path: Path) -> None:
        file = filled(tmp_path / "lab.sqlite", runs=1)
        program = """
            import sqlite3, sys, time
            holder = sqlite3.connect(sys.argv[1], isolation_level=None)
            holder.execute("BEGIN IMMEDIATE")
            print("held", flush=True)
            time.sleep(0.5)
            holder.execute("ROLLBACK")
            holder.close()
        """
        with start(program, os.fspath(file)) as holder:
            assert holder.stdout is not None
            assert holder.stdout.readline() == "held\n"
            with open_store(os.fspath(file), patience=30.0) as store:
                store.add_run(a_run(store.campaigns()[0], round=2))

    def test_a_full_file_system_loses_no_stored_run(self, tmp_path: Path) -> None:
        file = filled(tmp_path / "lab.sqlite", runs=3)
        program = """
            import os, resource, sys
            from vdisklab.errors import DamagedError, DatabaseBusyError, DatabaseError, extra_hint
            from vdisklab.results.store import open_store
            from tests.unit.results.values import a_measurement, a_run
            with open_store(sys.argv[1]) as store:
                campaign = store.campaign("campaign")
                size = os.path.getsize(sys.argv[1])
                resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
                big = a_measurement(raw=os.urandom(1_000_000).hex())
                try:
                    store.add_run(a_run(campaign, round=9, measurements=(big,)))
                except DatabaseError as error:
                    print(error, "|", error.hint)
                print(len(list(store.runs())))
        """
        sentence, left = output_of(program, os.fspath(file))
        assert sentence.startswith(f"the database {file} cannot ")
        assert "free some space" in sentence
        assert left == "3"
        with open_store(os.fspath(file)) as store:
            assert [run.round for run in store.runs()] == [1, 2, 3]

    def test_a_database_that_may_only_be_read_is_read(self, open_directory: Path) -> None:
        file = filled(open_directory / "lab.sqlite", runs=3)
        program = """
            import os, sys
            from vdisklab.errors import DamagedError, DatabaseBusyError, DatabaseError, extra_hint
            from vdisklab.results.store import open_store
            from tests.unit.results.values import a_run
            if os.geteuid() == 0:
                os.setuid(65534)
            with open_store(sys.argv[1]) as store:
                print(len(list(store.runs())))
                try:
                    store.add_run(a_run(store.campaigns()[0], round=9))
                except DatabaseError as error:
                    print(error)
        """
        file.chmod(0o444)
        open_directory.chmod(0o555)
        try:
            printed = output_of(program, os.fspath(file))
        finally:
            open_directory.chmod(0o755)
        assert printed == [
            "3",
            f"the database {file} cannot be written: it, or its directory, is read-only",
        ]

    def test_opening_a_current_database_loads_no_migrations(self, tmp_path: Path) -> None:
        file = filled(tmp_path / "lab.sqlite", runs=1)
        program = """
            import sys
            from vdisklab.results.store import open_store
            with open_store(sys.argv[1]):
                print("alembic" in sys.modules)
        """
        assert output_of(program, os.fspath(file)) == ["False"]


class TestPostgresql:
    def test_the_driver_is_missing(self, monkeypatch: pytest.MonkeyPatch) -> None:
        found = importlib.util.find_spec
        monkeypatch.setattr(
            "importlib.util.find_spec", lambda name: None if name == "psycopg" else found(name)
        )
        error = refusal("postgresql://h/db")
        assert "needs the Python package psycopg" in error.message
        assert error.hint == extra_hint("postgresql")

    def test_nobody_listens(self, tmp_path: Path) -> None:
        error = refusal("postgresql://me:s3cret@127.0.0.1:9/db")
        assert error.message == (
            "the database postgresql://me@127.0.0.1:9/db does not answer: connection refused"
        )
        error = refusal(f"postgresql://me:s3cret@/db?host={tmp_path}")
        assert "there is no such socket" in error.message

    def test_the_host_is_not_known(self) -> None:
        error = refusal("postgresql://me:s3cret@nowhere.invalid/db")
        assert "nowhere.invalid/db is on an unknown host" in error.message

    def test_a_wrong_password_is_refused_and_not_shown(self, server: Server) -> None:
        error = refusal(server.tcp_url(password="s3cret"))  # noqa: S106 - a wrong one
        assert "refuses the password" in error.message
        assert "s3cret" not in f"{error} {error.hint}"

    def test_no_password(self, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PGPASSFILE", "/nonexistent")
        assert "requires a password" in refusal(server.tcp_url(password="")).message

    def test_the_right_password(self, server: Server) -> None:
        database = server.new_database().split("@/")[1].split("?")[0]
        with open_store(server.tcp_url(password=PASSWORD, database=database)) as store:
            assert PASSWORD not in str(store)

    def test_a_database_that_does_not_exist(self, server: Server) -> None:
        error = refusal(server.url("nowhere"))
        assert "does not exist" in error.message
        assert error.hint is not None
        assert "createdb" in error.hint

    def test_a_locked_table(self, server: Server) -> None:
        url = server.new_database()
        campaign = a_campaign()
        with open_store(url, patience=0.1) as store, psycopg.connect(url) as holder:
            store.add_campaign(campaign)
            holder.execute("LOCK TABLE run")
            with pytest.raises(DatabaseError, match="is locked by another program"):
                store.add_run(a_run(campaign))
            holder.rollback()
            store.add_run(a_run(campaign))

    def test_a_user_who_may_not_make_tables(self, server: Server) -> None:
        url = server.new_database()
        with psycopg.connect(url) as owner:
            owner.execute("DROP ROLE IF EXISTS guest")
            owner.execute("CREATE ROLE guest LOGIN")
        error = refusal(url.replace("vdisklab@", "guest@"))
        assert "does not let this user do that" in error.message

    def test_a_server_that_restarted_is_found_again(self, server: Server) -> None:
        url = server.new_database()
        with open_store(url) as store:
            store.add_campaign(a_campaign())
            _drop_connections(server, url)
            assert len(store.campaigns()) == 1

    def test_a_connection_lost_within_a_transaction(self, server: Server) -> None:
        url = server.new_database()
        with open_store(url) as store:
            with pytest.raises(DatabaseError, match="went away"):
                _write_and_lose(store, server, url)
            with store._database.reading() as connection:
                assert connection.exec_driver_sql("SELECT count(*) FROM metric").scalar() == 0


def _drop_connections(server: Server, url: str) -> None:
    database = url.split("@/")[1].split("?", maxsplit=1)[0]
    with psycopg.connect(server.url("postgres"), autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s",
            (database,),
        )


def _write_and_lose(store: Store, server: Server, url: str) -> None:
    with store._database.writing() as connection:
        connection.exec_driver_sql("INSERT INTO metric VALUES ('a', 'b', 'lower')")
        _drop_connections(server, url)
        connection.exec_driver_sql("INSERT INTO metric VALUES ('d', 'b', 'lower')")


def test_a_table_of_versions_without_a_row_is_damage(tmp_path: Path) -> None:
    file = tmp_path / "empty.sqlite"
    with sqlite3.connect(file) as connection:
        connection.execute("CREATE TABLE vdisklab_schema (version_num TEXT)")
    connection.close()
    with pytest.raises(DatabaseError, match="is damaged: its table vdisklab_schema is empty"):  # noqa: SIM117
        with open_store(str(file), create=False):
            pass


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE run SET round = 'x' WHERE key = 1",
        "UPDATE run SET path = x'ff'",
        "UPDATE campaign SET plan = '[]'",
        "UPDATE campaign SET plan = '{'",
        "UPDATE host SET more = '5'",
        "UPDATE run SET commands = '{}'",
        "UPDATE run SET commands = '[1]'",
        """UPDATE run SET commands = '[["fio"]]'""",
        "UPDATE run SET started = 'yesterday'",
        "UPDATE sample SET value = 'fast'",
        "UPDATE sample SET value = -5.0",
        "UPDATE sample SET value = 9e999",
        "UPDATE sample SET value = -9e999",
        "UPDATE measurement SET raw = x'00'",
        "DELETE FROM host",
        "DROP TABLE sample",
    ],
)
def test_values_that_no_vdisklab_stored_are_damage(tmp_path: Path, statement: str) -> None:
    file = filled(tmp_path / "damaged.sqlite", 2)
    with unchecked(file) as connection:
        connection.execute(statement)
    with pytest.raises(DatabaseError), open_store(str(file), create=False) as store:  # noqa: PT012
        campaigns = [campaign.id for campaign in store.campaigns()]
        list(store.runs())
        store.observations(campaigns)


@pytest.mark.parametrize(
    ("statement", "problem"),
    [
        ("UPDATE counted SET read_bytes = -7 WHERE observer = 'qemu'",
         "not every counted.read_bytes is a whole number from 0, in the table counted"),
        ("UPDATE counted SET flush_operations = 'x' WHERE observer = 'guest'",
         "in the table counted"),
        ("UPDATE counted SET observer = 'moon' WHERE observer = 'guest'",
         "not every counted.observer is one of guest, qemu, device"),
        ("UPDATE measurement SET steal_seconds = -1",
         "not every measurement.steal_seconds is a number from 0"),
        ("UPDATE series SET points = '[1, -2]'", "points is -2 instead of a number from 0"),
        ("UPDATE run SET round = 'abc'", "in the table run"),
        ("UPDATE run SET accelerator = 'x'", "not every run.accelerator is one of kvm, tcg"),
        ("UPDATE run SET commands = '[not JSON'", "not every run.commands is a JSON list"),
        ("UPDATE run SET commands = '[1]'", "commands has 1 instead of a text"),
        ("UPDATE run SET campaign = 99",
         "a campaign that a row belongs to is missing, in the table run"),
        ("UPDATE measurement SET run = 99", "a run that a row belongs to is missing"),
        ("UPDATE sample SET measurement = 99", "a measurement that a row belongs to is missing"),
        ("DELETE FROM metric WHERE name = 'iops'", "a metric that a row belongs to is missing"),
        ("UPDATE metric SET better = 'sideways' WHERE name = 'iops'",
         "not every metric.better is one of higher, lower"),
        ("INSERT INTO metric VALUES ('it''s', 'c', 'higher')", "this vdisklab has no metric"),
        ("UPDATE campaign SET plan = '{}'", "plan cannot be used: measurements is missing"),
        ("UPDATE campaign SET host = 9", "a host that a row belongs to is missing"),
        ("UPDATE host SET cpus = -1", "not every host.cpus is a whole number from 0"),
    ],
)  # fmt: skip
def test_damage_names_the_broken_rule(tmp_path: Path, statement: str, problem: str) -> None:
    file = filled(tmp_path / "damaged.sqlite", 1)
    with unchecked(file) as connection:
        connection.executescript(statement)
    with open_store(str(file), create=False) as store:
        with pytest.raises(DamagedError) as caught:  # noqa: PT012 - all that answers read
            campaigns = [campaign.id for campaign in store.campaigns()]
            store.outlines(campaigns)
            store.observations(campaigns)
            store.sums(campaigns)
            store.examples(campaigns)
            store.bandwidth_series(campaigns, {run.cell for run in store.outlines(campaigns)})
        assert problem in caught.value.message
        assert ".recover" in (caught.value.hint or "")


WAYS_OF_READING: dict[str, Callable[[Store], object]] = {
    "campaigns": lambda store: store.campaigns(),
    "runs": lambda store: list(store.runs()),
    "outlines": lambda store: store.outlines(["campaign"]),
    "observations": lambda store: store.observations(["campaign"]),
    "times": lambda store: store.times(["campaign"]),
    "cpu": lambda store: store.cpu_of_runs(["campaign"]),
    "sums": lambda store: store.sums(["campaign"]),
    "examples": lambda store: store.examples(["campaign"]),
    "series": lambda store: store.bandwidth_series(["campaign"], {"raw/none/virtio"}),
    "verdicts": lambda store: store.power_cuts(HOST.machine_id),
}


def answers(file: Path) -> dict[str, object]:
    """What each way of reading returns, or the error that names the damage."""
    found: dict[str, object] = {}
    with open_store(str(file), create=False) as store:
        for name, read in WAYS_OF_READING.items():
            try:
                found[name] = repr(read(store))
            except DamagedError as error:
                found[name] = error
    return found


@pytest.fixture(scope="module")
def undamaged(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, object]]:
    """A database with every table, and what each way of reading it returns."""
    file = filled(tmp_path_factory.mktemp("undamaged") / "whole.sqlite", 2)
    with open_store(str(file)) as store:
        store.add_power_cut(a_power_cut())
        store.add_run(a_run(a_campaign(id="campaign"), failure=BROKEN, measurements=(), round=3))
    return file, answers(file)


REFERENCES = [
    (table.name, column.name)
    for table in schema.metadata.sorted_tables
    for column in table.c
    if column.foreign_keys
]
NEVER_NULL = {("sample", "measurement"), ("guest_group", "measurement")}
"""SQLite finds rows by these, so even a damaged page has no NULL there."""
BYTES = b"\xff\0"


@pytest.mark.parametrize(
    ("table", "column", "value"),
    [
        *(
            (table, column, None)
            for table, column in REFERENCES
            if (table, column) not in NEVER_NULL
        ),
        *((table, column, 987654321) for table, column in REFERENCES),
        ("metric", "unit", None),
        ("host", "more", None),
        ("host", "machine_id", BYTES),
        ("campaign", "id", BYTES),
        ("campaign", "started", None),
        ("run", "failure_kind", None),
        ("run", "failure_message", None),
        ("run", "cell", "another"),
        ("run", "path", "another"),
        ("run", "page_cache", "warm"),
        ("run", "commands", None),
        ("run", "round", None),
        ("run", "round", 1 << 40),
        ("run", "id", BYTES),
        ("state_check", "observed", None),
        ("measurement", "name", BYTES),
        ("measurement", "raw", None),
        ("counted", "read_operations", None),
        ("sample", "value", None),
        ("sample", "direction", BYTES),
        ("series", "direction", None),
        ("series", "points", None),
        ("guest_group", "seconds", None),
        ("member", "evidence", None),
        ("power_cut", "possible", None),
        ("power_cut", "survives", BYTES),
        ("power_cut", "exhaustive", None),
    ],
)
def test_a_damaged_value_is_named_or_changes_no_answer(
    table: str,
    column: str,
    value: object,
    undamaged: tuple[Path, dict[str, object]],
    tmp_path: Path,
) -> None:
    """Joins and filters drop rows in silence, and a damaged page can hold what SQLite would refuse
    to store."""
    whole, before = undamaged
    file = Path(shutil.copy(whole, tmp_path / "damaged.sqlite"))
    set_value(file, table, column, value)
    after = answers(file)
    errors = {way: error for way, error in after.items() if isinstance(error, DamagedError)}
    assert {way: answer for way, answer in after.items() if way not in errors} == {
        way: before[way] for way in after if way not in errors
    }
    assert errors
    for error in errors.values():
        assert f"the database {file} is damaged: " in error.message


def set_value(file: Path, table: str, column: str, value: object) -> None:
    """Changes the last row, past the checks of SQLite."""
    keys = [key.name for key in schema.metadata.tables[table].primary_key]
    rows = f"SELECT {', '.join(keys)} FROM {table} ORDER BY {', '.join(keys)}"  # noqa: S608
    change = f"UPDATE {table} SET {column} = ? WHERE " + " AND ".join(f"{key} = ?" for key in keys)  # noqa: S608
    with unchecked(file) as connection:
        connection.execute(change, (value, *connection.execute(rows).fetchall()[-1]))


@pytest.mark.parametrize("value", ["-5.0", "9e999", "-9e999"])
def test_a_value_that_cannot_have_been_measured_is_damage_in_every_way_of_reading(
    tmp_path: Path, value: str
) -> None:
    file = filled(tmp_path / "damaged.sqlite", 2)
    with unchecked(file) as connection:
        connection.execute(f"UPDATE sample SET value = {value}")  # noqa: S608 - of this test
    with open_store(str(file), create=False) as store:
        (campaign,) = store.campaigns()
        (first, *_) = store.outlines([campaign.id])
        for read in (
            lambda: list(store.runs()),
            lambda: store.run(first.id),
            lambda: store.observations([campaign.id]),
        ):
            with pytest.raises(DatabaseError, match=r"sample\.value is a number from 0"):
                read()


def test_a_negative_number_is_not_stored(tmp_path: Path) -> None:
    campaign = a_campaign(id="campaign")
    measured = replace(a_measurement(), samples=(Sample("iops", Direction.READ, -5.0),))
    with open_store(str(tmp_path / "a.sqlite")) as store:
        store.add_campaign(campaign)
        with pytest.raises(DatabaseError, match=r"sample\.value is not a number from 0"):
            store.add_run(a_run(campaign, round=1, measurements=(measured,)))
