"""Measures one cell in one round: stack → image → disk → guest → state → measurements → result.

A cell of a profile that boots is measured by booting QEMU from its disk.
"""

from __future__ import annotations

import secrets
import shlex
import time
from dataclasses import replace
from datetime import UTC, datetime

from vdisklab.campaign.attachment import (
    AttachedDisk,
    attached,
    disk_for,
    require_confirmed,
    storage_checks,
)
from vdisklab.campaign.context import CampaignContext, CellResult
from vdisklab.campaign.guest_group import measure_group
from vdisklab.campaign.guests import BootFromDisk
from vdisklab.campaign.measured_evidence import (
    Counters,
    Growth,
    evidence_between,
    guest_counters,
    observed_samples,
)
from vdisklab.campaign.place import prepared, with_files
from vdisklab.campaign.schedule import attach_groups
from vdisklab.campaign.state import set_page_cache, writing_back
from vdisklab.campaign.time_series import TimeSeries, with_time_series
from vdisklab.campaign.watches import DiskWatch
from vdisklab.errors import HostError
from vdisklab.guest.qemu.block_nodes import AttachedNames
from vdisklab.guest.qemu.plugging import spell_arguments
from vdisklab.guest.qemu.qmp import Channel
from vdisklab.guest.qemu.read_back import check_state, read_process
from vdisklab.path.cell import Cell
from vdisklab.plan.profile import MeasurementPlan
from vdisklab.progress import MeasurementStarted, Progress
from vdisklab.results.model import Check, IoCounters, Measurement
from vdisklab.storage.image import ImageFile
from vdisklab.workload.program import ProgramResult, Timing
from vdisklab.workload.registry import workload_for
from vdisklab.workload.systems import boot_samples


def measure_cell(context: CampaignContext, cell: Cell) -> CellResult:
    """All measurements of a cell, on its disk, which is attached anew for each attach group.

    Raises a VdisklabError when anything failed; StateError when a state could not be confirmed.
    """
    if not cell.path.on_host and cell.path.attachment.guests is not None:
        return measure_group(context, cell)
    checks: list[Check] = []
    commands: list[str] = []
    measurements: list[Measurement] = []
    # The disk is unplugged while the last measurement's writes are on their way to the device.
    with context.stacks.image_for(cell.path) as image, writing_back(image) as write_back:
        for fresh, plans in attach_groups(context.plan.profile.measurements):
            with attached(context, cell, image, write_back, fresh=fresh) as attachment:
                results = [_measure(context, cell, attachment, plan) for plan in plans]
            checks += attachment.checks
            for result, more in results:
                checks += more
                measurements.append(result)
            commands += (*attachment.commands, *(result.command for result, _ in results))
    # Drop the repeated checks of later groups.
    return CellResult(tuple(dict.fromkeys(checks)), tuple(commands), tuple(measurements))


