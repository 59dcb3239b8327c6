"""The address of a database: `--db` as the user writes it, and without its password."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy.exc import ArgumentError

from vdisklab.errors import DatabaseError

_POSTGRESQL = ("postgresql", "postgres", "postgresql+psycopg")
_FORMS = "give --db a file, sqlite:///FILE or postgresql://USER@HOST/DATABASE"


def default_url(state_directory: Path) -> str:
    """The address of the default database."""
    return f"sqlite:///{state_directory / 'vdisklab.sqlite'}"


@dataclass(frozen=True, slots=True)
class Address:
    """The address of a supported database; `file` is None for PostgreSQL."""

    url: sa.URL
    file: Path | None

    def __str__(self) -> str:
        """The file, or `postgresql://user@host:port/database`; never a password."""
        if self.file is not None:
            return str(self.file)
        url = self.url
        # Built from the parts without secrets: the query may contain a password as well.
        public = sa.URL.create(
            "postgresql",
            username=url.username,
            host=url.host,
            port=url.port,
            database=url.database,
            query={"host": url.query["host"]} if "host" in url.query else {},
        )
        return public.render_as_string()

    def without_secrets(self, text: str) -> str:
        """A driver's message with the password replaced."""
        secrets = [self.url.password, *self.url.normalized_query.get("password", ())]
        for secret in secrets:
            if secret:
                text = text.replace(str(secret), "***")
        return text


def parse_address(text: str) -> Address:
    """The database at a URL or file path; raises DatabaseError for any other text."""
    if "://" not in text:
        return _sqlite(sa.URL.create("sqlite", database=text))
    try:
        text.encode()  # a URL is UTF-8; the name of a file is not always
        url = sa.make_url(text)
    except (ArgumentError, ValueError):
        # Not chained: the parser's message repeats the URL, password included.
        raise DatabaseError("the address of the database is not valid", hint=_FORMS) from None
    if url.drivername == "sqlite":
        return _sqlite(url)
    if url.drivername in _POSTGRESQL:
        return Address(url.set(drivername="postgresql+psycopg"), file=None)
    raise DatabaseError(f"{url.drivername} is not a database that vdisklab can use", hint=_FORMS)


def without_password(text: str) -> str:
    """`--db` without its password, for a command that users may paste; other texts stay the same.

    A password belongs in ~/.pgpass or PGPASSWORD. Text that is not an address may hold one
    anywhere.
    """
    if "://" not in text:
        return text
    try:
        url = sa.make_url(text)
    except (ArgumentError, ValueError):
        return "ADDRESS"
    if url.password is None and "password" not in url.query:
        return text
    public = sa.URL.create(
        url.drivername,
        username=url.username,
        host=url.host,
        port=url.port,
        database=url.database,
        query={key: value for key, value in url.query.items() if key != "password"},
    )
    return public.render_as_string()


def _sqlite(url: sa.URL) -> Address:
    # A database in memory would end with the program, and each connection would have its own.
    if not url.database or url.database == ":memory:":
        raise DatabaseError("the address of the database names no file", hint=_FORMS)
    if url.query:
        raise DatabaseError("the address of an SQLite file takes no options", hint=_FORMS)
    try:
        file = Path(url.database).expanduser()
    except (RuntimeError, ValueError):  # no such user, or a NUL in the name
        raise DatabaseError(
            f"the database {url.database} names a home directory that is not known",
            hint="write the whole path of the file",
        ) from None
    return Address(url.set(database=str(file)), file)
