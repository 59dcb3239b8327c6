"""LVM: a logical volume, thick or from a thin pool, in its own volume group."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from vdisklab.errors import CommandError, HostError
from vdisklab.host.blockdevice import record_devices
from vdisklab.host.command import Host, require_programs
from vdisklab.host.ledger import Kind
from vdisklab.path.disk_path import Layer
from vdisklab.path.segments import LayerKind
from vdisklab.storage.site import Site
from vdisklab.storage.targets import Device
from vdisklab.storage.undo_members import lvm_on, lvm_report

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
    devices = site.observe(lambda: record_devices(members), planned="")
    thin = layer.kind is LayerKind.LVMTHIN
    with site.tracked(Kind.GROUP, group, devices=devices):
        site.run_uninterrupted(*group_command(group, members))
        if thin:
            site.run_uninterrupted(*pool_command(group, members), timeout=300)
        with _volume(site, group, members, capacity, thin=thin) as node:
            properties = site.read_back(lambda: _read_back(site.host, layer, members))
            yield below.device(node, properties)


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
    devices = site.observe(lambda: record_devices(members), planned="")
    with site.tracked(Kind.VOLUME, f"{group}/{name}", devices=devices):
        create = volume_command(group, members, capacity, thin=thin, name=name)
        site.run_uninterrupted(*create, timeout=300)
        yield site.node(Path("/dev") / group / name, _NODE_SECONDS)


def group_command(group: str, members: tuple[Path, ...]) -> tuple[str, ...]:
    """Creates the physical volumes and the group. The members were checked for data before."""
    paths = map(str, members)
    return ("vgcreate", *lvm_on(members), "--quiet", "--yes", "--zero", "y", group, *paths)


def pool_command(group: str, members: tuple[Path, ...]) -> tuple[str, ...]:
    """The command for a thin pool on all free extents, some of which LVM uses for metadata."""
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


def _require_lvm(host: Host, group: str) -> None:
    require_programs(host, "vgcreate", "dmsetup")
    try:
        host.run("dmsetup", "version")
    except CommandError as error:
        raise HostError(
            "this kernel has no device-mapper, which LVM needs",
            hint="modprobe dm_mod; or try it in the lab: vdisklab lab run",
        ) from error
    # Queried without --devices: two groups with one name cannot both be active, even on different
    # disks.
    known = host.run("vgs", "--noheadings", "-o", "vg_name").stdout.split()
    if group in known or (Path("/dev") / group).exists():
        raise HostError(f"the volume group {group} already exists", hint="try again")


def _read_back(host: Host, layer: Layer, members: tuple[Path, ...]) -> dict[str, str]:
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
