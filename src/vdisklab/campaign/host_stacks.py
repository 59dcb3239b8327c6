"""The host side of a campaign: its distinct stacks, and every image on them.

Stacks on slices of the work directory exist side by side while the campaign runs. Stacks on the
user's devices take turns: the next one is built when a cell needs it.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar, cast

from vdisklab.errors import DirtyHostError, HostError
from vdisklab.host.disk_health import disk_checks
from vdisklab.host.facts import host_queue_checks
from vdisklab.host.mounts import mount_of
from vdisklab.host.network import Link, link_to
from vdisklab.host.pagecache import evict
from vdisklab.operations.registry import parse_operation
from vdisklab.operations.ways.registry import parse_way
from vdisklab.path.backing import BackingDevices, size_for
from vdisklab.path.disk_path import DiskPath, Image, Layer
from vdisklab.path.segments import ImageFormat
from vdisklab.plan.age import NEW
from vdisklab.plan.campaign import CampaignPlan
from vdisklab.progress import Progress, Step
from vdisklab.results.model import Check
from vdisklab.storage import given
from vdisklab.storage.ageing import aged, fill_filesystem
from vdisklab.storage.image import (
    DiskData,
    ImageFile,
    compressible_source,
    empty_source,
    image_file,
    overlays,
    random_source,
)
from vdisklab.storage.remote import unanswered
from vdisklab.storage.site import Site
from vdisklab.storage.stack import build_stack
from vdisklab.storage.targets import Directory, Remote, Target, bottoms, shared_directory
from vdisklab.units import MIB, format_bytes
from vdisklab.value import Value, field

_Kept = TypeVar("_Kept")


class Stack(Value):
    """The layers below some images.

    A stack with a directory on top holds all images of its paths. A block device holds one, `image`
    (None: the device itself); each other image gets a separate stack.
    """

    layers: tuple[Layer, ...]
    image: Image | None = None

    def __str__(self) -> str:
        """The layers as in a path; with the image if the stack holds only that image."""
        image = [str(self.image)] if self.image is not None else []
        return "/".join([*map(str, self.layers), *image])


def stack_of(plan: CampaignPlan, path: DiskPath) -> Stack:
    """The stack below a path that has storage."""
    on_device = plan.backing.ends_on_device(path.layers)
    return Stack(path.layers, image_key(path, plan.backing) if on_device else None)


def stacks_of(plan: CampaignPlan) -> dict[Stack, int]:
    """The distinct stacks of a plan, each with the bytes that its images need."""
    paths: dict[Stack, list[DiskPath]] = {}
    for cell in plan.cells:
        if cell.path.has_storage:
            paths.setdefault(stack_of(plan, cell.path), []).append(cell.path)
    return {stack: _capacity(plan, above) for stack, above in paths.items()}


def takes_turns(plan: CampaignPlan) -> bool:
    """True if several stacks need one of the user's devices, so that only one can exist at a
    time.
    """
    used = Counter(plan.backing.device_below(stack.layers) for stack in stacks_of(plan))
    return any(number > 1 for device, number in used.items() if device is not None)


def image_key(path: DiskPath, backing: BackingDevices) -> Image | None:
    """A key: paths with equal keys share one image; None for a device or a shared directory.

    The workload on the host has a raw image where the stack holds files.
    """
    if path.on_host and not backing.ends_on_device(path.layers):
        return Image(ImageFormat.RAW)
    return path.image


def _capacity(plan: CampaignPlan, paths: list[DiskPath]) -> int:
    copies: dict[Image | None, int] = {}
    for path in paths:
        if path.shares_directory:
            continue
        image = image_key(path, plan.backing)
        copies[image] = max(copies.get(image, 1), guests_of(path))
        if image is not None:
            copies.setdefault(image.base, 1)
    on_device = plan.backing.ends_on_device(paths[0].layers)
    if not on_device:
        for image in tuple(copies):
            copies[image] += len(_templates(path for path in paths if path.image == image))
    whole = paths[0].may_hold_formats and all(image and image.driver == "raw" for image in copies)
    capacity = sum(
        count * (plan.size_bytes if whole else room_of_image(image, plan.size_bytes))
        for image, count in copies.items()
        if image is not None
    )
    capacity = max(capacity, copies.get(None, 0) * plan.size_bytes)
    if _works_on_files(plan) and any(not path.gives_disk for path in paths):
        capacity += plan.size_bytes  # one directory exists at a time
    if not on_device and any(map(_keeps_old, paths)):
        capacity += plan.size_bytes
    if plan.age.snapshots:
        capacity += sum(copies.values()) * plan.size_bytes // 4  # what passes write beside it
    return plan.age.capacity(capacity)


def _templates(paths: Iterable[DiskPath]) -> set[tuple[object, ...]]:
    """The templates of disks that are made on some paths: each form and place once."""
    ways = [parse_way(made).kind for path in paths if (made := path.attachment.made)]
    return {(way.template, way.clones, way.in_subvolume) for way in ways}


def _beside(paths: Sequence[DiskPath]) -> int:
    """How many disks' room the volumes beside a stack's own need: for a template and those cloned
    from it, or for what a snapshot keeps."""
    cloned = [
        path for path in paths if (made := path.attachment.made) and parse_way(made).kind.clones
    ]
    of_template = 1 + max(map(guests_of, cloned)) if cloned else 0
    return max(of_template, int(any(map(_keeps_old, paths))))


def _keeps_old(path: DiskPath) -> bool:
    """True if an operation makes the layer keep what the guest overwrites."""
    during = path.attachment.during
    return during is not None and parse_operation(during).kind.keeps_old


def guests_of(path: DiskPath) -> int:
    """The number of guests that are measured at once on a path."""
    return 1 if path.on_host else path.attachment.guests or 1


def _works_on_files(plan: CampaignPlan) -> bool:
    """True if a measurement needs a directory: on the host it is next to the image."""
    return any(measurement.filesystem for measurement in plan.profile.measurements)


def room_of_image(image: Image, size: int) -> int:
    """Bytes of an image with its format's tables. Tables take at most a thousandth of the disk with
    clusters of 64 KiB; the quarter that is added covers clusters of 512 bytes.
    """
    cluster = image.option("cluster_size")
    share = 4 if cluster is not None and int(cluster) < 4096 else 32
    # The disk itself (of a chain: the overlay that is written), and what lies below it.
    overlays = image.backing * int(image.option("overlay") or 0) * size // 100
    copies = 2 if image.snapshots else 1
    return (size + size // share) * copies + overlays + (1 + image.backing) * 16 * MIB


@dataclass(slots=True)
class StackUse:
    """The use of one stack in a plan: its number, the bytes it must hold, the largest number of
    guests at once, the bytes for volumes beside theirs, and the images that are made once (all but
    thin ones).
    """

    number: int
    capacity: int
    guests: int
    spare: int
    allocated: list[Image | None]


class StackLayout(Value):
    """The stack and image that hold each path's data, and the contents of each stack."""

    places: Mapping[DiskPath, tuple[Stack, Image | None]]
    uses: Mapping[Stack, StackUse]


