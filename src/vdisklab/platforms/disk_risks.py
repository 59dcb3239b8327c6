"""The risks of one disk of an existing guest.

A new risk is one class in `risk_kinds` and one function in `_CHECKS`. `vdisklab.path` defines the
meaning of paths.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from pathlib import Path

from vdisklab.path.backing import backing_below
from vdisklab.path.disk_path import DiskPath
from vdisklab.path.durability import FlushDropper, dropped_flushes, needs_no_flush, writes_in_place
from vdisklab.path.platforms import Platform
from vdisklab.path.rules import impossible, native_without_direct
from vdisklab.path.segments import BUS_OPTIONS, Bus, ImageFormat, LayerKind
from vdisklab.platforms.configured_disk import ConfiguredDisk, drops_beside_path
from vdisklab.platforms.conversion import remedy_for
from vdisklab.platforms.disk_context import UNKNOWN_CONTEXT, DiskContext, disk_path
from vdisklab.platforms.machine_buses import MaybeUnseen, NoSuchBus, verdict_on
from vdisklab.platforms.risk_kinds import (
    LIFTING_LINES,
    PAUSING_LINES,
    STOPPING_FOR_ALL,
    STOPPING_LINES,
    AioConflict,
    BackingNotFollowed,
    CannotWork,
    DurableOnceFlushed,
    Ephemeral,
    ErrorsIgnored,
    FileVolume,
    FlushAfterEachWrite,
    FlushesDropped,
    FlushesDroppedBelow,
    FuaForgotten,
    IdleAio,
    ImageShared,
    LimitsBeyondPath,
    LossyImage,
    MayBeUnseen,
    MayDiffer,
    MayFill,
    MayOutgrow,
    NoDiscard,
    NotOfToday,
    OnServer,
    OtherFormat,
    PendingChange,
    PendingLoss,
    PoolMayFill,
    ProbablyVolume,
    QuotaReached,
    ReadErrorsIgnored,
    Risk,
    ServerMayLose,
    SlowBus,
    SoftMount,
    StaleNote,
    Throttled,
    UnsafeBefore,
    VolumeShared,
    WhenFull,
    WritesThrownAway,
    limits_in,
)
from vdisklab.value import replace


def _risks_of_settings(disk: ConfiguredDisk) -> Iterator[Risk]:
    """The risks of a disk's settings beside its path."""
    if drops_beside_path(disk) and not disk.read_only:
        yield FlushesDropped(disk.drops_by_default)
    if disk.ephemeral and not disk.read_only:
        yield Ephemeral(disk.ephemeral)
    elif disk.transient and not disk.read_only:
        yield WritesThrownAway()
    errors = tuple(error for error in disk.ignored_errors if error == "reads" or not disk.read_only)
    if errors:
        kind = ReadErrorsIgnored if errors == ("reads",) else ErrorsIgnored
        yield kind(errors, STOPPING_FOR_ALL.get(disk.platform))
    if disk.refused is not None:
        yield CannotWork(*disk.refused)
    match verdict_on(disk.architecture, disk.platform, disk.bus, disk.controller):
        case NoSuchBus(reason, instead):
            yield CannotWork(reason, instead)
        case MaybeUnseen(what, remedy):
            yield MayBeUnseen(disk.architecture or "", what, remedy)
        case None:
            pass
    yield from _throttled(disk)
    yield from _in_doubt(disk)


def _in_doubt(disk: ConfiguredDisk) -> Iterator[Risk]:
    """The risks of what is beside a disk: other times, other files, other guests."""
    if disk.past is not None:
        yield NotOfToday(disk.past)
    if disk.may_differ:
        yield MayDiffer(disk.may_differ)
    if disk.lost_if is not None and not disk.read_only:
        yield ServerMayLose(*disk.lost_if)
    if disk.written_by:
        yield ImageShared(disk.written_by)
    if disk.same_volume:
        yield VolumeShared(disk.same_volume)
    if disk.was_unsafe and not disk.read_only:
        yield UnsafeBefore()
    if disk.pending:
        yield (PendingLoss if disk.pending_loss else PendingChange)(disk.pending)


