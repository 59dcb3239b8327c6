"""Measures one cell in one round: stack → image → disk → guest → state → measurements → result."""

from __future__ import annotations

import secrets
import shlex
import time
from dataclasses import replace
from datetime import UTC, datetime

from vdisklab.campaign import measured_evidence, schedule, watches
from vdisklab.campaign.attachment import AttachedDisk, attached, prepared, run_measured, with_files
from vdisklab.campaign.context import CampaignContext, CellResult
from vdisklab.path.cell import Cell
from vdisklab.path.segments import PageCache
from vdisklab.plan.profile import MeasurementPlan
from vdisklab.progress import MeasurementStarted
from vdisklab.results import model
from vdisklab.workload import program
from vdisklab.workload.registry import workload_for


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
