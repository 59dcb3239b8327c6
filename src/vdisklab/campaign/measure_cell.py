"""Measures one cell in one round: stack → image → disk → guest → state → measurements → result."""

from __future__ import annotations

import secrets
import shlex
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import TypeVar

from vdisklab.campaign import measured_evidence, schedule, watches
from vdisklab.campaign.attachment import (
    AttachedDisk,
    GuestPlace,
    attached,
    prepared,
    run_measured,
    with_files,
)
from vdisklab.campaign.context import CampaignContext, CellResult
from vdisklab.guest.steps import started_in_steps
from vdisklab.path.cell import Cell
from vdisklab.path.segments import PageCache
from vdisklab.plan.profile import MeasurementPlan
from vdisklab.progress import MeasurementStarted
from vdisklab.results import model
from vdisklab.storage.image import require_returned
from vdisklab.value import Value, replace
from vdisklab.workload import fio, program
from vdisklab.workload.registry import workload_for

_Measured = tuple[model.Measurement, tuple[model.Check, ...]]
"""A measurement, and the states of it that were read back."""

_FIO = fio.Fio()


_Output = TypeVar("_Output")


def measure_cell(context: CampaignContext, cell: Cell) -> CellResult:
    """All measurements of a cell. The disk is attached anew for each attach group.

    Raises a VdisklabError when anything failed; StateError when a state could not be confirmed.
    """
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
                results = _measure_all(context, cell, attachment, plans)
                if link is not None:
                    checks += link.connections(host, again)
                    checks += link.operations_since(before)
            checks += attachment.checks
            for result, more in results:
                checks += more
                measurements.append(result)
            commands += (*attachment.commands, *(result.command for result, _ in results))
        require_returned(context.stacks.site, image, context.plan.size_bytes)
    # Drop the repeated checks of later groups.
    return CellResult(tuple(dict.fromkeys(checks)), tuple(commands), tuple(measurements))


def _measure_all(
    context: CampaignContext, cell: Cell, attachment: AttachedDisk, plans: Sequence[MeasurementPlan]
) -> list[_Measured]:
    """The measurements of one attach.

    Starting fio takes longer in an emulated guest than a short measurement, so one fio makes all
    measurements that follow each other and fit together.
    """
    place = attachment.place
    if not isinstance(place, GuestPlace) or place.machine.steps is None:
        return [_measure(context, cell, attachment, plan) for plan in plans]
    results = list[_Measured]()
    for group in schedule.by_program(plans):
        if len(group) > 1:
            results += _measure_in_steps(context, cell, attachment, place, group)
        else:
            results.append(_measure(context, cell, attachment, group[0]))
    return results


class _Run(Value):
    """One measured run, from outside: its time, the counters around it, and what was seen of it.

    `sync` is how the host then brought what was written to the device; None if nothing was left to
    bring. `size` is the disk's in bytes.
    """

    plan: MeasurementPlan
    script: program.Script
    started: datetime
    wall: float
    before: measured_evidence.Snapshot
    after: measured_evidence.Snapshot
    series: watches.TimeSeries
    sync: measured_evidence.Sync | None
    size: int

    @property
    def syncs(self) -> int | None:
        """The opener's calls of fdatasync meanwhile; None if they were not counted."""
        before, after = self.before.syncs, self.after.syncs
        return None if before is None or after is None else after - before


def _observed(
    context: CampaignContext,
    attachment: AttachedDisk,
    plan: MeasurementPlan,
    script: program.Script,
    run: Callable[[], _Output],
) -> tuple[_Run, _Output]:
    """Runs the measured program or a part of it between two snapshots of all counters."""
    context.progress(MeasurementStarted(plan.name, script.expected or None))
    started = datetime.now(UTC)
    before = attachment.counters.snapshot()
    attachment.watch.begin()
    begin = time.monotonic()
    output = run()
    wall = time.monotonic() - begin
    series, after = attachment.watch.end(), attachment.counters.snapshot()
    leaves = workload_for(plan, in_windows=attachment.in_windows).leaves_writes(plan)
    sync = attachment.sync() if leaves else None
    size = context.plan.size_bytes
    return _Run(plan, script, started, wall, before, after, series, sync, size), output


