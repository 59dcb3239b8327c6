"""LVM: a logical volume, thick or from a thin pool, in a group of its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from vdisklab.errors import CommandError, HostError
from vdisklab.host.blockdevice import note
from vdisklab.host.command import Host
from vdisklab.host.deadline import wait_until
from vdisklab.host.ledger import Kind
from vdisklab.path.disk_path import Layer
from vdisklab.path.segments import LayerKind
from vdisklab.storage.site import Site
from vdisklab.storage.target import Target
from vdisklab.storage.undo_members import lvm_on, lvm_report

VOLUME = "disk"
POOL = "pool"
_NODE_SECONDS = 15.0


@contextmanager
def logical_volume(
    site: Site, below: Target, layer: Layer, name: str, capacity: int
) -> Iterator[Target]:
    """A volume of `capacity` bytes in a new group on all members below.

    Raises HostError when LVM or the kernel's device-mapper is missing, or the group's name taken.
    """
    group, members = site.unique(name), below.members
    _require_means(site.host, group)
    devices = note(members)
    thin = layer.kind is LayerKind.LVMTHIN
    with site.tracked(Kind.GROUP, group, devices=devices):
        site.run_uninterrupted(*group_command(group, members))
        if thin:
            site.run_uninterrupted(*pool_command(group, members), timeout=300)
        with site.tracked(Kind.VOLUME, f"{group}/{VOLUME}", devices=devices):
            site.run_uninterrupted(
                *volume_command(group, members, capacity, thin=thin), timeout=300
            )
            node = Path("/dev") / group / VOLUME
            wait_until(node.exists, timeout=_NODE_SECONDS, what=f"device {node}")
            yield below.above(node.resolve(), is_block=True, **_read_back(site, layer, members))


def group_command(group: str, members: tuple[Path, ...]) -> tuple[str, ...]:
    """Makes the physical volumes and the group; what is on the members was looked at before."""
    paths = map(str, members)
    return ("vgcreate", *lvm_on(members), "--quiet", "--yes", "--zero", "y", group, *paths)


def pool_command(group: str, members: tuple[Path, ...]) -> tuple[str, ...]:
    """A thin pool over all the room; LVM takes metadata and their spare out of it."""
    return (
        "lvcreate", *lvm_on(members), "--quiet", "--yes", "--type", "thin-pool",
        "--name", POOL, "--extents", "100%FREE", group,
    )  # fmt: skip


def volume_command(
    group: str, members: tuple[Path, ...], size: int, *, thin: bool
) -> tuple[str, ...]:
    """The volume that is given away."""
    common = ("lvcreate", *lvm_on(members), "--quiet", "--yes", "--name", VOLUME)
    if thin:
        return (*common, "--virtualsize", f"{size}b", "--thin", f"{group}/{POOL}")
    return (*common, "--wipesignatures", "n", "--size", f"{size}b", group)


def _require_means(host: Host, group: str) -> None:
    for program in ("vgcreate", "dmsetup"):
        if host.which(program) is None:
            raise HostError(f"{program} is not installed", hint="apt-get install lvm2")
    try:
        host.run("dmsetup", "version")
    except CommandError as error:
        raise HostError(
            "this kernel has no device-mapper, which LVM stands on",
            hint="modprobe dm_mod; or try it in the lab: vdisklab lab run",
        ) from error
    # Asked without --devices: two groups of one name on other disks could not both be active.
    known = host.run("vgs", "--noheadings", "-o", "vg_name").stdout.split()
    if group in known or (Path("/dev") / group).exists():
        raise HostError(f"there is a volume group {group} already", hint="try again")


def _read_back(site: Site, layer: Layer, members: tuple[Path, ...]) -> dict[str, str]:
    fields = "lv_name,lv_size,segtype,stripes,chunk_size,zero,discards"
    rows = {row["lv_name"]: row for row in lvm_report(site.host, "lvs", members, fields)}
    kind, volume = layer.kind.value, rows[VOLUME]
    seen = {f"{kind}__size": volume["lv_size"], f"{kind}__segment_type": volume["segtype"]}
    wanted = "thin" if layer.kind is LayerKind.LVMTHIN else "linear"
    if volume["segtype"] != wanted:
        raise HostError(
            f"the volume is {volume['segtype']} instead of {wanted}",
            hint="this LVM made another kind (`lvs -o+segtype`): see thin_ and raid settings "
            "in /etc/lvm/lvm.conf",
        )
    if layer.kind is LayerKind.LVMTHIN:
        pool = rows[POOL]
        seen |= {f"{kind}__{key}": pool[key] for key in ("chunk_size", "zero", "discards")}
    return seen
