"""The programs that build a path's host layers, before anything is run; `RUN` is the run's id."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from vdisklab.campaign.stacks import stack_of, stacks_of
from vdisklab.path.disk_path import DiskPath, Layer
from vdisklab.path.options import LAYER_OPTIONS
from vdisklab.path.segments import LayerKind
from vdisklab.plan.campaign import CampaignPlan
from vdisklab.storage import lvm, md, zfs
from vdisklab.storage.filesystem import mkfs_command, mount_command
from vdisklab.storage.room import capacity_above, size_for
from vdisklab.storage.tmpfs import tmpfs_command

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
    capacity = stacks_of(plan).get(stack_of(plan, path), plan.size_bytes)
    if plan.backing.on_devices(path.layers):
        members = plan.backing.devices[: plan.backing.disks_for(path.layers)]
        commands += [("wipefs", "--all", "--quiet", str(device)) for device in members]
    elif path.layers and path.layers[0].kind is not LayerKind.TMPFS:
        members, attaching = _slices(plan, path, directory, capacity)
        commands += attaching
    for number, layer in enumerate(path.layers):
        in_memory = layer.kind is LayerKind.TMPFS
        size = (
            size_for(path.layers, capacity)
            if in_memory
            else capacity_above(path.layers, number, capacity)
        )
        place = directory / ("stack-tmpfs" if in_memory else f"stack-{number}")
        made, top = _layer(layer, members, place, size, ours=number > 0)
        commands += made
        members = (top,)
    return PlannedStack(tuple(commands), members[0])


def _slices(
    plan: CampaignPlan, path: DiskPath, directory: Path, capacity: int
) -> tuple[tuple[Path, ...], list[tuple[str, ...]]]:
    """The loop devices at the bottom, and what makes and attaches the files below them."""
    count = plan.backing.disks_for(path.layers)
    names = ["stack"] if count == 1 else [f"stack.{number}" for number in range(count)]
    letters = ["N"] if count == 1 else [f"N{number}" for number in range(count)]
    size = str(size_for(path.layers, capacity, count))
    commands: list[tuple[str, ...]] = []
    for name in names:
        file = str(directory / f"{name}.slice")
        commands.append(("fallocate", "--length", size, file))
        commands.append(("losetup", "--find", "--show", "--direct-io=on", file))
    return tuple(Path(f"/dev/loop{letter}") for letter in letters), commands


def _layer(
    layer: Layer, members: tuple[Path, ...], place: Path, size: int, *, ours: bool
) -> tuple[Commands, Path]:
    unique = f"vdl_RUN_{place.name.replace('-', '_')}"
    known = frozenset(LAYER_OPTIONS[layer.kind])
    match layer.kind:
        case LayerKind.TMPFS:
            return (("mkdir", str(place)), tmpfs_command(place, size)), place
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
            mounting = mount_command(layer, members[0], place)
            return (making, ("mkdir", str(place)), mounting), place
