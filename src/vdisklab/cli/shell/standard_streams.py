"""Standard output with separate errors, and replacements for streams that the caller closed."""

from __future__ import annotations

import errno
import io
import os
import sys

from vdisklab.errors import HostError, ReaderGoneError


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
    if sys.stderr is None:
        sys.stderr = os.fdopen(2, "w", closefd=False)
    replaced = sys.stdout
    sys.stdout = io.TextIOWrapper(
        io.BufferedWriter(_StandardOutput(1, "w", closefd=False)),
        encoding=None if replaced is None else replaced.encoding,
        errors=None if replaced is None else replaced.errors,
        line_buffering=os.isatty(1),
    )


def _drop_output() -> None:
    """Discards the rest of standard output, which Python would try to write again at its end."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.close(null)