def layout_of(plan: CampaignPlan) -> StackLayout:
    """The layout of a plan's cells, computed once for all of them."""
    stored = dict.fromkeys(cell.path for cell in plan.cells if cell.path.has_storage)
    places = {path: (stack_of(plan, path), image_key(path, plan.backing)) for path in stored}
    uses: dict[Stack, StackUse] = {}
    for number, (stack, capacity) in enumerate(stacks_of(plan).items()):
        paths = [path for path in places if places[path][0] == stack]
        keys = [
            places[path][1]
            for path in paths
            if not path.shares_directory and path.attachment.made is None
        ]
        images = dict.fromkeys(image and image.base for image in keys)
        allocated = [image for image in images if image is None or not image.is_made_anew]
        on_device = plan.backing.ends_on_device(stack.layers)
        spare = _beside(paths) * plan.size_bytes if on_device else 0
        guests = max(map(guests_of, paths))
        uses[stack] = StackUse(number, capacity, guests, spare, allocated)
    return StackLayout(places, uses)


class ActiveStack(Value):
    """A stack that exists, its images, and the way to the server that it is on."""

    stack: Stack
    target: Target
    teardown: ExitStack
    images: dict[tuple[Image | None, int], ImageFile] = field(default_factory=dict)
    link: Link | None = None
    kept: dict[str, object] = field(default_factory=dict)


