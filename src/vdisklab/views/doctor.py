"""The answer of `doctor` as a table."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from vdisklab.answers.doctor import DoctorAnswer
from vdisklab.inspection.host_features import Availability, HostFinding
from vdisklab.views.layout import WORDS, Column, Table

_RIGHTS = "root"
"""The topic whose remedy is said once for all that root unlocks."""

_STYLES = {Availability.OK: "green", Availability.LIMITED: "yellow", Availability.MISSING: "red"}


def tables(answer: DoctorAnswer) -> Iterator[Table[HostFinding]]:
    """The findings, each with its cost and remedy, and the verdict."""
    unlocked = _unlocked(answer)
    columns: tuple[Column[HostFinding], ...] = (
        Column("piece", lambda finding: finding.topic),
        Column(
            "state", lambda finding: finding.state, style=lambda finding: _STYLES[finding.state]
        ),
        Column("seen", partial(_observed, unlocked=unlocked), folds=WORDS),
    )
    verdict = (
        "A guest's disk can be measured here."
        if answer.main_job
        else "A guest's disk cannot be measured here; see what is missing above."
    )
    yield Table("This host", columns, answer.findings, (verdict,), kind=HostFinding)


def _unlocked(answer: DoctorAnswer) -> tuple[HostFinding, ...]:
    """What has the remedy of the finding about root, besides that finding itself."""
    mend = next((each.mend for each in answer.findings if each.topic == _RIGHTS), None)
    others = (each for each in answer.findings if each.topic != _RIGHTS)
    return tuple(each for each in others if mend is not None and each.mend == mend)


def _observed(finding: HostFinding, unlocked: tuple[HostFinding, ...]) -> str:
    if finding in unlocked:  # the row about root says the remedy, and what it costs
        return finding.observed
    remedy = f"remedy: {finding.mend}" if finding.mend else ""
    if finding.topic == _RIGHTS and unlocked:
        topics = ", ".join(each.topic for each in unlocked)
        remedy = f"{remedy}, which also unlocks: {topics}"
    return "\n".join(line for line in (finding.observed, finding.costs, remedy) if line)
