"""Builds the disk as it may be after a cut: what is durable once, and a clone of it per state.

The durable part grows with the log and is never rebuilt for the next epoch. Each state is a
clone of it (FICLONE on XFS, in constant time) with the epoch's surviving changes on top: it
costs what differs from its neighbour. A disk is always built forward from an empty one: older
blocks over newer ones are seen by XFS as corruption, by their log sequence numbers.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from vdisklab.host.syscalls import clone_file, punch_hole
from vdisklab.powercut.cuts import Cut, Epoch, torn_parts
from vdisklab.powercut.log import Entry, Flag, Log


@dataclass(slots=True)
class Rebuilder:
    """The durable part of one recording's disk, and the file that holds the present state."""

    entries: Sequence[Entry]
    log: int
    base: int
    base_file: Path
    state_file: Path
    disk_size: int
    applied: int = 0

    def build(self, epoch: Epoch, cut: Cut) -> Path:
        """The state of a cut as a file, which the next call replaces."""
        self._advance(epoch.base)
        state = os.open(self.state_file, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            clone_file(self.base, state)
            for bit, index in enumerate(epoch.changes):
                if cut.kept >> bit & 1:
                    self._apply(state, self.entries[index])
                elif cut.torn >> bit & 1:
                    self._tear(state, index, cut)
        finally:
            os.close(state)
        return self.state_file

    def _advance(self, position: int) -> None:
        if position < self.applied:
            os.ftruncate(self.base, 0)
            os.ftruncate(self.base, self.disk_size)
            self.applied = 0
        for entry in self.entries[self.applied : position]:
            if entry.changes_disk:
                self._apply(self.base, entry)
        self.applied = max(self.applied, position)

    def _apply(self, target: int, entry: Entry) -> None:
        if entry.zeroes or Flag.DISCARD in entry.flags:
            punch_hole(target, entry.offset, entry.length)
        else:
            os.pwrite(target, os.pread(self.log, entry.length, entry.data_at), entry.offset)

    def _tear(self, target: int, index: int, cut: Cut) -> None:
        entry = self.entries[index]
        for offset, length in torn_parts(cut, index, entry.length):
            part = Entry(
                entry.offset + offset, length, entry.flags, entry.data_at + offset, entry.zeroes
            )
            self._apply(target, part)


@contextmanager
def open_rebuilder(directory: Path, log: Log, disk_size: int) -> Iterator[Rebuilder]:
    """A rebuilder with its files in `directory`, which must be on a file system that clones."""
    base_file, state_file = directory / "base", directory / "state"
    source = os.open(log.path, os.O_RDONLY | os.O_CLOEXEC)
    base = os.open(base_file, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        os.ftruncate(base, disk_size)
        yield Rebuilder(log.entries, source, base, base_file, state_file, disk_size)
    finally:
        os.close(base)
        os.close(source)
        base_file.unlink(missing_ok=True)
        state_file.unlink(missing_ok=True)
