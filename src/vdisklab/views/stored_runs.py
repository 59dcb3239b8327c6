"""Tables of stored data: the lists of campaigns and runs, and one run with all its records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from vdisklab import numbers
from vdisklab.analysis.diagnostics.caveats import caveats_of
from vdisklab.analysis.diagnostics.diagnostic import Diagnostic
from vdisklab.analysis.diagnostics.recorded import evidence_diagnostics
from vdisklab.analysis.guest_groups import jain
from vdisklab.analysis.sums import sums_of, times_of
from vdisklab.results.model import (
    METRICS,
    Campaign,
    Check,
    Evidence,
    GuestGroup,
    IoCounters,
    Measurement,
    Member,
    Origin,
    Run,
    Sample,
)
from vdisklab.results.outlines import AnyRun, RunOutline
from vdisklab.units import format_bytes, format_duration
from vdisklab.views.documents.conversion import copy_fields, diagnostic_entries
from vdisklab.views.documents.rankings import CaveatKeys
from vdisklab.views.documents.records import (
    CampaignRow,
    CampaignsDocument,
    CheckEntry,
    EvidenceEntry,
    MeasurementEntry,
    RunDocument,
    RunRow,
    RunsDocument,
    SampleEntry,
    SampleRow,
)
from vdisklab.views.layout import NAMES, WORDS, Column, Table


def campaigns_table(
    campaigns: Sequence[Campaign], outlines: Iterable[RunOutline]
) -> Table[CampaignRow]:
    """One row per campaign, in the order given."""
    runs = tuple(outlines)
    measured = Counter(run.campaign for run in runs if run.failure is None)
    failed = Counter(run.campaign for run in runs if run.failure is not None)
    cells = Counter(campaign for campaign, _ in {(run.campaign, _cell(run)) for run in runs})
    rounds = Counter(campaign for campaign, _ in {(run.campaign, run.round) for run in runs})
    rows = [
        copy_fields(
            CampaignRow,
            campaign,
            cells=cells[campaign.id],
            rounds=rounds[campaign.id],
            measured=measured[campaign.id],
            failed=failed[campaign.id],
        )
        for campaign in campaigns
    ]
    columns: tuple[Column[CampaignRow], ...] = (
        Column("campaign", lambda row: row.campaign),
        Column("started", lambda row: f"{row.started:%Y-%m-%d %H:%M}"),
        Column("host", lambda row: row.hostname, folds=WORDS, spare=1),
        Column("label", lambda row: row.label, folds=WORDS),
        Column("cells", lambda row: str(row.cells), right=True, spare=1),
        Column("rounds", lambda row: str(row.rounds), right=True, spare=1),
        Column("measured", lambda row: str(row.measured), right=True),
        Column("failed", lambda row: str(row.failed), right=True),
    )
    title = "Campaigns" if rows else "No campaign has been measured yet: `vdisklab run PATHS…`"
    return Table(title, columns, rows, kind=CampaignRow)


def campaigns_document(table: Table[CampaignRow]) -> CampaignsDocument:
    """The JSON form."""
    return CampaignsDocument(campaigns=tuple(table.rows))


def runs_table(campaign: Campaign, outlines: Iterable[RunOutline]) -> Table[RunOutline]:
    """One row per run, in the order in which they were measured."""
    columns: tuple[Column[RunOutline], ...] = (
        Column("run", lambda run: run.id),
        Column("cell", _cell, folds=NAMES),
        Column("round", lambda run: str(run.round), right=True),
        Column("started", lambda run: f"{run.started:%Y-%m-%d %H:%M:%S}", spare=2),
        Column("by", _accelerator, spare=1),
        Column("outcome", _outcome, folds=WORDS),
    )
    rows = sorted(outlines, key=lambda run: (run.started, run.id))
    title = f"Runs of campaign {campaign.id} {campaign.label}".strip()
    return Table(title, columns, rows, kind=RunRow, record=_run_row)


def runs_document(table: Table[RunOutline]) -> RunsDocument:
    """The JSON form."""
    return RunsDocument(runs=tuple(map(_run_row, table.rows)))


def _run_row(run: RunOutline) -> RunRow:
    return copy_fields(
        RunRow, run, accelerator=run.accelerator or "", failed=run.failure is not None
    )


def _cell(run: AnyRun) -> str:
    return run.measured_cell.label


def _accelerator(run: RunOutline) -> str:
    """The accelerator; `in the lab` for a run there, whose numbers are not speeds."""
    words = (run.ran_under or "", "in the lab" if run.origin is Origin.LAB else "")
    return ", ".join(word for word in words if word)


def _outcome(run: RunOutline) -> str:
    return f"failed: {run.failure.sentence}" if run.failure else "measured"


def run_tables(run: Run) -> tuple[Table[Any], ...]:
    """The run's facts and checks, each measurement's numbers and evidence, and the commands."""
    return (
        _facts(run),
        _checks(run),
        *(table for measured in run.measurements for table in _measurement(measured)),
        Table("Commands" if run.commands else "Commands: none recorded", (), (),
              verbatim=run.commands),
    )  # fmt: skip


def samples_table(run: Run) -> Table[SampleRow]:
    """All samples of the run, one row each: the CSV form."""
    rows = [
        copy_fields(
            SampleRow, sample, run=run.id, measurement=measured.name, unit=_unit(sample.metric)
        )
        for measured in run.measurements
        for sample in measured.samples
    ]
    return Table(f"Run {run.id}", (), rows, kind=SampleRow)


def run_diagnostics(run: Run) -> tuple[Diagnostic, ...]:
    """What limits the numbers of this run."""
    if run.failure is not None:
        return ()
    reported = {(one.name, sample.direction) for one in run.measurements for sample in one.samples}
    cells = {run.cell: run.measured_cell}
    return evidence_diagnostics(sums_of(run), times_of(run), cells, reported, None)


def run_document(run: Run, *, raw: bool) -> RunDocument:
    """The JSON form; with `raw` also what the programs printed."""
    return copy_fields(
        RunDocument,
        run,
        cell=_cell(run),
        caveats=copy_fields(CaveatKeys, caveats_of((run,))),
        checks=tuple(copy_fields(CheckEntry, check) for check in run.checks),
        measurements=tuple(_measurement_entry(measured, raw=raw) for measured in run.measurements),
        findings=diagnostic_entries(run_diagnostics(run)),
    )


def _measurement_entry(measured: Measurement, *, raw: bool) -> MeasurementEntry:
    return copy_fields(
        MeasurementEntry,
        measured,
        samples=tuple(
            copy_fields(SampleEntry, sample, unit=_unit(sample.metric))
            for sample in measured.samples
        ),
        evidence=copy_fields(
            EvidenceEntry,
            measured.evidence,
            host_cpu_seconds_per_operation=cpu_per_operation(measured.evidence),
        ),
        raw=measured.raw if raw else None,
    )


def _facts(run: Run) -> Table[tuple[str, str]]:
    facts = [
        ("run", run.id),
        ("campaign", run.campaign),
        ("cell", _cell(run)),
        ("round", f"{run.round}, position {run.position}"),
        ("started", f"{run.started:%Y-%m-%d %H:%M:%S %Z}".strip()),
        ("took", _duration(run.wall_seconds)),
        ("measured", f"{run.origin}, {run.ran_under}" if run.ran_under else run.origin.value),
        ("medium", run.medium or "not known"),
    ]
    if run.failure is not None:
        facts.append(("failed", f"{run.failure.kind}: {run.failure.message}"))
    notes = (*caveats_of((run,)).notes, *map(str, run_diagnostics(run)))
    columns: tuple[Column[tuple[str, str]], ...] = (
        Column("", lambda fact: fact[0]),
        Column("", lambda fact: fact[1], folds=WORDS),
    )
    return Table(f"Run {run.id}", columns, facts, notes)


def _duration(seconds: float | None) -> str:
    return "not known" if seconds is None else format_duration(seconds)


def _checks(run: Run) -> Table[Check]:
    columns: tuple[Column[Check], ...] = (
        Column("state", lambda check: check.name),
        Column("requested", lambda check: check.requested or "", folds=WORDS),
        Column("seen", lambda check: check.observed, folds=WORDS),
        Column("confirmed", _confirmed),
    )
    return Table("State" if run.checks else "State: no checks", columns, run.checks)


def _confirmed(check: Check) -> str:
    if check.requested is None:
        return "noted"
    return "yes" if check.confirmed else "NO"


def _measurement(measured: Measurement) -> Iterator[Table[Any]]:
    seconds = measured.measured_seconds
    duration = _duration(seconds if seconds is not None else measured.wall_seconds)
    columns: tuple[Column[Sample], ...] = (
        Column("direction", lambda sample: sample.direction.value),
        Column("metric", lambda sample: sample.metric),
        Column(
            "value", lambda sample: numbers.value(sample.value, _unit(sample.metric)), right=True
        ),
    )
    title = f"{measured.name}: {measured.program}, {duration}"
    yield Table(title, columns, measured.samples, verbatim=(measured.command,))
    if measured.group is not None:
        yield group_table(measured.name, measured.group)
    yield _evidence(measured)


def _evidence(measured: Measurement) -> Table[tuple[str, IoCounters]]:
    evidence = measured.evidence
    observers = (("guest", evidence.guest), ("QEMU", evidence.qemu), ("device", evidence.device))
    rows = [(name, counted) for name, counted in observers if counted is not None]
    columns: tuple[Column[tuple[str, IoCounters]], ...] = (
        Column("counted by", lambda row: row[0]),
        _counted("read", lambda counted: format_bytes(counted.read_bytes)),
        _counted("reads", lambda counted: str(counted.read_operations)),
        _counted("written", lambda counted: format_bytes(counted.write_bytes)),
        _counted("writes", lambda counted: str(counted.write_operations)),
        _counted("flushes", _flushes),
    )
    title = f"Evidence of {measured.name}" if rows else f"Evidence of {measured.name}: none"
    return Table(title, columns, rows, tuple(_evidence_notes(evidence)))


def _counted(title: str, show: Callable[[IoCounters], str]) -> Column[tuple[str, IoCounters]]:
    return Column(title, lambda row: show(row[1]), right=True)


def _flushes(counted: IoCounters) -> str:
    flushes = counted.flush_operations
    return numbers.MISSING if flushes is None else str(flushes)


def _evidence_notes(evidence: Evidence) -> Iterator[str]:
    if evidence.host_cpu_seconds is not None:
        seconds = cpu_per_operation(evidence)
        per = f", {numbers.value(seconds, 's')} per operation" if seconds is not None else ""
        yield f"host CPU: {evidence.host_cpu_seconds:.2f} s{per}"
    share = _before_after(evidence.resident_before, evidence.resident_after, "{:.0%}".format)
    if share:
        yield f"image in the host's page cache: {share}"
    allocated = _before_after(evidence.allocated_before, evidence.allocated_after, format_bytes)
    if allocated:
        yield f"image on the host: {allocated}"
    if evidence.steal_seconds:
        yield f"taken by the hypervisor: {evidence.steal_seconds:.2f} s of CPU time"


def _before_after(before: float | None, after: float | None, spell: Callable[[float], str]) -> str:
    if before is None and after is None:
        return ""
    first, last = (numbers.MISSING if x is None else spell(x) for x in (before, after))
    return f"{first} before, {last} after"


def cpu_per_operation(evidence: Evidence) -> float | None:
    """Host CPU seconds for each read, write and flush.

    Operations are counted by QEMU, or by the program itself where no guest took part. None where
    the CPU time or the operations are not known.
    """
    counted = evidence.qemu or evidence.guest
    if counted is None or evidence.host_cpu_seconds is None:
        return None
    flushes = counted.flush_operations or 0
    operations = counted.read_operations + counted.write_operations + flushes
    return evidence.host_cpu_seconds / operations if operations else None


def _unit(metric: str) -> str:
    """The metric's unit; empty for one that a newer version stored."""
    return METRICS[metric].unit if metric in METRICS else ""


