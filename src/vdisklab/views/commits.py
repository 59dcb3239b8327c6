"""Whether what existing guests have flushed, such as a database's commits, survives a power cut."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import IntEnum

from vdisklab.answers.disks import ExistingDisk
from vdisklab.path.disk_path import DiskPath
from vdisklab.path.durability import Durability, DurabilityKind, what_server_keeps
from vdisklab.platforms.configured_disk import THROWN_AWAY, in_doubt
from vdisklab.platforms.risk_kinds import FlushesDropped, FlushesDroppedBelow, Risk
from vdisklab.units import counted
from vdisklab.value import Value
from vdisklab.views.disks import name_of, shown_names


class _Order(IntEnum):
    """The order of the sentences: what loses data comes first."""

    LOST = 0
    UNKNOWN = 1
    BY_SERVER = 2
    BY_RULE = 3
    TESTED = 4


class _Fate(Value):
    """What becomes of commits on a disk: a verb in both numbers, and what follows `commits`."""

    order: _Order
    verbs: tuple[str, str]
    clause: str


_KEEPS, _LOSES, _KEPT = ("keeps", "keep"), ("loses", "lose"), ("kept", "kept")
_WHICH_LOST = ("lost", "lost")
_MAY_KEEP = ("may keep", "may keep")


def commits_after_a_power_cut(
    rows: Iterable[ExistingDisk], *, lost: bool | None = None
) -> Iterator[str]:
    """A sentence for each fate of commits, the worst first; only of commits that are `lost`, or
    only of others. A disk that is never written to, and one with which its guest does not start,
    have none."""
    names: dict[_Fate, list[str]] = {}
    for row in rows:
        if not row.disk.read_only and not any(risk.blocks for risk in row.risks):
            names.setdefault(_fate(row), []).append(name_of(row))
    for fate in sorted(names, key=lambda fate: fate.order):
        if lost in (None, fate.order is _Order.LOST):
            disks = names[fate]
            yield (
                f"Power cut: {shown_names(disks)} {fate.verbs[len(disks) > 1]} commits (what the "
                f"guest has flushed){fate.clause}."
            )


def _fate(row: ExistingDisk) -> _Fate:
    path, found = row.path or row.disk.assumed, row.power_cut
    dropped = THROWN_AWAY if row.disk.is_thrown_away else _dropped(row.risks)
    if found is not None and found.kind is DurabilityKind.LOST_BY_CONSTRUCTION:
        rule = row.disk.drops_by_default
        why = THROWN_AWAY if row.disk.is_thrown_away else found.reason
        why = f"{why} ({rule})" if rule and not row.disk.is_thrown_away else why
        return _Fate(_Order.LOST, _LOSES, f": {why}")
    if dropped is not None:
        return _Fate(_Order.LOST, _LOSES, f": {dropped}")
    if path is None or in_doubt(row.disk):
        why = in_doubt(row.disk) if path else "its settings and its storage are not known"
        return _Fate(_Order.UNKNOWN, _MAY_KEEP, f": {why}")
    if row.disk.ephemeral:
        return _Fate(_Order.LOST, _LOSES, f" when its pod ends, by design ({row.disk.ephemeral})")
    if row.path is None or found is None:
        return _Fate(
            _Order.UNKNOWN, _MAY_KEEP, f": {_passes_on(path)}, and its storage is not known"
        )
    return _judged(row, path, found)


def _dropped(risks: Iterable[Risk]) -> str | None:
    """Why flushes are dropped, as far as the disk's path does not say it."""
    for risk in risks:
        if isinstance(risk, FlushesDroppedBelow):
            return risk.reason
        if isinstance(risk, FlushesDropped):
            rule = f" ({risk.by_default})" if risk.by_default else ""
            return f"its cache mode drops flushes{rule}"
    return None


def _judged(row: ExistingDisk, path: DiskPath, found: Durability) -> _Fate:
    """The fate of a disk with a path of which no rule says that it loses commits."""
    states = found.states
    if "writes" in row.disk.ignored_errors and found.kind is not DurabilityKind.LOST_IN_TEST:
        why = ", unless a write or flush fails, which its error policy (ignore) calls good"
        return _Fate(_Order.UNKNOWN, _KEEPS, why)
    match found.kind:
        case DurabilityKind.LOST_IN_TEST:
            said = f" in {states.lost} of {states.judged} simulated power cuts"
            return _Fate(_Order.LOST, _WHICH_LOST, said)
        case DurabilityKind.KEPT_IN_TEST:
            cuts = counted(states.judged, "simulated power cut")
            return _Fate(_Order.TESTED, _KEPT, f" in all of {cuts}")
        case DurabilityKind.BY_SERVER:
            unknown = what_server_keeps(path)
            clause = f" only if the server does: {_passes_on(path)}, and {unknown}"
            return _Fate(_Order.BY_SERVER, _KEEPS, clause)
        case _:
            return _by_rule(row, path)


def _by_rule(row: ExistingDisk, path: DiskPath) -> _Fate:
    is_seen = bool(path.layers) or row.advised.on_device_here
    far = "" if is_seen else "; its storage is not seen from here"
    go = "QEMU and the host go" if is_seen else "QEMU goes"
    return _Fate(
        _Order.BY_RULE, _KEEPS, f", as far as {go}: {_passes_on(path)}{far}; not simulated here"
    )


def _passes_on(path: DiskPath) -> str:
    """What QEMU does with a guest's flushes in a cache mode that drops none; what becomes of fsync
    in a shared directory, which has none: virtiofsd and QEMU's 9p server call fsync on the host
    (virtiofsd's passthrough/mod.rs; hw/9pfs/9p-local.c)."""
    if path.shares_directory:
        return (
            f"it is a directory of the host ({path.attachment.bus}) and no disk, so no cache mode "
            "of QEMU counts, and the guest's fsync reaches the host's file system"
        )
    if not path.offers_write_cache:
        return f"cache={path.cache} flushes after each write"
    mode = path.cache.spelled_out
    return f"{'' if mode is path.cache else 'the default, '}cache={mode} passes flushes on"
