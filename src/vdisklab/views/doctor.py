"""The answer of `doctor` as a table."""

from __future__ import annotations

from collections.abc import Iterator

from vdisklab.answers.doctor import DoctorAnswer
from vdisklab.inspection.host_features import Availability, HostFinding
from vdisklab.views.layout import WORDS, Column, Table

_STYLES = {Availability.OK: "green", Availability.LIMITED: "yellow", Availability.MISSING: "red"}


def tables(answer: DoctorAnswer) -> Iterator[Table[HostFinding]]:
    """The findings, each with its cost and remedy, and the verdict."""
    columns: tuple[Column[HostFinding], ...] = (
        Column("piece", lambda finding: finding.topic),
        Column(
            "state", lambda finding: finding.state, style=lambda finding: _STYLES[finding.state]
        ),
        Column("seen", _observed, folds=WORDS),
    )
    verdict = (
        "A guest's disk can be measured here."
        if answer.main_job
        else "A guest's disk cannot be measured here; see what is missing above."
    )
    yield Table("This host", columns, answer.findings, (verdict,), kind=HostFinding)


def _observed(finding: HostFinding) -> str:
    remedy = f"remedy: {finding.mend}" if finding.mend else ""
    return "\n".join(line for line in (finding.observed, finding.costs, remedy) if line)
