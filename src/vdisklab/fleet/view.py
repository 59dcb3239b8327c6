"""The workers of a fleet as tables."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

from vdisklab import numbers
from vdisklab.fleet.answer import FleetDoctorAnswer, FleetStatusAnswer, WorkerCheck, WorkerStatus
from vdisklab.units import counted, format_bytes, format_duration
from vdisklab.views.layout import WORDS, Column, Table


def status_tables(answer: FleetStatusAnswer) -> Iterator[Table[WorkerStatus]]:
    """Which hosts are there, and what they do."""
    columns: tuple[Column[WorkerStatus], ...] = (
        Column("host", lambda row: row.host),
        Column("measuring since", _since),
        Column("last line", lambda row: row.line or numbers.MISSING, folds=WORDS),
        Column("heard", lambda row: f"{format_duration(row.silent_seconds)} ago", spare=1),
        Column("vdisklab", lambda row: row.vdisklab, spare=2),
    )
    busy = sum(worker.measuring_since is not None for worker in answer.hosts)
    title = f"{counted(len(answer.hosts), 'host')} at {answer.scheduler}, {busy} measuring"
    yield Table(title, columns, answer.hosts, kind=WorkerStatus)


def _since(row: WorkerStatus) -> str:
    if row.measuring_since is None:
        return numbers.MISSING
    return f"{datetime.fromtimestamp(row.measuring_since, UTC):%Y-%m-%d %H:%M:%S} UTC"


def _directory(row: WorkerCheck) -> str:
    if row.free_bytes is None:
        return row.directory or numbers.MISSING
    return f"{format_bytes(row.free_bytes)} free"


def doctor_tables(answer: FleetDoctorAnswer) -> Iterator[Table[WorkerCheck]]:
    """The faults to mend before a campaign, by host."""
    columns: tuple[Column[WorkerCheck], ...] = (
        Column("host", lambda row: row.host),
        Column("versions", lambda row: row.versions or "equal", folds=WORDS),
        Column("database", lambda row: row.database or "reached", folds=WORDS),
        Column("work directory", _directory, folds=WORDS),
        Column(
            "left behind",
            lambda row: numbers.MISSING if row.leftovers is None else str(row.leftovers),
            right=True,
        ),
        Column("certificate until", lambda row: row.certificate_until, spare=1),
    )
    checks = answer.hosts
    wrong = [check.host for check in checks if not check.is_ready]
    note = f"Not ready: {', '.join(wrong)}." if wrong else "All hosts that are there are ready."
    if not checks:
        note = "No worker is there: start `vdisklab fleet worker` on each host."
    left = any(check.leftovers for check in checks)
    all_examined = all(check.directory is not None for check in checks)
    notes = (
        note,
        *(("Left behind by killed runs: `vdisklab clean` removes it.",) if left else ()),
        *(() if all_examined else ("The work directory was not looked at: name it with --dir.",)),
    )
    title = f"{counted(len(checks), 'host')} at {answer.scheduler}"
    yield Table(title, columns, checks, notes, kind=WorkerCheck)
