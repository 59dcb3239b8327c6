"""Doubts by what was read back of direct I/O, which a file system may accept and not do."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from vdisklab.analysis.diagnostics.doubt import NotDirect
from vdisklab.analysis.observations import split_label
from vdisklab.path.segments import PageCache

SERVED_FROM_CACHE = "accepted, served from a cache"
"""What `storage.direct` reads back of such a file system."""

_UNKNOWN = "of an unknown version"


class Checked(Protocol):
    """A run of a cell, with the states that were read back: (name, asked, seen)."""

    @property
    def cell(self) -> str:
        """The cell's fingerprint."""

    @property
    def checks(self) -> tuple[tuple[str, str | None, str], ...]:
        """What was read back."""


def direct_findings(runs: Iterable[Checked], labels: Mapping[str, str]) -> tuple[NotDirect, ...]:
    """The cells that were to bypass caches, and stood on a ZFS that does not, by its version."""
    found: dict[str, list[str]] = {}
    for run in runs:
        label = labels.get(run.cell, run.cell)
        seen = {name: value for name, _, value in run.checks}
        if split_label(label)[1] != PageCache.BYPASSED:
            continue
        if seen.get("host.zfs.o_direct") == SERVED_FROM_CACHE:
            found.setdefault(seen.get("host.zfs.version", _UNKNOWN), []).append(label)
    return tuple(NotDirect(tuple(sorted(cells)), version) for version, cells in found.items())
