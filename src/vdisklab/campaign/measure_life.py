"""Measures the life of disks that are made from a template: each step timed, its bytes counted.

Without guests, qemu-io opens the disk, writes a block and flushes: its time has the start of a
program in it, and the counts are exact.
"""

from __future__ import annotations

import os
import shlex
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TypeVar

from vdisklab.campaign import given_image
from vdisklab.campaign import template as templates
from vdisklab.campaign.attachment import AttachedDisk, GuestPlace, attached
from vdisklab.campaign.clones import Clones, clones_beside, devices_of
from vdisklab.campaign.context import CampaignContext, CellResult
from vdisklab.campaign.host_stacks import HostStacks, guests_of
from vdisklab.campaign.measured_evidence import writing_back
from vdisklab.errors import CommandError, HostError
from vdisklab.host import counters, pagecache
from vdisklab.host.command import Host
from vdisklab.host.extents import extents_of
from vdisklab.host.ledger import Kind
from vdisklab.host.mounts import mount_of
from vdisklab.host.syscalls import sync_filesystem
from vdisklab.host.waiting import patience
from vdisklab.operations.making import NewDisk, Template, TemplateForm, Way
from vdisklab.operations.ways.registry import parse_way
from vdisklab.path.cell import Cell
from vdisklab.path.segments import LayerKind, PageCache
from vdisklab.plan.campaign import CampaignPlan
from vdisklab.plan.profile import MeasurementPlan
from vdisklab.progress import MeasurementStarted, Step
from vdisklab.results.model import (
    BENEATH,
    LIFE_STEPS,
    SETTLED,
    Check,
    Direction,
    Evidence,
    IoCounters,
    Measurement,
    Sample,
)
from vdisklab.storage.image import ImageFile, extents
from vdisklab.storage.image_commands import format_settings
from vdisklab.storage.targets import Device, Directory, Remote, Target
from vdisklab.units import MIB
from vdisklab.value import replace
from vdisklab.workload import life, program

MAKE, ATTACH, FIRST_WRITE, SETTLE, RESET, DELETE = LIFE_STEPS

_COMMAND_SECONDS = 3600.0
_GUEST_SECONDS = 600.0
_GLANCE_SECONDS = 0.01
_SPACE_SECONDS = 30.0
_SPACE_GLANCE_SECONDS = 0.005
_LITTLE_SPACE_SECONDS = 2.0
"""For less than a file system's tables may keep: on ZFS it may never show as free space."""
_STEADY_SECONDS = 1.0
"""How long free space must stay as it is to be taken for what there is."""
_LEAST_SPACE, _TABLES = MIB, 8
"""A file system's tables may keep so many bytes, and this part, of what a disk had."""

_HOST_CACHES = ("none", "writeback", "writethrough", "directsync", "unsafe")
_ALLOCATING = (MAKE, FIRST_WRITE, SETTLE)
_BUSY, _BUSY_SECONDS = ("is busy", "in use"), 20.0
"""zfs destroy and lvremove of what somebody has open still."""

_UNSUPPORTED = ("Operation not supported", "Invalid cross-device link")
"""What cp says where a file system shares no blocks (ioctl_ficlone(2): EOPNOTSUPP, EXDEV)."""

_Made = TypeVar("_Made")


def measure_life(context: CampaignContext, cell: Cell) -> CellResult:
    """The steps of a cell's disks, as measurements in the order of `LIFE_STEPS`.

    Raises HostError if a way fails or the storage is full, and what attaching a disk raises.
    """
    plan = context.plan.profile.measurements[0]
    settings = program.read_settings(plan, life.LifeSettings)
    way = parse_way(cell.path.attachment.made or "")
    with ExitStack() as opened:
        disks = [
            opened.enter_context(_place(context.stacks, cell, way, member))
            for member in range(guests_of(cell.path))
        ]
        template = _template(context.stacks, cell, way, disks[0])
        before = _seen(template)
        if way.kind.template is not TemplateForm.NONE:
            if cell.page_cache is PageCache.WARM:
                pagecache.warm(template.file)
            else:
                pagecache.evict(template.file)
        if settings.guest:
            # Before the clock: while a guest boots, the kernel would write back what was copied.
            for member in range(len(disks)):
                context.guests.make_ready(cell.path.attachment, member)
        first = _first_write_of(context.stacks, cell)
        steps = _Steps(context, cell, plan, way, template, tuple(disks), first.offset)
        steps.make()
        if settings.guest:
            checks, commands = _used_in_guests(steps)
        else:
            checks, commands = _used_on_host(steps)
        steps.add_ready()
        steps.reset()
        steps.delete()
        unchanged = Check("life.template", before, _seen(template))
        beneath = Check(BENEATH, None, first.seen)
    return CellResult((*checks, unchanged, beneath), commands, tuple(steps.measured))


