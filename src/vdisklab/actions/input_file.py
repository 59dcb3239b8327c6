"""The files that `vdisklab import` reads, by the names that a user gave."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from vdisklab.errors import DatabaseError, PlanError, WorkloadError
from vdisklab.results.exchange import LARGEST

_STDIN = "-"
_AT_ONCE = 1 << 20
_COPIES = "vdisklab-import-"


@contextmanager
def input_files(names: Sequence[str]) -> Iterator[tuple[Path, ...]]:
    """The files with these names; standard input (`-`) is copied to a temporary file.

    The shell's `<( )` is copied, too, because its name is only a number. Copies that killed imports
    of this user left are removed. Raises PlanError for a name that is not a readable file.
    """
    _remove_left_copies()
    with tempfile.TemporaryDirectory(prefix=f"{_COPIES}{os.getpid()}-") as directory:
        copies: dict[Path, str] = {}

        def file(name: str) -> Path:
            copy = Path(directory) / str(len(copies)) / "stdin"
            if name == _STDIN:
                copies[copy] = "standard input"
                return _copied(sys.stdin.buffer, copy)
            named = _file(name)
            if not (named.is_fifo() and named.is_relative_to("/dev")):
                return named
            copies[copy] = name
            with named.open("rb") as pipe:
                return _copied(pipe, copy)

        try:
            yield tuple(map(file, names))
        except (PlanError, WorkloadError, DatabaseError) as error:
            message = error.message
            for copy, shown in copies.items():
                message = message.replace(str(copy), shown)
            raise type(error)(message, hint=error.hint) from error


def _remove_left_copies() -> None:
    for left in Path(tempfile.gettempdir()).glob(f"{_COPIES}[0-9]*-*"):
        pid = left.name.removeprefix(_COPIES).partition("-")[0]
        if left.lstat().st_uid == os.geteuid() and not Path("/proc", pid).exists():
            shutil.rmtree(left, ignore_errors=True)


def _file(name: str) -> Path:
    if not name:
        raise PlanError("the name of a file is empty", hint="name a file; `-` is standard input")
    file = Path(name)
    try:
        if file.is_dir():
            raise PlanError(f"{name} is a directory", hint=f"name the files in it: {file / '*'}")
        file.stat()
    except FileNotFoundError as error:
        if "://" in name:
            raise PlanError(
                f"{name} is a URL, and vdisklab reads files",
                hint=f"download it first: curl -LO {name}",
            ) from error
        raise PlanError(
            f"there is no file {name}", hint="name a file that exists; `-` is standard input"
        ) from error
    except OSError as error:
        raise unreadable(name, error) from error
    return file


def unreadable(name: str, error: OSError) -> PlanError:
    """The error for a file that the system does not let us read."""
    return PlanError(f"{name} cannot be read: {error.strerror}", hint="name another file")


def _copied(stream: IO[bytes], file: Path) -> Path:
    file.parent.mkdir()
    with file.open("wb") as copy:
        while copy.tell() <= LARGEST and (piece := stream.read(_AT_ONCE)):
            copy.write(piece)
    return file
