"""A cell: what is measured once in each block."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from enum import StrEnum

from vdisklab.path.backing import in_memory
from vdisklab.path.disk_path import DiskPath
from vdisklab.path.segments import PageCache


@dataclass(frozen=True, slots=True)
class Cell:
    """A disk path with the state of the host's page cache before each measurement."""

    path: DiskPath
    page_cache: PageCache

    @property
    def label(self) -> str:
        """The path, and the page cache's state where it can differ: `raw/writeback (warm)`."""
        if self.page_cache is PageCache.BYPASSED:
            return self.path.canonical
        return f"{self.path.canonical} ({self.page_cache})"

    @property
    def fingerprint(self) -> str:
        """16 hexadecimal digits that stand for this cell in the database."""
        return hashlib.sha256(self.label.encode()).hexdigest()[:16]


class PageCacheChoice(StrEnum):
    """The requested states of the host's page cache, for paths that use it."""

    COLD = "cold"
    WARM = "warm"
    BOTH = "both"

    def admits(self, state: PageCache) -> bool:
        """True for a requested state; a path that bypasses the cache has no choice."""
        return (
            state is PageCache.BYPASSED or self is PageCacheChoice.BOTH or state.value == self.value
        )


def page_cache_states(path: DiskPath, *, on_tmpfs: bool = False) -> tuple[PageCache, ...]:
    """The states that make sense for a path: cold and warm where QEMU uses the page cache.

    Files on tmpfs live in the page cache, which therefore cannot be emptied of them; `on_tmpfs`
    says that the work directory is on one.
    """
    if path.needs_direct_io or not path.has_storage:
        return (PageCache.BYPASSED,)
    if in_memory(path.layers) or (on_tmpfs and not path.layers):
        return (PageCache.WARM,)
    return (PageCache.COLD, PageCache.WARM)
