from __future__ import annotations

import pytest

from vdisklab.answers.database_guests import database_profile, databases_by_name
from vdisklab.answers.measured_for import committing_client, waits_for_flushes
from vdisklab.path.power_cut_words import ClientKind
from vdisklab.workload.builtin_profiles import builtin_profile, builtin_profiles


@pytest.mark.parametrize(
    ("guest", "profile"),
    [
        ("pgdb1", "postgresql-short"),
        ("postgres-main", "postgresql-short"),
        ("db01", "postgresql-short"),
        ("shop_db", "postgresql-short"),
        ("mysql8", "mariadb"),
        ("k8s-etcd-0", "etcd"),
        ("web", None),
        ("dbus-test", None),
        ("feedback", None),
    ],
)
def test_a_guest_is_a_database_by_its_name(guest: str, profile: str | None) -> None:
    assert database_profile(guest) == profile
    assert profile is None or profile in builtin_profiles()


def test_guests_of_one_kind_stand_together() -> None:
    assert databases_by_name(["db1", "web", "pg", "db1", "mariadb"]) == {
        "postgresql-short": ("db1", "pg"),
        "mariadb": ("mariadb",),
    }


def test_what_a_profile_does_decides_and_not_its_name() -> None:
    waiting = {
        name
        for name in builtin_profiles()
        if waits_for_flushes(
            (each.program, each.settings) for each in builtin_profile(name).measurements
        )
    }
    assert waiting >= {
        "postgresql", "postgresql-short", "mariadb", "rocksdb", "etcd", "database", "sync-heavy",
        "quiet-commits",
    }  # fmt: skip
    assert not waiting & {"short", "general", "quiet-db", "bulk-write", "boot"}


def test_the_client_commits_as_the_measured_database_does() -> None:
    assert committing_client([("fio", {}), ("postgresql", {})]) is ClientKind.POSTGRESQL
    assert committing_client([("sqlite", {"journal": "wal"})]) is ClientKind.SQLITE_WAL
    assert committing_client([("mariadb", {}), ("fio", {"fsync": 1})]) is None