def _measure_in_steps(
    context: CampaignContext,
    cell: Cell,
    attachment: AttachedDisk,
    place: GuestPlace,
    plans: Sequence[MeasurementPlan],
) -> list[_Measured]:
    """The measurements of one fio, whose jobs the host starts one after the other.

    Between two jobs the host brings what was written to the device, sets its page cache and reads
    the counters, as between two programs. The command of each measurement is that of its job alone,
    and would measure the same; fio's report repeats the options of a job that waits.
    """
    agent, port = place.machine.agent, place.machine.steps
    if port is None:
        raise TypeError("this guest has no port for programs that run in steps")
    timing = program.Timing(context.plan.runtime, context.plan.ramp, context.plan.scale)
    subject = replace(
        place.disk,
        mark=f"-{secrets.token_hex(4)}",
        read_once=cell.page_cache is PageCache.COLD,
        stderr_log=None,  # all jobs have the same standard error
    )
    scripts = [_FIO.script(plan, subject, timing) for plan in plans]
    runs = list[_Run]()
    with started_in_steps(agent, port, _FIO.together(scripts), len(plans)) as stepped:
        for number, (plan, script) in enumerate(zip(plans, scripts, strict=True), 1):
            time.sleep(context.plan.profile.usual.interval)
            attachment.write_back.wait()
            attachment.set_page_cache(cell.page_cache)
            part = partial(stepped.run, number, script.timeout, attachment.watch)
            run, _ = _observed(context, attachment, plan, script, part)
            runs.append(run)
        ended = stepped.finish()
    reports = _FIO.apart(plans, program.Outputs(ended.stdout, ended.stderr))
    outputs = [
        with_files(place, script, report) for script, report in zip(scripts, reports, strict=True)
    ]
    around = _around(cell, subject, timing)
    return [
        _measurement(_FIO, run, output, around) for run, output in zip(runs, outputs, strict=True)
    ]


def _measure(
    context: CampaignContext, cell: Cell, attachment: AttachedDisk, plan: MeasurementPlan
) -> _Measured:
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
            attachment.set_page_cache(cell.page_cache)
            with measured_evidence.counting_syncs(
                context.stacks.site.host, attachment.counters, observe
            ) as (counters, counting):
                run, raw_output = _observed(
                    context,
                    replace(attachment, counters=counters),
                    plan,
                    script,
                    partial(run_measured, place, script, attachment.watch),
                )
            for step in script.count:
                place.step(step)
            output = with_files(place, script, raw_output)
            mapped, discarded = growth.mapped(), growth.discarded()
    write_back.begin()
    if workload.by_server and cell.path.on_host:
        # what was watched did no I/O
        run = replace(run, series=watches.TimeSeries((), (), None))
    around = _around(cell, subject, timing)
    measurement, checks = _measurement(workload, run, output, around)
    observed = measured_evidence.observed_samples(
        observe, measurement.evidence, mapped, discarded, run.syncs
    )
    measurement = replace(measurement, samples=(*measurement.samples, *observed))
    return measurement, (*space.checks, *counting, *checks)


def _around(
    cell: Cell, subject: program.Subject, timing: program.Timing
) -> Callable[[model.Evidence], program.Around]:
    """What gates need to know beside a measurement's evidence."""
    return lambda evidence: program.Around(evidence, subject.memory, timing.runtime, cell.path)


def _measurement(
    workload: program.Workload,
    run: _Run,
    output: program.Outputs,
    around: Callable[[model.Evidence], program.Around],
) -> _Measured:
    """The measurement that a program's output and the counters around it give, and its gates."""
    plan = run.plan
    outcome = watches.with_time_series(workload.parse(plan, output), run.series)
    evidence = measured_evidence.evidence_between(run.before, run.after, outcome.counted, run.sync)
    gates = workload.gates(plan, outcome, around(evidence))
    measurement = model.Measurement(
        name=plan.name,
        program=plan.program,
        command=shlex.join(run.script.command),
        samples=(
            *outcome.samples,
            *measured_evidence.sustained_samples(outcome.samples, evidence, run.size),
        ),
        evidence=evidence,
        started=run.started,
        wall_seconds=run.wall,
        measured_seconds=outcome.measured_seconds,
        raw=output.text,
        series=outcome.series,
    )
    return measurement, (*outcome.checks, *(gate.check(plan.name) for gate in gates))
