"""One cell in one block: image, guest, attach, state, measurements; out comes what was seen."""

from __future__ import annotations

import secrets
import shlex
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime

from vdisklab.campaign.evidence import Witness, block_stats, evidence_between
from vdisklab.campaign.guests import GuestKey, GuestPool, PooledGuest
from vdisklab.campaign.place import GuestPlace, HostPlace, Place, host_subject, prepared, with_files
from vdisklab.campaign.workshop import Workshop
from vdisklab.errors import HostError
from vdisklab.guest.blockdev import (
    Disk,
    attach_commands,
    spell_arguments,
    spell_commands,
)
from vdisklab.guest.disk import GuestDisk, attached_disk, find_disk, port_for
from vdisklab.guest.machine import Machine
from vdisklab.guest.observe import check_state
from vdisklab.host.pagecache import evict, residency, warm
from vdisklab.plan.campaign import CampaignPlan
from vdisklab.plan.cell import Cell
from vdisklab.plan.guest import Accelerator
from vdisklab.plan.options import LAYER_OPTIONS
from vdisklab.plan.path import DiskPath
from vdisklab.plan.profile import MeasurementPlan
from vdisklab.plan.segments import PageCache
from vdisklab.progress import MeasurementStarted, Progress, Throughput
from vdisklab.result.model import Check, Counted, Measurement
from vdisklab.storage.image import ImageFile
from vdisklab.workload.base import Subject, Timing
from vdisklab.workload.registry import workload_for

# Shares of an image that may be in the page cache although it was emptied (a format's header is
# read again when it is opened), and may be missing although it was filled.
_COLD = 0.02
_WARM = 0.98


class StateError(HostError):
    """A state that the numbers rely on is not what was asked for."""

    def __init__(self, checks: tuple[Check, ...]) -> None:
        self.checks = checks
        wrong = [f"{c.name} is {c.seen}, not {c.asked}" for c in checks if not c.confirmed]
        super().__init__("state not confirmed: " + "; ".join(wrong))


@dataclass(frozen=True, slots=True)
class Bench:
    """What all cells of a campaign share."""

    plan: CampaignPlan
    workshop: Workshop
    guests: GuestPool
    accelerator: Accelerator | None
    progress: Progress


@dataclass(frozen=True, slots=True)
class Ready:
    """A disk that is attached and confirmed, and everything that watches it."""

    place: Place
    witness: Witness
    image: ImageFile | None
    watch: Callable[[], None] | None
    checks: tuple[Check, ...]
    commands: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Observed:
    """What a cell gave."""

    checks: tuple[Check, ...]
    commands: tuple[str, ...]
    measurements: tuple[Measurement, ...]


def measure_cell(bench: Bench, cell: Cell) -> Observed:
    """Everything measured in one fresh attach of the cell's disk.

    Raises a VdisklabError when anything failed; StateError when a state could not be confirmed.
    """
    opened = _on_host(bench, cell) if cell.path.on_host else _in_guest(bench, cell)
    with opened as ready:
        if not all(check.confirmed for check in ready.checks):
            raise StateError(ready.checks)
        measurements = tuple(
            _measure(bench, cell, ready, plan) for plan in bench.plan.profile.measurements
        )
    commands = (*ready.commands, *(measurement.command for measurement in measurements))
    return Observed(ready.checks, commands, measurements)


@contextmanager
def _on_host(bench: Bench, cell: Cell) -> Iterator[Ready]:
    with bench.workshop.image_for(cell.path) as image:
        if image is None:
            raise HostError("there is nothing to measure on the host")
        plan, site = bench.plan, bench.workshop.site
        memory, block = plan.guest.memory_bytes, image.is_block
        subject = host_subject(site, image.path, plan.size_bytes, memory, is_device=block)
        witness = Witness(lambda: None, bench.workshop.devices_for(cell.path), None, image)
        place = HostPlace(site, subject, None if block else image.path.parent)
        yield Ready(place, witness, image, None, _storage_checks(cell.path, image), ())


