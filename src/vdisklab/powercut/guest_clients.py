"""Programs in a guest that the host controls over a virtio-serial port, such as the client.

The client writes to the guest's disk with O_DIRECT. The host generates the sectors, and the program
answers each request when its system call has returned. So an acknowledgement covers the guest's
kernel, its driver and QEMU's device.

A real program as the client: SQLite in a guest, whose transactions should survive a cut.

The database is on the guest's ext4 on the path's disk. The host gets an acknowledgement when COMMIT
has returned. Transaction v inserts row v, whose content is computed from v, and writes v to a
second table, so half a transaction is detected.

After a cut, the disk's content is copied from its image to a file and mounted, which replays the
guest's journal, as at its next boot; then SQLite opens the database, which replays SQLite's own.
"""

from __future__ import annotations

import errno
import os
import socket
import sqlite3
import struct
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from enum import IntEnum
from importlib import resources
from pathlib import Path
from typing import ClassVar

import numpy as np

from vdisklab.errors import GuestError
from vdisklab.guest.hotplug import virtio_serial
from vdisklab.guest.machine import Machine
from vdisklab.guest.qemu.block_nodes import mount_command
from vdisklab.host import ledger, syscalls, waiting
from vdisklab.path.architecture import GUEST
from vdisklab.path.power_cut_words import ClientKind, StateOutcome
from vdisklab.powercut.client import Trace
from vdisklab.powercut.crash_states import FutureVersionError
from vdisklab.powercut.recovery import unmount_state
from vdisklab.powercut.sectors import Bytes, Extent, make_records
from vdisklab.storage.site import Site
from vdisklab.units import SECTOR
from vdisklab.value import Value

PERL = "/usr/bin/perl"
"""The host's perl in the micro guest; the programs use no Perl modules."""

_END_SECONDS = 30.0
_START_SECONDS = 30.0
_ANSWER_SECONDS = 30.0
_HEAD = struct.Struct("<IIIIQ")
_ANSWER = struct.Struct("<II")
_HELLO = 0
_LARGEST = 128
"""Sectors of the longest request that `writer.pl` has room for."""


DATABASE = "promises.db"  # its name, and that of its table, in recordings that users keep
"""The file's name in the guest's file system."""

_SHELL = "/usr/bin/sh"
_SQLITE = "/usr/bin/sqlite3"
_FILESYSTEM = "ext4"
MOUNTPOINT = "/mnt"
_PREPARE_SECONDS = 60.0
_COMMIT_SECONDS = 60.0
_SHARED_MEMORY = (
    "WAL needs memory that processes share: in a directory choose virtiofs:cache=always, "
    "9p:cache=loose, or another --client"
)

_LEVELS = {"FULL": "2", "EXTRA": "3"}  # https://sqlite.org/pragma.html#pragma_synchronous
_CHECKPOINT_PAGES = 20
_PAYLOAD = 1500
_MODES = {
    ClientKind.SQLITE_WAL: ("wal", "FULL"),
    ClientKind.SQLITE_DELETE: ("delete", "FULL"),
    # FULL does not sync the directory after removing the journal, which is the commit.
    ClientKind.SQLITE_EXTRA: ("delete", "EXTRA"),
}


def guest_script(name: str) -> str:
    """The text of a script for the guest."""
    return (resources.files("vdisklab.powercut") / "guestfiles" / name).read_text("utf-8")


