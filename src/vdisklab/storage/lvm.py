"""LVM: a logical volume, thick or from a thin pool, in its own volume group.

A group is removed by its name, and only from the devices in the ledger: a group of the same name on
other disks is not vdisklab's.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from vdisklab.errors import CommandError, HostError
from vdisklab.host import blockdevice, command, ledger
from vdisklab.path.disk_path import Layer
from vdisklab.path.segments import LayerKind
from vdisklab.storage.site import Site
from vdisklab.storage.targets import Device, Volume
from vdisklab.storage.undo import Removable, retried
from vdisklab.value import replace

VOLUME = "disk"
POOL = "pool"
_NODE_SECONDS = 15.0


@contextmanager
def logical_volume(
    site: Site, below: Device, layer: Layer, name: str, capacity: int
) -> Iterator[Device]:
    """A volume of `capacity` bytes in a new group on all members below.

    Raises HostError if LVM or the kernel's device-mapper is missing, or the group's name is taken.
    """
    group, members = site.unique(name), below.members
    site.check(lambda: _require_lvm(site.host, group))
    thin = layer.kind is LayerKind.LVMTHIN
    with site.tracked_on(members, GROUP, group):
        site.run_uninterrupted(*group_command(group, members))
        if thin:
            site.run_uninterrupted(*pool_command(group, members), timeout=300)
        with _volume(site, group, members, capacity, thin=thin) as node:
            properties = site.read_back(lambda: _read_back(site.host, layer, members))
            volume = Volume(f"{group}/{VOLUME}", members)
            yield replace(below.device(node, properties), volume=volume)


@contextmanager
def another_logical_volume(
    site: Site, below: Device, layer: Layer, name: str, *, size: int, guest: int
) -> Iterator[Path]:
    """The node of another volume in the group that `logical_volume` made under this name."""
    thin, group = layer.kind is LayerKind.LVMTHIN, site.unique(name)
    with _volume(site, group, below.members, size, thin=thin, name=f"{VOLUME}{guest}") as node:
        yield node


@contextmanager
def _volume(
    site: Site, group: str, members: tuple[Path, ...], capacity: int, *, thin: bool,
    name: str = VOLUME,
) -> Iterator[Path]:  # fmt: skip
    with site.tracked_on(members, LOGICAL_VOLUME, f"{group}/{name}"):
        create = volume_command(group, members, capacity, thin=thin, name=name)
        site.run_uninterrupted(*create, timeout=300)
        yield site.node(Path("/dev") / group / name, _NODE_SECONDS)


def group_command(group: str, members: tuple[Path, ...]) -> tuple[str, ...]:
    """Creates the physical volumes and the group. The members were checked for data before."""
    paths = map(str, members)
    return ("vgcreate", *lvm_on(members), "--quiet", "--yes", "--zero", "y", group, *paths)


def pool_command(group: str, members: tuple[Path, ...]) -> tuple[str, ...]:
    """The command for a thin pool on all free extents; LVM takes some of them for metadata."""
    return (
        "lvcreate", *lvm_on(members), "--quiet", "--yes", "--type", "thin-pool",
        "--name", POOL, "--extents", "100%FREE", group,
    )  # fmt: skip


def volume_command(
    group: str, members: tuple[Path, ...], size: int, *, thin: bool, name: str = VOLUME
) -> tuple[str, ...]:
    """The command that creates the volume for the next layer or a guest's disk."""
    common = ("lvcreate", *lvm_on(members), "--quiet", "--yes", "--name", name)
    if thin:
        return (*common, "--virtualsize", f"{size}b", "--thin", f"{group}/{POOL}")
    return (*common, "--wipesignatures", "n", "--size", f"{size}b", group)


def _require_lvm(host: command.Host, group: str) -> None:
    command.require_programs(host, "vgcreate", "dmsetup")
    try:
        host.run("dmsetup", "version")
    except CommandError as error:
        raise HostError(
            "this kernel has no device-mapper, which LVM needs",
            hint="modprobe dm_mod; or try it in the lab: vdisklab lab run",
        ) from error
    # Queried without --devices: two groups with one name cannot both be active, even on different
    # disks.
    groups = host.run("vgs", "--noheadings", "-o", "vg_name").stdout.split()
    if group in groups or (Path("/dev") / group).exists():
        raise HostError(f"the volume group {group} already exists", hint="try again")


