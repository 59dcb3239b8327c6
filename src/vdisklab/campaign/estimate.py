"""How long a campaign will take and how much room it needs, before it begins."""

from __future__ import annotations

from functools import partial

from vdisklab.campaign.schedule import Slot
from vdisklab.plan.campaign import CampaignPlan
from vdisklab.plan.cell import Cell
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
    build = 2.0 * room_needed(plan) / _WRITE_RATE
    return sum(run_seconds(plan, slot.cell) for slot in slots) + blocks * _PER_BOOT + build


def room_needed(plan: CampaignPlan) -> int:
    """Bytes that the campaign occupies in the work directory; what lies on tmpfs is not counted."""
    total = plan.size_bytes  # the random bytes that images are filled with
    for layers, capacity in stacks_of(plan).items():
        if not layers or layers[0].kind is not LayerKind.TMPFS:
            total += size_for(layers, capacity) if layers else capacity
    return total


def stacks_of(plan: CampaignPlan) -> dict[tuple[Layer, ...], int]:
    """The distinct host stacks of a plan, each with the bytes that its images need."""
    stacks: dict[tuple[Layer, ...], int] = {}
    for layers in dict.fromkeys(cell.path.layers for cell in plan.cells):
        images = {image_key(c.path) for c in plan.cells if c.path.layers == layers}
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
    if image.format is ImageFormat.NULL:
        return 0
    cluster = image.option("cluster_size")
    share = 4 if cluster is not None and int(cluster) < 4096 else 32
    return size + size // share + 16 * MIB


def image_key(path: DiskPath) -> Image | None:
    """What must be the same for two paths to share one image; the host's file is a raw image."""
    return Image(ImageFormat.RAW) if path.on_host else path.image