@dataclass(slots=True)
class HostStacks:
    """Builds stacks and images when they are first needed, from the bytes of three sources.

    All cells of one stack and format share an allocated image, so that cache modes are compared on
    the same blocks. A thin image is created anew for each run, because a measurement changes it; it
    is empty, or holds the blocks of `thin_source` that are not zero. `left`: why images stay on
    targets that take no writes any more.
    """

    site: Site
    plan: CampaignPlan
    source: Path
    progress: Progress
    thin_source: Path | None = None
    write_system: Callable[[Path], None] | None = None
    _compressible: Path | None = None
    _template_source: Path | None = None
    layout: StackLayout = dataclasses.field(init=False)
    left: list[DirtyHostError] = dataclasses.field(default_factory=list)
    _active: dict[Stack, ActiveStack] = dataclasses.field(default_factory=dict)
    _disks: dict[tuple[tuple[int, int], ...], tuple[Check, ...]] = dataclasses.field(
        default_factory=dict
    )
    _teardown: ExitStack = dataclasses.field(default_factory=ExitStack)

    def __post_init__(self) -> None:
        self.layout = layout_of(self.plan)

    @contextmanager
    def image_for(self, path: DiskPath, member: int = 0) -> Iterator[DiskData | None]:
        """The image of a path, or its new shared directory; None for the null device.

        Builds the path's stack if necessary. Each `member` of a group of guests has its own image;
        overlays of one path share their base.
        """
        self.site.require_in_place()
        if not path.has_storage:
            yield None
            return
        if path not in self.layout.places:
            raise HostError(f"the stack {path.stack} is not part of this campaign")
        stack, image = self.layout.places[path]
        active = self._activate(stack)
        self.site.check(lambda: self._require_answer(path))
        name = f"thin-{path.fingerprint}{f'-{member}' if member else ''}"
        if path.shares_directory:
            with shared_directory(self.site, active.target, f"share-{path.fingerprint}") as share:
                yield share
        elif image is None or not image.is_made_anew:
            yield self._filled(active, image, member)
        elif image.backing:
            with (
                self._base(active, image.base, f"{name}-0") as base,
                overlays(self.site, active.target, image, base, name=name) as chain,
            ):
                yield chain
        else:
            with self._image(active, image, name, self._content(image), member) as made:
                yield made

    def target_for(self, path: DiskPath, member: int = 0) -> Target:
        """The top of a path's stack, on which the disk of a guest is made."""
        self.site.require_in_place()
        active = self._activate(self.layout.places[path][0])
        self.site.check(lambda: self._require_answer(path))
        return active.target.of_guest(member)

    def kept(
        self, path: DiskPath, name: str, make: Callable[[int], AbstractContextManager[_Kept]]
    ) -> _Kept:
        """What `make` makes on a path's stack. It is made once for all cells, and removed with the
        stack. `make` gets a number, another for each thing on the stack.
        """
        active = self._activate(self.layout.places[path][0])
        if name not in active.kept:
            active.kept[name] = active.teardown.enter_context(make(len(active.kept)))
        return cast("_Kept", active.kept[name])

    def template_source(
        self, make: Callable[[Site, Path, int], AbstractContextManager[Path]]
    ) -> Path:
        """The default template's bytes, which `make` makes of random ones when they are needed."""
        if self._template_source is None:
            made = make(self.site, self.source, self.plan.size_bytes)
            self._template_source = self._teardown.enter_context(made)
        return self._template_source

    @contextmanager
    def _base(self, active: ActiveStack, base: Image, name: str) -> Iterator[ImageFile]:
        """The lowest image of a chain: the allocated one that other cells use too, or a new one."""
        if base.is_made_anew:
            with self._image(active, base, name, self._content(base)) as made:
                yield made
        else:
            yield self._filled(active, base)

    def _content(self, image: Image) -> Path | None:
        if image.compressed:
            return self._compressible_source()
        return self.thin_source if image.is_thin else self.source

    def _compressible_source(self) -> Path:
        """The bytes of compressed images, made when they are first needed."""
        if self._compressible is None:
            made = compressible_source(self.site, self.source, self.plan.size_bytes)
            self._compressible = source = self._teardown.enter_context(made)
            if self.write_system is not None:
                self.write_system(source)
                self.site.check(lambda: evict(source))
        return self._compressible

    def build_side_by_side(self) -> None:
        """Builds all stacks that do not take turns, and fills their allocated images.

        Raises HostError also if a disk that the user named is too small for its own, or holds data.
        """
        for stack, use in self.layout.uses.items():
            named = self.plan.backing.target_of(stack.layers)
            if named is not None and not named.holds_files:
                needed = size_for(stack.layers, use.capacity + use.spare)
                given.require_fit(self.site, named, self.plan.backing, needed)
            if not self.plan.backing.on_devices(stack.layers):
                active = self._activate(stack)
                for image in use.allocated:
                    self._filled(active, image)

    def close(self) -> None:
        """Removes all stacks, newest first. Raises DirtyHostError, also for what is `left`."""
        self._active.clear()
        self._teardown.close()
        if self.left:
            raise self.left[0]

    def devices_for(self, path: DiskPath) -> tuple[tuple[int, int], ...]:
        """The numbers of the devices whose counters show the transfers of a path's cells.

        None for a path in memory.
        """
        if not path.has_storage:
            return Directory(self.site.directory).counters()
        below = bottoms(path.layers, self.plan.backing, self.site.directory)
        return tuple(number for target in below for number in target.counters())

    def device_checks(self, path: DiskPath) -> tuple[Check, ...]:
        """The settings of the queues of a path's devices, what the disks say of themselves, as read
        once in a campaign, and the mount options of the work directory if it lies there.
        """
        numbers = self.devices_for(path)
        if numbers not in self._disks:
            self._disks[numbers] = self.site.observe(
                lambda: disk_checks(self.site.host, numbers), planned=()
            )
        mount = None if self.plan.backing.on_devices(path.layers) else mount_of(self.site.directory)
        mounted = f"{mount.filesystem} {','.join(sorted(mount.options))}" if mount else ""
        return (
            *host_queue_checks(numbers),
            *self._disks[numbers],
            *((Check("host.mount", None, mounted),) if mounted else ()),
        )

    def link_for(self, path: DiskPath) -> Link | None:
        """How the host reaches the server of a path's target; None without a server or way."""
        place = self.layout.places.get(path)
        active = None if place is None else self._active.get(place[0])
        return None if active is None else active.link

    def _activate(self, stack: Stack) -> ActiveStack:
        if stack in self._active:
            return self._active[stack]
        use = self.layout.uses[stack]
        self._release(self.plan.backing.device_below(stack.layers))
        if stack.layers:
            self.progress(Step(f"building {'/'.join(map(str, stack.layers))}"))
        teardown = self._teardown.enter_context(ExitStack())
        target = teardown.enter_context(
            build_stack(
                self.site, stack.layers, use.capacity, f"stack{use.number}",
                backing=self.plan.backing, guests=use.guests, spare=use.spare,
            )
        )  # fmt: skip
        if self.plan.age.fill and isinstance(target, Directory):
            self.progress(Step(f"filling {'/'.join(map(str, stack.layers))} with other files"))
            fill_filesystem(self.site, target, self.plan.age.fill, self.plan.seed)
        link = self.site.observe(lambda: _link_of(self.site, target), planned=None)
        self._active[stack] = ActiveStack(stack, target, teardown, link=link)
        return self._active[stack]

    def moved(self) -> str | None:
        """What happened to the work directory in mid-run, as a sentence; None if nothing did."""
        return self.site.moved()

    def require_in_place(self) -> None:
        """Raises HostError if the work directory was moved in mid-run."""
        self.site.require_in_place()

    def named(self, text: str) -> str:
        """A text for people, with directories under the names that they know."""
        return self.site.named(text)

    def unanswered(self, path: DiskPath) -> HostError | None:
        """Why the server of a path's disk does not answer; None if it does, or there is none."""
        for stack, active in self._active.items():
            if stack.layers == path.layers and isinstance(active.target, Remote):
                return unanswered(self.site.host, str(path.layers[0].option("at")), active.target)
        named = self.plan.backing.target_of(path.layers)
        if named is None or named.opened_by_qemu:
            return None
        return given.unanswered(self.site.host, named)

    def refusal(self, path: DiskPath) -> HostError | None:
        """Why a cell failed whose disk or copy lies on a target: the target does not answer, or
        takes no writes any more. None if its targets do both.
        """
        to = None if path.attachment.during is None else self.plan.destination
        for used in (path,) if to is None else (path, to.path):
            named = self.plan.backing.target_of(used.layers)
            if named is None:
                continue
            gone = self.unanswered(used) or given.unwritable(self.site, named, self.plan.backing)
            if gone is not None:
                return gone
        return None

    def _require_answer(self, path: DiskPath) -> None:
        """Raises HostError if a mount or a device does not answer: QEMU would wait for ever."""
        gone = None if path.target is None or path.target.by_qemu else self.unanswered(path)
        if gone is not None:
            raise gone

    def _release(self, device: str | None) -> None:
        """Takes down the stack on a device of the user, if there is one."""
        below = self.plan.backing.device_below
        for stack in [s for s in self._active if device and below(s.layers) == device]:
            self._active.pop(stack).teardown.close()

    def _filled(self, active: ActiveStack, image: Image | None, member: int = 0) -> ImageFile:
        """The allocated image, which is created and filled when it is first needed."""
        if (image, member) not in active.images:
            who = f" for guest {member + 1}" if member else ""
            self.progress(Step(f"filling {_spell(active.stack.layers, image)}{who}"))
            number = self.layout.uses[active.stack].allocated.index(image)
            name = f"image{number}{f'-{member}' if member else ''}"
            creation = self._image(active, image, name, self.source, member)
            active.images[image, member] = active.teardown.enter_context(creation)
        return active.images[image, member]

    @contextmanager
    def _image(
        self,
        active: ActiveStack,
        image: Image | None,
        name: str,
        source: Path | None,
        member: int = 0,
    ) -> Iterator[ImageFile]:
        size, age, target = self.plan.size_bytes, self.plan.age, active.target.of_guest(member)
        with image_file(self.site, target, image, size=size, name=name, source=source) as made:
            if age == NEW:
                yield made
            else:
                self.progress(Step(f"ageing {_spell(active.stack.layers, image)}"))
                seed = self.plan.seed
                yield aged(self.site, made, image, age, source=self.source, seed=seed)


