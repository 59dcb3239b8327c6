"""Builds a disk's states after cuts: the durable part once, then each state on top of it.

Two sparse files in memory hold the durable part, which grows with the log, and the current state.
Full memory raises an error, so it is never taken for a loss.

A state is not built from scratch: the two files are compared page by page to find and undo the
changes by recovery and by the next boot; then the surviving changes of the next cut are applied. So
the cost of a state depends on its difference from the previous one, and only one loop device is
between file system and memory. A disk is always built forward from an empty one: XFS reports
corruption when newer blocks are replaced by older ones, by their log sequence numbers.
"""

from __future__ import annotations

import errno
import mmap
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from vdisklab.errors import HostError, memory_full
from vdisklab.host.mounts import free_bytes
from vdisklab.host.syscalls import opened, punch_hole, write_whole
from vdisklab.powercut.crash_states import CrashState, Epoch, torn_parts
from vdisklab.storage.write_log import Flag, Log, LogEntry
from vdisklab.units import MIB

STATE_NAME = "state"
"""The file of the current state in the rebuilder's directory."""

_PAGE = 4096
"""Bytes that are compared at once. The kernel's pages are as large or larger, so a hole in a file
in memory begins and ends where one of these does."""

_ROOM_FOR_A_STATE = 96 * MIB
"""Room for changes by mounting and post-recovery writes: XFS alone logs 2 MiB on mount."""

_ROOM_LEFT = 4 * MIB
_STATE = "another state of the disk"
Pages = npt.NDArray[np.bool_]
Words = npt.NDArray[np.uint64]


def require_memory(directory: Path, least: int, purpose: str) -> None:
    """Raises MemoryFullError when a directory in memory has less than `least` bytes free."""
    if free_bytes(directory) < least:
        raise memory_full(purpose)


