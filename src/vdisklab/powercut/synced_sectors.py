"""A program in a guest that writes to its disk without a file system, and tells every error.

Each request is a block of 4 KiB at a place of its own. It is acknowledged once a flush after it has
returned (`flushes`), the write itself with FUA (`fua`), or the write alone (`never`).
"""

from __future__ import annotations

import os
import select
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from vdisklab.guest.machine import Machine
from vdisklab.host import syscalls
from vdisklab.path.power_cut_words import ClientKind
from vdisklab.powercut.guest_clients import GuestClientDisk, guest_client_disk
from vdisklab.powercut.sectors import read_versions
from vdisklab.powercut.synced_files import FileAnswer, Kept
from vdisklab.units import KIB, MIB, SECTOR

DISK_BYTES = 64 * MIB
_PLACE_BYTES = 16 * KIB
_PLACES = DISK_BYTES // _PLACE_BYTES
_COUNT = 8
_WRITE, _FLUSH = "write", "fsync"


@dataclass(slots=True)
class SyncedSectors:
    """The program, with at most one request in flight."""

    disk: GuestClientDisk
    kind: ClientKind
    versions: int = 0
    pending: str | None = None
    _call: str = _WRITE
    _refused: int = field(default=0)
    """The errno of a flush that is being tried a second time."""

    def request_next(self) -> None:
        """Asks for the next block; nothing may be in flight."""
        self.versions += 1
        self.pending, self._call, self._refused = str(self.versions), _WRITE, 0
        fua = self.kind is ClientKind.FUA
        self.disk.write(first_sector(self.versions), _COUNT, self.versions, fua=fua)

    def answer(self, seconds: float) -> FileAnswer | None:
        """The answer to what is in flight; None if none arrives in time. Raises GuestError."""
        end = time.monotonic() + seconds
        line = self.disk.program.line
        while select.select([line], [], [], max(0.0, end - time.monotonic()))[0]:
            _, status = self.disk.next_status()
            moment, version = time.time(), str(self.pending)
            if self._refused:  # the second flush
                self.pending = None
                return FileAnswer(moment, version, _FLUSH, self._refused, again=status)
            if status and self._call == _FLUSH:
                self._refused = status
                self.disk.flush()
            elif not status and self._call == _WRITE and self.kind is ClientKind.FLUSHES:
                self._call = _FLUSH
                self.disk.flush()
            else:
                self.pending = None
                call = self._call if status else None
                return FileAnswer(moment, version, call, status)
        return None


def first_sector(version: int) -> int:
    """Where a version is written. A disk has room for thousands, then the places come again."""
    return version % _PLACES * (_PLACE_BYTES // SECTOR)


@contextmanager
def synced_sectors(
    machine: Machine, device: str, name: str, kind: ClientKind
) -> Iterator[SyncedSectors]:
    """The program, on the guest's disk `device`; `name` must be unique on this host.

    Raises GuestError, and WorkloadError if it fails.
    """
    with guest_client_disk(machine, device, {}, name, 1) as disk:
        yield SyncedSectors(disk, kind)


def kept_sectors(content: Path, versions: Collection[str]) -> Kept:
    """Which of these versions are in a file with a disk's content; a later one at its place is as
    good."""
    with syscalls.opened(content, os.O_RDONLY | os.O_CLOEXEC) as disk:
        return Kept(tuple(version for version in versions if not _is_there(disk, int(version))))


def _is_there(disk: int, version: int) -> bool:
    first = first_sector(version)
    raw = os.pread(disk, _COUNT * SECTOR, first * SECTOR).ljust(_COUNT * SECTOR, b"\0")
    numbers = np.arange(first, first + _COUNT, dtype=np.int64)
    found = read_versions(np.frombuffer(raw, dtype=np.uint8), numbers)
    return bool((found >= version).all())
