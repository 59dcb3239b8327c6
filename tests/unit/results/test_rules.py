"""The database refuses what vdisklab never stores, whoever writes it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from vdisklab.results import schema
from vdisklab.results.damage import require_sound, storage_class
from vdisklab.results.store import Store, open_store

from .damaging import unchecked
from .programs import output_of
from .values import BROKEN, a_campaign, a_power_cut, a_run

WORDS = ("metric.better", "run.page_cache", "run.origin", "run.accelerator", "run.failure_kind",
         "counted.observer", "sample.direction", "series.direction")  # fmt: skip
LISTS = ("run.commands", "series.points")
FROM_ONE = ("run.round", "run.position", "member.number")


@pytest.fixture
def filled(store: Store) -> Store:
    """A store with a row in every table."""
    campaign = a_campaign()
    store.add_campaign(campaign)
    store.add_run(a_run(campaign))
    store.add_run(a_run(campaign, round=2, failure=BROKEN, measurements=()))
    store.add_power_cut(a_power_cut())
    return store


def wrong_values(column: sa.Column[Any], dialect: str) -> list[str]:
    """Values that the column must not take, as SQL."""
    name = f"{column.table.name}.{column.name}"
    sqlite = dialect == "sqlite"
    wrong = [] if column.nullable or column.primary_key else ["NULL"]
    if column.foreign_keys:
        return [*wrong, "'speed'" if column.name == "metric" else "987654321"]
    if name in WORDS:
        wrong.append("'moon'")
    if isinstance(column.type, sa.JSON):
        wrong += ["'['", "'5'", "'{}'" if name in LISTS else "'[]'"]
    elif isinstance(column.type, sa.Boolean):
        wrong += ["2", "'x'"]
    elif isinstance(column.type, schema.UtcTime):
        wrong += ["'soon'", "'2026-02-30T12:00:00.000000+00:00'"]
        wrong += ["'2026-02-03T12:00:00+00:00'", "'2026-02-03T25:00:00.000000+00:00'"] * sqlite
    elif storage_class(column.type) == "integer" and column.name != "key":
        limit = 1 << 63 if isinstance(column.type, sa.BigInteger) else 1 << 31
        wrong += ["-1", "'x'", str(limit)] + ["0"] * (name in FROM_ONE)
    elif storage_class(column.type) == "real":
        wrong += ["-0.5", "'x'", "9e999" if sqlite else "'infinity'"]
        wrong += [] if sqlite else ["'nan'"]
    return [*wrong, "x'00ff'"] if sqlite and storage_class(column.type) != "blob" else wrong


def test_every_column_refuses_values_that_vdisklab_never_stores(filled: Store) -> None:
    taken = []
    dialect = filled._database._writers.dialect.name
    for table in schema.metadata.sorted_tables:
        for column in table.c:
            for value in wrong_values(column, dialect):
                change = f"UPDATE {table.name} SET {column.name} = {value}"  # noqa: S608 - of this test
                try:
                    with filled._database._writers.begin() as connection:
                        assert connection.exec_driver_sql(change).rowcount
                    taken.append(change)
                except sa.exc.DBAPIError:
                    continue
    assert taken == []


def test_a_run_has_both_columns_of_a_failure_or_none(filled: Store) -> None:
    for change in ("failure_kind = 'guest' WHERE failure_kind IS NULL", "failure_message = NULL"):
        with pytest.raises(sa.exc.IntegrityError), filled._database._writers.begin() as connection:
            connection.exec_driver_sql(f"UPDATE run SET {change}")  # noqa: S608 - of this test


def test_each_rule_says_what_its_column_is(filled: Store) -> None:
    columns = {f"{table.name}.{column.name}" for table in schema.metadata.sorted_tables
               for column in table.c}  # fmt: skip
    with filled._database.reading() as connection:
        inspector = sa.inspect(connection)
        names = [str(check["name"]) for table in schema.metadata.tables
                 for check in inspector.get_check_constraints(table)]  # fmt: skip
    assert len(names) > 60
    for name in names:
        column, is_, expected = name.partition(" is ")
        assert is_
        assert column in columns
        assert expected


def test_a_file_that_may_only_be_read_is_held_to_its_rules(open_directory: Path) -> None:
    """SQLite itself leaves out the rules of such a file."""
    file = open_directory / "results.sqlite"
    with open_store(str(file)) as store:
        store.add_campaign(campaign := a_campaign())
        store.add_run(a_run(campaign))
    with unchecked(file) as connection:
        connection.execute("UPDATE sample SET value = -1")
    program = """
        import os, sys
        from vdisklab.errors import DatabaseError
        from vdisklab.results.store import open_store
        if os.geteuid() == 0:
            os.setuid(65534)
        try:
            with open_store(sys.argv[1], create=False) as store:
                store.observations([campaign.id for campaign in store.campaigns()])
        except DatabaseError as error:
            print(error)
    """
    file.chmod(0o444)
    open_directory.chmod(0o555)
    try:
        (printed,) = output_of(program, str(file))
    finally:
        open_directory.chmod(0o755)
    assert "not every sample.value is a number from 0" in printed


def test_a_connection_that_was_read_from_still_refuses(filled: Store) -> None:
    """The rules are left out only while SQLite looks at the pages."""
    with filled._database.reading() as connection:
        require_sound(connection, schema.metadata.sorted_tables)
        with pytest.raises(sa.exc.IntegrityError), connection.begin_nested():
            connection.exec_driver_sql("UPDATE run SET position = -1")
