"""Metrics that no program in a guest can know: how its image grew, and what was flushed."""

from __future__ import annotations

from collections.abc import Collection

from vdisklab.host.command import Host
from vdisklab.results.model import Direction, Evidence, Sample
from vdisklab.storage.image import ImageFile, mapped_bytes


class Growth:
    """Remembers the image's mapped bytes, if `mapped` is among what is observed."""

    def __init__(self, host: Host, image: ImageFile | None, observe: Collection[str]) -> None:
        self._host = host
        self._image = image if "mapped" in observe else None
        self._before = self._now()

    def mapped(self) -> int | None:
        """Bytes by which it grew since; None for a device, which has no map, or if not asked."""
        now = self._now()
        return None if now is None or self._before is None else now - self._before

    def _now(self) -> int | None:
        if self._image is None or self._image.is_block:
            return None
        return mapped_bytes(self._host, self._image)


def observed_samples(
    observe: Collection[str], evidence: Evidence, mapped: int | None
) -> tuple[Sample, ...]:
    """One sample for each metric that was to be observed and was: none for what nobody counted."""
    allocated = None
    if evidence.allocated_before is not None and evidence.allocated_after is not None:
        allocated = evidence.allocated_after - evidence.allocated_before
    flushes = None if evidence.qemu is None else evidence.qemu.flush_operations
    seen = {"allocated": allocated, "mapped": mapped, "flushes": flushes}
    return tuple(
        Sample(name, Direction.WRITE, float(value))
        for name in observe
        if (value := seen[name]) is not None
    )
