"""Measures one cell in one round: stack → image → disk → guest → state → measurements → result.

A cell of several guests is measured in all guests at once. Each has its own disk, and the host's
clock releases them together. Only the seconds in which all guests ran count. The group fails if one
guest fails, ends early, or starts so late that too few of those seconds are left.

Measures how long a guest takes to boot from the cell's disk and to shut down.
"""

from __future__ import annotations

import secrets
import shlex
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TypeVar

from vdisklab.campaign import attachment, guests, host_stacks, measured_evidence, schedule, watches
from vdisklab.campaign.attachment import (
    AttachedDisk,
    GuestPlace,
    Workspace,
    attached,
    prepared,
    run_measured,
    with_files,
)
from vdisklab.campaign.context import CampaignContext, CellResult
from vdisklab.errors import GuestError, HostError, WorkloadError
from vdisklab.guest.machine import Machine
from vdisklab.guest.qemu.block_nodes import AttachedNames, spell_arguments
from vdisklab.guest.qemu.qmp import Channel
from vdisklab.guest.qemu.read_back import check_state, read_process
from vdisklab.host.counters import load_between, snapshot
from vdisklab.host.waiting import patience
from vdisklab.path.cell import Cell
from vdisklab.path.segments import PageCache
from vdisklab.plan.profile import MeasurementPlan
from vdisklab.progress import MeasurementStarted, Progress
from vdisklab.results import model
from vdisklab.results.model import Check, IoCounters, Measurement
from vdisklab.storage.image import ImageFile
from vdisklab.workload import fio, open_load, program
from vdisklab.workload.program import ProgramResult
from vdisklab.workload.registry import workload_for
from vdisklab.workload.systems import boot_samples


def measure_cell(context: CampaignContext, cell: Cell) -> CellResult:
    """All measurements of a cell. The disk is attached anew for each attach group.

    Raises a VdisklabError when anything failed; StateError when a state could not be confirmed.
    """
    if not cell.path.on_host and cell.path.attachment.guests is not None:
        return measure_group(context, cell)
    checks: list[model.Check] = []
    commands: list[str] = []
    measurements: list[model.Measurement] = []
    # The disk is unplugged while the last measurement's writes are on their way to the device.
    with (
        context.stacks.image_for(cell.path) as image,
        measured_evidence.writing_back(image) as write_back,
    ):
        for fresh, plans in schedule.attach_groups(context.plan.profile.measurements):
            with attached(context, cell, image, write_back, fresh=fresh) as attachment:
                link = attachment.counters.link
                host = context.stacks.site.host
                before, again = (
                    ({}, 0) if link is None else (link.operations(), link.retransmits(host))
                )
                results = [_measure(context, cell, attachment, plan) for plan in plans]
                if link is not None:
                    checks += link.connections(host, again)
                    checks += link.operations_since(before)
            checks += attachment.checks
            for result, more in results:
                checks += more
                measurements.append(result)
            commands += (*attachment.commands, *(result.command for result, _ in results))
    # Drop the repeated checks of later groups.
    return CellResult(tuple(dict.fromkeys(checks)), tuple(commands), tuple(measurements))


