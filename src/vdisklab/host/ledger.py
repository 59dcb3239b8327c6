"""The ledger: a list of everything that vdisklab creates on this host and must remove.

Each process has a file with one JSON object per line, synced before the thing is created. The file
is locked while its process lives, so `vdisklab clean` recognises interrupted runs.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import secrets
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from vdisklab.errors import DirtyHostError, HostError, LeftOnTargetError
from vdisklab.host.safe_places import make_state_directory, open_file, require_safe_state
from vdisklab.host.state_directory import state_directory
from vdisklab.value import Value, replace

PROGRAM_MARK = "VDISKLAB_PROGRAM="
"""The start of the variable in the environment of the programs that a site runs."""

NEEDED = "needs"
"""The detail of an entry that names the file without which its thing cannot be removed."""

NUMBERS = "numbers"
"""The detail of a process that was found: its number, or those of several."""

_PROGRAMS = {
    "guest=": "QEMU of the guest",
    "addr.path=": "QEMU's storage daemon",
    "source=": "virtiofsd of",
    "--marker=": "server of the disk",
}
"""What a process is, by the start of the argument that marks it."""

_NAMED = 3


class Kind(StrEnum):
    """Kinds of things that outlive the process that creates them; layers have more of their own."""

    PROCESS = "process"
    FILE = "file"
    DIRECTORY = "directory"
    LOOP = "loop"
    MOUNT = "mount"
    MAPPED = "device-mapper device"


@dataclass(frozen=True, slots=True)
class Entry:
    """One thing that was created; its undo function finds it by `name` and `detail`.

    `noted` is the time of the note in nanoseconds since 1970. It orders the things of several
    ledgers, because one may lie on another.
    """

    number: int
    kind: str
    name: str
    detail: Mapping[str, str] = field(default_factory=dict)
    noted: int = field(default=0, compare=False)

    def __str__(self) -> str:
        if self.name.startswith(PROGRAM_MARK):
            return f"programs that run {self.name.removeprefix(PROGRAM_MARK)} started"
        if self.kind == Kind.PROCESS:
            return self._process
        return f"{self.kind} {self.name}"

    @property
    def _process(self) -> str:
        """What a process is, by the argument that marks it, with its number if it was found."""
        numbers = self.detail.get(NUMBERS)
        found = "" if numbers is None else f"process {numbers}, "
        for mark, what in _PROGRAMS.items():
            if self.name.startswith(mark):
                return f"{found}{what} {self.name.removeprefix(mark).rstrip(',')}"
        return f"{found or 'process '}{self.name}"


class Ledger:
    """The open ledger of this process."""

    def __init__(self, path: Path, run_id: str, descriptor: int) -> None:
        self.path = path
        self.run_id = run_id
        self._descriptor = descriptor
        self._next = 0
        self._open: dict[tuple[str, str], Entry] = {}

    @property
    def entries(self) -> tuple[Entry, ...]:
        """What exists by now, with all that is known of each."""
        return tuple(self._open.values())

    @contextmanager
    def entry(self, kind: str, name: str | os.PathLike[str], **detail: str) -> Iterator[Entry]:
        """Writes an entry before the body creates the thing, and strikes it after the body.

        A DirtyHostError means that the thing is still there: then the entry stays for `clean`. What
        a LeftOnTargetError names is on a target, so this thing is gone.
        """
        entry = self.add(kind, name, **detail)
        try:
            yield entry
        except LeftOnTargetError:
            self.strike(entry)
            raise
        except DirtyHostError:
            raise
        except BaseException:
            self.strike(entry)
            raise
        self.strike(entry)

    def add(self, kind: str, name: str | os.PathLike[str], **detail: str) -> Entry:
        """Writes an entry for a thing that is about to be created."""
        entry = Entry(self._next, kind, os.fspath(name), detail, time.time_ns())
        self._next += 1
        self._open[entry.kind, entry.name] = entry
        line = {"add": entry.number, "kind": kind, "name": entry.name, "detail": detail}
        self._append({**line, "noted": entry.noted})
        return entry

    def learn(self, kind: str, name: str | os.PathLike[str], **detail: str) -> None:
        """Writes what is known of a thing now that it exists: how it is found under any name."""
        key = (kind, os.fspath(name))
        entry_so_far = self._open[key]
        self._open[key] = replace(entry_so_far, detail={**entry_so_far.detail, **detail})
        self._append({"learn": entry_so_far.number, "detail": detail})

    def strike(self, entry: Entry) -> None:
        """Writes that a thing is removed."""
        self._open.pop((entry.kind, entry.name), None)
        self._append({"strike": entry.number})

    def _append(self, line: Mapping[str, Any]) -> None:
        text = json.dumps(line).encode() + b"\n"
        before = os.fstat(self._descriptor).st_size
        try:
            if os.write(self._descriptor, text) < len(text):
                os.ftruncate(self._descriptor, before)  # else the next line would end this one
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(self._descriptor)
        except OSError as error:
            raise HostError(
                f"the ledger {self.path} cannot be written: {error.strerror}",
                hint="free some space there, or set VDISKLAB_STATE to another directory",
            ) from error


@contextmanager
def open_ledger(directory: Path | None = None) -> Iterator[Ledger]:
    """A new, locked ledger. It is deleted at the end if all its entries are struck."""
    directory = (directory or state_directory()) / "ledger"
    run_id = secrets.token_hex(4)
    path = directory / f"{run_id}.jsonl"
    # Locked before it gets its name: `leftovers` must never find it unlocked while we live.
    unnamed = directory / f".{run_id}"
    try:
        make_state_directory(directory)
        descriptor = open_file(unnamed, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND)
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        unnamed.rename(path)
        _sync_directory(directory)
    except OSError as error:
        raise HostError(
            f"{directory}, where vdisklab notes what it makes, cannot be written: {error.strerror}",
            hint="set VDISKLAB_STATE to a directory that this user can write, such as "
            "/var/tmp/vdisklab",
        ) from error
    try:
        yield Ledger(path, run_id, descriptor)
    finally:
        if not pending(path):
            path.unlink(missing_ok=True)
        os.close(descriptor)


def _sync_directory(directory: Path) -> None:
    """Makes a new file name durable: a power cut loses a synced file without a durable name."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def pending(path: Path) -> list[Entry]:
    """The entries of a ledger whose things still exist, in the `order_of_removal`.

    An incomplete last line is skipped: its thing was never created, because the line is synced
    first.
    """
    entries: dict[int, Entry] = {}
    for text in path.read_text(errors="replace").splitlines():
        try:
            line = json.loads(text)
        except json.JSONDecodeError:
            continue
        except (RecursionError, ValueError) as error:  # too many digits for int()
            raise _damaged(path, text) from error
        match line:
            case {"add": int(number), "kind": str(kind), "name": str(name), "detail": dict(detail)}:
                noted = line.get("noted")
                noted = noted if isinstance(noted, int) else 0
                entries[number] = Entry(number, kind, name, detail, noted)
            case {"learn": int(number), "detail": dict(detail)}:
                if number in entries:
                    entry_so_far = entries[number]
                    entries[number] = replace(
                        entry_so_far, detail={**entry_so_far.detail, **detail}
                    )
            case {"strike": int(number)}:
                entries.pop(number, None)
            case _:
                raise _damaged(path, text)
    return sorted(entries.values(), key=order_of_removal)


