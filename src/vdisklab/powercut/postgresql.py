"""PostgreSQL as the client and as the judge: numbered transactions with DDL among them.

The server runs in the guest, with its data on the guest's ext4 on the path's disk. Transaction v
inserts row v into one table and into `recent`, and writes v to a third. Every second one is an
event: it truncates `recent`, creates a table with an index, makes a table larger, or is followed by
a new WAL segment (every second time by a checkpoint, too). `wal_level=minimal` without a threshold
makes PostgreSQL sync the files of a created or truncated table instead of logging their rows, so a
commit relies on the log and on new and growing files.

After a cut the guest's file system is mounted on the host, which replays its journal, and the
host's PostgreSQL recovers: in single-user mode, whose recovery is the server's. Then every
acknowledged transaction must be there with all of its effects, amcheck must find every index and
table sound, and pg_checksums every page.
"""

from __future__ import annotations

import errno
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, ClassVar

from vdisklab.guest.machine import Machine
from vdisklab.guest.qemu.block_nodes import mount_command
from vdisklab.host.command import Completed, Host, PathArg, not_installed
from vdisklab.path.power_cut_words import ClientKind, StateOutcome
from vdisklab.powercut.client import Trace
from vdisklab.powercut.guest_clients import (
    MOUNTPOINT,
    DueTransactions,
    GuestDatabase,
    compare_rows,
    guest_program,
    guest_script,
    payload,
)
from vdisklab.units import MIB
from vdisklab.value import Value
from vdisklab.workload.program import PreparedFiles, database_script

CLUSTER = PreparedFiles(
    "powercut-postgresql", database_script("postgresql"), ("0",),
    ("postgres", "initdb", "setpriv"), 24 * MIB,
)  # fmt: skip
"""An empty cluster, whose archive is a disk of the guest."""

REACHABLE = Path("/run")
"""Where the guest's disk is mounted: the user who owns the data must reach it."""

STATES = 200
"""Judged by default: each takes a recovery."""

_SECONDS = 120.0
_JUDGE_SECONDS = 60.0
_SHELL = "/usr/bin/sh"
_USER = ("setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", "--")
_MADE_ROWS, _GROWN_ROWS = 40, 64
_EVERY = 8

_SETTINGS = {
    "fsync": "on",
    "full_page_writes": "on",
    "synchronous_commit": "on",
    "wal_sync_method": "fdatasync",
    "data_checksums": "on",
    "autovacuum": "off",
    "wal_level": "minimal",
    "wal_skip_threshold": "0",
}
"""Read back before the first transaction."""

_SIZES = (
    "shared_buffers=8MB", "min_wal_size=2MB", "max_wal_size=4MB", "max_wal_senders=0",
    "max_connections=5", "checkpoint_timeout=30s", "jit=off",
)  # fmt: skip

TABLES = """
    CREATE TABLE promise (version int PRIMARY KEY, payload text NOT NULL);
    CREATE TABLE newest (version int); INSERT INTO newest VALUES (0);
    CREATE TABLE recent (version int PRIMARY KEY);
    CREATE TABLE made (version int, number int, payload text);
    CREATE TABLE grown (version int, number int, payload text, PRIMARY KEY (version, number));
    CHECKPOINT;
"""

_FOUND = """
COPY (SELECT 'found ' || json_build_object(
    'promise', (SELECT json_agg(json_build_array(
        version, payload = left(repeat(version || '.', {length}), {length}))) FROM promise),
    'newest', (SELECT max(version) FROM newest),
    'recent', (SELECT json_object_agg(version, 1) FROM recent),
    'made', (SELECT json_object_agg(version, rows) FROM
        (SELECT version, count(*) AS rows FROM made GROUP BY 1) AS each),
    'grown', (SELECT json_object_agg(version, rows) FROM
        (SELECT version, count(*) AS rows FROM grown GROUP BY 1) AS each))) TO STDOUT;
DO $$ DECLARE bad record; BEGIN
    PERFORM bt_index_check(index.oid, true) FROM pg_class AS index
        JOIN pg_am AS method ON method.oid = index.relam AND method.amname = 'btree';
    FOR bad IN SELECT relation.oid::regclass AS name, problem.msg FROM pg_class AS relation
        CROSS JOIN LATERAL verify_heapam(relation.oid) AS problem
        WHERE relation.relkind IN ('r', 't') LOOP
        RAISE EXCEPTION 'amcheck: %: %', bad.name, bad.msg;
    END LOOP;
END $$;
COPY (SELECT 'sound') TO STDOUT;
"""