def group_table(name: str, group: GuestGroup) -> Table[Member]:
    """One row for each guest."""
    columns: tuple[Column[Member], ...] = (
        Column("guest", lambda member: str(member.number), right=True),
        Column("started", lambda member: f"+{member.start:.2f} s", right=True),
        Column("IOPS", lambda member: numbers.value(member.iops, "1/s"), right=True),
        Column("p50", lambda member: numbers.value(member.latency_p50, "s"), right=True),
        Column("p99", lambda member: numbers.value(member.latency_p99, "s"), right=True),
        Column("max", lambda member: numbers.value(member.latency_max, "s"), right=True),
        Column("served", _served, right=True),
        Column("host CPU", _cpu, right=True),
    )
    title = f"Guests of {name}: {group.seconds:.1f} s in which all ran"
    return Table(title, columns, group.members, tuple(_notes(group)))


def _served(member: Member) -> str:
    if member.offered is None:
        return str(member.served)
    return f"{member.served} of {member.offered}"


def _cpu(member: Member) -> str:
    seconds = member.evidence.host_cpu_seconds
    return numbers.MISSING if seconds is None else f"{seconds:.1f} s"


def _notes(group: GuestGroup) -> Iterator[str]:
    load = group.load
    if all(member.offered is None for member in group.members):
        yield "the load was closed: requests wait for those before them, so latencies hide waiting"
    yield f"fairness (Jain): {jain([member.iops for member in group.members]):.3f}"
    if load.cpu is not None and load.steal is not None:
        yield f"the host's CPUs: {load.cpu:.0%} used, {load.steal:.0%} taken by the hypervisor"
    if load.device is not None and load.queue is not None:
        yield f"the device: busy {load.device:.0%} of the time, {load.queue:.1f} requests at once"
    if load.thread is not None and load.thread_cpu is not None:
        yield f"QEMU's busiest thread: {load.thread}, {load.thread_cpu:.0%} of a CPU"
