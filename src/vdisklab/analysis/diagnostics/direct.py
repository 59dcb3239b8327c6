"""Doubts by what was read back of direct I/O, which a file system may accept and not do."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from vdisklab.analysis.diagnostics.doubt import NotDirect
from vdisklab.path.cell import MeasuredCell
from vdisklab.path.segments import PageCache
from vdisklab.results.outlines import Example

SERVED_FROM_CACHE = "accepted, served from a cache"
"""What `storage.direct` reads back of such a file system."""

_UNKNOWN = "of an unknown version"


def direct_findings(
    runs: Iterable[Example], cells: Mapping[str, MeasuredCell]
) -> tuple[NotDirect, ...]:
    """The cells that were to bypass caches, and stood on a ZFS that does not, by its version."""
    found: dict[str, list[MeasuredCell]] = {}
    for run in runs:
        cell = cells[run.cell]
        seen = {name: value for name, _, value in run.checks}
        if cell.page_cache is not PageCache.BYPASSED:
            continue
        if seen.get("host.zfs.o_direct") == SERVED_FROM_CACHE:
            found.setdefault(seen.get("host.zfs.version", _UNKNOWN), []).append(cell)
    return tuple(NotDirect(tuple(sorted(group)), version) for version, group in found.items())
