"""Opens the file, pipe or device that a verb writes its result to."""

from __future__ import annotations

import errno
import os
import stat
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from vdisklab.errors import HostError, ReaderGoneError
from vdisklab.host.safe_places import distrust, require_safe

STDOUT = Path("-")

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_FULL = "free some space on that file system, or name a file on another one"
_NOT_WRITABLE = "name a file in a directory that you may write to"


@contextmanager
def output_file(path: Path) -> Iterator[IO[bytes]]:
    """A binary stream to `path`, which may be closed early; `-` is standard output.

    A regular file or a new name is replaced atomically when the context ends without an error,
    behind any symbolic link. A FIFO or a device is written to as it is. Raises HostError, also for
    another user's link or pipe in a directory that all may write to, such as /tmp.
    """
    try:
        if path == STDOUT:
            sys.stdout.flush()
            with open(1, "wb", closefd=False) as stream:
                yield stream
        elif _anothers(path):
            raise HostError(
                f"{path} belongs to another user, in a directory that everybody may write to",
                hint="name another file, or remove that one",
            )
        elif (found := distrust(path)) is not None and found.place != path:
            require_safe(path, "the file", "name another one")
        elif path.exists() and not path.is_file():
            with path.open("wb") as stream:
                yield stream
        else:
            with _replacing(path.resolve()) as stream:
                yield stream
    except OSError as error:
        if path == STDOUT and isinstance(error, BrokenPipeError):
            raise ReaderGoneError from error
        name = "standard output" if path == STDOUT else str(path)
        raise HostError(
            f"{name} cannot be written: {error.strerror or error}",
            hint=_FULL if error.errno in _NO_ROOM else _NOT_WRITABLE,
        ) from error


def _anothers(path: Path) -> bool:
    """True for a link or pipe that another user may have left as a trap (proc_sys_fs(5),
    protected_symlinks and protected_fifos, which not every system has turned on).
    """
    if path.is_file() and not path.is_symlink():
        return False
    with suppress(FileNotFoundError):
        entry, above = path.lstat(), path.parent.stat()
        trusted = (os.geteuid(), above.st_uid)
        return bool(above.st_mode & stat.S_ISVTX) and entry.st_uid not in trusted
    return False


def empty_file(path: Path) -> None:
    """Empties or creates a file that gets its content later; opens no pipe and no device.

    Raises HostError.
    """
    if path != STDOUT and not (path.is_fifo() or path.is_char_device()):
        with output_file(path):
            pass


@contextmanager
def _replacing(file: Path) -> Iterator[IO[bytes]]:
    with tempfile.NamedTemporaryFile(
        dir=file.parent, prefix=f".{file.name}.", delete=False
    ) as temporary:
        partial = Path(temporary.name)
        try:
            yield temporary.file
            temporary.close()
            mask = os.umask(0)
            os.umask(mask)
            partial.chmod(0o666 & ~mask)
            partial.replace(file)
        except BaseException:
            partial.unlink(missing_ok=True)
            raise