def _measure(
    context: CampaignContext, cell: Cell, attachment: AttachedDisk, plan: MeasurementPlan
) -> tuple[model.Measurement, tuple[model.Check, ...]]:
    """The measurement, and its file system's states as read back."""
    workload, place = workload_for(plan, in_windows=attachment.in_windows), attachment.place
    image, write_back = attachment.image, attachment.write_back
    timing = program.Timing(context.plan.runtime, context.plan.ramp, context.plan.scale)
    time.sleep(context.plan.profile.usual.interval)
    with place.workspace(plan.filesystem) as space:
        cold = cell.page_cache is PageCache.COLD
        subject = replace(space.subject, mark=f"-{secrets.token_hex(4)}", read_once=cold)
        script = workload.script(plan, subject, timing)
        with prepared(place, script):
            if script.prepare:
                space.empty_cache()
            for step in script.warm:
                place.step(step)
            write_back.wait()
            # On the host a program works beside the image, which therefore does not grow.
            observe = () if cell.path.on_host else script.observe
            growth = measured_evidence.Growth(
                context.stacks.site.host, image, observe, attachment.counters.devices
            )
            measured_evidence.set_page_cache(cell.page_cache, image)
            context.progress(MeasurementStarted(plan.name, script.expected or None))
            started = datetime.now(UTC)
            before = attachment.counters.snapshot()
            attachment.watch.begin()
            begin = time.monotonic()
            raw_output = run_measured(place, script, attachment.watch)
            wall = time.monotonic() - begin
            series = attachment.watch.end()
            after = attachment.counters.snapshot()
            for step in script.count:
                place.step(step)
            output = with_files(place, script, raw_output)
            mapped, discarded = growth.mapped(), growth.discarded()
    write_back.begin()
    if workload.by_server and cell.path.on_host:
        series = watches.TimeSeries((), (), None)  # what was watched did no I/O
    outcome = watches.with_time_series(workload.parse(plan, output), series)
    evidence = measured_evidence.evidence_between(before, after, outcome.counted)
    around = program.Around(evidence, subject.memory, timing.runtime, cell.path)
    gates = workload.gates(plan, outcome, around)
    measurement = model.Measurement(
        name=plan.name,
        program=plan.program,
        command=shlex.join(script.command),
        samples=(
            *outcome.samples,
            *measured_evidence.observed_samples(observe, evidence, mapped, discarded),
        ),
        evidence=evidence,
        started=started,
        wall_seconds=wall,
        measured_seconds=outcome.measured_seconds,
        raw=output.text,
        series=outcome.series,
    )
    states = (*outcome.checks, *(gate.check(plan.name) for gate in gates))
    return measurement, (*space.checks, *states)


_FIO = fio.Fio()

# From the order to start until the release: an agent under emulation takes 0.1 s to start fio, and
# fio 0.3 s until it waits; on a busy machine (load 12) guests started 4 s apart after 1.6 s.
_LEAD_SECONDS = 1.5
_LEAD_FOR_EACH = 0.7

_CLOCK_READINGS = 5
_GLANCE_SECONDS = 0.5

# Shorter windows than requested come from rounding to milliseconds only.
_ROUNDING = 0.05


def measure_group(context: CampaignContext, cell: Cell) -> CellResult:
    """All measurements of a cell, each in all guests at once.

    Raises what `measure_cell` does; StateError also if the guests did not start together.
    """
    guests = host_stacks.guests_of(cell.path)
    checks: list[model.Check] = []
    commands: list[str] = []
    measurements: list[model.Measurement] = []
    with ExitStack() as stacks:
        images = [
            stacks.enter_context(context.stacks.image_for(cell.path, member))
            for member in range(guests)
        ]
        write_backs = [
            stacks.enter_context(measured_evidence.writing_back(image)) for image in images
        ]
        for fresh, plans in schedule.attach_groups(context.plan.profile.measurements):
            with ExitStack() as opened:
                disks = [
                    opened.enter_context(
                        attached(context, cell, image, write_back, fresh=fresh, member=member)
                    )
                    for member, (image, write_back) in enumerate(
                        zip(images, write_backs, strict=True)
                    )
                ]
                results = [_measure_together(context, cell, disks, plan) for plan in plans]
            for disk in disks:
                checks += disk.checks
                commands += disk.commands
            for result, more in results:
                checks += more
                measurements.append(result)
                commands.append(result.command)
    return CellResult(tuple(dict.fromkeys(checks)), tuple(commands), tuple(measurements))


@dataclass(frozen=True, slots=True)
class _RunningGuest:
    """A guest's running program; `offset` is how far its clock is ahead of the host's."""

    machine: Machine
    plan: MeasurementPlan
    script: program.Script
    start: open_load.GroupStart
    offset: float
    pid: int


def _measure_together(
    context: CampaignContext, cell: Cell, disks: Sequence[AttachedDisk], plan: MeasurementPlan
) -> tuple[model.Measurement, tuple[model.Check, ...]]:
    """The measurement of all guests, and the states that were read back meanwhile."""
    timing = program.Timing(context.plan.runtime, context.plan.ramp, context.plan.scale)
    with ExitStack() as opened:
        spaces = [opened.enter_context(disk.place.workspace(plan.filesystem)) for disk in disks]
        for disk in disks:
            disk.write_back.wait()
            measured_evidence.set_page_cache(cell.page_cache, disk.image)
        context.progress(MeasurementStarted(plan.name, timing.ramp + timing.runtime))
        started = datetime.now(UTC)
        begin = time.monotonic()
        release, running = _start_all(disks, spaces, plan, timing)
        before, load, after = _observed(disks, release, timing)
        guests = _of_each(running, lambda one: _finish(one, timing))
        wall = time.monotonic() - begin
    for disk in disks:
        disk.write_back.begin()
    window = open_load.common_window([requests for requests, _ in guests], timing.runtime)
    check = require_together(
        [requests for requests, _ in guests], window, timing.ramp, timing.runtime
    )
    group = _group([requests for requests, _ in guests], window, load, before, after)
    shown = guests if plan.neighbour is None else guests[:1]
    numbers = open_load.window_numbers([requests for requests, _ in shown], window)
    measurement = model.Measurement(
        name=plan.name,
        program=plan.program,
        command=shlex.join(running[0].script.command),
        samples=numbers.samples,
        evidence=_of_all(before, after, [member.evidence for member in group.members]),
        started=started,
        wall_seconds=wall,
        measured_seconds=window.seconds,
        raw="\n".join(text for _, text in guests),
        group=group,
    )
    return measurement, (check, *(check for space in spaces for check in space.checks))


