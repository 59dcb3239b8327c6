"""The distinct host stacks of a plan: what is built, for which images, and how large."""

from __future__ import annotations

from dataclasses import dataclass

from vdisklab.path.backing import BackingDevices
from vdisklab.path.disk_path import DiskPath, Image, Layer
from vdisklab.path.segments import ImageFormat
from vdisklab.plan.campaign import CampaignPlan
from vdisklab.units import MIB


@dataclass(frozen=True, slots=True)
class Stack:
    """One pile of layers.

    A directory on top holds all images of its paths. A block device holds one: then `image` is
    that one (None: the device as it is), and another image gets a stack of its own.
    """

    layers: tuple[Layer, ...]
    is_block: bool
    image: Image | None = None

    def __str__(self) -> str:
        """The layers as in paths; with the image where the stack is that one's alone."""
        image = [str(self.image)] if self.image is not None else []
        return "/".join([*map(str, self.layers), *image])


def stack_of(plan: CampaignPlan, path: DiskPath) -> Stack:
    """The stack that a path stands on; only for paths with storage."""
    if not plan.backing.is_block(path.layers):
        return Stack(path.layers, is_block=False)
    return Stack(path.layers, is_block=True, image=image_key(path, plan.backing))


def stacks_of(plan: CampaignPlan) -> dict[Stack, int]:
    """The distinct stacks of a plan, each with the bytes that its images need."""
    paths: dict[Stack, list[DiskPath]] = {}
    for cell in plan.cells:
        if cell.path.has_storage:
            paths.setdefault(stack_of(plan, cell.path), []).append(cell.path)
    return {stack: _capacity(plan, found) for stack, found in paths.items()}


def takes_turns(plan: CampaignPlan) -> bool:
    """True when stacks share the user's devices, and so stand one after the other."""
    return sum(plan.backing.on_devices(stack.layers) for stack in stacks_of(plan)) > 1


def _capacity(plan: CampaignPlan, paths: list[DiskPath]) -> int:
    images = {image_key(path, plan.backing) for path in paths}
    # a format's own tables: at most a thousandth of the disk for 64 KiB clusters, more for
    # small ones; a quarter covers 512-byte clusters
    capacity = sum(_image_room(image, plan.size_bytes) for image in images if image is not None)
    if None in images:
        capacity = max(capacity, plan.size_bytes)
    if works_on_files(plan) and any(path.on_host for path in paths):
        capacity += plan.size_bytes
    return capacity


def works_on_files(plan: CampaignPlan) -> bool:
    """A measurement needs a directory, beside the image, on each host path."""
    return any(measurement.filesystem for measurement in plan.profile.measurements)


def _image_room(image: Image, size: int) -> int:
    cluster = image.option("cluster_size")
    share = 4 if cluster is not None and int(cluster) < 4096 else 32
    return size + size // share + 16 * MIB


def image_key(path: DiskPath, backing: BackingDevices) -> Image | None:
    """What must be the same for two paths to share one image; None for a device as it is.

    The workload on the host has a raw image where the stack holds files.
    """
    if path.on_host and not backing.is_block(path.layers):
        return Image(ImageFormat.RAW)
    return path.image
