"""The locks of campaigns that are being measured: a file for each plan, in the state directory."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO

from vdisklab.host.safe_places import make_state_directory, open_file
from vdisklab.host.state_directory import state_directory

_NAME = "measuring"


def lock_directory() -> Path:
    """Where the locks are. Raises HostError as `state_directory`."""
    return state_directory() / _NAME


def take_lock(file: Path) -> tuple[IO[str], bool]:
    """The open file, and whether this process holds its lock now.

    Who holds a lock may remove its file, so one that has no name any more is opened anew: another
    process could lock a new file beside it. Raises OSError.
    """
    make_state_directory(file.parent)
    while True:
        opened = os.fdopen(open_file(file, os.O_RDWR | os.O_APPEND | os.O_CREAT), "a+")
        try:
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return opened, False
        if _is_named(opened, file):
            return opened, True
        opened.close()


def process_measuring(fingerprint: str) -> str | None:
    """The number of the other process that measures the plan with this fingerprint now, `unknown`
    if the lock's file does not say it; None if there is none."""
    if not fingerprint.isalnum():  # of a database that somebody else made
        return None
    process = _holder(lock_directory() / fingerprint)
    return None if process == str(os.getpid()) else process


def processes_measuring(*, beside: str) -> tuple[str, ...]:
    """The processes of this user's state directory that measure another plan than this one.

    Each holds the lock of a file that is named after its plan and holds its number.
    """
    files = (file for file in sorted(lock_directory().glob("*")) if file.name != beside)
    return tuple(process for file in files if (process := _holder(file)) is not None)


def _holder(file: Path) -> str | None:
    """What the holder of a lock has written into its file; None if nobody holds the lock."""
    with suppress(OSError), file.open() as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return lock.read() or "unknown"
    return None


def release_lock(opened: IO[str], file: Path) -> None:
    """Removes the file of a lock that this process holds, and gives up the lock."""
    with opened:
        _remove(opened, file)


def unheld_locks(directory: Path, *, remove: bool) -> Iterator[Path]:
    """The locks that nobody holds, as a killed run leaves them; with `remove` they are removed."""
    for file in sorted(directory.glob("*")):
        with suppress(OSError), os.fdopen(open_file(file, os.O_RDWR), "r+") as opened:
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if remove:
                _remove(opened, file)
            yield file


def _remove(opened: IO[str], file: Path) -> None:
    if _is_named(opened, file):
        file.unlink()


def _is_named(opened: IO[str], file: Path) -> bool:
    with suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(opened.fileno()), file.stat())
    return False
