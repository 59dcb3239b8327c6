"""Sparse files in memory; if memory is full, an error is raised, so it is never taken for a
loss."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from vdisklab.errors import HostError
from vdisklab.host.mounts import free_bytes


class MemoryFullError(HostError):
    """Memory is full, so recent reads and writes cannot be trusted."""


def memory_full(purpose: str) -> MemoryFullError:
    """The error, naming the purpose of the memory."""
    return MemoryFullError(
        f"there is no room in memory for {purpose}",
        hint="free some memory (`free -h` shows it), or write less with --writes",
    )


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
    at = 0
    while at < size:
        try:
            begin = os.lseek(descriptor, at, os.SEEK_DATA)
        except OSError as error:
            if error.errno != errno.ENXIO:  # ENXIO: a hole up to the end
                raise
            return
        at = os.lseek(descriptor, begin, os.SEEK_HOLE)
        yield begin, at
