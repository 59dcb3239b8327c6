"""How long a campaign will take and how much room it needs, before it begins."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import partial

from vdisklab.campaign.schedule import Slot
from vdisklab.plan.campaign import CampaignPlan
from vdisklab.plan.cell import Cell
from vdisklab.plan.ground import Ground
from vdisklab.plan.path import DiskPath, Image, Layer
from vdisklab.plan.profile import MeasurementPlan
from vdisklab.plan.segments import ImageFormat, LayerKind, PageCache
from vdisklab.storage.room import size_for
from vdisklab.units import GIB, MIB
from vdisklab.workload.base import Subject, Timing
from vdisklab.workload.registry import workload_for

# Seconds beside the program's own, read off campaigns under TCG on two cores (bench/overhead.py).
_PER_MEASUREMENT = 0.9
_PER_RUN = 0.5
_PER_BOOT = 4.0
_PER_BUILD = 3.0
_WRITE_RATE = 150 * MIB


def run_seconds(plan: CampaignPlan, cell: Cell) -> float:
    """Seconds that one run of a cell is likely to take."""
    count = len(plan.profile.measurements)
    measured = sum(map(partial(_expected, plan), plan.profile.measurements))
    measured += (_PER_MEASUREMENT + plan.profile.usual.interval) * count
    boot = 0.0
    if not cell.path.on_host and not cell.path.attachment.bus.hot_pluggable:
        boot = _PER_BOOT
    refill = plan.size_bytes / (4 * GIB) if cell.page_cache is PageCache.WARM else 0.0
    return measured + _PER_RUN + boot + refill * count


def _expected(plan: CampaignPlan, measurement: MeasurementPlan) -> float:
    """Seconds that a program is asked to run; 0 where it ends with its work."""
    subject = Subject(
        "/dev/null",
        plan.size_bytes,
        is_device=measurement.filesystem is None,
        is_directory=measurement.filesystem is not None,
        memory=plan.guest.memory_bytes,
    )
    timing = Timing(plan.runtime, plan.ramp, plan.scale)
    return workload_for(measurement).script(measurement, subject, timing).expected


def campaign_seconds(plan: CampaignPlan, slots: tuple[Slot, ...]) -> float:
    """Seconds that the runs which are left are likely to take, building and booting included."""
    if not slots:
        return 0.0
    blocks = len({slot.block for slot in slots})
    measuring = sum(run_seconds(plan, slot.cell) for slot in slots)
    return measuring + blocks * _PER_BOOT + build_seconds(plan, slots)


def room_needed(plan: CampaignPlan) -> int:
    """Bytes that the campaign occupies in the work directory; what lies on tmpfs is not counted."""
    total = plan.size_bytes  # the random bytes that images are filled with
    for layers, capacity in stacks_of(plan).items():
        if plan.ground.on_devices(layers) or (layers and layers[0].kind is LayerKind.TMPFS):
            continue
        total += stack_bytes(plan, layers, capacity) if layers else capacity
    return total


def stack_bytes(plan: CampaignPlan, layers: tuple[Layer, ...], capacity: int) -> int:
    """Bytes that a stack occupies at the bottom, over all its disks."""
    disks = plan.ground.disks_for(layers)
    return disks * size_for(layers, capacity, disks)


def device_bytes_needed(plan: CampaignPlan) -> int:
    """Bytes that each of the user's devices must have; 0 when none is used."""
    sizes = [
        size_for(layers, capacity, plan.ground.disks_for(layers))
        for layers, capacity in stacks_of(plan).items()
        if plan.ground.on_devices(layers)
    ]
    return max(sizes, default=0)


def builds(plan: CampaignPlan, slots: Sequence[Slot]) -> int:
    """How often a stack is built on the user's devices for these runs."""
    used = [slot.cell.path.layers for slot in slots if slot.cell.path.has_storage]
    on_devices = [layers for layers in used if plan.ground.on_devices(layers)]
    return sum(1 for _ in itertools.groupby(on_devices))


def build_seconds(plan: CampaignPlan, slots: Sequence[Slot]) -> float:
    """Seconds for building stacks and writing images, each time that devices change hands."""
    seconds = 2.0 * room_needed(plan) / _WRITE_RATE
    stacks = [
        capacity for layers, capacity in stacks_of(plan).items() if plan.ground.on_devices(layers)
    ]
    if not stacks:
        return seconds
    # each build fills one stack's images; the mean stack stands for all
    return seconds + builds(plan, slots) * (_PER_BUILD + sum(stacks) / len(stacks) / _WRITE_RATE)


def stacks_of(plan: CampaignPlan) -> dict[tuple[Layer, ...], int]:
    """The distinct host stacks of a plan, each with the bytes that its images need."""
    stacks: dict[tuple[Layer, ...], int] = {}
    stored = [cell.path for cell in plan.cells if cell.path.has_storage]
    for layers in dict.fromkeys(path.layers for path in stored):
        images = {image_key(path, plan.ground) for path in stored if path.layers == layers}
        # a format's own tables: at most a thousandth of the disk for 64 KiB clusters, more for
        # small ones; a quarter covers 512-byte clusters
        stacks[layers] = sum(
            _image_room(image, plan.size_bytes) for image in images if image is not None
        )
        if None in images:
            stacks[layers] = max(stacks[layers], plan.size_bytes)
        if works_on_files(plan) and any(
            cell.path.on_host and cell.path.layers == layers for cell in plan.cells
        ):
            stacks[layers] += plan.size_bytes
    return stacks


def works_on_files(plan: CampaignPlan) -> bool:
    """A measurement needs a directory, beside the image, on each host path."""
    return any(measurement.filesystem for measurement in plan.profile.measurements)


def _image_room(image: Image, size: int) -> int:
    cluster = image.option("cluster_size")
    share = 4 if cluster is not None and int(cluster) < 4096 else 32
    return size + size // share + 16 * MIB


def image_key(path: DiskPath, ground: Ground) -> Image | None:
    """What must be the same for two paths to share one image; None for a device as it is.

    The workload on the host has a raw image where the stack holds files.
    """
    if path.on_host and not ground.is_block(path.layers):
        return Image(ImageFormat.RAW)
    return path.image