@dataclass(slots=True)
class GuestProgram:
    """A running program at its end of a `port`; messages call it `title`."""

    machine: Machine
    line: socket.socket
    process: int
    title: str
    port: str

    def start_again(self, argv: Sequence[str]) -> None:
        """Starts the program again after a reset of the guest; the port is still open."""
        self.process = self.machine.agent.start(argv)

    def send(self, data: bytes) -> None:
        """Sends bytes to the program. Raises GuestError if it has ended."""
        try:
            self.line.sendall(data)
        except OSError as error:
            raise self._lost(error) from error

    def receive(self, most: int, seconds: float) -> bytes:
        """The program's next output, up to `most` bytes.

        Raises GuestError after `seconds` without any.
        """
        self.line.settimeout(seconds * waiting.patience())
        try:
            data = self.line.recv(most)
        except TimeoutError:
            data = b""
        except OSError as error:
            raise self._lost(error) from error
        if not data:
            raise GuestError(
                f"{self.title} in the guest did not answer within {seconds:.0f} s{self._reason()}"
            )
        return data

    def _lost(self, error: OSError) -> GuestError:
        return GuestError(f"the connection to {self.title} in the guest was lost: {error}")

    def _reason(self) -> str:
        try:
            ended = self.machine.agent.finish(
                self.process, (self.title,), timeout=1.0, allowed=range(-64, 256)
            )
        except GuestError:
            return ""  # it still runs
        return f": {ended.stderr.strip() or f'it ended with {ended.status}'}"


@contextmanager
def guest_program(
    machine: Machine,
    port: str,
    argv: Sequence[str],
    title: str,
    *,
    allowed: Collection[int] = (0,),
) -> Iterator[GuestProgram]:
    """Runs a program that opens its end of the port by the name `port`, unique on this host.

    The caller must make the program end. Raises GuestError, and WorkloadError if it fails: if it
    ends with a status other than those `allowed`.
    """
    with virtio_serial(machine, port) as line:
        process = machine.agent.start(argv)
        program = GuestProgram(machine, line, process, title, port)
        yield program
        machine.agent.finish(program.process, (title,), timeout=_END_SECONDS, allowed=allowed)


class RequestKind(IntEnum):
    """The requests of the client in the guest (`writer.pl`)."""

    QUIT = 0
    WRITE = 1
    WRITE_FUA = 2
    FLUSH = 3
    READ = 4


def writer_request(
    number: int, kind: RequestKind, first: int = 0, count: int = 0, version: int = 0
) -> bytes:
    """A request in the format of `writer.pl`, with one record for each sector to write."""
    head = _HEAD.pack(number, kind, count, 0, first)
    if kind not in (RequestKind.WRITE, RequestKind.WRITE_FUA):
        return head
    return head + make_records(np.arange(first, first + count, dtype=np.int64), version).tobytes()


@dataclass(slots=True)
class GuestClientDisk:
    """A `ClientDisk` in a guest; `observed` holds properties read back there."""

    program: GuestProgram
    observed: Mapping[str, str]
    _requests: int = field(default=0)

    def write(self, first: int, count: int, version: int, *, fua: bool) -> int:
        """Sends a write; FUA is O_DSYNC, which is how a program requests it."""
        kind = RequestKind.WRITE_FUA if fua else RequestKind.WRITE
        return self._send(kind, first, count, version)

    def flush(self) -> int:
        """Sends a flush, which is fdatasync(2)."""
        return self._send(RequestKind.FLUSH)

    def next_status(self) -> tuple[int, int]:
        """Waits for an answer; returns the request's number and its errno, which may be 0."""
        return self._answer(_ANSWER_SECONDS)

    def await_one(self) -> int:
        """Waits for an answer. Raises GuestError when the request failed."""
        number, status = self.next_status()
        if status:
            name = errno.errorcode.get(status, str(status))
            raise GuestError(
                f"the guest's disk refused a request: {os.strerror(status)} ({name})",
                hint="the host's file system may be full (`df`); otherwise --debug shows what QEMU "
                "printed",
            )
        return number

    def read(self, extent: Extent) -> bytes:
        """Reads sectors; no other request may be in flight."""
        parts = bytearray()
        for first in range(extent.first, extent.first + extent.count, _LARGEST):
            count = min(_LARGEST, extent.first + extent.count - first)
            number = self._send(RequestKind.READ, first, count)
            if self.await_one() != number:
                raise GuestError("the guest answered a request that vdisklab did not send")
            parts += self._receive(count * SECTOR, _ANSWER_SECONDS)
        return bytes(parts)

    def start_again(self, device: str, depth: int) -> None:
        """Starts the client after a reset of the guest, and waits for its greeting."""
        self.program.start_again(_writer_argv(self.program.port, device, depth))
        self.await_hello()

    def await_hello(self) -> None:
        """Waits for the program's greeting. Raises GuestError for anything else."""
        if self._answer(_START_SECONDS) != (_HELLO, 0):
            raise GuestError(
                "the client in the guest did not send its greeting",
                hint="`vdisklab --debug powercut …` shows the guest's console",
            )

    def quit(self) -> None:
        """Tells the program to end; there is no answer."""
        self.program.send(writer_request(0, RequestKind.QUIT))

    def _send(self, kind: RequestKind, first: int = 0, count: int = 0, version: int = 0) -> int:
        self._requests += 1
        self.program.send(writer_request(self._requests, kind, first, count, version))
        return self._requests

    def _answer(self, seconds: float) -> tuple[int, int]:
        number, status = _ANSWER.unpack(self._receive(_ANSWER.size, seconds))
        return number, status

    def _receive(self, length: int, seconds: float) -> bytes:
        data = bytearray()
        while len(data) < length:
            data += self.program.receive(length - len(data), seconds)
        return bytes(data)


