"""An open database: connections, transactions and locks, the same for SQLite and PostgreSQL.

SQLite uses its rollback journal, not WAL. vdisklab writes one run every few seconds from one
process, so WAL's parallel readers would gain nothing. Without WAL, a database that is not in use is
one file that can be copied; it works on NFS and CIFS (WAL needs shared memory), and it can be read
in a directory that the reader cannot write. `synchronous=EXTRA` makes a stored run survive a power
cut: with FULL the removal of the journal is not synced, so the last run could be rolled back.

The address of a database: `--db` as the user writes it, and without its password.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import sqlite3
import stat
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.exc import (
    ArgumentError,
    DBAPIError,
    IntegrityError,
    OperationalError,
    SQLAlchemyError,
    StatementError,
)

from vdisklab.errors import (
    DamagedError,
    DatabaseBusyError,
    DatabaseError,
    HostError,
    NoDatabaseError,
    UnstorableError,
    extra_hint,
)
from vdisklab.host.safe_places import is_shared, open_file
from vdisklab.host.writing import Rights, acting, writable
from vdisklab.results import migrations
from vdisklab.results.connection_with_rights import connections_with
from vdisklab.results.damage import UnsoundError
from vdisklab.results.rows import UnusableError
from vdisklab.value import Value, replace

_POSTGRESQL = ("postgresql", "postgres", "postgresql+psycopg")
_FORMS = "give --db a file, sqlite:///FILE or postgresql://USER@HOST/DATABASE"


PATIENCE_SECONDS = 10.0
_MAKING_SECONDS = 2.0  # making one takes 0.3 s
_LOOK_SECONDS = 0.05
_CONNECT_SECONDS = 10
_OLDEST_SQLITE = (3, 38)
"""The first with STRICT tables (3.37), and with JSON in every build."""

_log = logging.getLogger(__name__)
SQLITE = b"SQLite format 3\0"
"""The first bytes of every SQLite file (fileformat2.html)."""

_EXPORTS = (b"\x1f\x8b", b'{"format": "vdis')
"""The first bytes of files from `export-data`: gzip's, and those of JSON."""

_JOURNALS = ("-journal", "-wal", "-shm")
"""SQLite's own files beside a database (tempfiles.html). It follows no link there."""

_SUPER_JOURNAL = bytes.fromhex("d9d505f920a163d7")
"""The last bytes of a journal that names a super-journal (fileformat2.html, section 3)."""

_FULL = (
    "free some space on that file system, or give --db a file on another; then repeat the command"
)

_WRITABLE = "give --db a file in a directory that can be written"
_UNREADABLE = (
    "cannot be read by this user",
    "run the command as its owner (`ls -l` names the owner), or give --db another file",
)

_DAMAGED = "keep a copy, then save the readable rows with `sqlite3 FILE .recover | sqlite3 NEW`"
_NO_MEMORY = "end other programs, then repeat the command"
_LOCKED = "wait until the other program has finished; `fuser -v FILE` names it"
# SQLite's primary result codes: what is wrong, and what to do.
_SQLITE_CODES: Mapping[int, tuple[str, str]] = {
    sqlite3.SQLITE_PERM: ("cannot be read or written by this user", _WRITABLE),
    sqlite3.SQLITE_BUSY: ("is locked by another program", _LOCKED),
    sqlite3.SQLITE_LOCKED: ("is locked by another program", _LOCKED),
    sqlite3.SQLITE_READONLY: ("cannot be written: it, or its directory, is read-only", _WRITABLE),
    sqlite3.SQLITE_IOERR: ("cannot be written or read: the file system refused", _FULL),
    sqlite3.SQLITE_CORRUPT: ("is damaged", _DAMAGED),
    sqlite3.SQLITE_FULL: ("cannot grow: its file system is full", _FULL),
    sqlite3.SQLITE_CANTOPEN: ("cannot be opened or created", _WRITABLE),
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
    "53100": ("is on a full disk", "free some space on the server, then repeat the command"),
}

# Errors that may go away while we wait.
_PASSING = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_FULL)

