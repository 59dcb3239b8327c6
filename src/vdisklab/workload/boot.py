"""Boot and shutdown of a guest from the measured disk, timed by the campaign from outside."""

from __future__ import annotations

from vdisklab.errors import PlanError, WorkloadError
from vdisklab.plan.profile import MeasurementPlan
from vdisklab.results.model import Direction, Sample
from vdisklab.units import MIB
from vdisklab.workload.program import (
    Output,
    ProgramResult,
    Script,
    Settings,
    Subject,
    Timing,
    read_settings,
    require_memory,
    require_room,
)

ROOM = 256 * MIB
"""Bytes that the system on the disk needs, including its file system's own."""

MEMORY = 192 * MIB

# Seconds under emulation; the guest has its own deadlines.
_EXPECTED = 6.0
_TIMEOUT = 300.0


class BootSettings(Settings):
    """A boot has no settings: it always boots the micro guest's own system."""


class Boot:
    """QEMU with the system on the measured disk."""

    needs_directory = False
    needs_fresh_guest = False

    def script(self, plan: MeasurementPlan, subject: Subject, timing: Timing) -> Script:
        """Checks that the disk and memory are large enough; no program runs in the guest."""
        del timing
        read_settings(plan, BootSettings)
        if plan.filesystem is not None:
            raise PlanError(
                f"measurement {plan.name!r}: a boot measurement has no file system of its own",
                hint="leave out filesystem",
            )
        require_room(plan, ROOM, subject.size, or_less="")
        require_memory(plan, MEMORY, subject.memory)
        return Script(("qemu-system-x86_64",), _EXPECTED, _TIMEOUT)

    def parse(self, plan: MeasurementPlan, output: Output) -> ProgramResult:
        """Always raises WorkloadError: there is no output."""
        del output
        raise WorkloadError(f"measurement {plan.name!r} boots a guest and has no output")


def boot_samples(booted: float, ended: float) -> tuple[Sample, ...]:
    """Seconds from the start of QEMU to the agent's first answer, and from the shutdown command
    to the end of QEMU."""
    return (
        Sample("boot_time", Direction.NONE, booted),
        Sample("shutdown_time", Direction.NONE, ended),
    )
