"""The workers of a fleet as tables."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from vdisklab import numbers
from vdisklab.units import counted, format_bytes, format_duration
from vdisklab.views.documents.fleets import MemberCheck, MemberEntry
from vdisklab.views.layout import WORDS, Column, Table


def status_table(scheduler: str, members: Sequence[MemberEntry]) -> Table[MemberEntry]:
    """Which hosts are there, and what they do."""
    columns: tuple[Column[MemberEntry], ...] = (
        Column("host", lambda row: row.host),
        Column("measuring since", _since),
        Column("last line", lambda row: row.line or numbers.MISSING, folds=WORDS),
        Column("heard", lambda row: f"{format_duration(row.silent_seconds)} ago", spare=1),
        Column("vdisklab", lambda row: row.vdisklab, spare=2),
    )
    busy = sum(member.measuring_since is not None for member in members)
    title = f"{counted(len(members), 'host')} at {scheduler}, {busy} measuring"
    return Table(title, columns, members, kind=MemberEntry)


def _since(row: MemberEntry) -> str:
    if row.measuring_since is None:
        return numbers.MISSING
    return f"{datetime.fromtimestamp(row.measuring_since, UTC):%Y-%m-%d %H:%M:%S} UTC"


def is_ready(check: MemberCheck) -> bool:
    """True if a campaign can begin on this host."""
    return not (check.versions or check.database or check.directory or check.leftovers)


def _directory(row: MemberCheck) -> str:
    if row.free_bytes is None:
        return row.directory or numbers.MISSING
    return f"{format_bytes(row.free_bytes)} free"


def doctor_table(scheduler: str, checks: Sequence[MemberCheck]) -> Table[MemberCheck]:
    """What must be mended before a campaign, by host."""
    columns: tuple[Column[MemberCheck], ...] = (
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
    wrong = [check.host for check in checks if not is_ready(check)]
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
    title = f"{counted(len(checks), 'host')} at {scheduler}"
    return Table(title, columns, checks, notes, kind=MemberCheck)
