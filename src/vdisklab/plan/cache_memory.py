"""How much of the host's memory may hold pages of a measured disk: a size, or a share of it.

A disk of 256 MiB fits into any host's memory. With a quarter of its size for its pages, it behaves
towards the page cache as a disk of 100 GB does on a host with 25 GB free.
"""

from __future__ import annotations

import math

from vdisklab.errors import PlanError
from vdisklab.units import MIB, format_bytes, format_size, parse_percentage, parse_size
from vdisklab.value import Value

LEAST = 16 * MIB
"""With less, QEMU's own memory could not grow at all during a measurement."""


class CacheMemory(Value):
    """A size in bytes, or a share of the disk (0 to 1)."""

    size: int | None
    share: float | None

    def require_enough(self, disk: int) -> None:
        """Raises PlanError if the share of a disk of so many bytes is less than `LEAST`."""
        if self.share is None or self.share * disk >= LEAST:
            return
        raise PlanError(
            f"--cache-memory {self} of a disk of {format_size(disk)} is "
            f"{format_bytes(self.share * disk)}, too little memory for QEMU and its page cache",
            hint=f"give at least {format_size(LEAST)}, or a --size of "
            f"{format_size(_disk_of(self.share))} or more",
        )

    def of(self, disk: int) -> int:
        """Bytes for a disk of so many bytes, at least `LEAST`, as campaigns had before less was
        refused."""
        wanted = self.size if self.share is None else round(self.share * disk)
        return max(LEAST, wanted or 0)

    def __str__(self) -> str:
        if self.share is not None:
            return f"{100 * self.share:g}%"
        return format_size(self.size or 0)


def _disk_of(share: float) -> int:
    """The smallest disk of whole MiB of which this share is enough."""
    return math.ceil(LEAST / share / MIB) * MIB


def parse_cache_memory(text: str) -> CacheMemory:
    """The memory that a text such as `25%` or `64M` means. Raises PlanError for any other."""
    if text.endswith("%"):
        return CacheMemory(None, parse_percentage(text))
    size = parse_size(text)
    if size < LEAST:
        raise PlanError(
            f"{text} is too little memory for QEMU and its page cache",
            hint=f"give at least {format_size(LEAST)}",
        )
    return CacheMemory(size, None)
