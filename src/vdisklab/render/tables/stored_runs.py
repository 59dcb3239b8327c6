"""One run with everything that was recorded of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence

from vdisklab.analysis.diagnostics.findings import Finding, Outline, caveats_of
from vdisklab.analysis.diagnostics.witness import evidence_findings, witnessed
from vdisklab.render import numbers
from vdisklab.render.document import Json, document, findings_json
from vdisklab.render.tables.layout import Column, Table, Value, as_records, text
from vdisklab.render.wording import caution, sentence
from vdisklab.results.model import (
    METRICS,
    Campaign,
    Check,
    Counted,
    Evidence,
    Measurement,
    Origin,
    Run,
)
from vdisklab.units import format_bytes, format_duration


def run_tables(run: Run) -> tuple[Table, ...]:
    """What was asked and seen, then each measurement's numbers and its evidence."""
    return (
        _facts(run),
        _checks(run),
        *(table for measured in run.measurements for table in _measurement(measured)),
        _commands(run),
    )


def samples_table(run: Run) -> Table:
    """All samples of the run, one row each: the CSV form."""
    rows = tuple(
        (
            text(run.id),
            text(measured.name),
            text(sample.direction.value),
            text(sample.metric),
            Value(sample.value, ""),
            text(_unit(sample.metric)),
        )
        for measured in run.measurements
        for sample in measured.samples
    )
    keys = ("run", "measurement", "direction", "metric", "value", "unit")
    return Table(f"Run {run.id}", tuple(Column(key, key) for key in keys), rows)


def run_findings(run: Run) -> tuple[Finding, ...]:
    """What is to be known of the numbers of this one run."""
    return evidence_findings(witnessed(run), None)


def run_document(run: Run, *, raw: bool) -> Json:
    """The JSON form; with `raw` also what the programs printed."""
    return document(
        "run",
        1,
        id=run.id,
        campaign=run.campaign,
        cell=run.measured_cell.label,
        path=run.path,
        page_cache=run.page_cache.value,
        block=run.block,
        position=run.position,
        origin=run.origin.value,
        started=run.started.isoformat(),
        wall_seconds=run.wall_seconds,
        accelerator=run.accelerator,
        emulation=caveats_of((run,)).emulated,
        medium=run.medium,
        checks=[
            {"name": c.name, "asked": c.asked, "seen": c.seen, "confirmed": c.confirmed}
            for c in run.checks
        ],
        commands=list(run.commands),
        measurements=[_measurement_json(measured, raw=raw) for measured in run.measurements],
        failure=(
            {"kind": run.failure.kind.value, "message": run.failure.message}
            if run.failure
            else None
        ),
        findings=findings_json(run_findings(run)),
    )


def _facts(run: Run) -> Table:
    facts = [
        ("run", run.id),
        ("campaign", run.campaign),
        ("cell", run.measured_cell.label),
        ("block", f"{run.block}, position {run.position}"),
        ("started", f"{run.started:%Y-%m-%d %H:%M:%S %Z}".strip()),
        ("took", _duration(run.wall_seconds)),
        ("measured", f"{run.origin}, {run.accelerator}" if run.accelerator else run.origin.value),
        ("medium", run.medium or "not known"),
    ]
    if run.failure is not None:
        facts.append(("failed", f"{run.failure.kind}: {run.failure.message}"))
    beware = caution(caveats_of((run,)))
    notes = [] if beware is None else [f"Measured {beware}."]
    notes += [sentence(finding) for finding in run_findings(run)]
    rows = tuple((text(name), text(value)) for name, value in facts)
    columns = (Column("fact", ""), Column("value", "", folds=True))
    return Table(f"Run {run.id}", columns, rows, tuple(notes))


def _duration(seconds: float | None) -> str:
    return "not known" if seconds is None else format_duration(seconds)


def _confirmed(check: Check) -> str:
    if check.asked is None:
        return "noted"
    return "yes" if check.confirmed else "NO"


def _checks(run: Run) -> Table:
    rows = tuple(
        (
            text(check.name),
            Value(check.asked, "" if check.asked is None else check.asked),
            text(check.seen),
            Value(check.confirmed, _confirmed(check)),
        )
        for check in run.checks
    )
    columns = (
        Column("name", "state"),
        Column("asked", "asked", folds=True),
        Column("seen", "seen", folds=True),
        Column("confirmed", "confirmed"),
    )
    return Table("State" if rows else "State: nothing was checked", columns, rows)