_KILL = """
read -r server <"$1" || exit 0
kill -QUIT "$server" 2>/dev/null
turns=0
while read -r _ _ state _ 2>/dev/null <"/proc/$server/stat" && [ "$state" != Z ]; do
    turns=$((turns + 1))
    [ $turns -lt 40 ] || kill -KILL "$server" 2>/dev/null
    [ $turns -lt 80 ] || exit 1
    /usr/bin/busybox usleep 250000
done
exit 0
"""
"""SIGQUIT is PostgreSQL's immediate shutdown: as after a crash, without a checkpoint."""

_SAID = re.compile(r"(?:ERROR|FATAL|PANIC):  (.*)")
_ROWS = re.compile(r"^(?:backend> )?found (\{.*\})$", re.MULTILINE)
_SOUND = re.compile(r"^(?:backend> )?sound$", re.MULTILINE)


class Event(StrEnum):
    """What a transaction does besides its rows."""

    TRUNCATE = "truncate"
    CREATE = "create"
    GROW = "grow"
    SWITCH = "switch"


def event_of(version: int) -> Event | None:
    """The event of a transaction; every second one has none."""
    place, odd = divmod(version % _EVERY, 2)
    return None if odd else tuple(Event)[place]


def transaction(version: int) -> str:
    """The SQL of one transaction; its last statement prints an answer after COMMIT."""
    event, rows = event_of(version), "left(repeat(n || '.', 300), 300) FROM generate_series(1, "
    before = "TRUNCATE recent;" if event is Event.TRUNCATE else ""
    more = {
        Event.CREATE: f"CREATE TABLE made_{version} () INHERITS (made); INSERT INTO made_{version} "
        f"SELECT {version}, n, {rows}{_MADE_ROWS}) AS n; "
        f"CREATE INDEX ON made_{version} (number);",
        Event.GROW: f"INSERT INTO grown SELECT {version}, n, {rows}{_GROWN_ROWS}) AS n;",
    }
    checkpoint = " CHECKPOINT;" if version // _EVERY % 2 else ""
    after = f"SELECT FROM pg_switch_wal();{checkpoint}" if event is Event.SWITCH else ""
    return (
        f"BEGIN; {before} INSERT INTO promise VALUES ({version}, '{payload(version)}'); "  # noqa: S608 - numbers
        f"UPDATE newest SET version = {version}; INSERT INTO recent VALUES ({version}); "
        f"{more.get(event, '') if event else ''} COMMIT; {after} SELECT 'done {version}';\n"
    )