def _writer_argv(port: str, device: str, depth: int) -> tuple[str, ...]:
    return (
        PERL, "-e", guest_script("writer.pl"), port, device, str(depth),
        str(GUEST.system_calls.fdatasync), str(GUEST.system_calls.o_direct),
    )  # fmt: skip


@contextmanager
def guest_client_disk(
    machine: Machine, device: str, observed: Mapping[str, str], name: str, depth: int
) -> Iterator[GuestClientDisk]:
    """The guest's disk `device`, with up to `depth` requests in flight.

    `name` must be unique on this host. Raises GuestError.
    """
    argv = _writer_argv(name, device, depth)
    with guest_program(machine, name, argv, "the client") as program:
        disk = GuestClientDisk(program, observed)
        disk.await_hello()
        yield disk
        disk.quit()


def payload(version: int) -> str:
    """The content of row `version`: a third of a page, so some change several pages."""
    return (f"{version}." * _PAYLOAD)[:_PAYLOAD]


def transaction(version: int) -> str:
    """The SQL of one transaction; its last statement prints an answer after COMMIT."""
    return (
        f"BEGIN IMMEDIATE; INSERT INTO promise VALUES ({version}, '{payload(version)}'); "  # noqa: S608 - numbers
        f"UPDATE newest SET version = {version}; COMMIT; SELECT 'done {version}';\n"
    )


def sqlite_settings(kind: ClientKind) -> str:
    """The SQL that sets a client's journal mode and synchronous level, and makes its tables."""
    mode, level = _MODES[kind]
    checkpoint = f"PRAGMA wal_autocheckpoint={_CHECKPOINT_PAGES}; " if mode == "wal" else ""
    return (
        f"PRAGMA journal_mode={mode}; PRAGMA synchronous={level}; {checkpoint}"  # noqa: S608
        "CREATE TABLE promise (version INTEGER PRIMARY KEY, payload TEXT NOT NULL); "
        "CREATE TABLE newest (version INTEGER); INSERT INTO newest VALUES (0);\n"
    )


