"""What is doubtful about a disk: typed here, put into words by `report.auditing`.

A new risk is one class, one function in `_JUDGES`, and one case in the wording, which the type
checker asks for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from vdisklab.audit.disk import ConfiguredDisk, Surroundings, disk_path
from vdisklab.path.disk_path import DiskPath
from vdisklab.path.durability import FlushDropper, dropped_flushes, forgets_fua
from vdisklab.path.rules import Impossible, impossible, native_without_direct
from vdisklab.path.segments import Bus, CacheMode

NEARLY_FULL = 1.0
"""A file system is nearly full for an image that may grow by more than this share of its room."""


@dataclass(frozen=True, slots=True)
class FlushesDropped:
    """Cache mode unsafe: what the guest has flushed is lost in a power cut."""


@dataclass(frozen=True, slots=True)
class FlushesDroppedBelow:
    """A host layer drops flushes: what the guest has flushed may be lost in a power cut."""

    reason: str


@dataclass(frozen=True, slots=True)
class HangsOnGuestFlushes:
    """A volatile write cache: durable is what the guest flushes, and nothing else.

    `in_memory` is true where the data waits in the host's page cache, not only in the disk's own.
    """

    in_memory: bool


@dataclass(frozen=True, slots=True)
class FuaForgotten:
    """QEMU's NVMe device with a write cache: FUA writes are answered before they are durable."""


@dataclass(frozen=True, slots=True)
class FlushAfterEachWrite:
    """No write cache is offered, so QEMU flushes after each write: safe, and slow."""


@dataclass(frozen=True, slots=True)
class MayOutgrow:
    """A thin image that may grow by more bytes than its file system has left."""

    may_grow: int
    free: int


@dataclass(frozen=True, slots=True)
class SlowBus:
    """A bus that emulates a real controller, where virtio would do."""

    bus: Bus


@dataclass(frozen=True, slots=True)
class AioConflict:
    """aio=native without O_DIRECT: QEMU does not start."""

    cache: CacheMode


@dataclass(frozen=True, slots=True)
class NoDiscard:
    """A thin image that never shrinks, as discards of the guest are ignored."""


@dataclass(frozen=True, slots=True)
class StaleNote:
    """vdisklab's note in the metadata names another path: the XML was changed since."""

    noted: str


Risk = (
    FlushesDropped
    | FlushesDroppedBelow
    | HangsOnGuestFlushes
    | FuaForgotten
    | FlushAfterEachWrite
    | MayOutgrow
    | SlowBus
    | AioConflict
    | NoDiscard
    | Impossible
    | StaleNote
)


def risks(disk: ConfiguredDisk, around: Surroundings) -> tuple[Risk, ...]:
    """All that is doubtful, the gravest first; nothing for a disk without a path."""
    path = disk_path(disk, around)
    if path is None:
        return ()
    found = [risk for judge in _JUDGES if (risk := judge(path, around)) is not None]
    if disk.note_is_stale and disk.noted is not None:
        found.append(StaleNote(disk.noted.canonical))
    return tuple(found)


def _flushes(path: DiskPath, _around: Surroundings) -> Risk | None:
    """A device that forgets FUA passes other flushes on: it is a risk of its own."""
    drops = {drop.dropper: drop.reason for drop in reversed(dropped_flushes(path))}
    if FlushDropper.CACHE_MODE in drops:
        return FlushesDropped()
    if FlushDropper.LAYER in drops:
        return FlushesDroppedBelow(drops[FlushDropper.LAYER])
    if not path.offers_write_cache:
        return FlushAfterEachWrite()
    return HangsOnGuestFlushes(in_memory=not path.cache.direct)


def _fua(path: DiskPath, _around: Surroundings) -> Risk | None:
    return FuaForgotten() if forgets_fua(path) and not path.cache.no_flush else None


def _room(path: DiskPath, around: Surroundings) -> Risk | None:
    size, allocated, free = around.virtual_size, around.allocated, around.free
    if size is None or allocated is None or free is None or path.image is None:
        return None
    may_grow = size - allocated
    return MayOutgrow(may_grow, free) if may_grow > NEARLY_FULL * free else None


def _bus(path: DiskPath, _around: Surroundings) -> Risk | None:
    slow = (Bus.IDE, Bus.SATA, Bus.USB)
    return SlowBus(path.attachment.bus) if path.attachment.bus in slow else None


def _discard(path: DiskPath, around: Surroundings) -> Risk | None:
    thin = path.image is not None and path.image.is_thin
    if around.virtual_size is not None and around.allocated is not None:
        thin = around.allocated < around.virtual_size
    if thin and path.attachment.option("discard") == "ignore":
        return NoDiscard()
    return None


def _buildable(path: DiskPath, _around: Surroundings) -> Risk | None:
    if native_without_direct(path):
        return AioConflict(path.cache)
    if path.image is None and not path.layers:
        return None  # a block device whose layers nobody has looked up
    return impossible(path)


_JUDGES: tuple[Callable[[DiskPath, Surroundings], Risk | None], ...] = (
    _buildable, _fua, _flushes, _room, _bus, _discard,
)  # fmt: skip