def _link_of(site: Site, target: Target) -> Link | None:
    if target.server is None:
        return None
    mount = mount_of(target.path) if isinstance(target, Directory) else None
    return link_to(site.host, *target.server, None if mount is None else mount.mountpoint)


@contextmanager
def open_host_stacks(
    site: Site,
    plan: CampaignPlan,
    progress: Progress,
    write_system: Callable[[Path], None] | None = None,
) -> Iterator[HostStacks]:
    """The stacks of a plan, which are built when they are first needed.

    `write_system` writes a bootable system into a file, which every image then holds.
    """
    with ExitStack() as opened:
        progress(Step(f"writing {format_bytes(plan.size_bytes)} of random data"))
        source = opened.enter_context(random_source(site, plan.size_bytes))
        thin_source = None
        if write_system is not None:
            progress(Step("writing the system to boot"))
            write_system(source)
            site.check(lambda: evict(source))
            thin_source = opened.enter_context(empty_source(site, plan.size_bytes))
            write_system(thin_source)
        stacks = HostStacks(site, plan, source, progress, thin_source, write_system)
        opened.callback(stacks.close)
        yield stacks


def _spell(layers: tuple[Layer, ...], image: Image | None) -> str:
    return "/".join([*map(str, layers), "the device" if image is None else str(image)])
