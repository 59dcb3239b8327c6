"""Measures how long a guest takes to boot from the cell's disk and to shut down."""

from __future__ import annotations

import secrets
import time
from datetime import UTC, datetime

from vdisklab.campaign import attachment, guests, measured_evidence, watches
from vdisklab.campaign.context import CampaignContext, CellResult
from vdisklab.errors import HostError
from vdisklab.guest.qemu.block_nodes import AttachedNames, spell_arguments
from vdisklab.guest.qemu.qmp import Channel
from vdisklab.guest.qemu.read_back import check_state, read_process
from vdisklab.path.cell import Cell
from vdisklab.plan.profile import MeasurementPlan
from vdisklab.progress import MeasurementStarted, Progress
from vdisklab.results.model import Check, IoCounters, Measurement
from vdisklab.storage.image import ImageFile
from vdisklab.value import replace
from vdisklab.workload.program import ProgramResult
from vdisklab.workload.systems import boot_samples

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
        stored = attachment.storage_checks(cell.path, image)
        attachment.require_confirmed(stored)
        checks: tuple[Check, ...] = ()
        measured = []
        for plan in context.plan.profile.measurements:
            measured_evidence.set_page_cache(cell.page_cache, image)
            checks, measurement = _measure_boot(context, context.boot, cell, image, plan)
            measured.append(measurement)
    commands = tuple(measurement.command for measurement in measured)
    return CellResult((*stored, *checks), commands, tuple(measured))


def _measure_boot(
    context: CampaignContext,
    boot: guests.BootFromDisk,
    cell: Cell,
    image: ImageFile,
    plan: MeasurementPlan,
) -> tuple[tuple[Check, ...], Measurement]:
    disk = attachment.disk_for(
        cell.path, image, context.plan.size_bytes, f"vdl{secrets.token_hex(4)}"
    )
    at_start = context.guests.before_any_disk(disk)
    devices = context.stacks.devices_for(cell.path)
    # A QEMU that has not started has zero counters.
    nothing = IoCounters(0, 0, 0, 0, 0)
    before = replace(
        measured_evidence.Counters(lambda: nothing, devices, None, image.file).snapshot(), cpu=0.0
    )
    context.progress(MeasurementStarted(plan.name, None))
    watch = _BootWatch(disk.names, context.progress)
    started, begin = datetime.now(UTC), time.monotonic()
    with boot(disk, watch) as machine:
        booted = time.monotonic() - begin
        time_series = watch.end()
        after = measured_evidence.guest_counters(machine, disk, devices, image.file).snapshot()
        guest_disk = machine.find_disk(disk.serial)
        checks = check_state(machine, disk, guest_disk, at_start or read_process(machine))
        attachment.require_confirmed(checks)
        order = time.monotonic()
        machine.shut_down(_SHUTDOWN_SECONDS)
        ended = time.monotonic() - order
    samples = boot_samples(booted, ended)
    outcome = watches.with_time_series(ProgramResult(samples, None, booted + ended), time_series)
    measurement = Measurement(
        name=plan.name,
        program=plan.program,
        command=spell_arguments(machine.argv),
        samples=outcome.samples,
        # The counters end with QEMU, so they cover the boot only.
        evidence=measured_evidence.evidence_between(before, after, None),
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
        self._watch: watches.DiskWatch | None = None

    def __call__(self, monitor: Channel) -> None:
        """Takes another sample; the first call starts the series."""
        if self._watch is None:
            self._watch = watches.DiskWatch(monitor, self._names, self._progress)
            self._watch.begin()
        else:
            self._watch()

    def end(self) -> watches.TimeSeries:
        """The series; empty if no guest was started."""
        return watches.TimeSeries((), (), None) if self._watch is None else self._watch.end()
