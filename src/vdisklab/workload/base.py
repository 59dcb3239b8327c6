"""What every measuring program is: a pure maker of commands and a pure reader of answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from vdisklab.plan.profile import MeasurementPlan
from vdisklab.result.model import Counted, Sample


@dataclass(frozen=True, slots=True)
class Subject:
    """What is measured: a device (in the guest) or a file (on the host), and its size in bytes."""

    path: str
    size: int
    is_device: bool


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds that a timed program runs, and seconds before that which do not count."""

    runtime: float
    ramp: float


@dataclass(frozen=True, slots=True)
class Script:
    """The program to run; `expected` is how many seconds it takes at least, when that is known."""

    command: tuple[str, ...]
    expected: float
    timeout: float


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a program's answer means.

    `counted` is what the program itself says it moved; `measured_seconds` how long it measured.
    """

    samples: tuple[Sample, ...]
    counted: Counted | None
    measured_seconds: float | None


class Workload(Protocol):
    """One program."""

    def script(self, plan: MeasurementPlan, subject: Subject, timing: Timing) -> Script:
        """What to run. Raises PlanError for settings that the program does not have."""

    def parse(self, output: str) -> Outcome:
        """What it said. Raises WorkloadError for an answer of unknown form."""