_PASSING_STATES = ("55P03", "53100")
# A failed connection has no SQLSTATE, only the message of the server or the resolver.
_REFUSALS: tuple[tuple[str, str, str], ...] = (
    ("password authentication failed", "refuses the password", "check user and password"),
    ("no password supplied", "requires a password", "put it into ~/.pgpass or PGPASSWORD"),
    ("resolve host", "is on an unknown host", "check the host's name"),
    ("name or service not known", "is on an unknown host", "check the host's name"),
    ("connection refused", "does not answer: connection refused", "is PostgreSQL running there?"),
    ("no such file", "does not answer: there is no such socket", "is PostgreSQL running there?"),
    (
        "timeout",
        "does not answer in time",
        "is PostgreSQL running there, or does a firewall block it?",
    ),
    ("does not exist", "does not exist", "create it: createdb --owner USER DATABASE"),
    ("no pg_hba.conf entry", "does not let this user in", "add the user to pg_hba.conf"),
)

# What converting rows of a damaged database raises: values of another type, rows that refer to
# missing ones, JSON and compressed text that end too early.
_DAMAGE = (
    ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError
)  # fmt: skip


def default_url(state_directory: Path) -> str:
    """The address of the default database."""
    return f"sqlite:///{state_directory / 'vdisklab.sqlite'}"


class Address(Value):
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
        return _file_address(sa.URL.create("sqlite", database=text))
    try:
        text.encode()  # a URL is UTF-8; the name of a file is not always
        url = sa.make_url(text)
    except (ArgumentError, ValueError):
        # Not chained: the parser's message repeats the URL, password included.
        raise DatabaseError("the address of the database is not valid", hint=_FORMS) from None
    if url.drivername == "sqlite":
        return _file_address(url)
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


def _file_address(url: sa.URL) -> Address:
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


if TYPE_CHECKING:
    import psycopg  # an optional dependency


class Database(Value):
    """Short transactions on one database; every failure in them is a DatabaseError.

    `_opened` has device and inode of SQLite's file as it was opened. Root uses it with `_rights`.
    """

    address: Address
    _readers: sa.Engine
    _writers: sa.Engine
    _opened: tuple[int, int] | None = None
    _rights: Rights | None = None

    @contextmanager
    def reading(self) -> Iterator[sa.Connection]:
        """One consistent view of the database while the context is open."""
        with (
            driver_errors_as_sentences(self.address),
            self._damage_named(),
            self._readers.connect() as connection,
        ):
            yield connection

    @contextmanager
    def writing(self) -> Iterator[sa.Connection]:
        """One transaction: everything in the body is stored, or nothing.

        Raises DatabaseError if SQLite's file has another name now, or none: an open file goes on
        taking what nobody will find.
        """
        self._require_same_file()
        try:
            with driver_errors_as_sentences(self.address), self._writers.begin() as connection:
                yield connection
        except DatabaseError as error:
            if self._rights is None or error.hint != _WRITABLE:
                raise
            raise DatabaseError(
                f"{error.message}: root writes there as the user {self._rights.name}, who can "
                "change the directory",
                hint=f"chown {self._rights.name} {self.address}, or give --db a file in a "
                "directory that only root can change",
            ) from error
        self._require_same_file()

    def _require_same_file(self) -> None:
        if self._opened is None or self.address.file is None:
            return
        now = _file_id(self.address.file)
        if now != self._opened:
            happened = "deleted or renamed" if now is None else "replaced by another file"
            raise DatabaseError(
                f"the database {self.address} was {happened} while this command wrote to it",
                hint="what was stored since then is lost; put the database back, and run the same "
                "command again",
            )

    @contextmanager
    def _damage_named(self) -> Iterator[None]:
        """Turns exceptions caused by invalid stored values in the body into DatabaseError."""
        try:
            yield
        except _DAMAGE as error:
            _log.debug("reading the database failed", exc_info=error)
            said = isinstance(error, UnsoundError | UnusableError)
            problem = str(error) if said else "its rows contradict each other"
            raise DamagedError(
                f"the database {self.address} is damaged: {problem}", hint=_DAMAGED
            ) from error


@contextmanager
def open_database(
    address: Address, *, create: bool, patience: float, read_only: bool = False
) -> Iterator[Database]:
    """The database, migrated to the current schema; raises like `open_store`."""
    rights = None
    if address.file is None:
        engine = _postgresql(address, read_only, patience)
    else:
        rights = _rights_to(address.file)
        with acting(rights):
            engine = _sqlite(
                address, address.file, rights, patience,
                create=create and not read_only, read_only=read_only,
            )  # fmt: skip
    try:
        database = Database(
            address,
            _readers=engine.execution_options(**_consistent(engine)),
            _writers=engine.execution_options(vdisklab_writes=True),
            _rights=rights,
        )
        with _removed_if_empty(address.file, rights):
            if address.file is not None and os.geteuid() == 0 and rights is None:
                _create_as_root(address.file, create=create)
            _bring_up_to_date(database, read_only, patience)
        yield replace(database, _opened=_file_id(address.file))
    finally:
        engine.dispose()


