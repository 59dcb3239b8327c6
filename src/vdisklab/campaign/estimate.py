"""How long a campaign will take and how much room it needs, before it begins."""

from __future__ import annotations

from vdisklab.campaign.schedule import Slot
from vdisklab.plan.campaign import CampaignPlan
from vdisklab.plan.cell import Cell
from vdisklab.plan.path import DiskPath, Image, Layer
from vdisklab.plan.segments import ImageFormat, LayerKind, PageCache
from vdisklab.storage.room import size_for
from vdisklab.units import GIB, MIB

# Seconds beside the program's own, read off campaigns under TCG on two cores (bench/overhead.py).
_PER_MEASUREMENT = 0.9
_PER_RUN = 0.5
_PER_BOOT = 4.0
_WRITE_RATE = 150 * MIB


def run_seconds(plan: CampaignPlan, cell: Cell) -> float:
    """Seconds that one run of a cell is likely to take."""
    measured = (plan.runtime + plan.ramp + _PER_MEASUREMENT) * len(plan.profile.measurements)
    boot = 0.0
    if not cell.path.on_host and not cell.path.attachment.bus.hot_pluggable:
        boot = _PER_BOOT
    refill = plan.size_bytes / (4 * GIB) if cell.page_cache is PageCache.WARM else 0.0
    return measured + _PER_RUN + boot + refill * len(plan.profile.measurements)


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
    return stacks


def _image_room(image: Image, size: int) -> int:
    if image.format is ImageFormat.NULL:
        return 0
    cluster = image.option("cluster_size")
    share = 4 if cluster is not None and int(cluster) < 4096 else 32
    return size + size // share + 16 * MIB


def image_key(path: DiskPath) -> Image | None:
    """What must be the same for two paths to share one image; the host's file is a raw image."""
    return Image(ImageFormat.RAW) if path.on_host else path.image
