"""One cell in one block: image, guest, attach, state, measurements; out comes what was seen."""

from __future__ import annotations

import secrets
import shlex
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from typing import Protocol

from vdisklab.campaign.attach_groups import attach_groups
from vdisklab.campaign.diskwatch import DiskWatch
from vdisklab.campaign.evidence import Counters, evidence_between, guest_counters
from vdisklab.campaign.host_stacks import HostStacks
from vdisklab.campaign.observed import Growth, observed_samples
from vdisklab.campaign.packages import Packages, host_places, package_checks
from vdisklab.campaign.place import GuestPlace, HostPlace, Place, host_subject, prepared, with_files
from vdisklab.campaign.programwatch import ProgramWatch, shows_waiting
from vdisklab.campaign.state import StateError, WriteBack, set_page_cache, writing_back
from vdisklab.campaign.time_series import Watch, with_time_series
from vdisklab.errors import HostError
from vdisklab.guest.hotplug import port_for
from vdisklab.guest.machine import Machine
from vdisklab.guest.pool import GuestPool, PooledGuest
from vdisklab.guest.qemu.block_nodes import (
    Disk,
    attach_commands,
    spell_arguments,
    spell_commands,
)
from vdisklab.guest.qemu.qmp import Channel
from vdisklab.guest.qemu.read_back import check_state
from vdisklab.guest.system.guest_system import Family, GuestDisk
from vdisklab.path.cell import Cell
from vdisklab.path.disk_path import DiskPath
from vdisklab.path.options import LAYER_OPTIONS
from vdisklab.plan.campaign import CampaignPlan
from vdisklab.plan.guest import Accelerator
from vdisklab.plan.profile import MeasurementPlan
from vdisklab.progress import MeasurementStarted, Progress
from vdisklab.results.model import Check, Measurement
from vdisklab.storage.image import ImageFile
from vdisklab.workload.program import Subject, Timing, Workload
from vdisklab.workload.registry import workload_for, workload_on_windows

BootFromDisk = Callable[[Disk, Callable[[Channel], None]], AbstractContextManager[Machine]]
"""(the disk that its system is on, what is called with the monitor meanwhile) -> a running guest,
as a block."""


@dataclass(frozen=True, slots=True)
class CampaignContext:
    """What all cells of a campaign share."""

    plan: CampaignPlan
    workshop: HostStacks
    guests: GuestPool
    accelerator: Accelerator | None
    progress: Progress
    packages: Packages = field(default_factory=dict)
    boot: BootFromDisk | None = None


@dataclass(frozen=True, slots=True)
class Ready:
    """A disk that is attached and confirmed, and everything that watches it."""

    place: Place
    witness: Counters
    image: ImageFile | None
    behind: WriteBack
    watch: Watch
    checks: tuple[Check, ...]
    commands: tuple[str, ...]
    workload: Callable[[MeasurementPlan], Workload] = workload_for


@dataclass(frozen=True, slots=True)
class Observed:
    """What a cell gave."""

    checks: tuple[Check, ...]
    commands: tuple[str, ...]
    measurements: tuple[Measurement, ...]


class Attach(Protocol):
    """Attaches a cell's disk, as a block."""

    def __call__(self, *, fresh: bool) -> AbstractContextManager[Ready]:
        """The disk, attached and confirmed, in a guest that is freshly booted where asked."""


def measure_cell(bench: CampaignContext, cell: Cell) -> Observed:
    """Everything measured on a cell's disk, attached anew for it.

    Raises a VdisklabError when anything failed; StateError when a state could not be confirmed.
    """
    opened = _on_host(bench, cell) if cell.path.on_host else _in_guest(bench, cell)
    with opened as attach:
        parts = tuple(
            _sit(bench, cell, attach(fresh=fresh), plans)
            for fresh, plans in attach_groups(bench.plan.profile.measurements)
        )
    measurements = tuple(each for part in parts for each in part.measurements)
    # Of a state that was read again, only what was seen differently is kept again.
    checks = tuple(dict.fromkeys(check for part in parts for check in part.checks))
    return Observed(checks, tuple(line for part in parts for line in part.commands), measurements)


def _sit(
    bench: CampaignContext,
    cell: Cell,
    attached: AbstractContextManager[Ready],
    plans: Sequence[MeasurementPlan],
) -> Observed:
    with attached as ready:
        if not all(check.confirmed for check in ready.checks):
            raise StateError(ready.checks)
        measurements = tuple(_measure(bench, cell, ready, plan) for plan in plans)
    commands = (*ready.commands, *(measurement.command for measurement in measurements))
    return Observed(ready.checks, commands, measurements)


@contextmanager
def _on_host(bench: CampaignContext, cell: Cell) -> Iterator[Attach]:
    with bench.workshop.image_for(cell.path) as image:
        if image is None:
            raise HostError("there is nothing to measure on the host")
        plan, site = bench.plan, bench.workshop.site
        memory, block = plan.guest.memory_bytes, image.is_block
        subject = replace(
            host_subject(site, image.path, plan.size_bytes, memory, is_device=block),
            packages=host_places(bench.packages),
        )
        witness = Counters(lambda: None, bench.workshop.devices_for(cell.path), None, image)
        place = HostPlace(site, subject, None if block else image.path.parent)
        checks = (*storage_checks(cell.path, image), *package_checks(bench.packages))
        with writing_back(image) as behind:
            shown = shows_waiting(image.path.parent)
            watch = ProgramWatch(bench.progress, shows_waiting=shown)
            ready = Ready(place, witness, image, behind, watch, checks, ())
            yield partial(_as_it_is, ready)


