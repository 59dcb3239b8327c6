"""What this host can measure, as text, CSV and JSON."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from vdisklab.render.documents.conversion import copy_fields
from vdisklab.render.documents.records import DoctorDocument, PieceEntry
from vdisklab.render.tables.layout import Table
from vdisklab.services.host_inspection import Availability, HostFinding, can_do_main_job

_STYLES = {
    Availability.OK: "green",
    Availability.LIMITED: "yellow",
    Availability.MISSING: "red",
}


def doctor_document(findings: Sequence[HostFinding]) -> DoctorDocument:
    """The findings and the verdict; see docs/json.md."""
    return DoctorDocument(
        main_job=can_do_main_job(findings),
        findings=tuple(copy_fields(PieceEntry, finding) for finding in findings),
    )


def findings_table(findings: Sequence[HostFinding]) -> Table[HostFinding]:
    """The findings for CSV."""
    return Table("", (), findings, kind=PieceEntry, record=lambda f: copy_fields(PieceEntry, f))


def show_findings(findings: Sequence[HostFinding], console: Console) -> None:
    """Prints the findings, each with its cost and remedy, and the verdict."""
    table = RichTable("piece", "state", "seen", box=None, pad_edge=False)
    for finding in findings:
        # Text, not markup: the output of programs may contain brackets.
        details = Text(finding.seen)
        if finding.costs:
            details.append(f"\n{finding.costs}", style="italic")
        if finding.mend:
            details.append(f"\nremedy: {finding.mend}", style="bold")
        table.add_row(finding.topic, Text(finding.state, style=_STYLES[finding.state]), details)
    console.print(table)
    console.print()
    console.print(
        "A guest's disk can be measured here."
        if can_do_main_job(findings)
        else "A guest's disk cannot be measured here; see what is missing above."
    )
