"""Standard output with separate errors, standard error without any, and replacements for streams
that the caller closed. A terminal that lacks a character shows the nearest one of ASCII.
"""

from __future__ import annotations

import codecs
import errno
import io
import os
import sys
from typing import TextIO

from vdisklab.errors import HostError, ReaderGoneError

_NEAREST = {
    **dict.fromkeys("─━–—−", "-"), **dict.fromkeys("│┃", "|"), "…": "...", "×": "x", "≤": "<=",
    "≥": ">=", "±": "+-", "µ": "u", "→": "->", "·": ".", "“": '"', "”": '"', "’": "'",
    **dict.fromkeys("▏▎▍▌▋▊▉█", "#"), "\N{NO-BREAK SPACE}": " ",
}  # fmt: skip
_LOOK_ALIKE = "vdisklab.look-alike"


def _look_alike(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    characters = error.object[error.start : error.end]
    return "".join(_NEAREST.get(character, "?") for character in characters), error.end


class _StandardError(io.FileIO):
    """Standard error. Text that cannot be written is lost; the exit status tells the outcome."""

    def write(self, data: object) -> int | None:  # type: ignore[override] # any buffer
        try:
            return super().write(data)  # type: ignore[arg-type]
        except OSError:
            return memoryview(data).nbytes  # type: ignore[arg-type]


class _StandardOutput(io.FileIO):
    """Standard output. A failed write raises HostError, or ReaderGoneError for a closed pipe."""

    def write(self, data: object) -> int | None:  # type: ignore[override] # any buffer
        try:
            return super().write(data)  # type: ignore[arg-type]
        except BrokenPipeError as error:
            _drop_output()
            # Not a BrokenPipeError: rich would end the program with status 1.
            raise ReaderGoneError from error
        except OSError as error:
            _drop_output()
            closed = error.errno == errno.EBADF
            reason = "standard output is closed" if closed else error.strerror
            raise HostError(
                f"the answer cannot be written: {reason}",
                hint="redirect standard output to a file that can be written",
            ) from error


def open_standard_streams() -> None:
    """Replaces standard output, and opens the streams that the caller closed.

    Otherwise the next file to be opened, such as the database, would get a stream's number.
    """
    # Writing to a descriptor that is open for reading fails as on a closed one: EBADF.
    for number, mode in enumerate((os.O_RDONLY, os.O_RDONLY, os.O_WRONLY)):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, mode)  # takes the lowest free number, which is this one
    if sys.stdin is None:
        sys.stdin = os.fdopen(0, closefd=False)
    codecs.register_error(_LOOK_ALIKE, _look_alike)
    errors = _StandardError(2, "w", closefd=False)
    sys.stderr = _text(errors, sys.stderr, line_buffering=True)
    sys.stdout = _text(
        _StandardOutput(1, "w", closefd=False), sys.stdout, line_buffering=os.isatty(1)
    )


def _text(raw: io.FileIO, replaced: TextIO | None, *, line_buffering: bool) -> TextIO:
    """The stream in the encoding of the one it replaces. UTF-8 keeps that one's error handler."""
    encoding = None if replaced is None else replaced.encoding
    kept = None if replaced is None else replaced.errors
    in_unicode = encoding is not None and encoding.lower().startswith("utf")
    return io.TextIOWrapper(
        io.BufferedWriter(raw),
        encoding=encoding,
        errors=kept if in_unicode else _LOOK_ALIKE,
        line_buffering=line_buffering,
    )


def _drop_output() -> None:
    """Discards the rest of standard output, which Python would try to write again at its end."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.close(null)
