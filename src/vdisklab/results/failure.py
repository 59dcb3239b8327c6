"""What went wrong with a database, as a sentence for the user instead of a driver's exception."""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from sqlalchemy.exc import (
    DBAPIError,
    IntegrityError,
    OperationalError,
    SQLAlchemyError,
    StatementError,
)

from vdisklab.errors import DatabaseBusyError, DatabaseError
from vdisklab.results.address import Address

_FULL = "make room on that file system, or give --db a file on another; then run the same again"
_WRITABLE = "give --db a file in a directory that can be written"
_DAMAGED = "keep a copy, then save what can be read with `sqlite3 FILE .recover | sqlite3 NEW`"
_LOCKED = "wait until the other program has finished; `fuser -v FILE` names it"

# SQLite's primary result codes: what is the matter, and the way out.
_SQLITE: Mapping[int, tuple[str, str]] = {
    sqlite3.SQLITE_PERM: ("may not be read or written by this user", _WRITABLE),
    sqlite3.SQLITE_BUSY: ("is locked by another program", _LOCKED),
    sqlite3.SQLITE_LOCKED: ("is locked by another program", _LOCKED),
    sqlite3.SQLITE_READONLY: ("cannot be written: it, or its directory, is read-only", _WRITABLE),
    sqlite3.SQLITE_IOERR: ("cannot be written or read: the file system refused", _FULL),
    sqlite3.SQLITE_CORRUPT: ("is damaged", _DAMAGED),
    sqlite3.SQLITE_FULL: ("cannot grow: its file system is full", _FULL),
    sqlite3.SQLITE_CANTOPEN: ("cannot be opened or made", _WRITABLE),
    sqlite3.SQLITE_NOTADB: ("is not a database", "give --db another file"),
}

# PostgreSQL's SQLSTATEs.
_SQLSTATE: Mapping[str, tuple[str, str]] = {
    "55P03": ("is locked by another program", "wait until the other vdisklab has finished"),
    "42501": (
        "does not let this user do that",
        "as its owner: GRANT CREATE, USAGE ON SCHEMA public TO the user",
    ),
    "25006": ("is read-only", "give --db the primary server, not a standby"),
    "53100": ("is on a full disk", "make room on the server, then run the same again"),
}

# What may pass while we wait.
_PASSING = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_FULL)
_PASSING_STATES = ("55P03", "53100")

# A connection that failed has no SQLSTATE, only the server's or the resolver's words.
_REFUSALS: tuple[tuple[str, str, str], ...] = (
    ("password authentication failed", "refuses the password", "check user and password"),
    ("no password supplied", "wants a password", "put it into ~/.pgpass or PGPASSWORD"),
    ("resolve host", "is on a host that is not known", "check the host's name"),
    ("name or service not known", "is on a host that is not known", "check the host's name"),
    ("connection refused", "does not answer: connection refused", "is PostgreSQL running there?"),
    ("no such file", "does not answer: there is no such socket", "is PostgreSQL running there?"),
    ("timeout", "does not answer in time", "is PostgreSQL running there, and is the way open?"),
    ("does not exist", "does not exist", "make it: createdb --owner USER DATABASE"),
    ("no pg_hba.conf entry", "does not let this user in", "add the user to pg_hba.conf"),
)


@contextmanager
def told_as_sentences(address: Address) -> Iterator[None]:
    """Turns whatever SQLAlchemy and the drivers raise in the block into DatabaseError."""
    try:
        yield
    except (SQLAlchemyError, sqlite3.Error) as error:
        raise _as_sentence(error, address) from error


@contextmanager
def damage_noticed(address: Address) -> Iterator[None]:
    """Turns what a value raises that is read and is not what we wrote into DatabaseError.

    SQLite has no checksums: a page that was overwritten may still hold rows.
    """
    try:
        yield
    except (ValueError, zlib.error) as error:
        raise DatabaseError(
            f"the database {address} is damaged: {_first_line(error)}", hint=_DAMAGED
        ) from error


def _as_sentence(error: Exception, address: Address) -> DatabaseError:
    cause = error.orig if isinstance(error, StatementError) else error
    if isinstance(cause, DatabaseError):  # a column type refused a value
        return cause
    if isinstance(error, IntegrityError):
        return DatabaseError(
            f"the database {address} holds something that contradicts this: {_first_line(cause)}",
            hint="is another vdisklab storing the same?",
        )
    matter, hint = _matter(error, cause, address)
    kind = DatabaseBusyError if _may_pass(error, cause) else DatabaseError
    return kind(f"the database {address} {matter}", hint=hint)


def _may_pass(error: Exception, cause: object) -> bool:
    """Whether the same may work a little later; a PostgreSQL server may be starting again."""
    if isinstance(cause, sqlite3.Error):
        return _sqlite_code(cause) in _PASSING
    state = getattr(cause, "sqlstate", None)
    return state in _PASSING_STATES or (state is None and isinstance(error, OperationalError))


def _matter(error: Exception, cause: object, address: Address) -> tuple[str, str]:
    if isinstance(cause, sqlite3.Error):
        known = _SQLITE.get(_sqlite_code(cause))
    else:
        state = getattr(cause, "sqlstate", None)
        known = _refusal(str(cause)) if state is None else _SQLSTATE.get(state)
    if known is not None:
        return known
    words = address.without_secrets(_first_line(cause))
    if isinstance(error, DBAPIError) and error.connection_invalidated:
        return f"went away: {words}", "run the same again; what was measured is kept"
    return f"cannot be used: {words}", "run `vdisklab --debug VERB …` for the driver's own report"


def _sqlite_code(cause: sqlite3.Error) -> int:
    # Text that is no UTF-8 is found by Python's module, after SQLite has read it: no code.
    if str(cause).startswith("Could not decode"):
        return sqlite3.SQLITE_CORRUPT
    return int(getattr(cause, "sqlite_errorcode", 0)) & 0xFF


def _refusal(words: str) -> tuple[str, str] | None:
    folded = words.lower()
    for sign, matter, hint in _REFUSALS:
        if sign in folded:
            return matter, hint
    return None


def _first_line(cause: object) -> str:
    lines = str(cause).strip().splitlines()
    return lines[0] if lines else type(cause).__name__