@contextmanager
def _in_guest(bench: Bench, cell: Cell) -> Iterator[Ready]:
    with bench.workshop.image_for(cell.path) as image:
        disk = disk_for(cell.path, image, bench.plan.size_bytes, f"vdl{secrets.token_hex(4)}")
        with _plugged(bench, disk) as (pooled, seen, commands):
            machine = pooled.machine
            checks = check_state(machine, disk, seen, pooled.at_start)
            size, memory = bench.plan.size_bytes, bench.plan.guest.memory_bytes
            subject = Subject(seen.device, size, is_device=True, memory=memory)
            stored = () if image is None else _storage_checks(cell.path, image)
            witness = Witness(
                lambda: block_stats(machine, disk.serial),
                bench.workshop.devices_for(cell.path),
                machine.pid,
                image,
            )
            yield Ready(
                GuestPlace(machine, subject),
                witness,
                image,
                _throughput_watch(machine, disk.serial, bench.progress),
                (*stored, *checks),
                commands,
            )


@contextmanager
def _plugged(bench: Bench, disk: Disk) -> Iterator[tuple[PooledGuest, GuestDisk, tuple[str, ...]]]:
    bus = disk.attachment.bus
    if bus.hot_pluggable:
        key = GuestKey(bus.machine, disk.attachment.aio)
        with bench.guests.guest(key) as pooled, attached_disk(pooled.machine, disk) as seen:
            plugging = spell_commands(attach_commands(disk, port_for(disk)))
            yield pooled, seen, (spell_arguments(pooled.machine.argv), *plugging)
    else:
        with bench.guests.own_guest(bus, disk) as pooled:
            seen = find_disk(pooled.machine, disk.serial)
            yield pooled, seen, (spell_arguments(pooled.machine.argv),)


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


def _storage_checks(path: DiskPath, image: ImageFile) -> tuple[Check, ...]:
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


def _measure(bench: Bench, cell: Cell, ready: Ready, plan: MeasurementPlan) -> Measurement:
    workload = workload_for(plan)
    timing = Timing(bench.plan.runtime, bench.plan.ramp, bench.plan.scale)
    _rest(bench.plan.profile.usual.interval)
    with ready.place.workspace(plan.filesystem) as space:
        script = workload.script(plan, space.subject, timing)
        with prepared(ready.place, script):
            if script.prepare:
                space.empty_cache()
            _set_page_cache(cell.page_cache, ready.image)
            bench.progress(MeasurementStarted(plan.name, script.expected or None))
            started = datetime.now(UTC)
            before = ready.witness.look()
            begin = time.monotonic()
            said = ready.place.run(script, ready.watch)
            wall = time.monotonic() - begin
            after = ready.witness.look()
            output = with_files(ready.place, script, said)
    outcome = workload.parse(plan, output)
    return Measurement(
        name=plan.name,
        program=plan.program,
        command=shlex.join(script.command),
        samples=outcome.samples,
        evidence=evidence_between(before, after, outcome.counted),
        started=started,
        wall_seconds=wall,
        measured_seconds=outcome.measured_seconds,
        raw=output.text,
        series=outcome.series,
    )


def _rest(seconds: float) -> None:
    if seconds > 0:
        time.sleep(seconds)


def _set_page_cache(asked: PageCache, image: ImageFile | None) -> None:
    """Brings the host's page cache into the asked state and reads it back; StateError if not.

    Also where the cache is bypassed it is emptied: pages left by an earlier cell would have to
    be invalidated by each direct write.
    """
    if image is None:
        return
    if asked is PageCache.WARM:
        for file in image.caches:
            warm(file)
        seen = residency(image.path)
        confirmed = seen >= _WARM
    else:
        for file in image.caches:
            evict(file)
        seen = residency(image.path)
        confirmed = asked is PageCache.BYPASSED or seen <= _COLD
    if not confirmed:
        raise StateError((Check("host.page_cache", asked, f"{seen:.0%} resident"),))


def _throughput_watch(machine: Machine, serial: str, progress: Progress) -> Callable[[], None]:
    """Tells the progress what moved since it was last called."""
    last: tuple[float, Counted] | None = None

    def watch() -> None:
        nonlocal last
        now, counted = time.monotonic(), block_stats(machine, serial)
        if counted is None:
            return
        if last is not None and now > last[0]:
            then, before = last
            moved = _moved_bytes(counted) - _moved_bytes(before)
            done = _operations(counted) - _operations(before)
            progress(Throughput(moved / (now - then), done / (now - then)))
        last = now, counted

    return watch


def _moved_bytes(counted: Counted) -> int:
    return counted.read_bytes + counted.write_bytes


def _operations(counted: Counted) -> int:
    return counted.read_operations + counted.write_operations
