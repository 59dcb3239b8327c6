"""Verbs on damaged databases."""

from __future__ import annotations

import io
import shutil
import sqlite3
import sys
from collections.abc import Iterable
from contextlib import redirect_stderr, redirect_stdout, suppress
from pathlib import Path

from fuzz_inputs import ROOT, Parser, write_file
from fuzz_results import exported
from vdisklab.actions.export_data import import_campaigns
from vdisklab.cli.shell.main import EXIT_BUG
from vdisklab.cli.shell.main import main as run_verb
from vdisklab.errors import VdisklabError
from vdisklab.results.store import open_store

sys.path.insert(0, str(ROOT))
from tests.unit.results.damaging import unchecked


def database_parsers(scratch: Path) -> Iterable[Parser]:
    file, damaged = scratch / "whole.sqlite", scratch / "damaged.sqlite"
    export = scratch / "campaign.json"
    export.write_text(exported(12))
    import_campaigns(str(file), [export])
    with sqlite3.connect(file) as connection:
        tables = [
            name
            for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type='table'")
        ]
        columns = [
            (table, row[1])
            for table in tables
            for row in connection.execute(f"PRAGMA table_info({table})")
        ]
    connection.close()
    statements = [
        f"UPDATE {table} SET {column} = 'x' WHERE rowid % 2 = 1 OR 7 = 7;\n"  # noqa: S608
        for table, column in columns
    ]
    statements += [f"DELETE FROM {table} WHERE rowid > 2;\n" for table in tables]  # noqa: S608
    statements += [f"DROP TABLE {table};\n" for table in tables]
    statements += [f"ALTER TABLE {table} DROP COLUMN {column};\n" for table, column in columns]

    def values(text: str) -> object:
        shutil.copyfile(file, damaged)
        with (
            suppress(sqlite3.Error, UnicodeError, sqlite3.Warning, ValueError),
            unchecked(damaged) as connection,
        ):
            for statement in text.split(";\n"):
                with suppress(sqlite3.Error, sqlite3.Warning):
                    connection.execute(statement)
        return _verb(damaged, len(text))

    def pages(text: str) -> object:
        return _verb(write_file(damaged, text), len(text))

    def imported(text: str) -> object:
        damaged.unlink(missing_ok=True)
        export.write_bytes(text.encode(errors="replace"))
        import_campaigns(str(damaged), [export])
        return _verb(damaged, len(text))

    yield Parser("values in a database", 0.03, tuple(statements), values, patience=20)
    yield Parser(
        "pages of a database", 0.01, (file.read_bytes().decode("latin-1"),), pages, patience=20
    )
    yield Parser("verbs after an import", 0.01, (exported(12),), imported, patience=20)


_VERBS = (
    ("runs",),
    ("rank",),
    ("table",),
    ("recommend",),
    ("claims",),
    ("compare", "raw/none", "raw/writeback"),
    ("report", "--format", "json", "-o", "/dev/null"),
    ("export-data", "/dev/null"),
    ("export-data", "/dev/null.csv"),
    ("table", "--as", "grid"),
    ("runs", "--format", "json"),
    ("export", "raw/none"),
    ("table", "--as", "bonnie"),
    ("rank", "--format", "json"),
)


def _verb(file: Path, number: int) -> object:
    """One verb on a database. Raises AssertionError if it calls its end a bug."""
    told = io.StringIO()
    with redirect_stdout(io.StringIO()), redirect_stderr(told):
        status = run_verb((*_VERBS[number % len(_VERBS)], "--db", str(file)))
        if status == 0:
            with suppress(VdisklabError), open_store(str(file), create=False) as store:
                for run in store.runs():
                    store.run(run.id)
    if status == EXIT_BUG:
        raise AssertionError(f"{' '.join(_VERBS[number % len(_VERBS)])}: {told.getvalue()[:200]}")
    return status
