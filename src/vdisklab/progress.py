"""The events of a long task, which reports them to its caller through a `Progress`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

from vdisklab.value import Value


class CampaignStarted(Value):
    """The number of runs of a campaign, and how many of them are already stored.

    `campaign` is its id. `at_most` is True if a search may drop cells later, so that fewer runs are
    made; then `seconds_estimated` are the most, and `usual_seconds` are what most races take less
    than.
    """

    campaign: str
    runs: int
    finished: int
    seconds_estimated: float
    label: str
    at_most: bool = False
    at_least_seconds: float = 0.0
    usual_seconds: float = 0.0


class RunStarted(Value):
    """A cell begins in a round (both counted from 1); `rounds` is None if a search decides.

    `later` counts the cells that this round still measures after it.
    """

    cell: str
    round: int
    rounds: int | None
    position: int
    runs: int
    later: int = 0


class MeasurementStarted(Value):
    """One program of the cell begins; `seconds` is its run time, None if it has no time limit."""

    name: str
    seconds: float | None


class Throughput(Value):
    """The current throughput of the running measurement.

    In a guest QEMU counts it; on the host the kernel does, but without operations. A measurement
    that has not moved a byte yet has none.
    """

    bytes_per_second: float
    operations_per_second: float | None


class RunFinished(Value):
    """A cell ended; `failure` is the reason if it failed."""

    cell: str
    failure: str | None
    seconds: float


class Step(Value):
    """Work that is not a measurement: building a stack, booting a guest, writing an image."""

    what: str


class Note(Value):
    """A sentence for the user that must not be overwritten by later progress."""

    text: str


class PathDropped(Value):
    """A requested path that is not measured: why, and what to write instead."""

    path: str
    reason: str
    instead: str


class PlanWarning(Value):
    """A warning about the numbers, before they are measured."""

    text: str


class DurablePaths(Value):
    """How many paths of a plan count as durable, and how many of them by power cuts."""

    paths: int
    tested: int


class Moving(Value):
    """The bandwidth at one moment."""

    moment: Annotated[float, "seconds since 1970"]
    bytes_per_second: Annotated[float | None, "null where a measurement or a step began: a gap"]
    operations_per_second: float | None


class Running(Value, kw_only=True):
    """A campaign that is being measured."""

    process: int = 0
    campaign: str = ""
    runs: Annotated[int, "in all; at most, if a search decides"] = 0
    at_most: bool = False
    finished: Annotated[int, "runs that are stored"] = 0
    seconds_estimated: Annotated[float, "for the runs that were left when it began"] = 0.0
    began: Annotated[float, "seconds since 1970"] = 0.0
    cell: Annotated[str, "that is being measured; empty between two"] = ""
    round: int = 0
    rounds: Annotated[int | None, "null if a search decides"] = None
    position: Annotated[int, "in the round, from 1"] = 0
    cells: int = 0
    doing: Annotated[str, "the measurement, or the step before it"] = ""
    since: Annotated[float, "when `doing` began, in seconds since 1970"] = 0.0
    seconds: Annotated[float | None, "that `doing` takes; null if unknown"] = None
    moving: Annotated[tuple[Moving, ...], "of the last minute of this cell"] = ()


Event = (
    CampaignStarted
    | RunStarted
    | MeasurementStarted
    | Throughput
    | RunFinished
    | Step
    | Note
    | PathDropped
    | PlanWarning
    | DurablePaths
)


Progress = Callable[[Event], None]
"""Receives each event in order; must not raise and must not block."""


def silent(_event: Event, /) -> None:
    """Ignores all events."""
