"""A cell: a disk path and a state of the page cache, measured once in each round."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from typing import Self

from vdisklab.as_text import AsText
from vdisklab.errors import PlanError
from vdisklab.path.disk_path import DiskPath, has_known_names, parse_path
from vdisklab.path.segments import PageCache
from vdisklab.value import Value


class Cell(AsText, Value):
    """A disk path with the state of the host's page cache before each measurement."""

    path: DiskPath
    page_cache: PageCache

    @property
    def label(self) -> str:
        """The path, with the page cache's state if the path has two: `raw/writeback (warm)`."""
        return _label(self.path.canonical, self.page_cache)

    def __str__(self) -> str:
        return self.label

    @property
    def measured(self) -> MeasuredCell:
        """The same cell as the results store it."""
        return MeasuredCell(self.path.canonical, self.page_cache)

    @property
    def fingerprint(self) -> str:
        """16 hexadecimal digits that identify this cell in the database."""
        return self.measured.fingerprint


@dataclass(frozen=True, slots=True, order=True)
class MeasuredCell(AsText):
    """A stored cell with its stored name.

    `name` is a disk path, or any text that an import used (`my VM at home`). Cells are compared and
    sorted by their labels.
    """

    name: str = field(compare=False)
    page_cache: PageCache = field(default=PageCache.BYPASSED, compare=False)
    label: str = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "label", _label(self.name, self.page_cache))

    @classmethod
    def parse(cls, text: str) -> Self:
        """The cell that a user means by `raw/writeback` or `raw/writeback (warm)`."""
        name, opening, state = text.rpartition(" (")
        for page_cache in (PageCache.COLD, PageCache.WARM):
            if opening and state == f"{page_cache})":
                return cls(name, page_cache)
        return cls(text)

    @property
    def path(self) -> DiskPath | None:
        """The disk path; None if the name is not one."""
        return _parsed(self.name)

    @property
    def fingerprint(self) -> str:
        """16 hexadecimal digits that identify this cell in the database."""
        return hashlib.sha256(self.label.encode()).hexdigest()[:16]

    @property
    def on_host(self) -> bool:
        """True for a path that is measured without a guest."""
        return self.path is not None and self.path.on_host

    @property
    def known_page_cache(self) -> PageCache | None:
        """The state of the page cache; None for an import that does not say it."""
        if self.page_cache is not PageCache.BYPASSED:
            return self.page_cache
        bypasses = self.path is not None and PageCache.BYPASSED in page_cache_states(self.path)
        return self.page_cache if bypasses else None

    @property
    def is_null(self) -> bool:
        """True for QEMU's null-co disk, which has no device below it."""
        return self.path is not None and not self.path.has_storage

    def __str__(self) -> str:
        return self.label


def _label(name: str, page_cache: PageCache) -> str:
    return name if page_cache is PageCache.BYPASSED else f"{name} ({page_cache})"


@lru_cache(maxsize=1 << 16)
def _parsed(name: str) -> DiskPath | None:
    """The disk path or None. Cached: a report needs each of ten thousand paths a dozen times."""
    try:
        # An import's own names are told apart first, because an error's hint takes time to write.
        return parse_path(name) if has_known_names(name) else None
    except PlanError:
        return None


class PageCacheChoice(StrEnum):
    """The requested states of the host's page cache, for paths that use it."""

    COLD = "cold"
    WARM = "warm"
    BOTH = "both"

    def admits(self, state: PageCache) -> bool:
        """True for a requested state, and for any state if the path bypasses the page cache."""
        return (
            state is PageCache.BYPASSED or self is PageCacheChoice.BOTH or state.value == self.value
        )


def page_cache_states(path: DiskPath, *, on_tmpfs: bool = False) -> tuple[PageCache, ...]:
    """The states to measure a path in: cold and warm if QEMU uses the page cache.

    Files on tmpfs live in the page cache and are always warm; `on_tmpfs` is True when the work
    directory is on one. Files on ZFS are in the ARC instead, which nothing fills and reads back for
    one file: they have no warm state. What QEMU's own driver opens is in no page cache of the host.
    """
    if path.needs_direct_io or not path.has_storage or path.opened_by_qemu:
        return (PageCache.BYPASSED,)
    lowest = path.layers[0].kind.facts if path.layers else None
    in_page_cache = lowest is not None and lowest.in_memory and lowest.holds_files
    if in_page_cache or (on_tmpfs and not path.layers):
        return (PageCache.WARM,)
    return (PageCache.COLD,) if own_cache(path) else (PageCache.COLD, PageCache.WARM)


def own_cache(path: DiskPath) -> str | None:
    """The cache of the path's file system that replaces the host's page cache; None without one."""
    return path.layers[-1].kind.facts.own_cache if path.layers else None


def numbers_of_guests(cells: Iterable[MeasuredCell]) -> tuple[int, ...]:
    """The numbers of guests at once in which these cells were measured; 1 for one guest alone, none
    on the host.
    """
    paths = (cell.path for cell in cells)
    guests = {
        path.attachment.guests or 1 for path in paths if path is not None and not path.on_host
    }
    return tuple(sorted(guests))
