"""Programs that log every request: for several guests at once, and beside an operation."""

from __future__ import annotations

from typing import Protocol

from vdisklab.plan.profile import MeasurementPlan
from vdisklab.value import Value
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


class BesideRun(Value):
    """A load beside an operation: at most `seconds` from its start on, until it is told to end.

    `part_seconds` is the length of a recording's part that is replayed. `rate` is in requests a
    second; None for a load that has its own.
    """

    seconds: float
    part_seconds: float
    rate: int | None
    start: GroupStart


class BesideWorkload(Protocol):
    """A load that runs on while an operation is done to its disk."""

    needs_rate: bool
    """False if the requests come when they came in a recording."""

    def beside_script(self, plan: MeasurementPlan, subject: Subject, run: BesideRun) -> Script:
        """The script of the load, which SIGINT ends, and which logs each request.

        Raises PlanError for measurements whose requests cannot be logged or timed.
        """

    def beside_requests(
        self, plan: MeasurementPlan, output: Outputs, run: BesideRun, lasted: float
    ) -> GuestRequests:
        """The requests by the guest's clock, of a load that was ended `lasted` seconds after its
        start. Raises WorkloadError if the program failed."""
