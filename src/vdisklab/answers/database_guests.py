"""Guests that are databases by their names, and the profile that commits as each of them does."""

from __future__ import annotations

import re
from collections.abc import Iterable

_PROFILES = (
    ("postgresql-short", r"postgres|pgsql|\bpg(?:db|sql)?\d*\b"),
    ("mariadb", r"maria|mysql|percona|galera"),
    ("rocksdb", r"rocks"),
    ("etcd", r"etcd"),
    ("sync-heavy", r"sqlite"),
    ("postgresql-short", r"\bdb\d*\b|database|oracle|mssql|\bsql"),
)
"""The built-in profile of each database by its name; of an unnamed database the shortest one."""


def database_profile(name: str) -> str | None:
    """The profile for a guest whose name says that it is a database; None for any other name."""
    spelled = re.sub(r"[_.]", " ", name.casefold())
    return next((profile for profile, pattern in _PROFILES if re.search(pattern, spelled)), None)


def databases_by_name(guests: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """The guests that are databases by their names, by the profile for them."""
    found: dict[str, tuple[str, ...]] = {}
    for guest in dict.fromkeys(guests):
        profile = database_profile(guest)
        if profile is not None:
            found[profile] = (*found.get(profile, ()), guest)
    return found
