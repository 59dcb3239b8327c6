"""The programs that build a path's host layers, before anything is run; `RUN` is the run's id."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from vdisklab.campaign.stacks import stack_of, stacks_of
from vdisklab.plan.campaign import CampaignPlan
from vdisklab.plan.options import LAYER_OPTIONS
from vdisklab.plan.path import DiskPath, Layer
from vdisklab.plan.segments import LayerKind
from vdisklab.storage import lvm, md, zfs
from vdisklab.storage.filesystem import mkfs_command, mount_command
from vdisklab.storage.room import capacity_above

Commands = tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class PlannedStack:
    """The commands in order, and what stands on top in the end."""

    commands: Commands
    top: Path


def planned_stack(plan: CampaignPlan, path: DiskPath, directory: Path) -> PlannedStack:
    """How the stack of a path will be built in `directory`, a site's."""
    commands: list[tuple[str, ...]] = []
    members: tuple[Path, ...] = (directory,)
    if plan.ground.on_devices(path.layers):
        members = plan.ground.devices[: plan.ground.disks_for(path.layers)]
        commands += [("wipefs", "--all", "--quiet", str(device)) for device in members]
    elif path.layers and path.layers[0].kind is not LayerKind.TMPFS:
        members, attaching = _slices(plan, path, directory)
        commands += attaching
    capacity = stacks_of(plan).get(stack_of(plan, path), plan.size_bytes)
    for number, layer in enumerate(path.layers):
        size = capacity_above(path.layers, number, capacity)
        place = directory / f"stack-{number}"
        made, top = _layer(layer, members, place, size, ours=number > 0)
        commands += made
        members = (top,)
    return PlannedStack(tuple(commands), members[0])


def _slices(
    plan: CampaignPlan, path: DiskPath, directory: Path
) -> tuple[tuple[Path, ...], list[tuple[str, ...]]]:
    count = plan.ground.disks_for(path.layers)
    names = ["stack"] if count == 1 else [f"stack.{number}" for number in range(count)]
    letters = ["N"] if count == 1 else [f"N{number}" for number in range(count)]
    commands: list[tuple[str, ...]] = [
        ("losetup", "--find", "--show", "--direct-io=on", str(directory / f"{name}.slice"))
        for name in names
    ]
    return tuple(Path(f"/dev/loop{letter}") for letter in letters), commands


def _layer(
    layer: Layer, members: tuple[Path, ...], place: Path, size: int, *, ours: bool
) -> tuple[Commands, Path]:
    unique = f"vdl_RUN_{place.name.replace('-', '_')}"
    known = frozenset(LAYER_OPTIONS[layer.kind])
    match layer.kind:
        case LayerKind.TMPFS:
            return (("mount", "-t", "tmpfs", "tmpfs", str(place)),), place
        case LayerKind.LVM | LayerKind.LVMTHIN:
            thin = layer.kind is LayerKind.LVMTHIN
            pool = (lvm.pool_command(unique, members),) if thin else ()
            volume = lvm.volume_command(unique, members, size, thin=thin)
            top = Path("/dev") / unique / lvm.VOLUME
            return (lvm.group_command(unique, members), *pool, volume), top
        case LayerKind.MD:
            command = md.create_command(unique, str(layer.option("level")), members)
            return (command,), Path("/dev/md") / unique
        case LayerKind.ZFS:
            pool = (zfs.pool_command(layer, unique, members, known),)
            return (*pool, zfs.dataset_command(layer, unique, place, known)), place
        case LayerKind.ZVOL:
            pool = (zfs.pool_command(layer, unique, members, known),)
            top = Path("/dev/zvol") / unique / zfs.DATASET
            return (*pool, zfs.volume_command(layer, unique, size, known)), top
        case _:
            making = mkfs_command(layer, members[0], "vdl-RUN", ours=ours)
            return (making, mount_command(layer, members[0], place)), place
