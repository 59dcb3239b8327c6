"""Measures the installation of an operating system, and the boot of a guest."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator

from vdisklab.errors import PlanError, WorkloadError
from vdisklab.path.architecture import GUEST
from vdisklab.plan.guest import SYSTEMS, System
from vdisklab.plan.profile import MeasurementPlan, Profile
from vdisklab.results.model import Direction, Sample
from vdisklab.units import MIB
from vdisklab.workload import program

PROGRAM = "dpkg"

_TIMEOUT = 4 * 3600.0

# It has its own mount and process namespaces, so processes and mounts that a maintainer's script
# leaves end with the program.
_ALONE = ("unshare", "--mount", "--pid", "--fork", "--kill-child", "--propagation", "private")

_OBSERVED = ("allocated", "mapped", "flushes")

_FACT = re.compile(r"^([a-z_]+)=([0-9]{1,12})$", re.MULTILINE)


ROOM = 256 * MIB
"""Bytes that the system on the disk needs, including its file system's own."""

MEMORY = 192 * MIB
# Seconds under emulation; the guest has its own deadlines.
_EXPECTED = 6.0

_BOOT_TIMEOUT = 300.0


def _existing(name: str) -> str:
    if name not in SYSTEMS:
        raise ValueError(f"one of {', '.join(SYSTEMS)}")
    return name


class InstallSettings(program.Settings):
    """Settings of an installation: which system (`vdisklab.plan.guest`)."""

    system: Annotated[str, AfterValidator(_existing)]


class Install(program.Workload):
    """dpkg, with the packages' own scripts, in a chroot."""

    needs_directory = True
    # A second installation in an emulated guest unpacks at a fifth of the speed: on each write to a
    # page of guest memory QEMU's TCG searches all code that was ever translated from that page
    # (accel/tcg/translate-all.c, page_collection_lock), and pages that held programs are reused for
    # files. The packages would also be in the page cache.
    needs_fresh_guest = True

    def script(
        self, plan: MeasurementPlan, subject: program.Subject, timing: program.Timing
    ) -> program.Script:
        """Runs a script from standard input; the target and the packages are its arguments."""
        del timing  # an installation has no duration to choose, and cannot be scaled
        system = system_of(plan)
        if not subject.as_root:
            raise PlanError(
                f"measurement {plan.name!r} installs an operating system, which needs root",
                hint="run vdisklab as root, or leave the host's path out: --baseline none",
            )
        program.require_room(plan, system.room, subject.size, or_less="")
        program.require_memory(plan, system.memory, subject.memory)
        log = f"{subject.scratch}/{plan.name}{subject.mark}.dpkg.log"
        packages = subject.packages.get(system.name, system.serial)
        shell = ("sh", "-s", "--", subject.path, packages, log)
        command = (*_ALONE, *shell) if packages.startswith("/") else shell
        script = program.shell_script("install")
        return program.Script(
            command, 0.0, _TIMEOUT, stdin=script, collect=(log,), observe=_OBSERVED
        )

    def parse(self, plan: MeasurementPlan, output: program.Outputs) -> program.ProgramResult:
        """The duration; growth and flushes of the image are counted outside."""
        del plan
        facts = {name: int(value) for name, value in _FACT.findall(output.stdout)}
        wanted = ("total_hundredths", "packages", "files")
        if any(not facts.get(name) for name in wanted):
            last = (output.stderr.strip() or output.stdout.strip() or "nothing").splitlines()[-1]
            raise WorkloadError(f"the installation did not finish; its last line was: {last[:200]}")
        seconds = facts["total_hundredths"] / 100
        return program.ProgramResult((Sample("duration", Direction.WRITE, seconds),), None, seconds)


def system_of(plan: MeasurementPlan) -> System:
    """The system that a measurement installs. Raises PlanError for an unknown one."""
    return SYSTEMS[program.read_settings(plan, InstallSettings).system]


def systems_of(profile: Profile) -> tuple[System, ...]:
    """The systems that a profile installs, each once."""
    plans = [plan for plan in profile.measurements if plan.program == PROGRAM]
    return tuple(dict.fromkeys(system_of(plan) for plan in plans))


class BootSettings(program.Settings):
    """A boot has no settings: it always boots the micro guest's own system."""


class Boot(program.Workload):
    """QEMU with the system on the measured disk."""

    def script(
        self, plan: MeasurementPlan, subject: program.Subject, timing: program.Timing
    ) -> program.Script:
        """Checks that the disk and memory are large enough; no program runs in the guest."""
        del timing
        program.read_settings(plan, BootSettings)
        if plan.filesystem is not None:
            raise PlanError(
                f"measurement {plan.name!r}: a boot measurement has no file system of its own",
                hint="leave out filesystem",
            )
        program.require_room(plan, ROOM, subject.size, or_less="")
        program.require_memory(plan, MEMORY, subject.memory)
        return program.Script((GUEST.emulator,), _EXPECTED, _BOOT_TIMEOUT)

    def parse(self, plan: MeasurementPlan, output: program.Outputs) -> program.ProgramResult:
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
