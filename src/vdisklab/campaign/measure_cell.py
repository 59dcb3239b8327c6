"""Measures one cell in one block: stack → image → disk → guest → state → measurements → result."""

from __future__ import annotations

import secrets
import shlex
import time
from dataclasses import replace
from datetime import UTC, datetime

from vdisklab.campaign.attachment import AttachedDisk, attached
from vdisklab.campaign.context import CampaignContext, CellResult
from vdisklab.campaign.guest_group import measure_group
from vdisklab.campaign.measured_evidence import Growth, evidence_between, observed_samples
from vdisklab.campaign.place import prepared, with_files
from vdisklab.campaign.schedule import attach_groups
from vdisklab.campaign.state import set_page_cache, writing_back
from vdisklab.campaign.time_series import with_time_series
from vdisklab.path.cell import Cell
from vdisklab.plan.profile import MeasurementPlan
from vdisklab.progress import MeasurementStarted
from vdisklab.results.model import Check, Measurement
from vdisklab.workload.program import Timing
from vdisklab.workload.registry import workload_for


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
    _rest(context.plan.profile.usual.interval)
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


def _rest(seconds: float) -> None:
    if seconds > 0:
        time.sleep(seconds)
