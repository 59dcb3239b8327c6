"""What is stored of a file that is mostly holes."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator


def stored_ranges(descriptor: int) -> Iterator[tuple[int, int]]:
    """Begin and end of each range of an open file that is no hole (lseek(2), SEEK_DATA)."""
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