@dataclass(slots=True)
class GuestDatabase:
    """A `ClientDisk` on which each write is one transaction; SQLite chooses the sectors."""

    title: ClassVar[str] = "SQLite"
    farewell: ClassVar[str] = ".quit\n"

    program: GuestProgram
    observed: dict[str, str]
    _pending: list[int] = field(default_factory=list)
    _received: bytearray = field(default_factory=bytearray)

    def write(self, first: int, count: int, version: int, *, fua: bool) -> int:
        """Begins and commits transaction `version`."""
        del first, count, fua
        self._send(self.statement(version))
        self._pending.append(version)
        return version

    def flush(self) -> int:
        """Raises GuestError: the database itself decides when to flush."""
        raise GuestError("a database client has no flush of its own")

    def await_one(self) -> int:
        """Waits for a commit."""
        version = self._pending.pop(0)
        self._expect(f"done {version}")
        return version

    def statement(self, version: int) -> str:
        """The transaction, whose last line of output is `done` and its version."""
        return transaction(version)

    def ask(self, statement: str, answer: str, hint: str | None = None) -> None:
        """Sends a statement. Raises GuestError unless that is its answer."""
        self._send(statement)
        self._expect(answer, hint)

    def prepare(self, mode: str, level: str) -> None:
        """Sets the journal mode and synchronous level, reads both back, and creates the tables."""
        self.ask(f"PRAGMA journal_mode={mode};\n", mode)
        self.ask(f"PRAGMA synchronous={level}; PRAGMA synchronous;\n", _LEVELS[level])
        if mode == "wal":
            self.ask(f"PRAGMA wal_autocheckpoint={_CHECKPOINT_PAGES};\n", str(_CHECKPOINT_PAGES))
        self.ask(
            "CREATE TABLE promise (version INTEGER PRIMARY KEY, payload TEXT NOT NULL); "
            "CREATE TABLE newest (version INTEGER); INSERT INTO newest VALUES (0); "
            "SELECT 'ready';\n",
            "ready",
            _SHARED_MEMORY if mode == "wal" else None,
        )
        self.observed |= {"guest.sqlite.journal_mode": mode, "guest.sqlite.synchronous": level}

    def quit(self) -> None:
        """Ends the program in the guest."""
        self._send(self.farewell)

    def _send(self, statement: str) -> None:
        self.program.send(statement.encode())

    def _expect(self, answer: str, hint: str | None = None) -> None:
        while b"\n" not in self._received:
            self._received += self.program.receive(4096, _COMMIT_SECONDS)
        line, _, rest = self._received.partition(b"\n")
        self._received = bytearray(rest)
        if line != answer.encode():
            said = line.decode(errors="replace").strip()
            raise GuestError(
                f"{self.title} in the guest said {said!r} instead of {answer!r}", hint=hint
            )


@contextmanager
def database_in_guest(
    machine: Machine, device: str, observed: Mapping[str, str], name: str, kind: ClientKind
) -> Iterator[GuestDatabase]:
    """A new database on a new ext4 on the guest's disk `device`, synced when the context opens.

    See `database_on`.
    """
    machine.agent.run(("/usr/sbin/mkfs.ext4", "-q", "-F", device), timeout=_PREPARE_SECONDS)
    mounting = mount_command(device, _FILESYSTEM, (), MOUNTPOINT)
    with database_on(machine, mounting, observed, name, kind) as database:
        yield database


@contextmanager
def database_on(
    machine: Machine,
    mounting: tuple[str, ...],
    observed: Mapping[str, str],
    name: str,
    kind: ClientKind,
) -> Iterator[GuestDatabase]:
    """A new database on the file system that a command mounts, synced when the context opens.

    `name` must be unique on this host. Raises GuestError and WorkloadError.
    """
    agent = machine.agent
    agent.run(mounting, timeout=_PREPARE_SECONDS)
    version = agent.run((_SQLITE, "--version"), timeout=_PREPARE_SECONDS).stdout.split()[0]
    argv = (
        _SHELL, "-c", guest_script("database.sh"), "database", name,
        _SQLITE, "-batch", "-bail", f"{MOUNTPOINT}/{DATABASE}",
    )  # fmt: skip
    with guest_program(machine, name, argv, "SQLite") as program:
        database = GuestDatabase(program, {**observed, "guest.sqlite": version})
        database.prepare(*_MODES[kind])
        agent.run(("/usr/bin/sync",), timeout=_PREPARE_SECONDS)
        yield database
        database.quit()
    agent.run(("/usr/bin/umount", MOUNTPOINT), timeout=_PREPARE_SECONDS)


class DueTransactions(Value):
    """The last transaction that must be present, and the last one that can be."""

    oldest: int
    newest: int


def due_transactions(trace: Trace, position: int) -> DueTransactions:
    """The transactions due after a cut at a log position; 0 means none."""
    due = (w.version for w in trace.writes if w.durable_at is not None and w.durable_at <= position)
    newest = (w.version for w in trace.writes if w.submitted <= position)
    return DueTransactions(max(due, default=0), max(newest, default=0))