def _file_id(file: Path | None) -> tuple[int, int] | None:
    """Device and inode of SQLite's file; None if there is none."""
    if file is None:
        return None
    try:
        status = file.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _bring_up_to_date(database: Database, read_only: bool, patience: float) -> None:
    current, version = _schema(database)
    until = time.monotonic() + min(patience, _MAKING_SECONDS)
    # Another process may be making it: its tables appear at once, in one transaction.
    while read_only and version is None and time.monotonic() < until:
        time.sleep(_LOOK_SECONDS)
        current, version = _schema(database)
    if current:
        return
    if read_only and version is None:
        raise NoDatabaseError(
            f"the database {database.address} is empty: another process is making it, or ended "
            "before it was made",
            hint="ask again; `vdisklab runs` makes it, if no other process does",
        )
    if read_only:
        raise DatabaseError(
            f"the database {database.address} is an older vdisklab's (schema {version}), and must "
            "be brought up to date before it can be watched",
            hint="`vdisklab runs` does that",
        )
    try:
        with database.writing() as connection:
            migrations.upgrade(connection)
    except DatabaseError as error:
        if version is None or error.hint != _WRITABLE:
            raise
        raise DatabaseError(
            f"{error.message}, and it is an older vdisklab's (schema {version}), which must be "
            "brought up to date before it can be read",
            hint="copy it into a directory that can be written, and give --db the copy",
        ) from error


def _schema(database: Database) -> tuple[bool, str | None]:
    """Whether a database has the current schema, and its schema; None for an empty one."""
    with database.reading() as connection:
        return migrations.is_current(connection), migrations.schema_version(connection)


def _consistent(engine: sa.Engine) -> dict[str, Any]:
    """Options for a transaction whose queries all see one state; SQLite's always do."""
    if engine.dialect.name == "postgresql":
        return {"isolation_level": "REPEATABLE READ"}
    return {}


def _sqlite(
    address: Address,
    file: Path,
    rights: Rights | None,
    patience: float,
    *,
    create: bool,
    read_only: bool,
) -> sa.Engine:
    if sqlite3.sqlite_version_info < _OLDEST_SQLITE:
        raise DatabaseError(
            f"this Python has SQLite {sqlite3.sqlite_version}, which is too old",
            hint="use a Python with SQLite 3.38 or later, or PostgreSQL: --db postgresql://…",
        )
    exists = _is_there(file)
    if not create and not exists:
        raise NoDatabaseError(
            f"there is no database {file}",
            hint="`vdisklab run PATHS…` creates one, or name another with --db",
        )
    if exists:
        _require_no_other_file(file)
        _require_no_super_journal(file)
    else:
        _require_directory(file.parent)
    connect: dict[str, Any] = {"timeout": patience}
    if rights is not None:
        connect["factory"] = connections_with(rights)
    options: dict[str, Any] = {"connect_args": connect, "hide_parameters": True}
    if read_only:  # https://sqlite.org/uri.html
        uri = f"file:{quote(str(file))}?mode=ro"
        options["creator"] = partial(
            sqlite3.connect, uri, uri=True, check_same_thread=False, **connect
        )
    engine = sa.create_engine(address.url, **options)
    event.listen(engine, "connect", _prepare_sqlite)
    if is_shared(file.parent):
        event.listen(engine, "connect", _keep_journal)
    event.listen(engine, "begin", _begin_sqlite)
    return engine


def _is_there(file: Path) -> bool:
    """True if the file exists. Raises DatabaseError if it cannot be a database."""
    try:
        mode = file.stat().st_mode
    except FileNotFoundError:
        return False
    except (OSError, ValueError) as error:  # a name that is too long, or has a NUL
        reason = getattr(error, "strerror", None) or str(error)
        raise DatabaseError(
            f"the database {file} cannot be used: {reason}", hint="give --db another file"
        ) from error
    if stat.S_ISDIR(mode):
        raise DatabaseError(f"the database {file} is a directory", hint="give --db a file in it")
    if not stat.S_ISREG(mode):
        kind = "pipe" if stat.S_ISFIFO(mode) else "socket" if stat.S_ISSOCK(mode) else "device"
        raise DatabaseError(
            f"the database {file} is a {kind}, and a database is a file",
            hint="give --db the name of a file, which may be new",
        )
    return True


