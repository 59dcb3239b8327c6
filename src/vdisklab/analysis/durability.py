"""What a path keeps in a power cut: known by construction, tested by cutting it, or not known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from vdisklab.plan.path import DiskPath, Layer
from vdisklab.plan.segments import LayerKind, WriteCache


class CutVerdict(Protocol):
    """What power cuts of one path came to; `vdisklab powercut` stores them."""

    @property
    def path(self) -> str:
        """The path's canonical spelling."""

    @property
    def cuts(self) -> int:
        """How many cuts were made."""

    @property
    def broken(self) -> int:
        """After how many of them something was missing that the guest had been promised."""


class Keeping(StrEnum):
    """What becomes of data that the guest has flushed."""

    LOST_BY_CONSTRUCTION = "lost-by-construction"
    LOST_IN_TEST = "lost-in-test"
    KEPT_IN_TEST = "kept-in-test"
    NOT_TESTED = "not-tested"

    @property
    def acceptable(self) -> bool:
        """False where it is shown that flushed data may be lost."""
        return self in (Keeping.KEPT_IN_TEST, Keeping.NOT_TESTED)


@dataclass(frozen=True, slots=True)
class Durability:
    """`reason` says what drops flushes; `flush_free` that not even a flush is needed."""

    keeping: Keeping
    flush_free: bool
    reason: str | None = None
    cuts: int = 0
    broken: int = 0


Verdicts = Mapping[str, CutVerdict]


def durability(path: DiskPath, verdicts: Verdicts) -> Durability:
    """What is known; a test counts for more than the hope that a stack is in order."""
    flush_free = not _offers_write_cache(path)
    reason = _drops_flushes(path)
    if reason is not None:
        return Durability(Keeping.LOST_BY_CONSTRUCTION, False, reason)
    verdict = verdicts.get(path.canonical)
    if verdict is None or not verdict.cuts:
        return Durability(Keeping.NOT_TESTED, flush_free)
    keeping = Keeping.LOST_IN_TEST if verdict.broken else Keeping.KEPT_IN_TEST
    return Durability(keeping, flush_free, None, verdict.cuts, verdict.broken)


def _offers_write_cache(path: DiskPath) -> bool:
    """True when the device says that writes wait for a flush; without, QEMU flushes each."""
    asked = path.attachment.write_cache
    return path.cache.write_cache if asked is WriteCache.MODE else asked is not WriteCache.OFF


def _drops_flushes(path: DiskPath) -> str | None:
    if path.cache.no_flush and not path.on_host:
        return f"cache mode {path.cache} throws flushes away"
    return next((found for layer in path.layers if (found := _layer_drops(layer))), None)


def _layer_drops(layer: Layer) -> str | None:
    if layer.kind is LayerKind.TMPFS:
        return "tmpfs is memory"
    if layer.option("barrier") is False:
        return f"{layer} sends no flushes to the disk"
    if layer.option("sync") == "disabled":
        return f"{layer} answers flushes without writing"
    return None