def disk_size(writes: int) -> int:
    """Bytes of a disk for the cluster and so many transactions."""
    return (64 + writes // 64) * MIB


def event_windows(trace: Trace) -> tuple[tuple[int, int], ...]:
    """The log positions between which each transaction with an event was under way."""
    if trace.client is not ClientKind.POSTGRESQL:
        return ()
    return tuple(
        (write.submitted, trace.end if write.acked is None else write.acked)
        for write in trace.writes
        if event_of(write.version) is not None
    )


@dataclass(slots=True)
class GuestPostgresql(GuestDatabase):
    """psql in the guest, connected to the server there."""

    title: ClassVar[str] = "PostgreSQL"
    farewell: ClassVar[str] = "\\q\n"

    def statement(self, version: int) -> str:
        """One transaction."""
        return transaction(version)

    def create(self, *, synced: bool) -> None:
        """Creates the tables, and reads the settings back. Raises GuestError for other ones."""
        self.ask(f"{TABLES} SELECT 'ready';\n", "ready")
        wanted = {**_SETTINGS, **({} if synced else {"fsync": "off"})}
        for name, value in wanted.items():
            self.ask(f"SELECT current_setting('{name}');\n", value)
        self.observed |= {f"guest.postgresql.{name}": value for name, value in wanted.items()}


def start_server(machine: Machine, *, synced: bool = True) -> None:
    """Starts a new cluster's server in the guest's file system at MOUNTPOINT, with fsync=off unless
    `synced`. Raises WorkloadError."""
    settings = {**_SETTINGS, **({} if synced else {"fsync": "off"})}
    values = [f"{key}={value}" for key, value in settings.items() if key != "data_checksums"]
    _step(machine, "copy", CLUSTER.name, *CLUSTER.arguments)
    _step(machine, "start", *values, *_SIZES)


def settings_check() -> str:
    """The SQL that fails unless the server has the settings that a commit's durability needs."""
    wrong = " OR ".join(
        f"current_setting('{name}') <> '{value}'" for name, value in _SETTINGS.items()
    )
    return f"SELECT 1 / (CASE WHEN {wrong} THEN 0 ELSE 1 END);"  # the guest has no PL/pgSQL


def kill_server(machine: Machine) -> None:
    """Ends the server in the guest at once, without a checkpoint, and leaves its data. Raises
    WorkloadError if it stays."""
    argv = (_SHELL, "-c", _KILL, "kill", f"{MOUNTPOINT}/data/postmaster.pid")
    machine.agent.run(argv, timeout=_SECONDS)


def _step(machine: Machine, verb: str, *arguments: str) -> None:
    machine.agent.run(
        (_SHELL, "-s", "--", verb, MOUNTPOINT, *arguments),
        timeout=_SECONDS, stdin=CLUSTER.script,
    )  # fmt: skip


@contextmanager
def postgresql_in_guest(
    machine: Machine, device: str, observed: Mapping[str, str], name: str, *, synced: bool = True
) -> Iterator[GuestPostgresql]:
    """A server in the guest on a new ext4 on its disk `device`; all is synced when the context
    opens.

    `synced=False` is the control with fsync=off. Raises GuestError and WorkloadError.
    """
    agent, script = machine.agent, CLUSTER.script
    version = agent.run((_SHELL, "-s", "--", "version", "."), timeout=_SECONDS, stdin=script)
    agent.run(("/usr/sbin/mkfs.ext4", "-q", "-F", "-b", "4096", device), timeout=_SECONDS)
    agent.run(mount_command(device, "ext4", (), MOUNTPOINT), timeout=_SECONDS)
    start_server(machine, synced=synced)
    argv = (
        _SHELL, "-c", guest_script("database.sh"), "database", name,
        _SHELL, "-c", script, "psql", "client", MOUNTPOINT,
    )  # fmt: skip
    observed = {**observed, "guest.postgresql": version.stdout.strip()}
    with guest_program(machine, name, argv, "psql") as program:
        database = GuestPostgresql(program, observed)
        database.create(synced=synced)
        agent.run(("/usr/bin/sync",), timeout=_SECONDS)
        yield database
        database.quit()
    _step(machine, "stop")
    agent.run(("/usr/bin/umount", MOUNTPOINT), timeout=_SECONDS)


class ClusterJudge(Value):
    """Recovers a cluster with the host's PostgreSQL, and judges what is in it."""

    host: Host

    def __call__(
        self, mountpoint: Path, first: int, due: DueTransactions
    ) -> tuple[StateOutcome, str]:
        """The outcome of the cluster in `mountpoint`/data, whose transactions count from `first`.

        Raises FutureVersionError, and CommandTimeoutError if PostgreSQL does not end.
        """
        found = self._content(mountpoint / "data", len(payload(first)))
        if found is None:
            return StateOutcome.LOST, "the database's directory is missing"
        if isinstance(found, str):
            return StateOutcome.DATABASE, found
        outcome = judge_rows(found, first, due)
        if outcome[0] is not StateOutcome.KEPT:
            return outcome
        unsound = self._checksums(mountpoint / "data")
        return outcome if unsound is None else (StateOutcome.DATABASE, unsound)

    def recovered(self, data: Path) -> Mapping[str, Any] | str:
        """What the tables of the cluster in `data` hold after its recovery, or why it refuses."""
        found = self._content(data, len(payload(1)))
        if found is None:
            return "the database's directory is missing"
        if isinstance(found, str):
            return found
        return self._checksums(data) or found

    def _content(self, data: Path, length: int) -> Mapping[str, Any] | str | None:
        """What the tables hold, why PostgreSQL refuses, or None without a cluster."""
        try:
            if not (data / "PG_VERSION").is_file():
                return None
        except OSError as error:  # the file system's own data are damaged
            if error.errno == errno.ENOMEM:
                raise
            return f"its directory: {error.strerror}"
        ended = self._run(
            "postgres", "--single", "-j", "-D", data,
            *(f"--{name}" for name in (
                "fsync=off", "shared_buffers=16MB", "autovacuum=off", "log_min_messages=warning",
                "dynamic_shared_memory_type=mmap",
            )), "postgres", stdin=_FOUND.format(length=length),
        )  # fmt: skip
        found = _ROWS.search(ended.stdout)
        if found is None or _SOUND.search(ended.stdout) is None or ended.status:
            said = _SAID.search(ended.stderr)
            reason = said[1] if said else ended.stderr.strip()[-200:] or f"status {ended.status}"
            return f"PostgreSQL: {reason}"
        content: Mapping[str, Any] = json.loads(found[1])
        return content

    def _checksums(self, data: Path) -> str | None:
        """Why pg_checksums finds a page damaged; None if none is."""
        checked = self._run("pg_checksums", "--check", "-D", data)
        if not checked.status:
            return None
        said_last = (checked.stderr.strip() or checked.stdout.strip()).splitlines()[-1:]
        return f"pg_checksums: {' '.join(said_last)}"

    def _run(self, name: str, *arguments: PathArg, stdin: str | None = None) -> Completed:
        """Runs one of PostgreSQL's programs as the unprivileged user that owns the data.

        Shared memory ends with its own namespace.
        """
        server = self.host.which("postgres")
        if server is None:
            raise not_installed("postgres")
        return self.host.run(
            "unshare", "--ipc", "--", *_USER, server.resolve().with_name(name), *arguments,
            timeout=_JUDGE_SECONDS, allowed=range(-64, 256), stdin=stdin,
        )  # fmt: skip


def judge_rows(
    found: Mapping[str, Any], first: int, due: DueTransactions
) -> tuple[StateOutcome, str]:
    """The outcome of what the tables hold. Raises FutureVersionError."""
    rows = {version: payload(version) if right else "" for version, right in found["promise"] or ()}
    judged = compare_rows(rows, found["newest"] or 0, first, due)
    if judged[0] is not StateOutcome.KEPT:
        return judged
    last = max(rows, default=0)
    for table, wanted in _contents(first, last).items():
        held = {int(version): count for version, count in (found[table] or {}).items()}
        wrong = [v for v in sorted({*held, *wanted}) if held.get(v, 0) != wanted.get(v, 0)]
        if wrong:
            rows_of = f"{held.get(wrong[0], 0)} of {wanted.get(wrong[0], 0)} rows"
            return StateOutcome.LOST, (
                f"transaction {last} is present, but table {table} has {rows_of} of transaction "
                f"{wrong[0]}"
            )
    return judged


def _contents(first: int, last: int) -> dict[str, dict[int, int]]:
    """For each table how many rows it has of which transaction, after transaction `last`."""
    versions = range(first, last + 1)
    truncated = [version for version in versions if event_of(version) is Event.TRUNCATE]
    return {
        "recent": dict.fromkeys(range(max(truncated, default=first), last + 1), 1),
        "made": {v: _MADE_ROWS for v in versions if event_of(v) is Event.CREATE},
        "grown": {v: _GROWN_ROWS for v in versions if event_of(v) is Event.GROW},
    }
