"""Programs that several guests run at once: each logs every request."""

from __future__ import annotations

from typing import Protocol

from vdisklab.plan.profile import MeasurementPlan
from vdisklab.workload.open_load import GroupStart, GuestRequests
from vdisklab.workload.program import Outputs, Script, Subject, Timing


class GroupWorkload(Protocol):
    """One program of a group of guests."""

    def group_script(
        self, plan: MeasurementPlan, subject: Subject, timing: Timing, start: GroupStart
    ) -> Script:
        """The script of one guest: it starts after a delay, and logs each request.

        Raises PlanError for measurements whose requests cannot be logged or timed.
        """

    def group_requests(
        self, plan: MeasurementPlan, output: Outputs, timing: Timing, start: GroupStart
    ) -> GuestRequests:
        """The requests of one guest, by its clock, from what its program printed and logged.

        Raises WorkloadError if the program failed.
        """