def _measure(
    context: CampaignContext, cell: Cell, attachment: AttachedDisk, plan: MeasurementPlan
) -> tuple[Measurement, tuple[Check, ...]]:
    """The measurement, and the states of its file system that were read back."""
    workload, place = workload_for(plan, in_windows=attachment.in_windows), attachment.place
    image, write_back = attachment.image, attachment.write_back
    timing = Timing(context.plan.runtime, context.plan.ramp, context.plan.scale)
    time.sleep(context.plan.profile.usual.interval)
    with place.workspace(plan.filesystem) as space:
        subject = replace(space.subject, mark=f"-{secrets.token_hex(4)}")
        script = workload.script(plan, subject, timing)
        with prepared(place, script):
            if script.prepare:
                space.empty_cache()
            write_back.wait()
            # On the host a program works beside the image, which therefore does not grow.
            observe = () if cell.path.on_host else script.observe
            growth = Growth(context.stacks.site.host, image, observe)
            set_page_cache(cell.page_cache, image)
            context.progress(MeasurementStarted(plan.name, script.expected or None))
            started = datetime.now(UTC)
            before = attachment.counters.snapshot()
            attachment.watch.begin()
            begin = time.monotonic()
            raw_output = place.run(script, attachment.watch)
            wall = time.monotonic() - begin
            series = attachment.watch.end()
            after = attachment.counters.snapshot()
            output = with_files(place, script, raw_output)
            mapped = growth.mapped()
    write_back.begin()
    outcome = with_time_series(workload.parse(plan, output), series)
    evidence = evidence_between(before, after, outcome.counted)
    measurement = Measurement(
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
    return measurement, space.checks


_SHUTDOWN_SECONDS = 120.0


def measure_boots(context: CampaignContext, cell: Cell) -> CellResult:
    """Measures a cell by boots and shutdowns. Raises the same errors as `measure_cell`."""
    with context.stacks.image_for(cell.path) as image:
        if not isinstance(image, ImageFile) or context.boot is None:
            raise HostError(
                "there is no disk to boot from",
                hint="boot measurements need a guest: leave out the path `host`, or "
                "choose another profile",
            )
        stored = storage_checks(cell.path, image)
        require_confirmed(stored)
        checks: tuple[Check, ...] = ()
        measured = []
        for plan in context.plan.profile.measurements:
            set_page_cache(cell.page_cache, image)
            checks, measurement = _measure_boot(context, context.boot, cell, image, plan)
            measured.append(measurement)
    commands = tuple(measurement.command for measurement in measured)
    return CellResult((*stored, *checks), commands, tuple(measured))


def _measure_boot(
    context: CampaignContext,
    boot: BootFromDisk,
    cell: Cell,
    image: ImageFile,
    plan: MeasurementPlan,
) -> tuple[tuple[Check, ...], Measurement]:
    disk = disk_for(cell.path, image, context.plan.size_bytes, f"vdl{secrets.token_hex(4)}")
    at_start = context.guests.before_any_disk(disk)
    devices = context.stacks.devices_for(cell.path)
    # A QEMU that has not started has zero counters.
    nothing = IoCounters(0, 0, 0, 0, 0)
    before = replace(Counters(lambda: nothing, devices, None, image.path).snapshot(), cpu=0.0)
    context.progress(MeasurementStarted(plan.name, None))
    watch = _BootWatch(disk.names, context.progress)
    started, begin = datetime.now(UTC), time.monotonic()
    with boot(disk, watch) as machine:
        booted = time.monotonic() - begin
        time_series = watch.end()
        after = guest_counters(machine, disk.names, devices, image.path).snapshot()
        guest_disk = machine.find_disk(disk.serial)
        checks = check_state(machine, disk, guest_disk, at_start or read_process(machine))
        require_confirmed(checks)
        order = time.monotonic()
        machine.shut_down(_SHUTDOWN_SECONDS)
        ended = time.monotonic() - order
    samples = boot_samples(booted, ended)
    outcome = with_time_series(ProgramResult(samples, None, booted + ended), time_series)
    measurement = Measurement(
        name=plan.name,
        program=plan.program,
        command=spell_arguments(machine.argv),
        samples=outcome.samples,
        # The counters end with QEMU, so they cover the boot only.
        evidence=evidence_between(before, after, None),
        started=started,
        wall_seconds=time.monotonic() - begin,
        measured_seconds=booted + ended,
        raw="",
        series=outcome.series,
    )
    return checks, measurement


class _BootWatch:
    """Follows the disk of a guest from its QEMU's first answer."""

    def __init__(self, names: AttachedNames, progress: Progress) -> None:
        self._names = names
        self._progress = progress
        self._watch: DiskWatch | None = None

    def __call__(self, monitor: Channel) -> None:
        """Takes another sample; the first call starts the series."""
        if self._watch is None:
            self._watch = DiskWatch(monitor, self._names, self._progress)
            self._watch.begin()
        else:
            self._watch()

    def end(self) -> TimeSeries:
        """The series; empty if no guest was started."""
        return TimeSeries((), (), None) if self._watch is None else self._watch.end()