def _seen(template: Template) -> str:
    """What shows that nobody wrote to a template: its size and when it was last changed."""
    if not template.file.exists():
        return "no file"
    status = template.file.stat()
    return f"{status.st_size} bytes, changed at {status.st_mtime_ns}"


@contextmanager
def _place(stacks: HostStacks, cell: Cell, way: Way, member: int) -> Iterator[NewDisk]:
    """Where the disk of a guest is made; what is left there is removed at the end."""
    site, image = stacks.site, cell.path.image
    target = stacks.target_for(cell.path, member)
    driver = "raw" if image is None else image.driver
    settings = () if image is None else format_settings(image)
    size = stacks.plan.size_bytes
    with ExitStack() as opened:
        name = f"made-{cell.path.fingerprint}-{member}"
        if way.kind.clones is not None:
            yield opened.enter_context(_cloned_place(stacks, cell, way.kind.clones, name))
            return
        if not isinstance(target, Directory):
            yield NewDisk(target.on_host, driver, size, settings, is_device=True)
            return
        if way.kind.in_subvolume:
            home = target.path / name
            opened.enter_context(site.tracked(Kind.DIRECTORY, home))
            yield NewDisk(home / f"disk.{driver}", driver, size, settings)
            return
        disk = NewDisk(target.path / f"{name}.{driver}", driver, size, settings)
        for file in (*reversed(way.kind.beneath(way, disk.place)), disk.place):
            opened.enter_context(site.tracked(Kind.FILE, file))
        yield disk


@contextmanager
def _cloned_place(stacks: HostStacks, cell: Cell, layer: LayerKind, name: str) -> Iterator[NewDisk]:
    """Where a volume or dataset appears that is cloned from the template's."""
    image, size = cell.path.image, stacks.plan.size_bytes
    clones = clones_beside(stacks.site, stacks.target_for(cell.path), layer)
    driver = "raw" if image is None else image.driver
    settings = () if image is None else format_settings(image)
    place, volume = clones.place(name), clones.named(name)
    with clones.tracked(name):
        if clones.layer.gives_device:
            yield NewDisk(place, driver, size, settings, is_device=True, volume=volume)
        else:
            yield NewDisk(place / f"disk.{driver}", driver, size, settings, volume=volume)


def _template(stacks: HostStacks, cell: Cell, way: Way, disk: NewDisk) -> Template:
    """The template on the storage of the cell's path, made for the first cell that needs it."""
    site = stacks.site
    given = _given(stacks)
    order = templates.TemplateOrder(given, way, disk)
    target = stacks.target_for(cell.path)
    directory = target.path if isinstance(target, Directory) else site.directory
    stacks.progress(Step("copying the template to the measured storage"))
    make = partial(templates.placed_template, site, directory, order)
    if way.kind.clones is not None:
        make = partial(
            templates.cloned_template, clones_beside(site, target, way.kind.clones), order
        )
    template = stacks.kept(cell.path, order.key, make)
    # Somebody may have written to it while it was copied.
    site.check(lambda: given_image.require_unchanged(given_image.seen_again(given), given.state))
    return template


def _given(stacks: HostStacks) -> given_image.GivenImage:
    """The user's template, or a raw one of random, compressible and no data."""
    size, file = stacks.plan.size_bytes, stacks.plan.settings.template
    if file is None:
        return given_image.GivenImage(stacks.template_source(templates.default_source), "raw", size)
    given = stacks.site.observe(
        lambda: given_image.inspect_template(stacks.site.host, file),
        planned=given_image.as_named(file, size),
    )
    given_image.require_fits(given, size)
    stacks.site.check(lambda: given_image.require_unchanged(given, stacks.plan.template_state))
    return given


