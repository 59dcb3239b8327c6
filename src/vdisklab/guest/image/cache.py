"""Directories in the cache: one builder at a time builds in a temporary directory and renames
it."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from vdisklab.errors import HostError
from vdisklab.host.safe_places import make_state_directory, open_file, require_safe_state

_PREFIX = ".building-"


_Kept = TypeVar("_Kept")


def kept_or_built(
    directory: Path, find: Callable[[], _Kept | None], build: Callable[[], _Kept], what: str
) -> _Kept:
    """Returns what `find` finds in the cache, else builds it under a lock and returns that.

    Raises HostError naming `what` when `directory` cannot be written, or as root when another user
    may write to it.
    """
    require_safe_state(directory)
    cached = find()
    if cached is not None:
        return cached
    with locked(directory):
        # Another builder may have built it while this one waited for the lock.
        cached = find()
        if cached is not None:
            return cached
        try:
            return build()
        except OSError as error:
            raise HostError(
                f"{what} cannot be built in {directory}: {error.strerror or error}",
                hint="free some space there, or set another cache directory",
            ) from error


@contextmanager
def locked(directory: Path) -> Iterator[Path]:
    """Locks `directory` against other builders, and creates it if it is missing.

    Removes what a killed builder left. Raises HostError when the directory cannot be created or
    written.
    """
    try:
        make_state_directory(directory)
        descriptor = open_file(directory / ".lock", os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise HostError(
            f"the cache directory {directory} cannot be written: {error.strerror}",
            hint="set another cache directory",
        ) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        for remains in [*directory.glob(f"{_PREFIX}*"), *directory.glob(".download-*")]:
            shutil.rmtree(remains, ignore_errors=True)
        yield directory
    finally:
        os.close(descriptor)


@contextmanager
def building(parent: Path) -> Iterator[Path]:
    """A new directory in `parent`, removed at the end unless `keep` moved it away."""
    try:
        fresh = Path(tempfile.mkdtemp(dir=parent, prefix=_PREFIX))
    except OSError as error:
        raise HostError(
            f"nothing can be built in {parent}: {error.strerror}",
            hint="set another cache directory",
        ) from error
    try:
        yield fresh
    finally:
        if fresh.exists():
            shutil.rmtree(fresh)


def keep(fresh: Path, final: Path) -> Path:
    """Moves a built directory to its place, replacing an older one."""
    # mkdtemp makes it private, but a different user may start the guest.
    fresh.chmod(0o755)
    if final.exists():
        shutil.rmtree(final)
    return fresh.rename(final)
