"""The interface of measuring programs: each builds a command and parses its output. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from vdisklab.errors import PlanError
from vdisklab.plan.profile import MeasurementPlan
from vdisklab.results.model import IoCounters, Sample, Series
from vdisklab.validation import first_problem

_IN_DIRECTORY = ("sh", "-c", 'cd "$0" && exec "$@"')


def in_directory(directory: str, command: tuple[str, ...]) -> tuple[str, ...]:
    """The command that runs another one in a directory, for programs that use the current one."""
    return (*_IN_DIRECTORY, directory, *command)


def program_of(command: tuple[str, ...]) -> str:
    """The program that a command runs, not the shell of `in_directory`."""
    led = command[: len(_IN_DIRECTORY)] == _IN_DIRECTORY
    return command[len(_IN_DIRECTORY) + 1] if led else command[0]


@dataclass(frozen=True, slots=True)
class Subject:
    """The measured device, file, or (`is_directory`) directory on a file system.

    `size` is how many of its bytes may be used. `scratch` is a directory outside of the subject for
    logs; `mark` makes their names unique, since fio appends to a log that exists. `memory` is the
    bytes of RAM of the machine that runs the program, None if unknown; `as_root` says whether root
    runs it. `stderr_log` is a prefix of file names that lead to the program's standard error, if
    the machine has such names: a log written there need not be read back. `packages` maps a
    system's name to the directory of its packages; the packages of other systems are on a disk with
    the system's serial number.
    """

    path: str
    size: int
    is_device: bool
    is_directory: bool = False
    scratch: str = "/tmp"  # noqa: S108 - of the guest, where we are alone
    memory: int | None = None
    as_root: bool = True
    mark: str = ""
    stderr_log: str | None = None
    packages: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Timing:
    """The run time of a timed program in seconds, and the ramp time before it, which does not
    count.

    `scale` is the share of the full work that an untimed program does.
    """

    runtime: float
    ramp: float
    scale: float = 1.0


@dataclass(frozen=True, slots=True)
class SideCommand:
    """A command that runs before or after the measured one."""

    command: tuple[str, ...]
    timeout: float
    stdin: str | None = None


@dataclass(frozen=True, slots=True)
class Script:
    """The program to run; `expected` is the number of seconds it takes at least, 0 if unknown.

    `prepare` runs before it, unmeasured, and the page cache is dropped in between. `conclude` runs
    after it, even if it failed. `collect` names files that the program writes, to be read back.
    `observe` names metrics that must be counted outside of the program: `allocated`, `mapped`
    (bytes by which the image grew) and `flushes`.
    """

    command: tuple[str, ...]
    expected: float
    timeout: float
    stdin: str | None = None
    prepare: tuple[SideCommand, ...] = ()
    conclude: tuple[SideCommand, ...] = ()
    collect: tuple[str, ...] = ()
    observe: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Output:
    """The output of a program, and the files that its script collects."""

    stdout: str
    stderr: str = ""
    files: Mapping[str, str] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """All of it as one text; each part after the first has a heading like those of `head`."""
        parts = {"standard error": self.stderr, **self.files}
        others = [f"\n==> {name} <==\n{content}" for name, content in parts.items() if content]
        return "".join([self.stdout, *others])


@dataclass(frozen=True, slots=True)
class ProgramResult:
    """The numbers in a program's output.

    `counted` is the traffic that the program itself reports, `measured_seconds` for how long it
    measured.
    """

    samples: tuple[Sample, ...]
    counted: IoCounters | None
    measured_seconds: float | None
    series: tuple[Series, ...] = ()


class Workload(Protocol):
    """One program.

    `needs_directory` is True if it only works on files in a directory, `needs_fresh_guest` if an
    earlier program in the same guest would change its result, by the guest's page cache or by code
    that QEMU has translated; then it gets a guest of its own.
    """

    needs_directory: bool = False
    needs_fresh_guest: bool = False

    def script(self, plan: MeasurementPlan, subject: Subject, timing: Timing) -> Script:
        """The script to run.

        Raises PlanError for settings that the program does not have, and if the subject or the
        memory is too small for them.
        """

    def parse(self, plan: MeasurementPlan, output: Output) -> ProgramResult:
        """The numbers in its output. Raises WorkloadError for output of an unknown form."""


class Settings(BaseModel):
    """Settings of one program. Types are not converted, and unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


Model = TypeVar("Model", bound=Settings)


def read_settings(plan: MeasurementPlan, model: type[Model]) -> Model:
    """The measurement's settings. Raises PlanError naming the first wrong one."""
    try:
        return model.model_validate(dict(plan.settings))
    except ValidationError as error:
        settings_names = ", ".join(model.model_fields) or "none"
        raise PlanError(
            f"measurement {plan.name!r}: {plan.program}'s setting {first_problem(error)}",
            hint=f"settings of a {plan.program} measurement: {settings_names}",
        ) from error


def require_room(
    plan: MeasurementPlan, needed: int, available: int, *, or_less: str = ", or a smaller --scale"
) -> None:
    """Raises PlanError if a measurement needs more bytes than the disk has.

    `or_less` completes the hint with another way to need less space.
    """
    if needed > available:
        raise PlanError(
            f"measurement {plan.name!r} needs {_mebibytes(needed)} and the disk has "
            f"room for {_mebibytes(available)}",
            hint=f"choose a larger --size{or_less}",
        )


def require_memory(plan: MeasurementPlan, needed: int, available: int | None) -> None:
    """Raises PlanError if the measurement needs more memory; `available` None means unknown."""
    if available is not None and needed > available:
        whole = -(-needed // (1 << 20))
        raise PlanError(
            f"measurement {plan.name!r} needs {whole} MiB of memory and the guest has "
            f"{available >> 20} MiB",
            hint=f"use --guest-memory {whole}M",
        )


def _mebibytes(size: int) -> str:
    return f"{-(-size // (1 << 20))} MiB"


@dataclass(frozen=True, slots=True)
class NamedResult:
    """One measurement in a result file, with its name in the file or in vdisklab's profiles."""

    name: str
    outcome: ProgramResult


@dataclass(frozen=True, slots=True)
class Report:
    """The results of one machine or configuration; `label` is its name in the file, if any."""

    program: str
    version: str | None
    label: str | None
    results: tuple[NamedResult, ...]


def printable(text: str) -> str:
    """A foreign name with `?` for each character that cannot be shown or stored.

    These are control characters, marks that change the text direction, and surrogates, which JSON
    and file names can contain.
    """
    return "".join(char if char.isprintable() else "?" for char in text)
