"""Measures a cell of several guests in all guests at once.

Each guest has its own disk, and the host's clock releases them together. Only the seconds in which
all guests ran count. The group fails if a guest fails, ends early, or starts so late that too few
of those seconds are left.
"""

from __future__ import annotations

import secrets
import shlex
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from typing import TypeVar

from vdisklab.campaign import host_stacks, measured_evidence, schedule
from vdisklab.campaign.attachment import AttachedDisk, GuestPlace, Workspace, attached
from vdisklab.campaign.context import CampaignContext, CellResult
from vdisklab.errors import GuestError, WorkloadError
from vdisklab.guest.machine import Machine
from vdisklab.host.counters import load_between, snapshot
from vdisklab.host.waiting import patience
from vdisklab.path.cell import Cell
from vdisklab.plan.profile import RATE, MeasurementPlan
from vdisklab.progress import MeasurementStarted
from vdisklab.results import model
from vdisklab.storage.image import require_returned
from vdisklab.value import Value, replace
from vdisklab.workload import open_load, program
from vdisklab.workload.registry import grouped_workload_for, workload_for

_Guest = TypeVar("_Guest")
_Answer = TypeVar("_Answer")
_Number = TypeVar("_Number", int, float)

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
        for image in images:
            require_returned(context.stacks.site, image, context.plan.size_bytes)
    return CellResult(tuple(dict.fromkeys(checks)), tuple(commands), tuple(measurements))


class _RunningGuest(Value):
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
            disk.set_page_cache(cell.page_cache)
        context.progress(MeasurementStarted(plan.name, timing.ramp + timing.runtime))
        started = datetime.now(UTC)
        begin = time.monotonic()
        lasting = measured_evidence.LastingWrites(
            [disk.counters for disk in disks], disks[0].counters.device, context.plan.size_bytes
        )
        release, running = _start_all(disks, spaces, plan, timing)
        before, load, after = _observed(disks, release, timing)
        sync = lasting.synced([disk.sync for disk in disks]) if _leaves_writes(plan) else None
        guests = _of_each(running, lambda guest: _finish(guest, timing))
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
        samples=(*numbers.samples, *lasting.samples(numbers.samples, sync)),
        evidence=_of_all(before, after, [member.evidence for member in group.members], sync),
        started=started,
        wall_seconds=wall,
        measured_seconds=window.seconds,
        raw="\n".join(text for _, text in guests),
        group=group,
    )
    return measurement, (check, *(check for space in spaces for check in space.checks))


def _leaves_writes(plan: MeasurementPlan) -> bool:
    """True if the guests write as fast as they can, and do not flush.

    The rate of an open load is given, and the share of a guest beside others is not known.
    """
    is_alone = plan.neighbour is None and RATE not in plan.settings
    return is_alone and workload_for(plan).leaves_writes(plan)


def _of_each(guests: Sequence[_Guest], ask: Callable[[_Guest], _Answer]) -> list[_Answer]:
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
    loads = [plan, *(plan.neighbour or plan for _ in disks[1:])]
    subjects = [replace(space.subject, mark=f"-{secrets.token_hex(4)}") for space in spaces]
    for disk, load, subject in zip(disks, loads, subjects, strict=True):
        _prepare(disk, load, subject, timing)
    offsets = _of_each(machines, clock_offset)
    release = time.monotonic() + (_LEAD_SECONDS + _LEAD_FOR_EACH * len(disks)) * patience()
    running = []
    for machine, load, subject, offset in zip(machines, loads, subjects, offsets, strict=True):
        start = open_load.GroupStart(
            max(0.0, release - time.monotonic()), secrets.randbelow(1 << 31) + 1
        )
        script = grouped_workload_for(load).group_script(load, subject, timing, start)
        pid = machine.agent.start(script.command, stdin=script.stdin)
        running.append(_RunningGuest(machine, load, script, start, offset, pid))
    return release, running


def _prepare(
    disk: AttachedDisk, load: MeasurementPlan, subject: program.Subject, timing: program.Timing
) -> None:
    """Runs what a guest's program needs beforehand."""
    start = open_load.GroupStart(0.0, 1)
    for step in grouped_workload_for(load).group_script(load, subject, timing, start).prepare:
        disk.place.step(step)


def _machine(disk: AttachedDisk) -> Machine:
    if not isinstance(disk.place, GuestPlace):
        raise TypeError("a disk of a group of guests lies outside of a guest")
    return disk.place.machine


def clock_offset(machine: Machine) -> float:
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
    files = {name: agent.read_file(name) for name in script.collect}
    for step in script.conclude:
        agent.run(step.command, timeout=step.timeout, stdin=step.stdin)
    output = program.Outputs(ended.stdout, ended.stderr, files)
    workload = grouped_workload_for(running.plan)
    requests = workload.group_requests(running.plan, output, timing, running.start)
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
    sync: measured_evidence.Sync | None,
) -> model.Evidence:
    """The evidence of all guests: sums, the means of shares, and the device that they share."""
    shared = measured_evidence.evidence_between(before[0], after[-1], None, sync)
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
        sync_seconds=shared.sync_seconds,
        sync_bytes=shared.sync_bytes,
    )


def _total(values: Sequence[_Number | None]) -> _Number | None:
    """The sum; None without values or with an unknown one."""
    numbers = [value for value in values if value is not None]
    return sum(numbers) if numbers and len(numbers) == len(values) else None


def _mean(values: Sequence[float | None]) -> float | None:
    total = _total(values)
    return None if total is None else total / len(values)
