"""What the rules alone say of an existing guest's disk: what no measurement would change."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from vdisklab.answers.disks import (
    STARTS,
    Advice,
    DiskAction,
    ExistingDisk,
)
from vdisklab.answers.wanted_paths import settings_of
from vdisklab.errors import PlanError
from vdisklab.path.disk_path import Attachment, DiskPath
from vdisklab.path.durability import CrashVerdicts, Durability, DurabilityKind, HostDisk, durability
from vdisklab.path.needs import DURABLE, meets, nearest
from vdisklab.path.segments import BUS_OPTIONS, Aio, CacheMode
from vdisklab.platforms.configured_disk import (
    ConfiguredDisk,
    drops_beside_path,
    in_doubt,
    loses_writes,
    works_for,
)
from vdisklab.platforms.registry import (
    can_change,
    cannot_have,
    change_of,
    dialect_of,
)
from vdisklab.platforms.risk_kinds import (
    AioConflict,
    CannotWork,
    ErrorsIgnored,
    ImageShared,
    VolumeShared,
    limits_in,
)
from vdisklab.platforms.where_set import set_by, set_to
from vdisklab.value import replace

PASSES_ON = "passes flushes on"


def by_rules(row: ExistingDisk, start: Advice, below: str | None) -> Advice | None:
    """The advice that no measurement changes: for a disk with which its guest does not start, whose
    writes are thrown away, below which flushes are dropped (for the reason `below`), whose failed
    requests are called good, whose image another disk writes to, whose settings are in doubt, or
    which a program sets. None for another disk."""
    return (
        _made_to_work(row, start)
        or _thrown_away(row, start)
        or _unsafe_below(row, start, below)
        or _dropping_beside_path(row, start)
        or _ignoring_errors(row, start)
        or _of_two_disks(row, start)
        or _in_doubt(row, start)
        or _set_by_program(row, start)
    )


def _unsafe_below(row: ExistingDisk, start: Advice, below: str | None) -> Advice | None:
    """The advice for a disk below whose image flushes are dropped, for the reason `below`."""
    if below is None or start.path is None or any(risk.blocks for risk in row.risks):
        return None
    in_short = "no setting of the guest makes it safe"
    if settings := _settings_to_change(row):
        in_short = f"set {settings}, and change what is below the guest"
    return replace(
        start, action=DiskAction.CHANGE, for_safety=True, reason=f"{in_short}: {below}",
        in_short=in_short,
    )  # fmt: skip


def _dropping_beside_path(row: ExistingDisk, start: Advice) -> Advice | None:
    """The advice for a disk whose flushes are dropped where its path does not show it: by an
    argument beside it, or in the mode of its data file. None for another disk."""
    if start.path is None or not drops_beside_path(row.disk) or row.disk.read_only:
        return None
    if any(risk.blocks for risk in row.risks):
        return None
    in_short = "set cache none or writeback where it is set to unsafe"
    if row.disk.limits:
        in_short = f"leave {', '.join(row.disk.limits[:2])} out"
    reason = f"{in_short}: flushes are dropped beside the disk's own cache mode"
    return replace(
        start, action=DiskAction.CHANGE, for_safety=True, measurable=False, reason=reason,
        in_short=in_short,
    )  # fmt: skip


def _settings_to_change(row: ExistingDisk) -> str:
    """The settings of a disk that lose flushed data whatever is below it, as they should be; empty
    for a disk without one."""
    ignored = [risk for risk in row.risks if isinstance(risk, ErrorsIgnored)]
    path = row.path or row.disk.assumed
    drops = row.disk.drops_flushes or (path is not None and path.cache.no_flush)
    wanted = [risk.setting for risk in ignored]
    return " and ".join([*wanted, *(["cache none"] if drops else [])])


def _ignoring_errors(row: ExistingDisk, start: Advice) -> Advice | None:
    """The advice for a disk whose failed writes or reads are called good, which is a risk of
    `audit`: the same path with the policy `stop`, if one line gives it. None for another disk."""
    disk, path = row.disk, start.path or row.disk.assumed
    ignored = [risk for risk in row.risks if isinstance(risk, ErrorsIgnored)]
    if not ignored or any(risk.blocks for risk in row.risks):
        return None
    change = replace(start, action=DiskAction.CHANGE, for_safety=True, measurable=False)
    in_short = f"set {_settings_to_change(row)}"
    failing = "write" if "writes" in ignored[0].errors else "read"
    why = f"now a {failing} that fails is called good"
    told = replace(change, reason=f"{in_short}: {why}", in_short=in_short)
    if path is None or "werror" not in BUS_OPTIONS[path.attachment.bus]:
        return told
    stops = dict(path.attachment.options)
    stops |= {"werror": "stop"} if failing == "write" else {}
    stops |= {"rerror": "stop"} if "rerror" in stops else {}
    stopping = replace(path, attachment=Attachment(path.attachment.bus, tuple(stops.items())))
    for to in _safe_settings(disk, stopping, _rules(row), stopping):
        if "stop" in change_of(disk, to).paste:
            reason = f"a {failing} that fails then pauses the guest instead of being called good"
            return replace(change, to=to, reason=reason)
    return told


def _thrown_away(row: ExistingDisk, start: Advice) -> Advice | None:
    """The advice for a disk whose writes are thrown away on purpose; None for another one."""
    if not row.disk.is_thrown_away or any(risk.blocks for risk in row.risks):
        return None
    reason = "nothing it writes is meant to survive"
    return replace(start, action=DiskAction.KEEP, reason=reason, measurable=False)


def _of_two_disks(row: ExistingDisk, start: Advice) -> Advice | None:
    """The advice for a disk whose image or volume another disk has, too, though it cannot be open
    for both; None without one. A disk that loses flushed data is changed for that first."""
    shared = next(
        (each for each in row.risks if isinstance(each, ImageShared | VolumeShared)), None
    )
    if shared is None or loses_writes(row.disk):
        return None
    if row.power_cut is not None and not row.power_cut.kind.acceptable:
        return None
    in_short = f"give it {shared.instead}"
    return replace(
        start, action=DiskAction.CHANGE, for_safety=True, measurable=False, in_short=in_short,
        reason=f"{in_short}: {shared.others} has the same one",
    )  # fmt: skip


def _in_doubt(row: ExistingDisk, start: Advice) -> Advice | None:
    """The advice for a disk whose settings may be others, or whose server may lose data; None if
    they are known, or lose data."""
    now, doubt = row.power_cut, in_doubt(row.disk)
    if not doubt or start.path is None or now is None or not now.kind.acceptable:
        return None
    return replace(start, reason=doubt, measurable=False)


def _set_by_program(row: ExistingDisk, start: Advice) -> Advice | None:
    """The advice for a safe disk of a guest that a program makes anew from its own file: no line of
    the guest lasts, so no measurement decides one. None for another disk."""
    disk, now = row.disk, row.power_cut
    if not disk.changed_in or start.path is None or start.reason or disk.limits:
        return None
    if now is None or not now.kind.acceptable:
        return None
    where = set_by(disk.changed_at) if disk.changed_at else f"{disk.changed_in} sets it"
    reason = f"{_safe(now)}; {where}"
    return replace(start, action=DiskAction.KEEP, reason=reason, measurable=False)


def _made_to_work(row: ExistingDisk, start: Advice) -> Advice | None:
    """The advice for a disk with which the guest does not start: the first setting that works. None
    if it starts.
    """
    path = start.path or row.disk.assumed
    risk = next((risk for risk in row.risks if isinstance(risk, AioConflict | CannotWork)), None)
    if risk is None or (path is None and row.disk.refused is None):
        return None
    rules = _rules(row)
    change = replace(start, action=DiskAction.CHANGE, measurable=False)
    if path is None:
        return replace(change, reason=risk.clause)
    to = next(_safe_settings(row.disk, path, rules, path), None)
    if to is None:
        return replace(change, reason=risk.clause)
    return replace(change, to=to, reason=f"{risk.reason}, so {STARTS}")


def without_path(row: ExistingDisk, start: Advice) -> Advice:
    """The advice for a disk whose storage is not known: its cache mode is."""
    disk = row.disk
    if disk.read_only:
        return replace(start, action=DiskAction.KEEP, reason="it is read-only, and loses nothing")
    if disk.ephemeral:
        why = f"ephemeral by design ({disk.ephemeral}): what is written is lost when its pod ends"
        return replace(start, action=DiskAction.KEEP, reason=why)
    assumed = disk.assumed
    # NVMe may lose flushed data, too, whatever its storage is.
    unsafe = assumed is not None and not durability(assumed, _rules(row)).kind.acceptable
    if assumed is not None and (disk.drops_flushes or unsafe):
        safe = made_safe(row, start, assumed)
        if safe.to is not None and not disk.drops_flushes:
            now = f"as {assumed.attachment.bus} it may lose flushed data"
            return replace(safe, reason=f"{now}, and {safe.reason}")
        if safe.to is not None:
            return safe
    if not disk.drops_flushes:
        return start
    change = replace(start, action=DiskAction.CHANGE, for_safety=True)
    if disk.changed_at:
        reason = f"{set_to(disk.changed_at, 'none')}, which {PASSES_ON}"
        change = replace(change, reason=reason)
    return change


def limited(row: ExistingDisk, start: Advice, limits: Sequence[str]) -> Advice:
    """The advice for a disk with limits, or other settings, that no measured path has."""
    said = f"its speed is not comparable ({', '.join(limits)})"
    if held := limits_in(limits):
        said = f"its own limits hold it back ({', '.join(held)})"
    if loses_writes(row.disk):
        return replace(start, reason=f"it loses flushed data; {said}")
    if row.power_cut is not None and row.power_cut.kind.acceptable:
        return replace(start, action=DiskAction.KEEP, reason=f"{_safe(row.power_cut)}; {said}")
    path = start.path or row.disk.assumed
    loses = "it loses flushed data" if path is None else _loses(row.disk, path, _rules(row))
    return replace(start, reason=f"{loses}; {said}")


def no_line(disk: ConfiguredDisk, path: DiskPath) -> str:
    """Why no setting can be changed in one line, so that no measurement would decide anything."""
    refusal = ""
    for other in settings_of(disk, path):
        try:
            change_of(disk, other)
        except PlanError as error:
            refusal = f"{error}: {error.hint}"
        else:
            return ""
    return refusal


def _safe(kept: Durability) -> str:
    """That a disk keeps what its guest flushes, as far as this host can know it."""
    return "safe if its server is" if kept.kind is DurabilityKind.BY_SERVER else "safe"


def made_safe(row: ExistingDisk, start: Advice, path: DiskPath) -> Advice:
    """The advice for disks that lose flushed data: the first setting that keeps it, if any single
    line makes them safe. The price of that setting was not measured.
    """
    rules = _rules(row)
    to = next(_safe_settings(row.disk, path, rules), None)
    if to is None:
        past = row.disk.past
        why = f"it is {past}, which may differ from the guest of today"
        why = _loses(row.disk, path, rules) if past is None else why
        return replace(start, action=DiskAction.CHANGE, for_safety=True, reason=why)
    return replace(
        start,
        action=DiskAction.CHANGE,
        reason="how much slower it is was not measured",
        to=to,
        for_safety=True,
    )


def _safe_settings(
    disk: ConfiguredDisk, path: DiskPath, rules: CrashVerdicts, *first: DiskPath
) -> Iterator[DiskPath]:
    """The settings that keep flushed data and that one line gives the disk, those `first` before
    the nearest; then those without a write cache, which need no flush; last those on another bus.
    """
    without_cache = (
        replace(path, cache=cache, attachment=_threads(path, cache))
        for cache in (CacheMode.DIRECTSYNC, CacheMode.WRITETHROUGH)
    )
    moved = (
        replace(path, attachment=replace(path.attachment, bus=bus))
        for bus in dialect_of(disk.platform).other_buses
        if bus is not path.attachment.bus
    )
    on_other_buses = (each for there in moved for each in (there, *settings_of(disk, there)))
    for variant in (*first, *settings_of(disk, path), *without_cache, *on_other_buses):
        if (
            works_for(disk, variant)
            and can_change(disk, variant)
            and meets(variant, DURABLE, rules)
        ):
            yield variant


def _threads(path: DiskPath, cache: CacheMode) -> Attachment:
    """The attachment with aio=threads where a cache mode excludes aio=native."""
    attachment = path.attachment
    if cache.direct or attachment.aio is not Aio.NATIVE:
        return attachment
    return Attachment(
        attachment.bus, tuple((dict(attachment.options) | {"aio": Aio.THREADS.value}).items())
    )


def _loses(disk: ConfiguredDisk, path: DiskPath, rules: CrashVerdicts) -> str:
    """Why no line makes a disk keep flushed data, and the nearest path that does.

    `path` may be a name by which `run` measures; a disk's storage is that of its own.
    """
    path = disk.path or path
    nearest_safe = nearest(path, (DURABLE,), rules, partial(cannot_have, disk))
    why = "no single setting makes it keep flushed data"
    if disk.changed_in and nearest_safe is not None:
        is_mode = nearest_safe.cache is not path.cache
        if is_mode and disk.changed_at:
            return f"{set_to(disk.changed_at, str(nearest_safe.cache))}, which {PASSES_ON}"
        setting = f"cache {nearest_safe.cache}" if is_mode else "the change"
        return f"{setting} belongs in {disk.changed_in}: the nearest safe path is {nearest_safe}"
    is_kept = disk.server is not None and disk.server.has_secret
    if is_kept and nearest_safe is not None and nearest_safe.cache is not path.cache:
        return (
            f"set cache {nearest_safe.cache} in its own arguments, as no line here can repeat how "
            "it logs in: that mode passes flushes on"
        )
    if nearest_safe is None:
        return f"{why}, and no path of {disk.platform.full_name} on its storage does"
    other_bus = nearest_safe.attachment.bus is not path.attachment.bus
    driver = ", whose bus needs a driver in the guest" if other_bus else ""
    return f"{why}: the nearest path that does is {nearest_safe}{driver}"


def _rules(row: ExistingDisk) -> CrashVerdicts:
    """What a path keeps by its settings, on a host's disk like that of a guest's disk."""
    return CrashVerdicts(disk=HostDisk.VOLATILE if row.power_cut is None else row.power_cut.disk)
