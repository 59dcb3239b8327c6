"""What this host can measure, as a table and as a document."""

from __future__ import annotations

from collections.abc import Sequence

from vdisklab.render.documents.conversion import copy_fields
from vdisklab.render.documents.records import DoctorDocument, PieceEntry
from vdisklab.render.tables.layout import WORDS, Column, Table
from vdisklab.services.host_inspection import Availability, HostFinding, can_do_main_job

_STYLES = {
    Availability.OK: "green",
    Availability.LIMITED: "yellow",
    Availability.MISSING: "red",
}


def doctor_document(findings: Sequence[HostFinding]) -> DoctorDocument:
    """The findings and the verdict; see docs/json.md."""
    pieces = tuple(copy_fields(PieceEntry, finding) for finding in findings)
    return DoctorDocument(main_job=can_do_main_job(findings), findings=pieces)


def findings_table(findings: Sequence[HostFinding]) -> Table[HostFinding]:
    """The findings, each with its cost and remedy, and the verdict."""
    columns: tuple[Column[HostFinding], ...] = (
        Column("piece", lambda finding: finding.topic),
        Column(
            "state", lambda finding: finding.state, style=lambda finding: _STYLES[finding.state]
        ),
        Column("seen", _seen, folds=WORDS),
    )
    verdict = (
        "A guest's disk can be measured here."
        if can_do_main_job(findings)
        else "A guest's disk cannot be measured here; see what is missing above."
    )
    return Table(
        "This host", columns, findings, (verdict,), kind=PieceEntry,
        record=lambda finding: copy_fields(PieceEntry, finding),
    )  # fmt: skip


def _seen(finding: HostFinding) -> str:
    remedy = f"remedy: {finding.mend}" if finding.mend else ""
    return "\n".join(line for line in (finding.seen, finding.costs, remedy) if line)