@contextmanager
def reporting_full_memory(purpose: str) -> Iterator[None]:
    """Turns the OSError of a write without room into a MemoryFullError.

    Only for code that writes nowhere but in memory.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.ENOMEM):
            raise
        raise memory_full(purpose) from error


def stored_ranges(descriptor: int) -> Iterator[tuple[int, int]]:
    """Begin and end of each range of an open file that holds data (lseek(2), SEEK_DATA)."""
    size = os.fstat(descriptor).st_size
    offset = 0
    while offset < size:
        try:
            begin = os.lseek(descriptor, offset, os.SEEK_DATA)
        except OSError as error:
            if error.errno != errno.ENXIO:  # ENXIO: a hole up to the end
                raise
            return
        offset = os.lseek(descriptor, begin, os.SEEK_HOLE)
        yield begin, offset


@dataclass(slots=True)
class _SparseFile:
    """A file in memory, mapped as rows of pages.

    Only stored rows may be read, because reading a hole allocates memory.
    """

    path: Path
    descriptor: int
    rows: Words

    def stored(self) -> Pages:
        """For each page, whether it holds data."""
        pages = np.zeros(len(self.rows), dtype=np.bool_)
        for begin, end in stored_ranges(self.descriptor):
            pages[begin // _PAGE : -(-end // _PAGE)] = True
        return pages

    def clear(self, size: int) -> None:
        """Replaces the content by one hole of `size` bytes."""
        os.ftruncate(self.descriptor, 0)
        os.ftruncate(self.descriptor, size)


@dataclass(slots=True)
class Rebuilder:
    """The durable part of one recording's disk, and its current state.

    `sharers` is the number of rebuilders in the same memory.
    """

    entries: Sequence[LogEntry]
    log: int
    base: _SparseFile
    state: _SparseFile
    disk_size: int
    sharers: int = 1
    applied: int = 0
    _durable: Pages | None = None
    """The pages that hold data in the durable part, as long as it does not grow."""

    @property
    def state_file(self) -> Path:
        """The file of the current state."""
        return self.state.path

    def build(self, epoch: Epoch, cut: CrashState) -> Path:
        """Builds the state of a cut; returns its file, which must not be in use.

        Raises MemoryFullError when memory is short, because a full disk would look like a loss.
        There must be room for all sharers: one could use up the last memory and free it again
        before another checks.
        """
        require_memory(self.state.path.parent, _ROOM_FOR_A_STATE * self.sharers, _STATE)
        self._undo()
        self._advance(epoch.base)
        for bit, index in enumerate(epoch.changes):
            if cut.kept >> bit & 1:
                self._apply(self.state.descriptor, self.entries[index])
            elif cut.torn >> bit & 1:
                self._tear(index, cut)
        return self.state_file

    def require_room(self) -> None:
        """Raises MemoryFullError if memory ran short while the state was in use.

        Observations of the state are then unreliable.
        """
        require_memory(self.state.path.parent, _ROOM_LEFT, _STATE)

    def _undo(self) -> None:
        """Makes the state equal to the durable part again."""
        if self._durable is None:
            self._durable = self.base.stored()
        durable, present = self._durable, self.state.stored()
        for first, end in _runs(present & ~durable):
            punch_hole(self.state.descriptor, first * _PAGE, (end - first) * _PAGE)
        changed = durable & ~present
        for first, end in _runs(durable & present):
            differs = self.base.rows[first:end] != self.state.rows[first:end]
            changed[first:end] = differs.any(axis=1)
        for first, end in _runs(changed):
            data = self.base.rows[first:end].tobytes()
            write_whole(self.state.descriptor, [data], first * _PAGE)

    def _advance(self, position: int) -> None:
        """Adds all log entries before a position to the durable part."""
        if position < self.applied:
            for file in (self.base, self.state):
                file.clear(self.disk_size)
            self.applied = 0
        if position != self.applied:
            self._durable = None
        for entry in self.entries[self.applied : position]:
            if entry.changes_disk:
                self._apply(self.base.descriptor, entry)
                self._apply(self.state.descriptor, entry)
        self.applied = max(self.applied, position)

    def _apply(self, target: int, entry: LogEntry) -> None:
        if entry.zeroes or Flag.DISCARD in entry.flags:
            punch_hole(target, entry.offset, entry.length)
        else:
            data = os.pread(self.log, entry.length, entry.data_at)
            write_whole(target, [data], entry.offset)

    def _tear(self, index: int, cut: CrashState) -> None:
        entry = self.entries[index]
        for offset, length in torn_parts(cut, index, entry.length):
            part = LogEntry(
                entry.offset + offset, length, entry.flags, entry.data_at + offset, entry.zeroes
            )
            self._apply(self.state.descriptor, part)


def _runs(pages: Pages) -> Iterator[tuple[int, int]]:
    """Begin and end of each run of pages."""
    edges = np.flatnonzero(np.diff(pages, prepend=False, append=False))
    return zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True)


@contextmanager
def open_rebuilder(
    directory: Path, log: Log, disk_size: int, *, sharers: int = 1
) -> Iterator[Rebuilder]:
    """A rebuilder with its files in `directory`, which must be in memory."""
    with (
        opened(log.path, os.O_RDONLY) as source,
        _sparse_file(directory / "base", disk_size) as base,
        _sparse_file(directory / STATE_NAME, disk_size) as state,
    ):
        yield Rebuilder(log.entries, source, base, state, disk_size, sharers)


@contextmanager
def _sparse_file(path: Path, size: int) -> Iterator[_SparseFile]:
    if size % _PAGE:
        raise HostError(
            f"a disk of {size} bytes cannot be rebuilt: it is not a multiple of {_PAGE}"
        )
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        os.ftruncate(descriptor, size)
        with mmap.mmap(descriptor, size, prot=mmap.PROT_READ) as mapping:
            rows = np.frombuffer(mapping, np.uint64).reshape(-1, _PAGE // 8)
            file = _SparseFile(path, descriptor, rows)
            del rows  # the mapping cannot be closed while an array refers to it
            try:
                yield file
            finally:
                file.rows = np.empty((0, _PAGE // 8), np.uint64)
    finally:
        os.close(descriptor)
        path.unlink(missing_ok=True)