_One = TypeVar("_One")
_Answer = TypeVar("_Answer")


def _of_each(guests: Sequence[_One], ask: Callable[[_One], _Answer]) -> list[_Answer]:
    """The answer of each guest. An error names the guest that gave none."""
    answers = []
    for number, guest in enumerate(guests, 1):
        try:
            answers.append(ask(guest))
        except (GuestError, WorkloadError) as error:
            error.message = f"guest {number} of {len(guests)}: {error}"
            error.args = (error.message,)
            raise
    return answers


def _start_all(
    disks: Sequence[AttachedDisk],
    spaces: Sequence[Workspace],
    plan: MeasurementPlan,
    timing: program.Timing,
) -> tuple[float, list[_RunningGuest]]:
    """Makes all guests start at one moment; returns that moment by the host's clock."""
    machines = [_machine(disk) for disk in disks]
    offsets = _of_each(machines, _clock_offset)
    release = time.monotonic() + (_LEAD_SECONDS + _LEAD_FOR_EACH * len(disks)) * patience()
    running = []
    for number, (machine, space, offset) in enumerate(zip(machines, spaces, offsets, strict=True)):
        own = plan.neighbour or plan if number else plan
        subject = replace(space.subject, mark=f"-{secrets.token_hex(4)}")
        start = open_load.GroupStart(
            max(0.0, release - time.monotonic()), secrets.randbelow(1 << 31) + 1
        )
        script = _FIO.group_script(own, subject, timing, start)
        pid = machine.agent.start(script.command)
        running.append(_RunningGuest(machine, own, script, start, offset, pid))
    return release, running


def _machine(disk: AttachedDisk) -> Machine:
    if not isinstance(disk.place, GuestPlace):
        raise TypeError("a disk of a group of guests lies outside of a guest")
    return disk.place.machine


def _clock_offset(machine: Machine) -> float:
    """By how many seconds the guest's clock is ahead, from the guest's fastest answer."""
    readings = []
    for _ in range(_CLOCK_READINGS):
        sent = time.time()
        guests = machine.agent.clock_seconds()
        answered = time.time()
        readings.append((answered - sent, guests - (sent + answered) / 2))
    return min(readings)[1]


def _observed(
    disks: Sequence[AttachedDisk], release: float, timing: program.Timing
) -> tuple[list[measured_evidence.Snapshot], model.HostLoad, list[measured_evidence.Snapshot]]:
    """Each guest's counters at the start and end of the counted time, and the host's load.

    Raises GuestError when a guest dies meanwhile.
    """
    machines = [_machine(disk) for disk in disks]
    devices = disks[0].counters.devices
    processes = {f"guest {number}": machine.pid for number, machine in enumerate(machines, 1)}
    _wait(machines, release + timing.ramp)
    before = _of_each(disks, lambda disk: disk.counters.snapshot())
    busy = snapshot(devices, processes)
    _wait(machines, release + timing.ramp + timing.runtime)
    load = load_between(busy, snapshot(devices, processes))
    return before, load, _of_each(disks, lambda disk: disk.counters.snapshot())


def _wait(machines: Sequence[Machine], until: float) -> None:
    while (left := until - time.monotonic()) > 0:
        time.sleep(min(left, _GLANCE_SECONDS))
        for number, machine in enumerate(machines, 1):
            if not machine.is_running():
                raise GuestError(
                    f"guest {number} of {len(machines)} ended while all were measured",
                    hint="`dmesg` says whether the kernel killed it because memory ran out",
                )


