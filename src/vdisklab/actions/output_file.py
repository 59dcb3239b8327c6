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
from vdisklab.host.safe_places import is_open_file, open_file
from vdisklab.host.writing import Rights, Writable, acting, writable

STDOUT = Path("-")

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_FULL = "free some space on that file system, or name a file on another one"
_NOT_WRITABLE = "name a file in a directory that you may write to"


@contextmanager
def output_file(path: Path) -> Iterator[IO[bytes]]:
    """A binary stream to `path`, which may be closed early; `-` is standard output.

    A regular file or a new name is replaced atomically when the context ends without an error,
    behind any symbolic link. A FIFO or a device is written to as it is. Root writes with the rights
    of the caller of sudo where this caller can change the name. Raises HostError, also for another
    user's link or pipe in a directory that all may write to, such as /tmp.
    """
    rights = None
    try:
        if path == STDOUT:
            sys.stdout.flush()
            with open(1, "wb", closefd=False) as stream:
                yield stream
            return
        if _anothers(path):
            raise HostError(
                f"{path} belongs to another user, in a directory that everybody may write to",
                hint="name another file, or remove that one",
            )
        target = writable(path, "the file", "name another one", replaced=True)
        rights = target.rights
        with acting(rights):
            place = target.place
            if not is_open_file(place) and (rights or os.geteuid() != 0):
                place = place.resolve()  # else links were followed, and a new one is a trap
            special = place.exists() and (is_open_file(place) or not place.is_file())
            opened = _opened(place) if special else None
        with _replacing(place, rights) if opened is None else os.fdopen(opened, "wb") as stream:
            yield stream
    except OSError as error:
        if path == STDOUT and isinstance(error, BrokenPipeError):
            raise ReaderGoneError from error
        name = "standard output" if path == STDOUT else str(path)
        way = _NOT_WRITABLE
        if rights is not None:
            way = f"root writes there as the user {rights.name}: name a file that user may write"
        raise HostError(
            f"{name} cannot be written: {error.strerror or error}",
            hint=_FULL if error.errno in _NO_ROOM else way,
        ) from error


@contextmanager
def opened_to_append(path: Path) -> Iterator[int]:
    """A descriptor of a file or device to which all is appended; a new file is removed at the end
    if nothing was. Raises OSError and HostError.
    """
    target = writable(path, "the stream", "name another file with --stream")
    with acting(target.rights):
        is_new = not os.path.lexists(target.place)
        descriptor = _opened_to_append(target)
    try:
        yield descriptor
    finally:
        if is_new and os.fstat(descriptor).st_size == 0:
            with acting(target.rights):
                target.place.unlink(missing_ok=True)
        os.close(descriptor)


def _opened_to_append(target: Writable) -> int:
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
    if os.geteuid() != 0 or target.rights is not None or is_open_file(target.place):
        return os.open(target.place, flags, 0o666)
    if target.place.exists() and not target.place.is_file():
        return _opened(target.place)
    return open_file(target.place, flags, 0o644)


def _opened(place: Path) -> int:
    """A descriptor of a FIFO, a device or an open file of this process; never a new file's."""
    flags = os.O_WRONLY | os.O_CLOEXEC | os.O_NOCTTY
    if is_open_file(place):
        return os.open(place, flags | os.O_TRUNC)
    descriptor = os.open(place, flags | os.O_NOFOLLOW)
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.ESTALE, "it was replaced meanwhile", str(place))
    return descriptor


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


def require_writable(path: Path) -> None:
    """Raises HostError if a result could not be written to `path` later; a file that is there keeps
    its content until then. Opens no pipe and no device."""
    if path != STDOUT and not (path.is_fifo() or path.is_char_device()):
        with suppress(_NotYetError), output_file(path):
            raise _NotYetError


class _NotYetError(Exception):
    """Leaves a file as it is."""


@contextmanager
def _replacing(file: Path, rights: Rights | None) -> Iterator[IO[bytes]]:
    """A new file beside `file` that takes its name at the end; each name is used with `rights`."""
    mask = os.umask(0)
    os.umask(mask)
    with acting(rights):
        descriptor, name = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")
    partial = Path(name)
    try:
        os.fchmod(descriptor, 0o666 & ~mask)
        with os.fdopen(descriptor, "wb") as stream:
            yield stream
        with acting(rights):
            partial.replace(file)
    except BaseException:
        with acting(rights):
            partial.unlink(missing_ok=True)
        raise