def _as_it_is(ready: Ready, *, fresh: bool) -> AbstractContextManager[Ready]:
    """The host is not booted anew."""
    del fresh
    return nullcontext(ready)


@contextmanager
def _in_guest(bench: CampaignContext, cell: Cell) -> Iterator[Attach]:
    with bench.workshop.image_for(cell.path) as image:
        disk = disk_for(cell.path, image, bench.plan.size_bytes, f"vdl{secrets.token_hex(4)}")
        # The disk is unplugged while the last measurement's writes are on their way to the device.
        with writing_back(image) as behind:
            yield partial(_attached, bench, cell, disk, image, behind)


@contextmanager
def _attached(
    bench: CampaignContext,
    cell: Cell,
    disk: Disk,
    image: ImageFile | None,
    behind: WriteBack,
    *,
    fresh: bool,
) -> Iterator[Ready]:
    with _plugged(bench, disk, fresh=fresh) as (pooled, seen, commands):
        machine = pooled.machine
        behind.wait()  # for a measurement in another guest before, whose writes are still moving
        checks = check_state(machine, disk, seen, pooled.at_start)
        size, memory = bench.plan.size_bytes, bench.plan.guest.memory_bytes
        system = machine.system
        subject = Subject(
            seen.device,
            size,
            is_device=True,
            scratch=system.scratch,
            memory=memory,
            stderr_log=system.stderr_log,
        )
        stored = () if image is None else storage_checks(cell.path, image)
        devices = bench.workshop.devices_for(cell.path)
        witness = guest_counters(machine, disk.serial, devices, image)
        yield Ready(
            GuestPlace(machine, subject),
            witness,
            image,
            behind,
            DiskWatch(machine.monitor, disk.serial, bench.progress),
            (*stored, *checks, *pooled.facts, *package_checks(bench.packages)),
            commands,
            _workload_in(machine),
        )


def _workload_in(machine: Machine) -> Callable[[MeasurementPlan], Workload]:
    """What does a measurement in this guest: in Windows DISKSPD stands for fio."""
    windows = machine.system.family is Family.WINDOWS
    return workload_on_windows if windows else workload_for


@contextmanager
def _plugged(
    bench: CampaignContext, disk: Disk, *, fresh: bool
) -> Iterator[tuple[PooledGuest, GuestDisk, tuple[str, ...]]]:
    plugging: tuple[str, ...] = ()
    if disk.attachment.bus.hot_pluggable:
        plugging = spell_commands(attach_commands(disk, port_for(disk)))
    with bench.guests.plugged(disk, fresh=fresh) as (pooled, seen):
        yield pooled, seen, (spell_arguments(pooled.machine.argv), *plugging)


def disk_for(path: DiskPath, image: ImageFile | None, size: int, serial: str) -> Disk:
    """The disk that a path and its image make."""
    if image is None:
        return Disk(serial, size, None, False, "null-co", path.cache, path.attachment)
    return Disk(
        serial,
        image.size,
        str(image.path),
        image.is_block,
        image.format,
        path.cache,
        path.attachment,
    )


def storage_checks(path: DiskPath, image: ImageFile) -> tuple[Check, ...]:
    """What was read back of stack and image, beside what the path asks for where it asks."""
    asked = {"image.virtual_size": str(image.size), "loop.direct_io": "on"}
    if path.image is not None:
        for option in ("cluster_size", "compat", "lazy_refcounts"):
            value = path.image.option(option)
            if value is not None:
                asked[f"image.{option}"] = str(value)
        if not path.image.is_thin:
            asked["image.mapped"] = str(image.size)
    for layer in path.layers:
        for option, value in layer.options:
            asked[f"{layer.kind}.{option}"] = LAYER_OPTIONS[layer.kind][option].format(value)
    return tuple(
        Check(f"host.{name}", asked.get(name), seen)
        for name, seen in sorted(image.properties.items())
    )


def _measure(
    bench: CampaignContext, cell: Cell, ready: Ready, plan: MeasurementPlan
) -> Measurement:
    workload = ready.workload(plan)
    timing = Timing(bench.plan.runtime, bench.plan.ramp, bench.plan.scale)
    _rest(bench.plan.profile.usual.interval)
    with ready.place.workspace(plan.filesystem) as space:
        subject = replace(space.subject, mark=f"-{secrets.token_hex(4)}")
        script = workload.script(plan, subject, timing)
        with prepared(ready.place, script):
            if script.prepare:
                space.empty_cache()
            ready.behind.wait()
            # On the host a program works beside the image, which therefore does not grow.
            observe = () if cell.path.on_host else script.observe
            growth = Growth(bench.workshop.site.host, ready.image, observe)
            set_page_cache(cell.page_cache, ready.image)
            bench.progress(MeasurementStarted(plan.name, script.expected or None))
            started = datetime.now(UTC)
            before = ready.witness.look()
            ready.watch.begin()
            begin = time.monotonic()
            said = ready.place.run(script, ready.watch)
            wall = time.monotonic() - begin
            course = ready.watch.end()
            after = ready.witness.look()
            output = with_files(ready.place, script, said)
            mapped = growth.mapped()
    ready.behind.begin()
    outcome = with_time_series(workload.parse(plan, output), course)
    evidence = evidence_between(before, after, outcome.counted)
    return Measurement(
        name=plan.name,
        program=plan.program,
        command=shlex.join(script.command),
        samples=(*outcome.samples, *observed_samples(observe, evidence, mapped)),
        evidence=evidence,
        started=started,
        wall_seconds=wall,
        measured_seconds=outcome.measured_seconds,
        raw=output.text,
        series=outcome.series,
    )


def _rest(seconds: float) -> None:
    if seconds > 0:
        time.sleep(seconds)
