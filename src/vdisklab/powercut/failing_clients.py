"""The programs in a guest whose storage fails, a row each: how they begin, and how they are judged.

Each writes one thing after another, and is told of each whether it is durable. It goes on after an
error, as a server would.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

from vdisklab.guest.machine import Machine
from vdisklab.host.command import Host
from vdisklab.path.power_cut_words import ClientKind
from vdisklab.path.segments import GuestFsKind
from vdisklab.powercut.guest_clients import DATABASE
from vdisklab.powercut.postgresql import REACHABLE, ClusterJudge
from vdisklab.powercut.synced_files import FileAnswer, Kept, lost_files, synced_files
from vdisklab.powercut.synced_rows import kept_rows, synced_rows
from vdisklab.powercut.synced_sectors import DISK_BYTES, kept_sectors, synced_sectors
from vdisklab.powercut.synced_transactions import kept_transactions, synced_transactions
from vdisklab.units import MIB
from vdisklab.value import Value

_SIZES: Mapping[GuestFsKind, int] = {
    GuestFsKind.EXT4: 64 * MIB, GuestFsKind.XFS: 320 * MIB, GuestFsKind.BTRFS: 192 * MIB,
}  # fmt: skip
"""Bytes of the guest's disk: a little more than the least of each file system."""
FILESYSTEMS = tuple(_SIZES)
"""The guest's file systems that can be judged."""

_CLUSTER_BYTES = 96 * MIB
_RESTART_SECONDS = 30.0


class SyncingProgram(Protocol):
    """A program in the guest, with at most one request in flight."""

    pending: str | None

    def request_next(self) -> None:
        """Asks for the next thing; nothing may be in flight."""

    def answer(self, seconds: float) -> FileAnswer | None:
        """What became of it; None if that is not told in time."""


class FailingClient(Value):
    """A client of storage that fails."""

    begin: Callable[[Machine, str, str], AbstractContextManager[SyncingProgram]]
    """(machine, device, name of the port) -> the program."""
    kept: Callable[[Host, Path, Collection[str]], Kept]
    """(host, place, versions) -> what is left of these versions. The place is the mount point of
    the guest's file system, or without one a file with the disk's content."""
    has_filesystem: bool = True
    more_bytes: int = 0
    """What it needs on its file system, besides a few MiB."""
    restart_seconds: float = 0.0
    """How long it may refuse everything after the failure, because it starts again."""
    below: Path | None = None
    """Where the judge needs the mount point."""

    def disk_bytes(self, filesystem: GuestFsKind) -> int:
        """Bytes of the guest's disk."""
        return _SIZES[filesystem] + self.more_bytes if self.has_filesystem else DISK_BYTES


def _sqlite(kind: ClientKind) -> FailingClient:
    return FailingClient(
        begin=lambda machine, _, port: synced_rows(machine, port, kind),
        kept=lambda _, place, versions: kept_rows(place / DATABASE, versions),
    )


def _sectors(kind: ClientKind) -> FailingClient:
    return FailingClient(
        begin=lambda machine, device, port: synced_sectors(machine, device, port, kind),
        kept=lambda _, place, versions: kept_sectors(place, versions),
        has_filesystem=False,
    )


FAILING_CLIENTS: Mapping[ClientKind, FailingClient] = {
    ClientKind.FILES: FailingClient(
        begin=lambda machine, _, port: synced_files(machine, port),
        kept=lambda _, place, versions: Kept(lost_files(place, versions)),
    ),
    ClientKind.SQLITE_WAL: _sqlite(ClientKind.SQLITE_WAL),
    ClientKind.SQLITE_DELETE: _sqlite(ClientKind.SQLITE_DELETE),
    ClientKind.SQLITE_EXTRA: _sqlite(ClientKind.SQLITE_EXTRA),
    ClientKind.POSTGRESQL: FailingClient(
        begin=lambda machine, _, port: synced_transactions(machine, port),
        kept=lambda host, place, versions: kept_transactions(ClusterJudge(host), place, versions),
        more_bytes=_CLUSTER_BYTES,
        restart_seconds=_RESTART_SECONDS,
        below=REACHABLE,
    ),
    ClientKind.FLUSHES: _sectors(ClientKind.FLUSHES),
    ClientKind.FUA: _sectors(ClientKind.FUA),
    ClientKind.NEVER: _sectors(ClientKind.NEVER),
}