def planned_first_write(host: Host, plan: CampaignPlan) -> int | None:
    """Where a plan's disks are first written, which takes a look at the user's template; None
    without a template of the user's."""
    file = plan.settings.template
    if file is None or not plan.profile.makes_disks:
        return None
    return given_image.find_first_write(host, given_image.inspect_template(host, file)).offset


def _first_write_of(stacks: HostStacks, cell: Cell) -> given_image.FirstWrite:
    """Where the disks are first written, looked up once for each stack."""
    size, site = stacks.plan.size_bytes, stacks.site
    expected = given_image.FirstWrite(life.written_at(size), on_data=True)
    if stacks.plan.settings.template is None:
        return expected  # the default template has random data there
    given = _given(stacks)
    find = partial(given_image.find_first_write, site.host, given)
    return stacks.kept(
        cell.path, BENEATH, lambda _number: nullcontext(site.observe(find, planned=expected))
    )


@dataclass(slots=True)
class _Taken:
    """What a step learns of itself: its seconds if they are not the step's own, and samples."""

    seconds: float | None = None
    samples: list[Sample] = field(default_factory=list)
    commands: list[tuple[str, ...]] = field(default_factory=list)

    def add(self, metric: str, value: float | None) -> None:
        """A sample, unless nothing was counted."""
        if value is not None:
            self.samples.append(Sample(metric, Direction.NONE, float(value)))


