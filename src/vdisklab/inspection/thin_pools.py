"""Thin volumes of this host: by how much those of a pool may still grow, and what it has left; and
quotas that refuse writes before a file system is full.

LVM's by lvs(8), ZFS's by zfs(8), btrfs' by btrfs-qgroup(8). A pool of LVM that is full lets
requests wait, or fails them at once (`lv_when_full`); the kernel ends the waiting after 60 s,
unless the module parameter no_space_timeout of dm_thin_pool says otherwise
(Documentation/admin-guide/device-mapper/thin-provisioning.rst).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from vdisklab.errors import HostError
from vdisklab.host.command import Host
from vdisklab.host.machine import read_text
from vdisklab.platforms.disk_context import ThinPool

_BLOCK = Path("/sys/class/block")
_LVS = (
    "lvs", "--reportformat", "json", "--units", "b", "--nosuffix",
    "-o", "lv_name,vg_name,lv_size,data_percent,pool_lv,lv_when_full,lv_dm_path",
)  # fmt: skip
_ZFS = ("zfs", "get", "-Hp", "-o", "property,value")
_QGROUPS = ("btrfs", "qgroup", "show", "--raw", "-reF")
"""The quota groups that a path's subvolume counts into, with their limits, in bytes."""
_NEVER = ("none", "0", "-")


def lvm_pool(host: Host, device: Path) -> ThinPool | None:
    """The pool of a thin volume of LVM; None for another device, and if LVM does not tell."""
    if not (read_text(_BLOCK / device.resolve().name / "dm/uuid") or "").startswith("LVM-"):
        return None
    try:
        volumes = volumes_of(host.run(*_LVS).stdout)
    except (HostError, ValueError, KeyError, TypeError):
        return None
    mine = next((v for v in volumes if Path(v["lv_dm_path"]).resolve() == device.resolve()), None)
    return None if mine is None else pool_of(volumes, mine)


def volumes_of(report: str) -> list[Mapping[str, str]]:
    """The volumes in a report of lvs. Raises ValueError, KeyError and TypeError for other texts."""
    found: list[Mapping[str, str]] = json.loads(report)["report"][0]["lv"]
    return found


def pool_of(volumes: Iterable[Mapping[str, str]], volume: Mapping[str, str]) -> ThinPool | None:
    """The pool of a volume among all; None if it is not thin, or sizes are missing."""
    group = [other for other in volumes if other["vg_name"] == volume["vg_name"]]
    pool = next((each for each in group if each["lv_name"] == volume["pool_lv"]), None)
    if not volume["pool_lv"] or pool is None:
        return None
    thin = [each for each in group if each["pool_lv"] == volume["pool_lv"]]
    try:
        return ThinPool(
            name=f"{volume['vg_name']}/{volume['pool_lv']}",
            may_grow=sum(_not_allocated(each) for each in thin),
            free=_not_allocated(pool),
            volumes=len(thin),
            waits=pool["lv_when_full"] == "queue",
        )
    except ValueError:
        return None


def _not_allocated(volume: Mapping[str, str]) -> int:
    """Bytes that have no data. A volume that is not active has no percentage: raises ValueError."""
    return round(int(volume["lv_size"]) * (1 - float(volume["data_percent"]) / 100))


def zfs_pool(host: Host, volume: str) -> ThinPool | None:
    """The pool of a sparse volume of ZFS; None for one whose space is reserved, and if ZFS does
    not tell."""
    names = "volsize,referenced,refreservation,available"
    found = _zfs(host, names, volume)
    try:
        if found["refreservation"] not in _NEVER:
            return None
        return ThinPool(
            name=volume.partition("/")[0],
            may_grow=max(0, int(found["volsize"]) - int(found["referenced"])),
            free=int(found["available"]),
            volumes=1,
            waits=False,
        )
    except (KeyError, ValueError):
        return None


def has_zfs_quota(host: Host, dataset: str) -> bool:
    """True if a dataset of ZFS has a quota, which refuses writes before the pool is full."""
    found = _zfs(host, "quota,refquota", dataset)
    return any(value not in _NEVER for value in found.values())


def btrfs_quota(host: Host, directory: Path) -> int | None:
    """Bytes that the quotas of a directory's subvolume leave; None without a quota, and if btrfs
    does not tell (only root may ask). statvfs(2) knows nothing of these quotas."""
    try:
        return quota_left(host.run(*_QGROUPS, str(directory)).stdout)
    except (HostError, ValueError):
        return None


def quota_left(table: str) -> int | None:
    """The bytes that the tightest limit in a table of `btrfs qgroup show --raw -reF` leaves; None
    if nothing is limited. Raises ValueError for another text."""
    lines = [line.split(maxsplit=5) for line in table.splitlines()]
    groups = [fields[1:5] for fields in lines if fields and "/" in fields[0]]
    if not groups and not any(fields[:1] == ["Qgroupid"] for fields in lines):
        raise ValueError(f"not a table of quota groups: {table[:80]!r}")
    left = [
        int(limit) - int(used)
        for referenced, exclusive, most_referenced, most_exclusive in groups
        for used, limit in ((referenced, most_referenced), (exclusive, most_exclusive))
        if limit != "none"
    ]
    return max(0, min(left)) if left else None


def _zfs(host: Host, names: str, dataset: str) -> dict[str, Any]:
    try:
        lines = host.run(*_ZFS, names, dataset).stdout.splitlines()
    except HostError:
        return {}
    return dict(line.split("\t", 1) for line in lines if "\t" in line)
