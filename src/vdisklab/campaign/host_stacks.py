"""The host side of a campaign: every stack and every allocated image.

Stacks on slices of the work directory stand side by side for the whole campaign. Stacks on the
user's devices take turns: the next one is built when a cell asks for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from vdisklab.campaign.stacks import Stack, image_key, stack_of, stacks_of
from vdisklab.errors import HostError
from vdisklab.host.counters import device_below
from vdisklab.host.pagecache import evict
from vdisklab.path.disk_path import DiskPath, Image, Layer
from vdisklab.plan.campaign import CampaignPlan
from vdisklab.progress import Progress, Step
from vdisklab.storage.image import ImageFile, empty_source, image_file, random_source
from vdisklab.storage.site import Site
from vdisklab.storage.stack import build_stack
from vdisklab.storage.target import Target
from vdisklab.units import format_bytes


@dataclass(frozen=True, slots=True)
class ActiveStack:
    """A stack that is up, with its allocated images."""

    target: Target
    images: dict[Image | None, ImageFile]


@dataclass(slots=True)
class HostStacks:
    """Stacks and images that live as long as the campaign, or as long as their turn.

    Allocated images are shared by all cells of one stack and format, so that two cache modes are
    compared on the very same blocks. Thin images are made anew for each run, because a
    measurement changes them. They are empty, or hold what is not zero of `thin_source`.
    """

    site: Site
    plan: CampaignPlan
    source: Path
    progress: Progress
    thin_source: Path | None = None
    standing: dict[Stack, ActiveStack] = field(default_factory=dict)
    _tenant: ExitStack = field(default_factory=ExitStack)

    @contextmanager
    def image_for(self, path: DiskPath) -> Iterator[ImageFile | None]:
        """The image of a path; None for the null device. May build the path's stack first."""
        if not path.has_storage:
            yield None
            return
        standing = self._stack(stack_of(self.plan, path))
        image = image_key(path, self.plan.backing)
        if image in standing.images:
            yield standing.images[image]
            return
        name = f"thin-{path.fingerprint}"
        with image_file(
            self.site,
            standing.target,
            image,
            size=self.plan.size_bytes,
            name=name,
            source=self.thin_source,
        ) as made:
            yield made

    def devices_for(self, path: DiskPath) -> tuple[tuple[int, int], ...]:
        """The devices whose counters tell what a path's cell really moved."""
        if path.has_storage and self.plan.backing.on_devices(path.layers):
            count = self.plan.backing.disks_for(path.layers)
            places = self.plan.backing.devices[:count]
        else:
            places = (self.site.directory,)
        return tuple(number for place in places if (number := device_below(place)) is not None)

    def close_tenant(self) -> None:
        """Takes down the stack on the user's devices, if one is up."""
        on_devices = self.plan.backing.on_devices
        for stack in [each for each in self.standing if on_devices(each.layers)]:
            del self.standing[stack]
        self._tenant.close()

    def _stack(self, stack: Stack) -> ActiveStack:
        if stack not in self.standing:
            if not self.plan.backing.on_devices(stack.layers):
                raise HostError(f"the stack {stack} was not built")
            self.close_tenant()
            with ExitStack() as built:
                self.standing[stack] = self.build(built, stack, "tenant")
                self._tenant = built.pop_all()
        return self.standing[stack]

    def build(self, built: ExitStack, stack: Stack, name: str) -> ActiveStack:
        """A stack of the plan with its allocated images, which `built` takes down."""
        if stack.layers:
            self.progress(Step(f"building {'/'.join(map(str, stack.layers))}"))
        capacity = stacks_of(self.plan)[stack]
        made = build_stack(self.site, stack.layers, capacity, name, backing=self.plan.backing)
        standing = ActiveStack(built.enter_context(made), {})
        for number, image in enumerate(_allocated_images(self.plan, stack)):
            self.progress(Step(f"filling {_spell(stack.layers, image)}"))
            filled = image_file(
                self.site,
                standing.target,
                image,
                size=self.plan.size_bytes,
                name=f"image{number}",
                source=self.source,
            )
            standing.images[image] = built.enter_context(filled)
        return standing


@contextmanager
def open_host_stacks(
    site: Site,
    plan: CampaignPlan,
    progress: Progress,
    write_system: Callable[[Path], None] | None = None,
) -> Iterator[HostStacks]:
    """Builds what can stand side by side.

    `write_system` makes a file a disk that a guest can boot from; then that is on every image.
    """
    with ExitStack() as built:
        progress(Step(f"writing {format_bytes(plan.size_bytes)} of random data"))
        source = built.enter_context(random_source(site, plan.size_bytes))
        thin = None
        if write_system is not None:
            progress(Step("writing the system that is booted"))
            write_system(source)
            evict(source)
            thin = built.enter_context(empty_source(site, plan.size_bytes))
            write_system(thin)
        workshop = HostStacks(site, plan, source, progress, thin)
        built.callback(workshop.close_tenant)
        for number, stack in enumerate(stacks_of(plan)):
            if not plan.backing.on_devices(stack.layers):
                workshop.standing[stack] = workshop.build(built, stack, f"stack{number}")
        yield workshop


def _allocated_images(plan: CampaignPlan, stack: Stack) -> list[Image | None]:
    """The images of a stack that are made once: no thin ones."""
    stored = [cell.path for cell in plan.cells if cell.path.has_storage]
    paths = [path for path in stored if stack_of(plan, path) == stack]
    wanted = dict.fromkeys(image_key(path, plan.backing) for path in paths)
    return [image for image in wanted if image is None or not image.is_thin]


def _spell(layers: tuple[Layer, ...], image: Image | None) -> str:
    return "/".join([*map(str, layers), "the device" if image is None else str(image)])