@dataclass(slots=True)
class _Steps:
    """The steps of some disks of one cell, and what was measured so far."""

    context: CampaignContext
    cell: Cell
    plan: MeasurementPlan
    way: Way
    template: Template
    disks: tuple[NewDisk, ...]
    written_at: int
    measured: list[Measurement] = field(default_factory=list)
    devices: tuple[tuple[int, int], ...] = ()
    clones: Clones | None = None
    pool: Clones | None = None
    used_before: int = 0
    free_when_made: int | None = None

    def __post_init__(self) -> None:
        layer = self.way.kind.clones
        if layer is not None:
            self.clones = clones_beside(self.context.stacks.site, self.target, layer)
            self.used_before = self.clones.used(self._names)
        self.pool = self.clones
        layers = self.cell.path.layers
        if self.pool is None and layers and layers[-1].kind is LayerKind.ZFS:
            # ZFS counts blocks once it has written them, for which syncfs(2) does not wait.
            self.pool = clones_beside(self.context.stacks.site, self.target, LayerKind.ZFS)
        self.devices = self._devices()

    @property
    def _names(self) -> list[str]:
        """The names of the cloned volumes."""
        return [disk.volume.rpartition("/")[2] for disk in self.disks]

    @property
    def target(self) -> Target:
        """The top of the stack that the disks are on."""
        return self.context.stacks.target_for(self.cell.path)

    @property
    def files(self) -> tuple[Path, ...]:
        """The files of all disks, those beneath included."""
        return tuple(
            file
            for disk in self.disks
            for file in (disk.place, *self.way.kind.beneath(self.way, disk.place))
        )

    def make(self) -> None:
        """Makes all disks at once."""
        self._sync()
        self._each(lambda disk: self._run(self.way.before(self.template, disk)))
        self._sync()
        with self.step(MAKE) as step:
            step.commands = [*self.way.make(self.template, self.disks[0])]
            self._each(self._made)
        self.free_when_made = self._free()  # not synced: the first flush writes what is dirty

    def reset(self) -> None:
        """Deletes all disks, and makes them anew."""
        self._sync()
        with self.step(RESET) as step:
            disk = self.disks[0]
            deleted = self.way.kind.delete(disk)
            made = (*self.way.before(self.template, disk), *self.way.make(self.template, disk))
            step.commands = [*deleted, *made]
            self._each(self._made_anew)

    def _made(self, disk: NewDisk) -> None:
        self._run(self.way.make(self.template, disk))
        if self.clones is not None:
            self.clones.await_node(disk.place)

    def _made_anew(self, disk: NewDisk) -> None:
        for file in self.way.kind.beneath(self.way, disk.place):
            self._run((("rm", "--", str(file)),))
        self._deleted(disk)
        self._run(self.way.before(self.template, disk))
        self._made(disk)

    def _deleted(self, disk: NewDisk) -> None:
        """Deletes a disk; what was just closed may be busy for a moment: udev looks at a volume."""
        until = time.monotonic() + _BUSY_SECONDS * patience()
        for command in self.way.kind.delete(disk):
            while True:
                try:
                    self._run((command,))
                    break
                except HostError as error:
                    is_busy = any(word in str(error) for word in _BUSY)
                    if not is_busy or time.monotonic() > until:
                        raise
                    time.sleep(_GLANCE_SECONDS)

    def delete(self) -> None:
        """Deletes all disks, and waits until the file system has their space again."""
        if not self.way.kind.delete(self.disks[0]):
            return
        free, wanted = self._steady_free(), self._own_bytes()
        with self.step(DELETE) as step:
            step.commands = [*self.way.kind.delete(self.disks[0])]
            begin = time.monotonic()
            for disk in self.disks:
                for file in self.way.kind.beneath(self.way, disk.place):
                    self._run((("rm", "--", str(file)),))
            self._each(self._deleted)
            step.seconds = time.monotonic() - begin
            back, when = self._space_back(free, wanted, begin)
            step.add("given_back", back)
            step.add("space_back", when)

    def _steady_free(self) -> int | None:
        """Free bytes when the space of the disks that `reset` removed is back: then there is as
        much as when the first disks were made. XFS gives it back after rm has ended (inodegc).

        Tables that grew meanwhile keep some; then it is back when the number stays. Where another
        program writes to the file system, it may never stay.
        """
        self._sync()
        free, changed = self._free(), time.monotonic()
        if free is None or self.free_when_made is None:
            return free
        deadline = changed + _SPACE_SECONDS * patience()
        while free < self.free_when_made and time.monotonic() < min(
            changed + _STEADY_SECONDS, deadline
        ):
            time.sleep(_SPACE_GLANCE_SECONDS)
            self._sync()
            now = self._free()
            if now is not None and now != free:
                free, changed = now, time.monotonic()
        return free

    def _space_back(
        self, free: int | None, wanted: int | None, begin: float
    ) -> tuple[int | None, float | None]:
        """The bytes that came back, and the seconds until then; no time if not all did."""
        if free is None or wanted is None:
            return None, None
        is_little = wanted < _LEAST_SPACE
        deadline = begin + (_LITTLE_SPACE_SECONDS if is_little else _SPACE_SECONDS * patience())
        while True:
            self._sync()
            back = (self._free() or 0) - free
            seconds = time.monotonic() - begin
            if back >= wanted - min(_LEAST_SPACE, wanted // _TABLES):
                return max(0, back), seconds
            if time.monotonic() > deadline:
                return max(0, back), None
            time.sleep(_SPACE_GLANCE_SECONDS)

    @contextmanager
    def step(self, name: str) -> Iterator[_Taken]:
        """Measures what the body does as the step of that name."""
        self.context.progress(MeasurementStarted(f"{self.plan.name}: {name}", None))
        step, started = _Taken(), datetime.now(UTC)
        allocated, shared = self._own_bytes(), self._shared()
        device = counters.read_devices(self.devices)
        with _watching(self.files) as unwritten:
            begin = time.monotonic()
            yield step
            wall = time.monotonic() - begin
        moved = counters.read_devices(self.devices)
        if self.clones is not None:
            self.clones.sync()
        after, still_shared = self._own_bytes(), self._shared()
        seconds = wall if step.seconds is None else step.seconds
        step.add("duration", seconds)
        step.add("unwritten", unwritten.most)
        if allocated is not None and after is not None and name in _ALLOCATING:
            step.add("allocated", max(0, after - allocated))
        if name == FIRST_WRITE and self.clones is not None:
            step.add("unit", self.clones.unit)
        if name == FIRST_WRITE and shared is not None and still_shared is not None:
            step.add("unshared", max(0, shared - still_shared))
        self.measured.append(
            Measurement(
                name=name,
                program=self.plan.program,
                command="; ".join(map(shlex.join, step.commands)),
                samples=tuple(step.samples),
                evidence=Evidence(
                    device=None if device is None or moved is None else moved.since(device),
                    allocated_before=allocated,
                    allocated_after=after,
                ),
                started=started,
                wall_seconds=wall,
                measured_seconds=seconds,
                raw="",
            )
        )

    def run_alone(self, command: tuple[str, ...]) -> None:
        """Runs one command on a disk."""
        self._run((command,))

    def add_ready(self) -> None:
        """Adds to the first write the time from the order to make to the end of its flush."""
        until = LIFE_STEPS[: LIFE_STEPS.index(FIRST_WRITE) + 1]
        times = {
            step.name: sample.value
            for step in self.measured
            for sample in step.samples
            if step.name in until and sample.metric == "duration"
        }
        if len(times) == len(until):
            index = next(n for n, step in enumerate(self.measured) if step.name == FIRST_WRITE)
            ready = Sample("ready", Direction.NONE, sum(times.values()))
            step = self.measured[index]
            self.measured[index] = replace(step, samples=(*step.samples, ready))

    def add_to_last(self, metric: str, value: float) -> None:
        """Adds a number that was counted after the step that ended last."""
        last = self.measured[-1]
        sample = Sample(metric, Direction.NONE, float(value))
        self.measured[-1] = replace(last, samples=(*last.samples, sample))

    def _each(self, act: Callable[[NewDisk], None]) -> None:
        at_once(self.disks, act)

    def _run(self, commands: Sequence[tuple[str, ...]]) -> None:
        for command in commands:
            try:
                self.context.stacks.site.run_marked(*command, timeout=_COMMAND_SECONDS)
            except CommandError as error:
                raise self._reason(error) from error

    def _reason(self, error: CommandError) -> HostError:
        place = self.cell.path.stack or "the work directory"
        if any(refused in error.stderr for refused in _UNSUPPORTED):
            return HostError(
                f"{place} cannot make a disk by {self.way}: its file system does not support it",
                hint=f"choose another --dir, or leave {self.way} out of --made",
            )
        if any(full in error.stderr for full in templates.NO_SPACE):
            return HostError(
                f"no space is left on {place} for the disk that {self.way} makes",
                hint="choose a smaller --size, fewer --guests or another --dir",
            )
        return HostError(f"{self.way} failed: {error}", hint="leave it out: --made names the ways")

    def _devices(self) -> tuple[tuple[int, int], ...]:
        """The device right below the disks; else those of the path's stack."""
        if self.clones is not None:
            return self.clones.devices
        target = self.target
        mount = mount_of(target.path) if isinstance(target, Directory) else None
        source = target.on_host if mount is None else Path(mount.source)
        number = counters.device_below(source) if source.is_block_device() else None
        if number is not None:
            return (number,)
        if not isinstance(target, Remote) and target.volume is not None:
            return devices_of(target.volume)
        return self.context.stacks.devices_for(self.cell.path)

    def _sync(self) -> None:
        if isinstance(self.target, Directory):
            sync_filesystem(self.target.path)
        if self.pool is not None:
            self.pool.sync()

    def _free(self) -> int | None:
        """Free bytes of the disks' file system, also those that it reserves, or of their pool."""
        if self.clones is not None:
            return self.clones.free()
        return free_space(self.target.path) if isinstance(self.target, Directory) else None

    def _own_bytes(self) -> int | None:
        """Bytes that the disks occupy alone: those that they share are the template's."""
        if self.clones is not None:
            return max(0, self.clones.used(self._names) - self.used_before)
        if any(disk.is_device for disk in self.disks):
            return None
        return sum(map(own_bytes, self.files))

    def _shared(self) -> int | None:
        if self.clones is not None or any(disk.is_device for disk in self.disks):
            return None
        found = [extents_of(file) for file in self.files if file.exists()]
        counted = [extents.shared for extents in found if extents is not None]
        return sum(counted) if len(counted) == len(found) else None


def own_bytes(file: Path) -> int:
    """Bytes that a file occupies and shares with no other; 0 for a file that is not there."""
    if not file.exists():
        return 0
    extents = extents_of(file)
    return max(0, file.stat().st_blocks * 512 - (0 if extents is None else extents.shared))


def free_space(directory: Path) -> int:
    """Free bytes of a directory's file system, also those that it reserves."""
    room = os.statvfs(directory)
    return room.f_bfree * room.f_frsize


def at_once(things: Sequence[_Made], act: Callable[[_Made], None]) -> None:
    """Does something with each thing at once; raises the first error when all have ended."""
    if len(things) == 1:
        act(things[0])
        return
    with ThreadPoolExecutor(len(things)) as executor:
        done = [executor.submit(act, thing) for thing in things]
    for ended in done:
        ended.result()


@dataclass(slots=True)
class _Unwritten:
    """The most bytes of some files that waited in the host's memory; None if nobody counts."""

    most: int | None = None

    def look(self, files: Sequence[Path]) -> None:
        """Looks now."""
        counts = [pagecache.unwritten_bytes(file) for file in files]
        counted = [count for count in counts if count is not None]
        if counted:
            self.most = max(self.most or 0, sum(counted))


@contextmanager
def _watching(files: Sequence[Path]) -> Iterator[_Unwritten]:
    """Looks at the files' pages at the beginning, every 10 ms, and at the end."""
    seen, ended = _Unwritten(), threading.Event()
    seen.look(files)

    def watch() -> None:
        while not ended.is_set():
            time.sleep(_GLANCE_SECONDS)
            seen.look(files)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield seen
    finally:
        ended.set()
        thread.join()
        seen.look(files)


def _used_on_host(steps: _Steps) -> tuple[tuple[Check, ...], tuple[str, ...]]:
    """qemu-io reads a block of each disk, and writes one and flushes."""
    images = [_image(steps.target, steps.way, steps.template, disk) for disk in steps.disks]
    commands = [host_commands(steps.cell, image, steps.written_at) for image in images]
    for number, name in enumerate((ATTACH, FIRST_WRITE)):
        mapped = _mapped(steps)
        with steps.step(name) as step:
            step.commands = [commands[0][number]]
            at_once([each[number] for each in commands], steps.run_alone)
        if name == FIRST_WRITE:
            _add_mapped(steps, mapped)
    return (), ()


def _add_mapped(steps: _Steps, before: int | None) -> None:
    """Adds to the first write the bytes that the disks' format has mapped since `before`."""
    after = None if before is None else _mapped(steps)
    if before is not None and after is not None:
        steps.add_to_last("mapped", max(0, after - before))


def _mapped(steps: _Steps) -> int | None:
    """Bytes that the disks' format maps to data of their own; None for raw disks.

    A guest may have them open: after a flush the tables in the file are those of QEMU.
    """
    host, driver = steps.context.stacks.site.host, steps.disks[0].driver
    if driver == "raw":
        return None
    return sum(
        int(extent["length"])
        for disk in steps.disks
        for extent in extents(host, disk.place, driver, None, "--force-share")
        if extent["data"] and not extent["depth"]
    )


def _image(target: Target, way: Way, template: Template, disk: NewDisk) -> ImageFile:
    """The disk as a guest's: its image, and those that it reads from."""
    beneath = way.kind.beneath(way, disk.place)
    chain = (*beneath, template.file) if way.kind.reads_template else ()
    if disk.is_device and isinstance(target, Device):
        target = replace(target, path=disk.place)  # a clone is another device than the stack's
    properties = {**target.properties, "image.virtual_size": str(disk.size)}
    caches = (disk.place, *chain)
    return ImageFile(target, disk.place, disk.driver, disk.size, properties, caches, chain)


@contextmanager
def planned_disk(stacks: HostStacks, cell: Cell, member: int) -> Iterator[ImageFile]:
    """A disk of which only the commands are wanted: the site notes those that make it."""
    way = parse_way(cell.path.attachment.made or "")
    with _place(stacks, cell, way, member) as disk:
        template = _template(stacks, cell, way, disk)
        for command in (*way.before(template, disk), *way.make(template, disk)):
            stacks.site.run_marked(*command, timeout=_COMMAND_SECONDS)
        yield _image(stacks.target_for(cell.path, member), way, template, disk)


def host_commands(
    cell: Cell, image: ImageFile, offset: int | None = None
) -> tuple[tuple[str, ...], ...]:
    """The commands that use a disk without a guest; it is written at `offset`, which is only
    known when the template is read."""
    cache = str(cell.path.cache)
    mode = ("-t", cache if cache in _HOST_CACHES else "writeback", "-f", image.format)
    reads = ("qemu-io", "-c", f"read -q 0 {life.BLOCK}")
    offset = life.written_at(image.size) if offset is None else offset
    writes = life.first_write_on_host(offset)
    return tuple((*command, *mode, str(image.on_host)) for command in (reads, writes))


def _used_in_guests(steps: _Steps) -> tuple[tuple[Check, ...], tuple[str, ...]]:
    """Each disk is plugged into a guest, which writes a block, flushes, and goes on writing."""
    context, cell = steps.context, steps.cell
    with ExitStack() as opened:
        disks: list[AttachedDisk] = []
        with steps.step(ATTACH) as step:
            for member, disk in enumerate(steps.disks):
                image = _image(steps.target, steps.way, steps.template, disk)
                write_back = opened.enter_context(writing_back(None))
                disks.append(
                    opened.enter_context(
                        attached(context, cell, image, write_back, fresh=False, member=member)
                    )
                )
            plugged = [disk.plug_seconds for disk in disks if disk.plug_seconds is not None]
            step.seconds = sum(plugged) if len(plugged) == len(disks) else None
        mapped = _mapped(steps)
        with steps.step(FIRST_WRITE) as step:
            before = [disk.counters.qemu() for disk in disks]
            at_once(disks, partial(_first_write, steps.written_at))
            waited = [
                _waited(counted, disk.counters.qemu())
                for counted, disk in zip(before, disks, strict=True)
            ]
            device = _place_of(disks[0]).disk.path
            step.commands = [life.first_write(device, steps.written_at)]
            step.seconds = max(seconds for seconds, _ in waited)
            flushes = [flush for _, flush in waited if flush is not None]
            step.add("sync_max", max(flushes, default=None))
        _add_mapped(steps, mapped)
        settled = _settle(steps, disks)
        checks = (*dict.fromkeys(check for disk in disks for check in disk.checks), settled)
        commands = tuple(command for disk in disks for command in disk.commands)
    return checks, commands


def _place_of(disk: AttachedDisk) -> GuestPlace:
    if not isinstance(disk.place, GuestPlace):
        raise TypeError("a disk that is made is used in a guest")
    return disk.place


def _first_write(offset: int, disk: AttachedDisk) -> None:
    place = _place_of(disk)
    place.machine.agent.run(life.first_write(place.disk.path, offset), timeout=_GUEST_SECONDS)


def _waited(before: IoCounters | None, after: IoCounters | None) -> tuple[float, float | None]:
    """The seconds of the write and the flush together, and of the flush, as QEMU took them.

    Raises HostError if QEMU does not count them.
    """
    if before is None or after is None:
        raise HostError(
            "QEMU does not count this disk's requests", hint="write another bus, such as virtio"
        )
    during = after.since(before)
    write, flush = during.write_seconds, during.flush_seconds
    if write is None or not during.write_operations:
        raise HostError("QEMU saw no write of the guest", hint="try again")
    return write + (flush or 0.0), flush if during.flush_operations else None


def _settle(steps: _Steps, disks: Sequence[AttachedDisk]) -> Check:
    """Writes at random until the rate stays. If it did not within the runtime, there is no time,
    and the check says why."""
    plan = steps.context.plan
    timing = program.Timing(plan.runtime, plan.ramp, plan.scale)
    found: list[life.Settled | life.Unsettled] = []

    def write(disk: AttachedDisk) -> None:
        place = _place_of(disk)
        subject = replace(place.disk, mark=f"-{threading.get_ident()}-{time.monotonic_ns()}")
        script = life.script_in_guest(steps.plan, subject, timing, steps.written_at)
        place.machine.agent.run(script.command, timeout=script.timeout, expected=timing.runtime)
        log = place.machine.agent.read_file(script.collect[0])
        found.append(life.settled(life.read_latencies(log)))

    with steps.step(SETTLE) as step:
        first = _place_of(disks[0])
        script = life.script_in_guest(steps.plan, first.disk, timing, steps.written_at)
        step.commands = [script.command]
        at_once(disks, write)
        settled = [each for each in found if isinstance(each, life.Settled)]
        if len(settled) == len(disks):
            step.seconds = max(each.seconds for each in settled)
            step.add("iops", sum(each.iops for each in settled))
    why = next((each.why for each in found if isinstance(each, life.Unsettled)), "")
    if why:
        _without_duration(steps)
    return Check(SETTLED, None, why)


def _without_duration(steps: _Steps) -> None:
    """A rate that did not settle has no time at which it did."""
    last = steps.measured[-1]
    samples = tuple(sample for sample in last.samples if sample.metric != "duration")
    steps.measured[-1] = replace(last, samples=samples)
