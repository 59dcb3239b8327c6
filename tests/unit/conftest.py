"""The database that the verbs read in a test."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, cast

import jsonschema
import pytest
import sqlalchemy as sa
import typer
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite
from sqlalchemy.engine import Engine
from sqlalchemy.util import immutabledict

from tests.unit.stored import Database
from vdisklab.cli.shell import main as shell
from vdisklab.cli.shell.verbs import PACKAGE, modules
from vdisklab.host import facts
from vdisklab.host.command import Host, LocalHost
from vdisklab.results import migrations

Migrate = Callable[..., None]


@pytest.fixture(scope="session", autouse=True)
def _queries_are_compiled_once() -> Iterator[None]:
    """SQLAlchemy compiles queries for each database anew, and tests open thousands of files."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SQLiteDialect_pysqlite, "__eq__", lambda one, other: type(one) is type(other))
        patch.setattr(SQLiteDialect_pysqlite, "__hash__", lambda one: hash(type(one)))
        patch.setattr(Engine, "_execution_options", immutabledict(compiled_cache={}))
        yield


@pytest.fixture(scope="session", autouse=True)
def migrate() -> Iterator[Migrate]:
    """A new SQLite file gets its tables by the statements that made those of the first one, because
    the migrations take a quarter of a second each time. The fixture is what really migrates.
    """
    migrate = migrations.upgrade
    statements: list[str] = []

    def upgrade(connection: sa.Connection, *scripts: Any, **to: Any) -> None:  # noqa: ANN401
        is_new = not scripts and not to and connection.dialect.name == "sqlite" and not (
            sa.inspect(connection).get_table_names()
        )  # fmt: skip
        for statement in statements if is_new else ():
            connection.exec_driver_sql(statement)
        if not is_new or not statements:
            migrate(connection, *scripts, **to)
        if is_new and not statements:
            driver = cast("sqlite3.Connection", connection.connection.driver_connection)
            _begin, *statements[:], _commit = driver.iterdump()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(migrations, "upgrade", upgrade)
        yield migrate


@pytest.fixture(scope="session", autouse=True)
def _programs_say_their_version_once() -> Iterator[None]:
    """Each verb starts QEMU and fio to ask for it, which takes as long as the rest of the verb.

    What another file answers to the name, as a test's own program does, is asked again.
    """
    ask = facts.program_version
    versions: dict[tuple[object, ...], str | None] = {}

    def asked_once(host: Host, program: str, pattern: str) -> str | None:
        file = host.which(program) if type(host) is LocalHost else None
        if file is None:
            return ask(host, program, pattern)
        found = Path(file).stat()
        key = (file, found.st_ino, found.st_size, found.st_mtime_ns, pattern)
        if key not in versions:
            versions[key] = ask(host, program, pattern)
        return versions[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(facts, "program_version", asked_once)
        yield


@pytest.fixture(scope="session", autouse=True)
def _command_lines_are_built_once() -> Iterator[None]:
    """Tests call `main` thousands of times, and it builds its verb's command line for one call."""
    build, command = shell.build_app, typer.main.get_command
    apps: dict[object, typer.Typer] = {}
    commands: dict[typer.Typer, Any] = {}

    def built_once(only: str | None = None, package: str = PACKAGE) -> typer.Typer:
        if only is None or package != PACKAGE:
            return build(only, package)
        module = modules()[only]
        function = getattr(import_module(f"{PACKAGE}.{module}"), module)
        if function not in apps:
            apps[function] = build(only)
        return apps[function]

    def command_once(app: typer.Typer) -> Any:  # noqa: ANN401 - as typer's own
        if app not in apps.values():
            return command(app)
        if app not in commands:
            commands[app] = command(app)
        return commands[app]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shell, "build_app", built_once)
        patch.setattr(typer.main, "get_command", command_once)
        yield


@pytest.fixture(scope="session", autouse=True)
def _schemas_are_checked_once() -> Iterator[None]:
    """jsonschema holds a schema against the one of schemas each time that it validates."""
    validator: Any = jsonschema.Draft202012Validator
    check = validator.check_schema
    checked: set[str] = set()

    def check_once(schema: Any) -> None:  # noqa: ANN401 - JSON
        text = json.dumps(schema)
        if text not in checked:
            check(schema)
            checked.add(text)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(validator, "check_schema", check_once)
        yield


@pytest.fixture(scope="session")
def _made_up(tmp_path_factory: pytest.TempPathFactory) -> Path:
    database = Database(tmp_path_factory.mktemp("database") / "made-up.sqlite")
    database.write()
    return database.file


@pytest.fixture
def database(_made_up: Path, tmp_path_factory: pytest.TempPathFactory,
             monkeypatch: pytest.MonkeyPatch) -> Database:  # fmt: skip
    """The made-up campaign in a file of the test's own, which VDISKLAB_DB names.

    Tables are 120 characters wide, whatever the terminal of the worker.
    """
    file = tmp_path_factory.mktemp("database") / "results.sqlite"
    shutil.copy(_made_up, file)
    monkeypatch.setenv("VDISKLAB_DB", str(file))
    monkeypatch.setenv("COLUMNS", "120")
    return Database(file)
