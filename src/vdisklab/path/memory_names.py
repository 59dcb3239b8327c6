"""Files and devices that are memory on every Linux, known by their names alone."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable

RAM_DISK = "a RAM disk"


def memory_by_name(source: str) -> str | None:
    """The kind of memory that a Linux file or device is by its name: `tmpfs`, `zram`, RAM_DISK.

    /dev/ramN are brd's (Documentation/admin-guide/blockdev/ramdisk.rst) and /dev/zramN zram's
    (zram.rst). /dev/shm and /run are always tmpfs (shm_overview(7), file-hierarchy(7)), but what
    people mount below /run is not.
    """
    name = posixpath.normpath(source)
    device = re.fullmatch(r"/{1,2}dev/(zram|ram)\d+(p\d+)?", name)
    if device is not None:
        return "zram" if device[1] == "zram" else RAM_DISK
    return "tmpfs" if re.match(r"/{1,2}(dev/shm/|(var/)?run/(?!media/|mount/))", name) else None


def memory_below(names: Iterable[str]) -> str | None:
    """Why an image with these files below it, its backing files or its data file, loses data in a
    power cut: one of them is memory by its name. None if none is. The guest's disk cannot be
    opened without it."""
    for name in names:
        if (memory := memory_by_name(name)) is not None:
            return f"{name}, a file below its image, is memory ({memory})"
    return None