def order_of_removal(entry: Entry) -> tuple[bool, int, int]:
    """Sorts the entries of one or more ledgers: first the programs of sites, because they use the
    other entries, then the newest first. A FUSE server stays until nothing uses its disk."""
    return not entry.name.startswith(PROGRAM_MARK), -entry.noted, -entry.number


def _damaged(path: Path, line: str) -> HostError:
    return HostError(
        f"the ledger {path} is damaged: {line[:60]!r} is not an entry",
        hint="remove by hand whatever its other lines name, then delete the file",
    )


class Leftover(Value):
    """The ledger of a process that has ended."""

    path: Path
    entries: tuple[Entry, ...]

    def strike(self, entry: Entry) -> None:
        """Writes that a thing is removed; only while `leftovers` holds the lock."""
        with os.fdopen(open_file(self.path, os.O_WRONLY | os.O_APPEND), "ab") as ledger:
            # A crash may have cut the last line short, so it is ended first.
            ledger.write(b"\n" + json.dumps({"strike": entry.number}).encode() + b"\n")
            ledger.flush()
            os.fsync(ledger.fileno())


@contextmanager
def leftovers(directory: Path | None = None) -> Iterator[list[Leftover]]:
    """The ledgers of processes that have ended, locked while the context is open.

    Raises HostError for one that another user owns or may write: root obeys its own only.
    """
    directory = (directory or state_directory()) / "ledger"
    require_safe_state(directory)
    locks: list[int] = []
    ledgers: list[Leftover] = []
    try:
        for path in sorted(directory.glob("*.jsonl")) if directory.is_dir() else []:
            try:
                locks.append(open_file(path, os.O_RDWR))
                fcntl.flock(locks[-1], fcntl.LOCK_EX | fcntl.LOCK_NB)
                ledgers.append(Leftover(path, tuple(pending(path))))
            except (BlockingIOError, FileNotFoundError):
                continue  # its process lives, or has just deleted it
            except OSError as error:
                raise HostError(
                    f"the ledger {path} is not obeyed: {error.strerror}",
                    hint="read it, remove by hand what it names and is vdisklab's, then delete it",
                ) from error
        yield ledgers
    finally:
        for descriptor in locks:
            os.close(descriptor)


def leftovers_sentence(directory: Path | None = None, whose: str = "an earlier run") -> str | None:
    """What runs that have ended left behind, and how to remove it; None if nothing is left."""
    with leftovers(directory) as ledgers:
        left = [str(entry) for ledger in ledgers for entry in ledger.entries]
    if not left:
        return None
    more = f" and {len(left) - _NAMED} more" if len(left) > _NAMED else ""
    return (
        f"{whose} left {', '.join(left[:_NAMED])}{more} behind: `vdisklab clean` "
        "removes what it left"
    )