def _measurement(measured: Measurement) -> Iterator[Table]:
    seconds = measured.measured_seconds
    took = _duration(seconds if seconds is not None else measured.wall_seconds)
    rows = tuple(
        (
            text(sample.direction.value),
            text(sample.metric),
            Value(sample.value, numbers.value(sample.value, _unit(sample.metric))),
        )
        for sample in measured.samples
    )
    columns = (
        Column("direction", "direction"),
        Column("metric", "metric"),
        Column("value", "value", right=True),
    )
    title = f"{measured.name}: {measured.program}, {took}"
    yield Table(title, columns, rows, verbatim=(measured.command,))
    yield _evidence(measured)


def _evidence(measured: Measurement) -> Table:
    evidence = measured.evidence
    counted = (("guest", evidence.guest), ("QEMU", evidence.qemu), ("device", evidence.device))
    rows = tuple(_counted_row(name, each) for name, each in counted if each is not None)
    columns = (
        Column("observer", "counted by"),
        Column("read_bytes", "read", right=True),
        Column("read_operations", "reads", right=True),
        Column("write_bytes", "written", right=True),
        Column("write_operations", "writes", right=True),
        Column("flush_operations", "flushes", right=True),
    )
    title = f"Evidence of {measured.name}" if rows else f"Evidence of {measured.name}: none"
    return Table(title, columns, rows, tuple(_evidence_notes(evidence)))


def _counted_row(name: str, counted: Counted) -> tuple[Value, ...]:
    flushes = counted.flush_operations
    return (
        text(name),
        Value(counted.read_bytes, format_bytes(counted.read_bytes)),
        Value(counted.read_operations, str(counted.read_operations)),
        Value(counted.write_bytes, format_bytes(counted.write_bytes)),
        Value(counted.write_operations, str(counted.write_operations)),
        Value(flushes, numbers.MISSING if flushes is None else str(flushes)),
    )


def _evidence_notes(evidence: Evidence) -> Iterator[str]:
    if evidence.host_cpu_seconds is not None:
        each = cpu_per_operation(evidence)
        per = f", {numbers.value(each, 's')} per operation" if each is not None else ""
        yield f"host CPU: {evidence.host_cpu_seconds:.2f} s{per}"
    share = _before_after(evidence.resident_before, evidence.resident_after, "{:.0%}".format)
    if share:
        yield f"image in the host's page cache: {share}"
    allocated = _before_after(evidence.allocated_before, evidence.allocated_after, format_bytes)
    if allocated:
        yield f"image on the host: {allocated}"
    if evidence.steal_seconds:
        yield f"taken by the hypervisor below: {evidence.steal_seconds:.2f} s of CPU time"


def _before_after(before: float | None, after: float | None, spell: Callable[[float], str]) -> str:
    if before is None and after is None:
        return ""
    first, last = (numbers.MISSING if x is None else spell(x) for x in (before, after))
    return f"{first} before, {last} after"


def cpu_per_operation(evidence: Evidence) -> float | None:
    """Host CPU seconds for each read, write and flush that the nearest observer counted.

    None where the CPU time or the operations are not known. Operations are those of QEMU, or of
    the program itself where no guest took part.
    """
    counted = evidence.qemu or evidence.guest
    if counted is None or evidence.host_cpu_seconds is None:
        return None
    flushes = counted.flush_operations or 0
    operations = counted.read_operations + counted.write_operations + flushes
    return evidence.host_cpu_seconds / operations if operations else None


def _commands(run: Run) -> Table:
    title = "Commands" if run.commands else "Commands: none recorded"
    return Table(title, (), (), verbatim=run.commands)


