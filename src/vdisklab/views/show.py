"""The answer of `show`: a run's facts and checks, its numbers with their evidence, its commands."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from vdisklab import numbers
from vdisklab.answers.show import ShowAnswer, ShownCheck, ShownMeasurement, ShownSample
from vdisklab.results.model import METRICS, Direction, GuestGroup, IoCounters, Member
from vdisklab.units import format_bytes, format_duration, in_percent
from vdisklab.views.layout import WORDS, Column, Table

_OF_THE_OPERATION = frozenset({"duration", "paused", "copied", "allocated"})
"""What is measured of an operation itself, beside requests."""


def tables(answer: ShowAnswer) -> Iterator[Table[Any]]:
    """All that is known of the run. CSV has the samples."""
    yield _facts(answer)
    yield _checks(answer)
    for measured in answer.measurements:
        yield _samples(measured)
        if measured.group is not None:
            yield _guests(measured, measured.group)
        yield _evidence(measured)
    title = "Commands" if answer.commands else "Commands: none recorded"
    # With a kind, so that CSV has its heading even if nothing was measured.
    yield Table(title, (), (), verbatim=answer.commands, kind=ShownSample)


def _facts(answer: ShowAnswer) -> Table[tuple[str, str]]:
    origin = answer.origin.value
    facts = [
        ("run", answer.id),
        ("campaign", answer.campaign),
        ("cell", answer.cell.label),
        ("round", f"{answer.round}, position {answer.position}"),
        ("started", f"{answer.started:%Y-%m-%d %H:%M:%S %Z}".strip()),
        ("took", _duration(answer.wall_seconds)),
        ("measured", f"{origin}, {answer.ran_under}" if answer.ran_under else origin),
        ("medium", answer.medium or "not known"),
    ]
    if answer.failure is not None:
        facts.append(("failed", f"{answer.failure.kind}: {answer.failure.message}"))
    columns: tuple[Column[tuple[str, str]], ...] = (
        Column("", lambda fact: fact[0]),
        Column("", lambda fact: fact[1], folds=WORDS),
    )
    notes = (*answer.caveats.notes, *map(str, answer.findings))
    return Table(f"Run {answer.id}", columns, facts, notes)


def _duration(seconds: float | None) -> str:
    return "not known" if seconds is None else format_duration(seconds)


def _checks(answer: ShowAnswer) -> Table[ShownCheck]:
    columns: tuple[Column[ShownCheck], ...] = (
        Column("state", lambda check: check.name),
        Column("requested", lambda check: check.requested or "", folds=WORDS),
        Column("seen", lambda check: check.observed, folds=WORDS),
        Column(
            "confirmed",
            lambda check: (
                "noted" if check.requested is None else "yes" if check.confirmed else "NO"
            ),
        ),
    )
    return Table("State" if answer.checks else "State: no checks", columns, answer.checks)


def _samples(measured: ShownMeasurement) -> Table[ShownSample]:
    seconds = measured.measured_seconds
    duration = _duration(seconds if seconds is not None else measured.wall_seconds)
    columns: tuple[Column[ShownSample], ...] = (
        Column("direction", partial(_direction, measured)),
        Column("metric", lambda sample: sample.metric),
        Column("value", lambda sample: numbers.value(sample.value, _unit(sample)), right=True),
    )
    title = f"{measured.name}: {measured.program}, {duration}"
    return Table(title, columns, measured.samples, verbatim=(measured.command,), kind=ShownSample)


def _direction(measured: ShownMeasurement, sample: ShownSample) -> str:
    """Of which requests the sample is: of all where others are of one direction."""
    if sample.direction is not Direction.NONE:
        return sample.direction.value
    separate = any(each.direction is not Direction.NONE for each in measured.samples)
    is_of_requests = sample.metric not in _OF_THE_OPERATION
    return "all" if separate and is_of_requests else numbers.MISSING


def _evidence(measured: ShownMeasurement) -> Table[tuple[str, IoCounters]]:
    evidence = measured.evidence
    observers = (("guest", evidence.guest), ("QEMU", evidence.qemu), ("device", evidence.device))
    rows = [(name, counters) for name, counters in observers if counters is not None]

    def counted(title: str, show: Callable[[IoCounters], str]) -> Column[tuple[str, IoCounters]]:
        return Column(title, lambda row: show(row[1]), right=True)

    columns: tuple[Column[tuple[str, IoCounters]], ...] = (
        Column("counted by", lambda row: row[0]),
        counted("read", lambda counters: format_bytes(counters.read_bytes)),
        counted("reads", lambda counters: str(counters.read_operations)),
        counted("written", lambda counters: format_bytes(counters.write_bytes)),
        counted("writes", lambda counters: str(counters.write_operations)),
        counted("flushes", _flushes),
    )
    title = f"Evidence of {measured.name}" if rows else f"Evidence of {measured.name}: none"
    return Table(title, columns, rows, tuple(_evidence_notes(measured)))


def _flushes(counters: IoCounters) -> str:
    flushes = counters.flush_operations
    return numbers.MISSING if flushes is None else str(flushes)


def _evidence_notes(measured: ShownMeasurement) -> Iterator[str]:
    evidence, seconds = measured.evidence, measured.host_cpu_seconds_per_operation
    if evidence.host_cpu_seconds is not None:
        per = f", {numbers.value(seconds, 's')} per operation" if seconds is not None else ""
        yield f"host CPU: {evidence.host_cpu_seconds:.2f} s{per}"
    for part in measured.latency:
        spent = {
            "in the guest": part.guest, "in QEMU": part.qemu, "in the device": part.device,
            "a network round trip": part.network,
        }  # fmt: skip
        parts = [f"{numbers.value(s, 's')} {where}" for where, s in spent.items() if s is not None]
        yield f"mean time of a {part.direction}: {', '.join(parts)}"
    share = _before_after(evidence.resident_before, evidence.resident_after, in_percent)
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


def _unit(sample: ShownSample) -> str:
    metric = METRICS.get(sample.metric)
    return sample.unit if metric is None else metric.shown_unit


def _guests(measured: ShownMeasurement, group: GuestGroup) -> Table[Member]:
    """One row for each guest."""

    def served(member: Member) -> str:
        offered = "" if member.offered is None else f" of {member.offered}"
        return f"{member.served}{offered}"

    def cpu(member: Member) -> str:
        seconds = member.evidence.host_cpu_seconds
        return numbers.MISSING if seconds is None else f"{seconds:.1f} s"

    columns: tuple[Column[Member], ...] = (
        Column("guest", lambda member: str(member.number), right=True),
        Column("started", lambda member: f"+{member.start:.2f} s", right=True),
        Column("IOPS", lambda member: numbers.value(member.iops, "IOPS"), right=True),
        Column("p50", lambda member: numbers.value(member.latency_p50, "s"), right=True),
        Column("p99", lambda member: numbers.value(member.latency_p99, "s"), right=True),
        Column("max", lambda member: numbers.value(member.latency_max, "s"), right=True),
        Column("served", served, right=True),
        Column("host CPU", cpu, right=True),
    )
    title = f"Guests of {measured.name}: {group.seconds:.1f} s in which all ran"
    return Table(title, columns, group.members, tuple(_group_notes(measured, group)))


def _group_notes(measured: ShownMeasurement, group: GuestGroup) -> Iterator[str]:
    load = group.load
    if all(member.offered is None for member in group.members):
        yield "the load was closed: requests wait for those before them, so latencies hide waiting"
    yield f"fairness (Jain): {measured.fairness:.3f}"
    if load.cpu is not None and load.steal is not None:
        stolen = in_percent(load.steal)
        yield f"the host's CPUs: {in_percent(load.cpu)} used, {stolen} taken by the hypervisor"
    if load.device is not None and load.queue is not None:
        busy = in_percent(load.device)
        yield f"the device: busy {busy} of the time, {load.queue:.1f} requests at once"
    if load.thread is not None and load.thread_cpu is not None:
        yield f"QEMU's busiest thread: {load.thread}, {in_percent(load.thread_cpu)} of a CPU"
