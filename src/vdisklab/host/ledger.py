"""What we made on this host and must remove: written down before it exists.

One file per process, one JSON object per line, synced before the thing is made. The file is
locked while its process lives, so `vdisklab clean` can tell an interrupted run from a running one.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from vdisklab.errors import DirtyHostError, HostError


class Kind(StrEnum):
    """Kinds of things that outlive the process that made them."""

    PROCESS = "process"
    FILE = "file"
    DIRECTORY = "directory"
    LOOP = "loop"
    MOUNT = "mount"
    DEVICE = "device"  # a whole device of the user's that we write on
    GROUP = "volume group"
    VOLUME = "logical volume"
    ARRAY = "md array"
    POOL = "pool"
    MAPPED = "device-mapper device"
    ARC = "limit of ZFS's cache"


@dataclass(frozen=True, slots=True)
class Entry:
    """One thing: `name` identifies it to the one who undoes it, `detail` says what else helps."""

    number: int
    kind: str
    name: str
    detail: Mapping[str, str] = field(default_factory=dict)


class Ledger:
    """The open ledger of this process."""

    def __init__(self, path: Path, run_id: str, descriptor: int) -> None:
        self.path = path
        self.run_id = run_id
        self._descriptor = descriptor
        self._next = 0

    @contextmanager
    def entry(self, kind: str, name: str | os.PathLike[str], **detail: str) -> Iterator[Entry]:
        """Holds one line for as long as the thing may exist, and yields it.

        The line is written before the block is entered and struck when the block is left,
        except by a DirtyHostError: then the thing is still there, and the line stays for `clean`.
        """
        entry = self.add(kind, name, **detail)
        try:
            yield entry
        except DirtyHostError:
            raise
        except BaseException:
            self.strike(entry)
            raise
        self.strike(entry)

    def add(self, kind: str, name: str | os.PathLike[str], **detail: str) -> Entry:
        """Writes down a thing that is about to be made."""
        entry = Entry(self._next, kind, os.fspath(name), detail)
        self._next += 1
        self._append({"add": entry.number, "kind": kind, "name": entry.name, "detail": detail})
        return entry

    def strike(self, entry: Entry) -> None:
        """Writes down that a thing is gone."""
        self._append({"strike": entry.number})

    def _append(self, line: Mapping[str, Any]) -> None:
        os.write(self._descriptor, json.dumps(line).encode() + b"\n")
        os.fsync(self._descriptor)


def state_directory() -> Path:
    """Where ledgers and the default database are: the system's place for root, else the user's."""
    override = os.environ.get("VDISKLAB_STATE")
    if override:
        return Path(override)
    if os.geteuid() == 0:
        return Path("/var/lib/vdisklab")
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local/state"
    return Path(base) / "vdisklab"


def cache_directory() -> Path:
    """Where kernels and guest images are kept between campaigns."""
    return state_directory() / "cache"


@contextmanager
def open_ledger(directory: Path | None = None) -> Iterator[Ledger]:
    """A new, locked ledger; removed at the end when every line in it is struck."""
    directory = (directory or state_directory()) / "ledger"
    run_id = secrets.token_hex(4)
    path = directory / f"{run_id}.jsonl"
    # Locked before it has its name: `leftovers` must never find it unlocked while we live.
    unnamed = directory / f".{run_id}"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(unnamed, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o600)
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        unnamed.rename(path)
        _sync_directory(directory)
    except OSError as error:
        raise HostError(
            f"the ledger {path} cannot be written: {error.strerror}",
            hint="set VDISKLAB_STATE to a directory that can be written",
        ) from error
    try:
        yield Ledger(path, run_id, descriptor)
    finally:
        if not pending(path):
            path.unlink(missing_ok=True)
        os.close(descriptor)


def _sync_directory(directory: Path) -> None:
    """Makes a new name durable: a synced file that no directory names is lost with the power."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def pending(path: Path) -> list[Entry]:
    """The entries of a ledger that are not struck, newest first: the order to undo them in.

    A last line that a crash cut short is skipped: its thing was never made, because the line is
    synced first.
    """
    entries: dict[int, Entry] = {}
    for text in path.read_text(errors="replace").splitlines():
        try:
            line = json.loads(text)
        except json.JSONDecodeError:
            continue
        if "add" in line:
            entries[line["add"]] = Entry(line["add"], line["kind"], line["name"], line["detail"])
        elif "strike" in line:
            entries.pop(line["strike"], None)
    return sorted(entries.values(), key=lambda entry: -entry.number)


@dataclass(frozen=True, slots=True)
class Leftover:
    """What one interrupted process left."""

    path: Path
    entries: tuple[Entry, ...]

    def strike(self, entry: Entry) -> None:
        """Writes down that an entry's thing is gone; only while `leftovers` holds the lock."""
        with self.path.open("ab") as ledger:
            # The line before may have been cut short by the crash, so it is ended first.
            ledger.write(b"\n" + json.dumps({"strike": entry.number}).encode() + b"\n")
            ledger.flush()
            os.fsync(ledger.fileno())


@contextmanager
def leftovers(directory: Path | None = None) -> Iterator[list[Leftover]]:
    """The ledgers of processes that are gone, each locked for as long as the block lasts."""
    directory = (directory or state_directory()) / "ledger"
    held: list[int] = []
    found: list[Leftover] = []
    try:
        for path in sorted(directory.glob("*.jsonl")) if directory.is_dir() else []:
            try:
                held.append(os.open(path, os.O_RDWR))
                fcntl.flock(held[-1], fcntl.LOCK_EX | fcntl.LOCK_NB)
                found.append(Leftover(path, tuple(pending(path))))
            except (BlockingIOError, FileNotFoundError):
                continue  # its process is alive, or ended well just now
        yield found
    finally:
        for descriptor in held:
            os.close(descriptor)