def _measurement_json(measured: Measurement, *, raw: bool) -> Json:
    evidence = measured.evidence
    answer: Json = {
        "name": measured.name,
        "program": measured.program,
        "command": measured.command,
        "started": measured.started.isoformat(),
        "wall_seconds": measured.wall_seconds,
        "measured_seconds": measured.measured_seconds,
        "samples": [
            {
                "metric": sample.metric,
                "direction": sample.direction.value,
                "value": sample.value,
                "unit": _unit(sample.metric),
            }
            for sample in measured.samples
        ],
        "evidence": {
            "guest": _counted_json(evidence.guest),
            "qemu": _counted_json(evidence.qemu),
            "device": _counted_json(evidence.device),
            "host_cpu_seconds": evidence.host_cpu_seconds,
            "host_cpu_seconds_per_operation": cpu_per_operation(evidence),
            "resident_before": evidence.resident_before,
            "resident_after": evidence.resident_after,
            "allocated_before": evidence.allocated_before,
            "allocated_after": evidence.allocated_after,
            "steal_seconds": evidence.steal_seconds,
        },
    }
    return {**answer, "raw": measured.raw} if raw else answer


def _counted_json(counted: Counted | None) -> Json | None:
    if counted is None:
        return None
    return {
        "read_bytes": counted.read_bytes,
        "write_bytes": counted.write_bytes,
        "read_operations": counted.read_operations,
        "write_operations": counted.write_operations,
        "flush_operations": counted.flush_operations,
    }


def _unit(metric: str) -> str:
    """The metric's unit; empty for one that a newer version stored."""
    return METRICS[metric].unit if metric in METRICS else ""


def campaigns_table(campaigns: Sequence[Campaign], outlines: Iterable[Outline]) -> Table:
    """One row per campaign, in the order given."""
    runs = tuple(outlines)
    measured = Counter(run.campaign for run in runs if run.failure is None)
    failed = Counter(run.campaign for run in runs if run.failure is not None)
    cells = Counter(campaign for campaign, _ in {(r.campaign, _label(r)) for r in runs})
    blocks = Counter(campaign for campaign, _ in {(r.campaign, r.block) for r in runs})
    rows = tuple(
        (
            text(each.id),
            Value(each.started.isoformat(), f"{each.started:%Y-%m-%d %H:%M}"),
            text(each.host.hostname),
            text(each.label),
            *(_count(counter[each.id]) for counter in (cells, blocks, measured, failed)),
        )
        for each in campaigns
    )
    columns = (
        Column("campaign", "campaign"),
        Column("started", "started"),
        Column("hostname", "host", folds=True),
        Column("label", "label", folds=True),
        Column("cells", "cells", right=True),
        Column("blocks", "blocks", right=True),
        Column("measured", "measured", right=True),
        Column("failed", "failed", right=True),
    )
    title = "Campaigns" if rows else "No campaign has been measured yet: `vdisklab run PATHS…`"
    return Table(title, columns, rows)


def runs_table(campaign: Campaign, outlines: Iterable[Outline]) -> Table:
    """One row per run, in the order in which they were measured."""
    rows = tuple(
        (
            text(run.id),
            text(_label(run)),
            _count(run.block),
            Value(run.started.isoformat(), f"{run.started:%Y-%m-%d %H:%M:%S}"),
            Value(run.accelerator or "", _by(run)),
            text(run.origin.value),
            Value(run.failure is not None, ""),
            Value(
                run.failure.message if run.failure else None,
                f"failed: {run.failure.sentence}" if run.failure else "measured",
            ),
        )
        for run in sorted(outlines, key=lambda run: (run.started, run.id))
    )
    columns = (
        Column("run", "run"),
        Column("cell", "cell", folds=True),
        Column("block", "block", right=True),
        Column("started", "started", only_wide=True),
        Column("accelerator", "by"),
        Column("origin", "", only_data=True),
        Column("failed", "", only_data=True),
        Column("reason", "outcome", folds=True),
    )
    return Table(f"Runs of campaign {campaign.id} {campaign.label}".strip(), columns, rows)


def list_document(table: Table, of: str) -> Json:
    """The JSON form of either list: its rows under `campaigns` or `runs`."""
    return document(of, 1, **{of: as_records(table)})


def _by(run: Outline) -> str:
    """The accelerator, and that the guest's host was a lab: then no number of it is a speed."""
    words = (run.accelerator or "", "in the lab" if run.origin is Origin.LAB else "")
    return ", ".join(word for word in words if word)


def _label(run: Outline) -> str:
    return run.measured_cell.label


def _count(number: int) -> Value:
    return Value(number, str(number))