def risks(disk: ConfiguredDisk, context: DiskContext = UNKNOWN_CONTEXT) -> tuple[Risk, ...]:
    """The disk's risks, most serious first; if it has no path, those of its settings alone.

    A read-only disk has only the risks of reading.
    """
    path = disk_path(disk, context)
    soft = context.soft_mount or (disk.soft_mount and disk.soft_mount[0])
    lost_below = disk.lost_below or context.lost_below
    context = replace(context, lost_below=lost_below, soft_mount=soft)
    of_settings = [*_risks_of_settings(disk)]
    if path is None:
        if context.drops_flushes and not disk.read_only:
            of_settings.append(FlushesDroppedBelow(context.drops_flushes))
        forgotten = disk.assumed and not disk.read_only and _forgotten_fua(disk.assumed, context)
        if forgotten:
            of_settings.append(forgotten)
        if disk.assumed is not None and native_without_direct(disk.assumed):
            of_settings.append(AioConflict(disk.assumed.cache))
        return tuple(of_settings)
    skipped: frozenset[_Check] = _OF_WRITES if disk.read_only else frozenset()
    if any(isinstance(risk, CannotWork | MayBeUnseen) for risk in of_settings):
        skipped |= {_slow_bus}  # a bus that does not work is not slow
    checks = [check for check in _CHECKS if check not in skipped]
    risky = [
        *of_settings,
        *(risk for check in checks if (risk := check(path, context)) is not None),
    ]
    if not disk.read_only and _is_promised(path) and context.lost_below is None:
        is_rbd = path.layers[0].kind is LayerKind.RBD
        caches = path.offers_write_cache and not path.cache.direct
        cached = caches and (is_rbd or not path.opened_by_qemu)
        no_wait = cached and is_rbd and disk.platform is Platform.PROXMOX
        flushes_each = not path.offers_write_cache and not path.cache.direct
        risky.append(OnServer(path.layers[0].kind, cached, no_wait, flushes_each))
    risky = [_with_setting(_with_configuration(risk, disk, path), disk, path) for risk in risky]
    ignores = path.attachment.option("discard") == "ignore"
    if disk.on_thin_volume and ignores and not disk.read_only and NoDiscard() not in risky:
        risky.append(NoDiscard())
    risky += _to_know(disk, path, context)
    return tuple(sorted(risky, key=lambda risk: -risk.weight))


def _to_know(disk: ConfiguredDisk, path: DiskPath, context: DiskContext) -> Iterator[Risk]:
    """What is otherwise than it seems, and loses nothing."""
    if disk.on_file_volume:
        yield FileVolume()
    if disk.limits:
        yield LimitsBeyondPath(disk.limits)
    if disk.idle_aio and path.opened_by_qemu:
        yield IdleAio(disk.idle_aio, path.layers[0].kind)
    if context.not_followed is not None:
        yield BackingNotFollowed(context.not_followed)
    if context.named_volume is not None and path.image is None and not path.layers:
        yield ProbablyVolume(str(context.named_volume))
    if disk.stale_note is not None:
        yield StaleNote(disk.stale_note.canonical)


def _throttled(disk: ConfiguredDisk) -> Iterator[Risk]:
    """The limits of a disk's speed, as written and by its path."""
    attachment = None if disk.path is None else disk.path.attachment
    options = () if attachment is None else attachment.options
    schema = BUS_OPTIONS[attachment.bus] if attachment is not None else {}
    of_path = (f"{name}={schema[name].format(value)}" for name, value in options)
    limits = limits_in((*disk.limits, *of_path))
    if limits:
        line = LIFTING_LINES.get(disk.platform, "")
        guest = shlex.quote(disk.guest or disk.domain)
        yield Throttled(limits, line.format(guest=guest, disk=disk.target))


def _with_setting(risk: Risk, disk: ConfiguredDisk, path: DiskPath) -> Risk:
    """The risk with the platform's own words for its remedy, if the guest could be paused."""
    if "werror" not in BUS_OPTIONS[path.attachment.bus]:
        return risk
    if isinstance(risk, QuotaReached) or (isinstance(risk, MayOutgrow) and risk.at_quota):
        return replace(risk, instead=STOPPING_LINES.get(disk.platform))
    if isinstance(risk, MayFill) and risk.when_full is not WhenFull.PAUSED:
        return replace(risk, instead=PAUSING_LINES.get(disk.platform))
    return risk


def _cannot_work(path: DiskPath, _context: DiskContext) -> Risk | None:
    if native_without_direct(path):
        return AioConflict(path.cache)
    # What the guest's machine lacks is said of the guest's own (`verdict_on`).
    reason = impossible(path, backing_below(path), guest=None)
    if reason is None or reason.exists:
        return None
    return CannotWork(reason.reason, reason.instead)


def _other_format(path: DiskPath, context: DiskContext) -> Risk | None:
    """QEMU refuses an image without the header of its format, and gives the guest any file as raw.

    An encrypted raw image and a raw disk whose guest wrote such a header look the same.
    """
    configured = ImageFormat.RAW if path.image is None else path.image.format
    header = context.header
    return None if header is None or header is configured else OtherFormat(configured, header)


def _forgotten_fua(path: DiskPath, context: DiskContext) -> Risk | None:
    droppers = {drop.dropper for drop in dropped_flushes(path, context.disk)}
    # Where all flushes are dropped, no other bus and no property of the device keeps anything.
    every = {FlushDropper.CACHE_MODE, FlushDropper.LAYER, FlushDropper.IMAGE}
    forgets = FlushDropper.DEVICE in droppers and droppers.isdisjoint(every)
    return FuaForgotten() if forgets and context.drops_flushes is None else None


def _flushes_below(path: DiskPath, context: DiskContext) -> Risk | None:
    below = (FlushDropper.LAYER, FlushDropper.IMAGE)
    drops = dropped_flushes(path, context.disk)
    reasons = (drop.reason for drop in drops if drop.dropper in below)
    reason = next(reasons, context.drops_flushes)
    return None if reason is None else FlushesDroppedBelow(reason)


