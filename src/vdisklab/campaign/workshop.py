"""The host side of a campaign: every stack and every allocated image, side by side."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from vdisklab.campaign.estimate import image_key, room_needed, stacks_of
from vdisklab.plan.campaign import CampaignPlan
from vdisklab.plan.path import DiskPath, Image, Layer
from vdisklab.plan.segments import ImageFormat
from vdisklab.progress import Progress, Step
from vdisklab.storage.direct import serves_direct_io
from vdisklab.storage.image import ImageFile, image_file, random_source
from vdisklab.storage.room import require_room
from vdisklab.storage.site import Site
from vdisklab.storage.stack import build_stack
from vdisklab.storage.target import Target
from vdisklab.units import format_bytes


@dataclass(frozen=True, slots=True)
class Workshop:
    """Stacks and images that live as long as the campaign.

    Allocated images are shared by all cells of one stack and format, so that two cache modes are
    compared on the very same blocks. Thin images are made anew for each run, because a
    measurement changes them.
    """

    site: Site
    size: int
    source: Path
    targets: dict[tuple[Layer, ...], Target]
    images: dict[tuple[tuple[Layer, ...], Image | None], ImageFile]
    direct: dict[tuple[Layer, ...], bool]

    @contextmanager
    def image_for(self, path: DiskPath) -> Iterator[ImageFile | None]:
        """The image of a path; None for the null device."""
        image = image_key(path)
        if image is not None and image.format is ImageFormat.NULL:
            yield None
        elif image is not None and image.is_thin:
            with self.make_image(path.layers, image, f"thin-{path.fingerprint}") as made:
                yield made
        else:
            yield self.images[path.layers, image]

    def make_image(
        self, layers: tuple[Layer, ...], image: Image | None, name: str
    ) -> AbstractContextManager[ImageFile]:
        """A new image on a stack, filled when it is to be allocated in full."""
        source = None if image is not None and image.is_thin else self.source
        return image_file(
            self.site, self.targets[layers], image, size=self.size, name=name, source=source
        )


@contextmanager
def open_workshop(site: Site, plan: CampaignPlan, progress: Progress) -> Iterator[Workshop]:
    """Builds everything that the plan's cells need on the host; HostError when there is no room."""
    require_room(site.directory, room_needed(plan), "the campaign")
    with ExitStack() as built:
        progress(Step(f"writing {format_bytes(plan.size_bytes)} of random data"))
        source = built.enter_context(random_source(site, plan.size_bytes))
        workshop = Workshop(site, plan.size_bytes, source, {}, {}, {})
        for number, (layers, capacity) in enumerate(stacks_of(plan).items()):
            if layers:
                progress(Step(f"building {'/'.join(map(str, layers))}"))
            stack = build_stack(site, layers, capacity, f"stack{number}")
            workshop.targets[layers] = built.enter_context(stack)
            workshop.direct[layers] = serves_direct_io(workshop.targets[layers])
        for number, (layers, image) in enumerate(_allocated_images(plan)):
            progress(Step(f"filling {_spell(layers, image)}"))
            made = workshop.make_image(layers, image, f"image{number}")
            workshop.images[layers, image] = built.enter_context(made)
        yield workshop


def _allocated_images(plan: CampaignPlan) -> list[tuple[tuple[Layer, ...], Image | None]]:
    """The images that are made once: not the null device, and no thin ones."""
    wanted = dict.fromkeys((cell.path.layers, image_key(cell.path)) for cell in plan.cells)
    return [
        (layers, image)
        for layers, image in wanted
        if image is None or (image.format is not ImageFormat.NULL and not image.is_thin)
    ]


def _spell(layers: tuple[Layer, ...], image: Image | None) -> str:
    return "/".join([*map(str, layers), "the device" if image is None else str(image)])
