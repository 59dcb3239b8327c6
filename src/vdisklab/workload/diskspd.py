"""DISKSPD in a Windows guest, told what a fio measurement asks for.

Options by Microsoft's wiki of DISKSPD ("Command line and parameters", "Customizing tests").
Nobody here could run it.
"""

from __future__ import annotations

import math

from vdisklab.errors import PlanError, WorkloadError
from vdisklab.plan.profile import MeasurementPlan
from vdisklab.units import parse_size
from vdisklab.workload.base import Outcome, Output, Script, Subject, Timing
from vdisklab.workload.fio import FioSettings, read_fio_settings
from vdisklab.workload.importers.diskspd import parse_diskspd

PROGRAM = "vdisklab-diskspd.exe"

_SLACK_SECONDS = 180.0


class Diskspd:
    """Microsoft's DISKSPD, on a whole physical disk."""

    needs_directory = False
    needs_fresh_guest = False

    def script(self, plan: MeasurementPlan, subject: Subject, timing: Timing) -> Script:
        """The nearest that DISKSPD has to a fio measurement; times in whole seconds, rounded up.

        -Su is direct I/O as fio's: no cache of the system, and no write-through. Raises PlanError
        for settings that it lacks.
        """
        settings = read_fio_settings(plan)
        _require_expressible(plan, settings)
        seconds, warm_up = max(1, math.ceil(timing.runtime)), math.ceil(timing.ramp)
        reads = {"read": 100, "randread": 100, "write": 0, "randwrite": 0}.get(
            settings.rw or "", 50 if settings.rwmixread is None else settings.rwmixread
        )
        block = parse_size(settings.bs or "")
        command = (
            f"{subject.scratch}\\{PROGRAM}",
            f"-b{block}",
            f"-f{subject.size - subject.size % block}",
            f"-d{seconds}",
            f"-W{warm_up}",
            f"-t{settings.numjobs}",
            f"-o{settings.iodepth}",
            *_order(settings, block),
            f"-w{100 - reads}",
            "-Su",
            "-Z1M",
            "-L",
            "-D1000",
            "-Rxml",
            subject.path,
        )
        expected = float(seconds + warm_up)
        return Script(command, expected, expected + _SLACK_SECONDS)

    def parse(self, plan: MeasurementPlan, output: Output) -> Outcome:
        """Its XML. Raises WorkloadError for anything else."""
        found = parse_diskspd(output.stdout.lstrip("\ufeff \r\n")).found
        if len(found) != 1:
            raise WorkloadError(f"DISKSPD reports {len(found)} time spans of {plan.name}, not one")
        return found[0].outcome


def _order(settings: FioSettings, block: int) -> tuple[str, ...]:
    """Random blocks, or one after the other, taken by all threads together."""
    if (settings.rw or "").startswith("rand"):
        return (f"-r{block}",)
    return ("-si",) if settings.numjobs > 1 else ()


def _require_expressible(plan: MeasurementPlan, settings: FioSettings) -> None:
    lacking = {
        "a job file": settings.job is not None,
        "bsrange": settings.bsrange is not None,
        "fsync": settings.fsync is not None,
        "size": settings.size is not None,
        "iodepth_batch": settings.iodepth_batch is not None,
        "every_block_once": settings.every_block_once,
        "time_based = false": not settings.time_based,
    }
    for name, asked in lacking.items():
        if asked:
            raise PlanError(
                f"measurement {plan.name!r} asks for {name}, which DISKSPD does not have",
                hint="leave it out of the profile for a Windows guest",
            )