def _lossy_image(path: DiskPath, context: DiskContext) -> Risk | None:
    drops = dropped_flushes(path, context.disk)
    drop = next((drop for drop in drops if drop.dropper is FlushDropper.TABLES), None)
    return None if drop is None else LossyImage(drop.reason, drop.remedy)


def _with_configuration(risk: Risk, disk: ConfiguredDisk, path: DiskPath) -> Risk:
    """The risk with what the disk's configuration adds: the rule of a default, the command for its
    own image."""
    if isinstance(risk, FlushesDropped):
        return FlushesDropped(disk.drops_by_default)
    if isinstance(risk, FlushesDroppedBelow) and risk.reason == disk.lost_below:
        return replace(risk, instead=disk.below_instead or None)
    if isinstance(risk, SoftMount) and disk.soft_mount is not None:
        return replace(risk, instead=disk.soft_mount[1])
    file = disk.source or ""
    is_file = file.startswith("/") and not file.startswith("/dev/") and disk.server is None
    if not isinstance(risk, LossyImage) or path.image is None or not is_file:
        return risk
    return replace(risk, remedy=remedy_for(Path(file), path.image.format))


def _flushes(path: DiskPath, context: DiskContext) -> Risk | None:
    """Risks for flushes in the cache mode; `_forgotten_fua` checks the device."""
    if any(drop.dropper is FlushDropper.CACHE_MODE for drop in dropped_flushes(path, context.disk)):
        return FlushesDropped()
    if _flushes_below(path, context) or _lossy_image(path, context):
        return None
    if not path.offers_write_cache:
        return FlushAfterEachWrite()
    if needs_no_flush(path, context.disk) or _is_promised(path):
        return None
    return DurableOnceFlushed(in_memory=not writes_in_place(path))


def _is_promised(path: DiskPath) -> bool:
    """True for storage of a server that passes flushes on: `OnServer` says what it promises."""
    promise = path.target is not None and path.target.promise is not None
    return promise and not path.cache.no_flush


def _too_little_room(path: DiskPath, context: DiskContext) -> Risk | None:
    size, allocated, free = context.virtual_size, context.allocated, context.free
    if size is None or allocated is None or free is None or path.image is None:
        return None
    grows = size - allocated
    if grows <= 0 or grows + context.others_grow <= free:
        return None
    when_full = WhenFull.of(path)
    at_quota = _quota(path, context) is not None
    if at_quota and when_full is WhenFull.PAUSED:
        when_full = WhenFull.ERRORS
    return MayOutgrow(
        grows,
        free,
        context.others,
        context.others_grow,
        when_full=when_full,
        at_quota=at_quota,
    )


def _full_pool(path: DiskPath, context: DiskContext) -> Risk | None:
    pool = context.pool
    if pool is None or pool.may_grow <= pool.free:
        return None
    return PoolMayFill(
        pool.name, pool.may_grow, pool.free, pool.volumes, pool.waits, when_full=WhenFull.of(path)
    )


def _quota(path: DiskPath, context: DiskContext) -> Risk | None:
    is_thin = path.image is not None and path.image.is_thin
    policy = str(path.attachment.option("werror") or "enospc")
    stops = "werror" in BUS_OPTIONS[path.attachment.bus] and policy in ("stop", "ignore")
    return QuotaReached() if is_thin and context.has_quota and not stops else None


def _soft_mount(path: DiskPath, context: DiskContext) -> Risk | None:
    paused = path.attachment.option("werror") == "stop"
    return None if context.soft_mount is None else SoftMount(context.soft_mount, paused)


def _slow_bus(path: DiskPath, _context: DiskContext) -> Risk | None:
    slow = (Bus.IDE, Bus.SATA, Bus.USB)
    return SlowBus(path.attachment.bus) if path.attachment.bus in slow else None


def _ignored_discards(path: DiskPath, context: DiskContext) -> Risk | None:
    thin = path.image is not None and path.image.is_thin
    if context.virtual_size is not None and context.allocated is not None:
        thin = context.allocated < context.virtual_size
    thin |= any(layer.kind is LayerKind.LVMTHIN for layer in path.layers[-1:])
    return NoDiscard() if thin and path.attachment.option("discard") == "ignore" else None


_Check = Callable[[DiskPath, DiskContext], Risk | None]

_CHECKS: tuple[_Check, ...] = (
    _cannot_work, _other_format, _forgotten_fua, _flushes, _flushes_below, _lossy_image,
    _too_little_room, _full_pool, _quota, _soft_mount, _slow_bus, _ignored_discards,
)  # fmt: skip
_OF_WRITES: frozenset[_Check] = frozenset(
    {
        _forgotten_fua,
        _flushes,
        _flushes_below,
        _lossy_image,
        _too_little_room,
        _full_pool,
        _quota,
        _ignored_discards,
    }
)