def _read_back(host: command.Host, layer: Layer, members: tuple[Path, ...]) -> dict[str, str]:
    fields = "lv_name,lv_size,segtype,stripes,chunk_size,zero,discards"
    rows = {row["lv_name"]: row for row in lvm_report(host, "lvs", members, fields)}
    kind, volume = layer.kind.value, rows[VOLUME]
    properties = {f"{kind}.size": volume["lv_size"], f"{kind}.segment_type": volume["segtype"]}
    expected_type = "thin" if layer.kind is LayerKind.LVMTHIN else "linear"
    if volume["segtype"] != expected_type:
        raise HostError(
            f"the volume is {volume['segtype']} instead of {expected_type}",
            hint="this LVM created another type (`lvs -o+segtype`): check the thin_ and raid "
            "settings in /etc/lvm/lvm.conf",
        )
    if layer.kind is LayerKind.LVMTHIN:
        pool = rows[POOL]
        properties |= {f"{kind}.{key}": pool[key] for key in ("chunk_size", "zero", "discards")}
    return properties


def lvm_on(devices: tuple[Path, ...]) -> tuple[str, ...]:
    """An LVM command limited to these devices (lvm(8), --devices).

    It archives nothing in /etc/lvm, so that `clean` leaves no trace.
    """
    quiet = "backup/backup=0 backup/archive=0"
    return ("--devices", ",".join(map(str, devices)), "--config", quiet)


def lvm_report(host: command.Host, program: str, devices: tuple[Path, ...], fields: str) -> list[
    dict[str, str]
]:  # fmt: skip
    """The report of vgs, lvs or pvs on these devices: one mapping per line."""
    text = host.run(
        program, *lvm_on(devices), "--all" if program == "pvs" else "--quiet",
        "--reportformat", "json", "--units", "b", "--nosuffix", "-o", fields,
    ).stdout  # fmt: skip
    (report,) = json.loads(text)["report"]
    (rows,) = (rows for name, rows in report.items() if name in ("vg", "lv", "pv"))
    return [{key: str(value) for key, value in row.items()} for row in rows]


def remove_volume(host: command.Host, entry: ledger.Entry) -> None:
    """Removes a logical volume, named GROUP/VOLUME."""
    devices = blockdevice.recorded_devices(entry.detail["devices"])
    if not devices:
        return
    volumes = lvm_report(host, "lvs", devices, "vg_name,lv_name")
    if entry.name in (f"{row['vg_name']}/{row['lv_name']}" for row in volumes):
        retried(host, ("lvremove", *lvm_on(devices), "--quiet", "--force", "--yes", entry.name))


def remove_group(host: command.Host, entry: ledger.Entry) -> None:
    """Removes a volume group with its volumes, and the labels of its physical volumes."""
    devices = blockdevice.recorded_devices(entry.detail["devices"])
    if not devices:
        return
    groups = {row["vg_name"] for row in lvm_report(host, "vgs", devices, "vg_name")}
    if entry.name in groups:
        quiet = ("--quiet", "--yes")
        host.run("vgchange", *lvm_on(devices), *quiet, "--activate", "n", entry.name)
        retried(host, ("vgremove", *lvm_on(devices), *quiet, "--force", entry.name))
    # a group that was never finished leaves physical volumes without one
    for row in lvm_report(host, "pvs", devices, "pv_name,vg_name,pv_fmt"):
        if row["pv_fmt"] and not row["vg_name"]:
            host.run("pvremove", *lvm_on(devices), "--quiet", "--yes", row["pv_name"])


GROUP = Removable("volume group", remove_group)
LOGICAL_VOLUME = Removable("logical volume", remove_volume)
REMOVES = (GROUP, LOGICAL_VOLUME)