def _rights_to(file: Path) -> Rights | None:
    """The rights with which root uses a database and its journals; None are the process's own.

    Raises DatabaseError if another user than the caller can change one of them.
    """
    way = "name another with --db, or work on a copy"
    try:
        rights = [
            writable(Path(f"{file}{ending}"), "the database", way).rights
            for ending in ("", *_JOURNALS)
        ]
    except HostError as error:
        raise DatabaseError(error.message, hint=error.hint) from error
    return next(filter(None, rights), None)


def _create_as_root(file: Path, *, create: bool) -> None:
    """Makes a database, and its journal in a directory that others may write to, before SQLite
    does: SQLite does not insist on a new file, and takes its mode from the umask.

    Raises DatabaseError if another user was faster.
    """
    new = [file] if create else []
    if is_shared(file.parent):
        new.append(Path(f"{file}-journal"))
    for each in new:
        with suppress(OSError):  # SQLite says why
            os.close(open_file(each, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o644))
    if new and _rights_to(file) is not None:
        raise DatabaseError(
            f"the database {file}, or its journal, was made by another user meanwhile",
            hint="give --db a file in a directory that only root can change",
        )


def _keep_journal(connection: sqlite3.Connection, _record: object) -> None:
    """Leaves the journal where it is, so that nobody can put another in its place."""
    connection.execute("PRAGMA journal_mode = PERSIST")


def _require_directory(directory: Path) -> None:
    """Raises DatabaseError if the directory is missing."""
    if not directory.is_dir():
        raise DatabaseError(
            f"there is no directory {directory} for the database",
            hint=f"create it first: mkdir -p {directory}",
        )


def _require_no_other_file(file: Path) -> None:
    """Refuses a file that is not a database, also one shorter than SQLite's header: SQLite would
    overwrite it."""
    try:
        with file.open("rb") as opened:
            begin = opened.read(len(SQLITE))
    except OSError:
        return  # SQLite reports what is wrong with it
    if begin.startswith(_EXPORTS):
        raise DatabaseError(
            f"{file} is not a database but looks like a file that `export-data` writes",
            hint=f"make a database of it: vdisklab import {file} --db NEW.sqlite",
        )
    if begin and begin != SQLITE:
        raise DatabaseError(f"the database {file} is not a database", hint="give --db another file")


def _require_no_super_journal(file: Path) -> None:
    """Raises DatabaseError for a journal that names a file, which SQLite would remove.

    It does that after transactions on several databases at once, which vdisklab never makes.
    """
    journal = Path(f"{file}-journal")
    try:
        with journal.open("rb") as opened:
            opened.seek(-len(_SUPER_JOURNAL), os.SEEK_END)
            names_a_file = opened.read() == _SUPER_JOURNAL
    except OSError:
        return  # there is none, or it is shorter than a name
    if names_a_file:
        raise DatabaseError(
            f"the journal {journal} is not vdisklab's: it names a file that SQLite would remove",
            hint=f"if nobody uses the database, remove it: rm {journal}",
        )


@contextmanager
def _removed_if_empty(file: Path | None, rights: Rights | None) -> Iterator[None]:
    """Removes a new file in which not even the schema could be stored, as on a full disk."""
    is_new = file is not None and not file.exists()
    try:
        yield
    except DatabaseError:
        if file is not None and is_new and file.exists() and file.stat().st_size == 0:
            with suppress(OSError), acting(rights):
                file.unlink()
        raise


def _prepare_sqlite(connection: sqlite3.Connection, _record: object) -> None:
    # The driver begins transactions late, and none before DDL, so we begin them ourselves.
    connection.isolation_level = None
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute("PRAGMA synchronous = EXTRA")
    connection.set_progress_handler(_go_on, 100_000)


def _go_on() -> int:
    """Lets Python handle signals during a long query; an interrupt here ends the query."""
    return 0


def _begin_sqlite(connection: sa.Connection) -> None:
    # A transaction that begins by reading and then writes can fail at once, without waiting for
    # a lock, when another one wrote in between. A writer therefore takes its lock first.
    writes = connection.get_execution_options().get("vdisklab_writes")
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def _postgresql(address: Address, read_only: bool, patience: float) -> sa.Engine:
    if importlib.util.find_spec("psycopg") is None:
        raise DatabaseError(
            "PostgreSQL needs the Python package psycopg, which is not installed",
            hint=extra_hint("postgresql"),
        )
    query = address.url.query
    engine = sa.create_engine(
        address.url,
        # A campaign runs for hours, and the server may have been restarted between two cells.
        pool_pre_ping=True,
        connect_args={} if "connect_timeout" in query else {"connect_timeout": _CONNECT_SECONDS},
        hide_parameters=True,
    )

    def prepare(connection: psycopg.Connection, _record: object) -> None:
        milliseconds = str(round(patience * 1000))
        connection.execute("SELECT set_config('lock_timeout', %s, false)", (milliseconds,))
        if read_only:
            connection.execute("SET default_transaction_read_only = on")
        connection.commit()

    event.listen(engine, "connect", prepare)
    return engine


