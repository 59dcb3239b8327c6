"""What a path keeps in a power cut: known by construction, tested by cutting it, or not known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from vdisklab.path.disk_path import DiskPath, Layer
from vdisklab.path.segments import Bus, LayerKind, WriteCache

FEWEST_CUTS = 20
"""Of fewer judged states that kept all nothing is said: at 20 still up to 15 % may lose."""


@dataclass(frozen=True, slots=True)
class Cuts:
    """Judged states, and in how many of them a promise was broken; `all_judged` when these were all
    that a cut could leave."""

    judged: int = 0
    broken: int = 0
    all_judged: bool = False

    @property
    def kept(self) -> bool | None:
        """Whether no promise was broken; None when too little was judged to tell."""
        if self.broken:
            return False
        return True if self.all_judged or self.judged >= FEWEST_CUTS else None

    @property
    def most_losing(self) -> float:
        """At most this share of all states breaks a promise where none of the judged did (95 %).

        The rule of three (Hanley and Lippman-Hand, JAMA 1983); 0 where all were judged.
        """
        return 0.0 if self.all_judged else min(1.0, 3 / self.judged) if self.judged else 1.0

    def __add__(self, other: Cuts) -> Cuts:
        parts = [each for each in (self, other) if each.judged]
        return Cuts(
            self.judged + other.judged,
            self.broken + other.broken,
            bool(parts) and all(each.all_judged for each in parts),
        )


@dataclass(frozen=True, slots=True)
class PathVerdict:
    """What power cuts of one path came to; `vdisklab powercut` stores them.

    `flushed` is of clients that wait for a flush (or write with FUA), `unflushed` of one that
    takes a write's own acknowledgement for durable.
    """

    path: str
    flushed: Cuts = Cuts()
    unflushed: Cuts = Cuts()


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
    """`reason` says what drops flushes; `flush_free` that by rule not even a flush is needed.

    `cuts` are the states that decided, or that were too few to; `tested` is the whole verdict.
    """

    keeping: Keeping
    flush_free: bool
    reason: str | None = None
    cuts: Cuts = Cuts()
    tested: PathVerdict | None = None


Verdicts = Mapping[str, PathVerdict]


def durability(path: DiskPath, verdicts: Verdicts) -> Durability:
    """What is known; a test counts for more than the hope that a stack is in order.

    What becomes of unflushed data counts only where the path says that no flush is needed.
    """
    flush_free = not _offers_write_cache(path)
    tested = verdicts.get(path.canonical)
    reason = _drops_flushes(path)
    if reason is not None:
        return Durability(Keeping.LOST_BY_CONSTRUCTION, False, reason, tested=tested)
    verdict = tested or PathVerdict(path.canonical)
    relied = verdict.flushed + verdict.unflushed if flush_free else verdict.flushed
    keeping = _TESTED[relied.kept]
    return Durability(keeping, flush_free, None, relied, tested)


_TESTED = {
    None: Keeping.NOT_TESTED,
    True: Keeping.KEPT_IN_TEST,
    False: Keeping.LOST_IN_TEST,
}


def _offers_write_cache(path: DiskPath) -> bool:
    """True when the device says that writes wait for a flush; without, QEMU flushes each."""
    asked = path.attachment.write_cache
    return path.cache.write_cache if asked is WriteCache.MODE else asked is not WriteCache.OFF


def _drops_flushes(path: DiskPath) -> str | None:
    if path.cache.no_flush and not path.on_host:
        return f"cache mode {path.cache} throws flushes away"
    if forgets_fua(path):
        return (
            "QEMU's NVMe device answers the guest's FUA writes, as its file systems' journals send "
            "them, before they are durable; write_cache=off mends it"
        )
    return next((found for layer in path.layers if (found := _layer_drops(layer))), None)


def forgets_fua(path: DiskPath) -> bool:
    """True when fsync(2) in the guest may return too early: NVMe with a write cache.

    The device tells Linux that it can do FUA, and passes no such flag on. Seen in power cuts with
    QEMU 7.2.22 (docs/powercut.md); the source of later ones is the same (hw/nvme/ctrl.c, with the
    fixes of 9.2).
    """
    if path.on_host or path.attachment.bus is not Bus.NVME:
        return False
    return _offers_write_cache(path)


def _layer_drops(layer: Layer) -> str | None:
    if layer.kind is LayerKind.TMPFS:
        return "tmpfs is memory"
    if layer.option("barrier") is False:
        return f"{layer} sends no flushes to the disk"
    if layer.option("sync") == "disabled":
        return f"{layer} answers flushes without writing"
    return None