def _finish(running: _RunningGuest, timing: program.Timing) -> tuple[open_load.GuestRequests, str]:
    """The requests of one guest by the host's clock, and what its program printed.

    Raises WorkloadError if it failed or ended early.
    """
    agent, script = running.machine.agent, running.script
    ended = agent.finish(running.pid, script.command, timeout=script.timeout)
    logs = [agent.read_file(name) for name in script.collect]
    _FIO.require_success(ended.stdout)
    requests = _FIO.group_requests(running.plan, logs, timing, running.start)
    return open_load.shifted(requests, running.offset), ended.stdout


def require_together(
    guests: Sequence[open_load.GuestRequests],
    window: open_load.CommonWindow,
    ramp: float,
    runtime: float,
) -> model.Check:
    """The check that all guests started within the ramp.

    Raises StateError if not all of them ran for `runtime` seconds at once, WorkloadError if a guest
    did not run for so long by itself.
    """
    starts = [guest.start for guest in guests]
    wanted = f"all started within {ramp:g} s"
    if window.seconds >= runtime - _ROUNDING:
        return model.Check("group.start", wanted, wanted)
    _of_each(guests, lambda guest: _require_own_start(guest, ramp, runtime))
    observed = f"started {max(starts) - min(starts):.2f} s apart"
    raise measured_evidence.StateError((model.Check("group.start", wanted, observed),))


def _require_own_start(guest: open_load.GuestRequests, ramp: float, runtime: float) -> None:
    """Raises WorkloadError if the threads of a guest's load started too far apart."""
    late = ramp + runtime - (guest.end - guest.start)
    if late > ramp + _ROUNDING:
        done = sum(request.latency is not None for request in guest.requests)
        raise WorkloadError(
            f"its CPUs are too busy for the load: the first requests of its threads started "
            f"{late:.1f} s apart, more than the ramp of {ramp:g} s; it completed "
            f"{done / (ramp + runtime):.0f} requests a second",
            hint="choose a smaller --load, more --guest-cpus or a longer --ramp",
        )


def _group(
    guests: Sequence[open_load.GuestRequests],
    window: open_load.CommonWindow,
    load: model.HostLoad,
    before: Sequence[measured_evidence.Snapshot],
    after: Sequence[measured_evidence.Snapshot],
) -> model.GuestGroup:
    first = min(guest.start for guest in guests)
    members = []
    for number, (guest, begin, end) in enumerate(zip(guests, before, after, strict=True), 1):
        numbers = open_load.window_numbers([guest], window)
        evidence = measured_evidence.evidence_between(begin, end, numbers.counted)
        members.append(
            model.Member(
                number=number,
                start=guest.start - first,
                iops=numbers.iops,
                latency_mean=numbers.mean,
                latency_p50=numbers.percentile(0.5),
                latency_p99=numbers.percentile(0.99),
                latency_max=numbers.latencies[-1],
                offered=numbers.offered,
                served=numbers.served,
                # The device and the hypervisor serve all guests.
                evidence=replace(evidence, device=None, steal_seconds=None),
            )
        )
    return model.GuestGroup(window.seconds, tuple(members), load)


def _of_all(
    before: Sequence[measured_evidence.Snapshot],
    after: Sequence[measured_evidence.Snapshot],
    members: Sequence[model.Evidence],
) -> model.Evidence:
    """The evidence of all guests: sums, the means of shares, and the device that they share."""
    shared = measured_evidence.evidence_between(before[0], after[-1], None)
    return model.Evidence(
        guest=model.IoCounters.total([member.guest for member in members]),
        qemu=model.IoCounters.total([member.qemu for member in members]),
        device=shared.device,
        host_cpu_seconds=_total([member.host_cpu_seconds for member in members]),
        resident_before=_mean([member.resident_before for member in members]),
        resident_after=_mean([member.resident_after for member in members]),
        allocated_before=_total([member.allocated_before for member in members]),
        allocated_after=_total([member.allocated_after for member in members]),
        steal_seconds=shared.steal_seconds,
    )


_Number = TypeVar("_Number", int, float)


def _total(values: Sequence[_Number | None]) -> _Number | None:
    """The sum; None without values or with an unknown one."""
    known = [value for value in values if value is not None]
    return sum(known) if known and len(known) == len(values) else None


def _mean(values: Sequence[float | None]) -> float | None:
    total = _total(values)
    return None if total is None else total / len(values)


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
        after = measured_evidence.guest_counters(
            machine, disk.names, devices, image.file
        ).snapshot()
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