@contextmanager
def driver_errors_as_sentences(address: Address) -> Iterator[None]:
    """Turns exceptions of SQLAlchemy and the drivers in the body into DatabaseError."""
    try:
        yield
    except (SQLAlchemyError, sqlite3.Error) as error:
        cause = getattr(error, "orig", error)
        if isinstance(cause, sqlite3.Error) and _sqlite_code(cause) == sqlite3.SQLITE_INTERRUPT:
            raise KeyboardInterrupt from error
        raise _as_sentence(error, address) from error
    except MemoryError as error:  # as Python's sqlite3 calls SQLITE_NOMEM
        raise DatabaseBusyError(
            f"the database {address} cannot be used: no memory is left", hint=_NO_MEMORY
        ) from error


def as_unstorable(error: Exception) -> UnstorableError | None:
    """The refusal of a value by a column or a rule of the tables; None for any other error."""
    cause = error.orig if isinstance(error, StatementError) else error
    if isinstance(cause, UnstorableError):
        return cause
    named = getattr(getattr(cause, "diag", None), "constraint_name", None)
    rule = named or str(cause).removeprefix("CHECK constraint failed: ")
    column, is_, expected = rule.partition(" is ")
    broken = isinstance(error, IntegrityError) and is_
    too_large = isinstance(cause, OverflowError) or getattr(cause, "sqlstate", None) == "22003"
    if not broken and not too_large:
        return None
    return UnstorableError(
        f"{column} is not {expected}" if broken else "a number is too large to be stored",
        hint="the program that reported it is probably wrong: `vdisklab show RUN --raw`",
    )


def _as_sentence(error: Exception, address: Address) -> DatabaseError:
    cause = error.orig if isinstance(error, StatementError) else error
    refusal = as_unstorable(error)
    if refusal is not None:
        return refusal
    if isinstance(error, IntegrityError):
        return DatabaseError(
            f"the database {address} has a row that conflicts with this one: {_first_line(cause)}",
            hint="another vdisklab may be storing the same data",
        )
    matter, hint = _matter(error, cause, address)
    kind = DatabaseBusyError if _may_pass(error, cause) else DatabaseError
    return kind(f"the database {address} {matter}", hint=hint)


def _may_pass(error: Exception, cause: object) -> bool:
    """True if a retry may work; for example, a PostgreSQL server may be restarting."""
    if isinstance(cause, sqlite3.Error):
        return _sqlite_code(cause) in _PASSING
    state = getattr(cause, "sqlstate", None)
    return state in _PASSING_STATES or (state is None and isinstance(error, OperationalError))


def _matter(error: Exception, cause: object, address: Address) -> tuple[str, str]:
    if isinstance(cause, sqlite3.Error):
        if (
            address.file is not None
            and address.file.exists()
            and not os.access(address.file, os.R_OK)
        ):
            return _UNREADABLE
        refusal = _SQLITE_CODES.get(_sqlite_code(cause))
    else:
        state = getattr(cause, "sqlstate", None)
        refusal = _refusal(str(cause)) if state is None else _SQLSTATE.get(state)
    if refusal is not None:
        return refusal
    message = address.without_secrets(_first_line(cause))
    if isinstance(error, DBAPIError) and error.connection_invalidated:
        return f"went away: {message}", "repeat the command; stored results are kept"
    return (
        f"cannot be used: {message}",
        "run `vdisklab --debug VERB …` for the driver's full message",
    )


def _sqlite_code(cause: sqlite3.Error) -> int:
    # Python's sqlite3 module, not SQLite, detects text that is not UTF-8: there is no code.
    if str(cause).startswith("Could not decode"):
        return sqlite3.SQLITE_CORRUPT
    return int(getattr(cause, "sqlite_errorcode", 0)) & 0xFF


def _refusal(message: str) -> tuple[str, str] | None:
    folded = message.lower()
    for sign, matter, hint in _REFUSALS:
        if sign in folded:
            return matter, hint
    return None


def _first_line(cause: object) -> str:
    lines = str(cause).strip().splitlines()
    return lines[0] if lines else type(cause).__name__
