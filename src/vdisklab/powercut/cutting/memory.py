"""The memory that disks are built in. Where it is full that is an error, and never a loss."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from vdisklab.errors import HostError
from vdisklab.storage.room import free_bytes


class MemoryFullError(HostError):
    """Nothing that was written or read meanwhile is to be believed."""


def memory_full(what: str) -> MemoryFullError:
    """The error that says for what there is no room."""
    return MemoryFullError(
        f"there is no room in memory for {what}",
        hint="free some memory (`free -h`), or ask for less with fewer --writes",
    )


def require_memory(directory: Path, least: int, what: str) -> None:
    """Raises MemoryFullError when less than so many bytes are left in a directory in memory."""
    if free_bytes(directory) < least:
        raise memory_full(what)


@contextmanager
def told_when_full(what: str) -> Iterator[None]:
    """Turns the system's error for a write without room into a MemoryFullError.

    Only for blocks that write nowhere but in memory.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.ENOMEM):
            raise
        raise memory_full(what) from error