def judge_database(file: Path, first: int, due: DueTransactions) -> tuple[StateOutcome, str]:
    """The outcome of a database whose transactions are numbered from `first`.

    Opening it makes SQLite recover it, which writes. Raises FutureVersionError.
    """
    try:
        if not file.is_file():
            return StateOutcome.LOST, "the database's file is missing"
        uri = f"{file.absolute().as_uri()}?mode=rw"
        with closing(sqlite3.connect(uri, uri=True, isolation_level=None)) as database:
            (integrity,) = database.execute("PRAGMA integrity_check(1)").fetchone()
            if integrity != "ok":
                return StateOutcome.DATABASE, f"integrity_check: {integrity}"
            rows = dict(database.execute("SELECT version, payload FROM promise"))
            (newest,) = database.execute("SELECT version FROM newest").fetchone() or (0,)
    except sqlite3.Error as error:
        return StateOutcome.DATABASE, f"SQLite: {error}"
    except OSError as error:  # the file system's own data are damaged
        if error.errno == errno.ENOMEM:
            raise
        return StateOutcome.DATABASE, f"its file: {error.strerror}"
    return compare_rows(rows, newest, first, due)


def compare_rows(
    rows: dict[int, str], newest: int, first: int, due: DueTransactions
) -> tuple[StateOutcome, str]:
    """The outcome of a table's rows and the newest version. Raises FutureVersionError."""
    last = max(rows, default=0)
    if last > due.newest:
        raise FutureVersionError(f"the database holds transaction {last}, which had not begun")
    if last < due.oldest:
        return StateOutcome.LOST, (
            f"transaction {due.oldest} was committed, but the last one in the database is {last}"
        )
    missing = [version for version in range(first, last + 1) if version not in rows]
    if missing:
        return StateOutcome.LOST, f"transaction {missing[0]} is missing, but {last} is present"
    if newest != last:
        return StateOutcome.TORN, f"half of transaction {max(newest, last)} is in the database"
    wrong = [version for version, content in rows.items() if content != payload(version)]
    if wrong:
        return StateOutcome.GARBAGE, f"row {wrong[0]} does not hold what was written"
    return StateOutcome.KEPT, ""


FilesJudge = Callable[[Path, int, DueTransactions], tuple[StateOutcome, str]]
"""(mount point, first version, due transactions) -> the outcome of the database there."""


def _judge_sqlite(mountpoint: Path, first: int, due: DueTransactions) -> tuple[StateOutcome, str]:
    return judge_database(mountpoint / DATABASE, first, due)


class GuestFileSystem(Value):
    """A file with the content of a guest's disk, and its mount point on the host."""

    file: Path
    mountpoint: Path
    judge_files: FilesJudge

    def judge(self, content: Bytes, first: int, due: DueTransactions) -> tuple[StateOutcome, str]:
        """The outcome of the database on a guest's disk with that content."""
        descriptor = os.open(self.file, os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.ftruncate(descriptor, len(content))
            syscalls.write_whole(descriptor, [content.tobytes()], 0)
        finally:
            os.close(descriptor)
        device = syscalls.attach_loop(self.file)
        try:
            try:
                syscalls.mount(device, self.mountpoint, _FILESYSTEM)
            except OSError as error:
                return StateOutcome.UNMOUNTABLE, f"the guest's file system: {error.strerror}"
            try:
                return self.judge_files(self.mountpoint, first, due)
            finally:
                unmount_state(self.mountpoint)
        finally:
            syscalls.detach_loop(device)


@contextmanager
def guest_file_system(
    site: Site, judge: FilesJudge = _judge_sqlite, *, below: Path | None = None
) -> Iterator[GuestFileSystem]:
    """A file in the site's directory, which is in memory, and a mount point there or `below`."""
    file, name = site.directory / "guest.disk", f"{site.directory.name}-guest"
    mountpoint = (below or site.directory) / name
    with (
        site.tracked(ledger.Kind.DIRECTORY, mountpoint),
        site.tracked(ledger.Kind.LOOP, file),
        site.tracked(ledger.Kind.MOUNT, mountpoint),
    ):
        mountpoint.mkdir()
        site.new_file(file)
        try:
            yield GuestFileSystem(file, mountpoint, judge)
        finally:
            file.unlink(missing_ok=True)  # the next recording makes a new one
