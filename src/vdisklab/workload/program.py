"""What every measuring program is: a pure maker of commands and a pure reader of answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from vdisklab.errors import PlanError
from vdisklab.plan.profile import MeasurementPlan
from vdisklab.results.model import Counted, Sample, Series

_IN_DIRECTORY = ("sh", "-c", 'cd "$0" && exec "$@"')


def in_directory(directory: str, command: tuple[str, ...]) -> tuple[str, ...]:
    """What starts a program in a directory, for programs that work where they are started."""
    return (*_IN_DIRECTORY, directory, *command)


def program_of(command: tuple[str, ...]) -> str:
    """The program that does the work of a command, not the shell that leads it to its directory."""
    led = command[: len(_IN_DIRECTORY)] == _IN_DIRECTORY
    return command[len(_IN_DIRECTORY) + 1] if led else command[0]


@dataclass(frozen=True, slots=True)
class Subject:
    """What is measured: a device, a file, or (`is_directory`) a directory on a file system.

    `size` is the bytes that may be used of it. `scratch` is a directory away from the subject
    where a program may leave what it found out; `mark` makes the names of its files there its
    own, since fio appends to a log that it finds. `memory` is that of the machine that runs the
    program, in bytes, None where it is not known; `as_root` says whether root runs it.
    `stderr_log` is a prefix of names that lead to the program's standard error, where there is one:
    a log under such a name needs not be read back by itself.
    `packages` are the places of systems' packages by the system's name: a directory; for a
    system that is not in it, the disk with its serial number.
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
    """Seconds that a timed program runs, and seconds before that which do not count.

    `scale` is the share of its totals that a program which is not timed works through.
    """

    runtime: float
    ramp: float
    scale: float = 1.0


@dataclass(frozen=True, slots=True)
class Step:
    """A program run before or after the measured one."""

    command: tuple[str, ...]
    timeout: float
    stdin: str | None = None


@dataclass(frozen=True, slots=True)
class Script:
    """The program to run; `expected` is how many seconds it takes at least, when that is known.

    `prepare` comes before it and is not measured; what it wrote is not in the cache of the
    machine that runs it when the measurement begins. `conclude` comes after it whatever
    happened. `collect` names files that the program writes, which are read back. `observe` names
    metrics that the program cannot know and that are counted from outside: `allocated`, `mapped`
    (bytes by which the image grew) and `flushes`.
    """

    command: tuple[str, ...]
    expected: float
    timeout: float
    stdin: str | None = None
    prepare: tuple[Step, ...] = ()
    conclude: tuple[Step, ...] = ()
    collect: tuple[str, ...] = ()
    observe: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Output:
    """What a program said: on its two outputs, and in the files that its script collects."""

    stdout: str
    stderr: str = ""
    files: Mapping[str, str] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """All of it as one text; each part after the first has a heading, as `head` writes it."""
        parts = {"standard error": self.stderr, **self.files}
        told = [f"\n==> {name} <==\n{content}" for name, content in parts.items() if content]
        return "".join([self.stdout, *told])


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a program's answer means.

    `counted` is what the program itself says it moved; `measured_seconds` how long it measured.
    """

    samples: tuple[Sample, ...]
    counted: Counted | None
    measured_seconds: float | None
    series: tuple[Series, ...] = ()


class Workload(Protocol):
    """One program."""

    @property
    def needs_directory(self) -> bool:
        """It works on files in a directory and on nothing else."""

    @property
    def needs_fresh_guest(self) -> bool:
        """What ran in a guest before would change it: what lies in its page cache, and the code
        that an emulator has translated. Such a guest is booted for it alone."""

    def script(self, plan: MeasurementPlan, subject: Subject, timing: Timing) -> Script:
        """What to run. Raises PlanError for settings that the program does not have, and for a
        subject or a memory that is too small for them."""

    def parse(self, plan: MeasurementPlan, output: Output) -> Outcome:
        """What it said. Raises WorkloadError for an answer of unknown form."""


class Settings(BaseModel):
    """Settings of one program: types are not converted, unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


Model = TypeVar("Model", bound=Settings)


def read_settings(plan: MeasurementPlan, model: type[Model]) -> Model:
    """The measurement's settings. Raises PlanError naming the first wrong one."""
    try:
        return model.model_validate(dict(plan.settings))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        known = ", ".join(model.model_fields) or "none"
        raise PlanError(
            f"measurement {plan.name!r}: {plan.program} setting {where!r}: {first['msg']}",
            hint=f"settings of a {plan.program} measurement: {known}",
        ) from error


def require_room(
    plan: MeasurementPlan, needed: int, given: int, *, or_less: str = ", or a smaller --scale"
) -> None:
    """Raises PlanError when a measurement needs more bytes than it is given.

    `or_less` is what makes it need less; empty where nothing does.
    """
    if needed > given:
        raise PlanError(
            f"measurement {plan.name!r} needs {_mebibytes(needed)} of room and the disk "
            f"gives {_mebibytes(given)}",
            hint=f"choose a larger --size{or_less}",
        )


def require_memory(plan: MeasurementPlan, needed: int, given: int | None) -> None:
    """Raises PlanError when a measurement needs more bytes of memory than its machine has; None
    where that is not known."""
    if given is not None and needed > given:
        whole = -(-needed // (1 << 20))
        raise PlanError(
            f"measurement {plan.name!r} needs {whole} MiB of memory and the guest has "
            f"{given >> 20} MiB",
            hint=f"ask for --guest-memory {whole}M",
        )


def _mebibytes(size: int) -> str:
    return f"{-(-size // (1 << 20))} MiB"


@dataclass(frozen=True, slots=True)
class Found:
    """One measurement of a file: what it is called there, or would be in a profile of ours."""

    name: str
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class Report:
    """What one machine or configuration reached; `label` is the file's name for it, if any."""

    program: str
    version: str | None
    label: str | None
    found: tuple[Found, ...]


def printable(text: str) -> str:
    """A name from outside, with `?` for what no terminal shows and no database holds.

    Such are control characters, marks that turn the direction of writing, and halves of
    characters, which JSON can spell and names of files can hold.
    """
    return "".join(char if char.isprintable() else "?" for char in text)
