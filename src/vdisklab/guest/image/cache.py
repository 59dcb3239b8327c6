"""Directories in the cache: built aside, moved into place whole, by one builder at a time."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from vdisklab.errors import HostError

_PREFIX = ".building-"


@contextmanager
def locked(directory: Path) -> Iterator[Path]:
    """Holds `directory`, made if need be, against other builders; waits for them.

    What a killed builder left half-done is removed first: nobody else can be building now.
    Raises HostError when the directory cannot be made or written.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(directory / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise HostError(
            f"the cache directory {directory} cannot be written: {error.strerror}",
            hint="set another cache directory",
        ) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        for left in [*directory.glob(f"{_PREFIX}*"), *directory.glob(".download-*")]:
            shutil.rmtree(left, ignore_errors=True)
        yield directory
    finally:
        os.close(descriptor)


@contextmanager
def building(parent: Path) -> Iterator[Path]:
    """A fresh directory in `parent`, gone when the block ends unless `keep` moved it away."""
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
    """Moves what was built into its place, in the stead of what was there."""
    # mkdtemp makes it private; a guest may be started by another user than its builder.
    fresh.chmod(0o755)
    if final.exists():
        shutil.rmtree(final)
    return fresh.rename(final)
