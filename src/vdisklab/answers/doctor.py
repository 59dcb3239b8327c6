"""`vdisklab doctor`: what a host can measure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Self

from vdisklab.documents import Answer
from vdisklab.inspection.host_features import Availability, HostFinding


class DoctorAnswer(Answer):
    """`vdisklab doctor`: what this host can measure."""

    FORMAT = "vdisklab.doctor/2"

    main_job: Annotated[bool, "true when a guest's disk can be measured here"]
    findings: tuple[HostFinding, ...]

    @classmethod
    def of(cls, findings: Iterable[HostFinding]) -> Self:
        """The answer from all findings."""
        found = tuple(findings)
        missing = any(
            finding.essential and finding.state is Availability.MISSING for finding in found
        )
        return cls(not missing, found)
