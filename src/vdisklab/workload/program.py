"""The interface of measuring programs: each builds a command and parses its output. No I/O.

Bandwidth second by second: the worst second, and the longest time without a completion.

fio's bandwidth log (`--write_bw_log`) has lines `milliseconds, KiB/s, direction (0 read, 1 write, 2
trim), block size, offset`: the mean over a window that ended at that time (fio's HOWTO, "Log File
Formats"). Undocumented behaviour of fio 3.33, observed with `--thinktime` and on a frozen file
system: a window without completions has no line; a window is longer than requested if fio's helper
thread was late; the jobs of one file follow each other, and the last, unfinished window of each has
no line.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib import resources
from typing import Protocol, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from vdisklab.errors import IN_DIRECTORY, PlanError, WorkloadError
from vdisklab.path.disk_path import DiskPath
from vdisklab.plan.profile import MeasurementPlan
from vdisklab.results.model import (
    GATE,
    MISSED,
    NOT_MET,
    Check,
    Direction,
    Evidence,
    IoCounters,
    Sample,
    Series,
)
from vdisklab.validation import first_problem
from vdisklab.value import Value, field

PERCENTILES = {
    "latency_p50": 0.5, "latency_p95": 0.95, "latency_p99": 0.99, "latency_p99.9": 0.999,
}  # fmt: skip
"""The share of all requests that each metric's value is at least as large as."""

FASTER_THAN_DISK = "transactions ÷ fdatasync calls that the disk can do"
"""The gate that one client's commits miss if they are faster than the disk."""

_LINES = re.compile(r"^[0-9]+, [0-9]+, [0-9]+, [0-9]+, [0-9]+(?:, [0-9]+)?$", re.MULTILINE)
_DIRECTIONS = (Direction.READ, Direction.WRITE, Direction.TRIM)


def in_directory(directory: str, command: tuple[str, ...]) -> tuple[str, ...]:
    """The command that runs another one in a directory, for programs that use the current one."""
    return (*IN_DIRECTORY, directory, *command)


def program_of(command: tuple[str, ...]) -> str:
    """The program that a command runs, not the shell of `in_directory`, nor `env`."""
    if command[0] == "env":
        return next(word for word in command[1:] if "=" not in word)
    led = command[: len(IN_DIRECTORY)] == IN_DIRECTORY
    return command[len(IN_DIRECTORY) + 1] if led else command[0]


class Subject(Value):
    """The measured device, file or directory on a file system."""

    path: str
    size: int
    """How many of its bytes may be used."""
    is_device: bool
    is_directory: bool = False
    scratch: str = "/tmp"  # noqa: S108 - of the guest, where we are alone
    """A directory outside of the subject, for logs."""
    memory: int | None = None
    """Bytes of RAM of the machine that runs the program; None if unknown."""
    as_root: bool = True
    """True if root runs the program."""
    mark: str = ""
    """Makes the names of logs unique, because fio appends to a log that exists."""
    stderr_log: str | None = None
    """A prefix of file names that lead to the program's standard error, if the machine has such
    names: a log written there need not be read back.
    """
    packages: Mapping[str, str] = field(default_factory=dict)
    """By a system's name the directory of its packages, by prepared files' name their archive.
    Those of other names are on a disk with that name as its serial number.
    """
    disk_size: int | None = None
    """The whole disk's, of which a file system leaves `size`."""
    read_once: bool = False
    """True if only the first read of a byte comes from the disk, because a cache keeps it."""
    written_at: int | None = None
    """Where a disk that is made from the user's template is first written; None for any other."""

    @property
    def nominal(self) -> int:
        """The size by which default amounts of data are chosen, the same on every file system."""
        return self.size if self.disk_size is None else self.disk_size

    @property
    def room_for_files(self) -> int:
        """The bytes that files in it may take: the file system needs some itself."""
        return self.size * 9 // 10


class PreparedFiles(Value):
    """Files that are made once on the host, and copied for each measurement.

    `name` is also the serial number of the disk that brings their tar archive into a guest. The
    shell script `script` makes them with `make DIRECTORY ARGUMENTS…`, in its directory `data`, with
    these `programs`. `size` is how many bytes they take, about. `given` has, by name, what lies in
    DIRECTORY beforehand; `name` says all of it.
    """

    name: str
    script: str
    arguments: tuple[str, ...]
    programs: tuple[str, ...]
    size: int
    given: Mapping[str, Callable[[], bytes]] = field(default_factory=dict)


class Timing(Value):
    """The run time of a timed program in seconds, and the ramp time before it, which does not
    count.

    `scale` is the share of the full work that an untimed program does.
    """

    runtime: float
    ramp: float
    scale: float = 1.0


class SideCommand(Value):
    """A command that runs before or after the measured one."""

    command: tuple[str, ...]
    timeout: float
    stdin: str | None = None


class Script(Value):
    """The program to run, and what runs before and after it."""

    command: tuple[str, ...]
    expected: float
    """Seconds that it takes at least; 0 if unknown."""
    timeout: float
    stdin: str | None = None
    prepare: tuple[SideCommand, ...] = ()
    """Runs first, unmeasured; the page cache is dropped after it."""
    warm: tuple[SideCommand, ...] = ()
    """Runs between that and the measurement, such as a server's start."""
    count: tuple[SideCommand, ...] = ()
    """Runs right after the program."""
    conclude: tuple[SideCommand, ...] = ()
    """Runs at the end, even if anything failed."""
    collect: tuple[str, ...] = ()
    """Files that the program or `count` writes, to be read back."""
    observe: tuple[str, ...] = ()
    """Metrics that must be counted outside of the program: `allocated`, `mapped` (bytes by which
    the image grew), `flushes` (at QEMU), `host_syncs` (QEMU's fdatasync calls), `device_flushes`;
    and `writes`, to compare these with.
    """
    before: float = 0.0
    """Seconds that the steps before the program take, about."""
    log: str = ""
    """A server's log, whose last lines explain why the program failed."""


class Outputs(Value):
    """The output of a program, and the files that its script collects."""

    stdout: str
    stderr: str = ""
    files: Mapping[str, str] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """The whole output as one text; each part after the first has a heading like those of
        `head`.
        """
        parts = {"standard error": self.stderr, **self.files}
        others = [f"\n==> {name} <==\n{content}" for name, content in parts.items() if content]
        return "".join([self.stdout, *others])


class ProgramResult(Value):
    """The numbers in a program's output.

    `counted` is the traffic that the program itself reports, `measured_seconds` for how long it
    measured. `checks` are the program's settings and counters, as read back.
    """

    samples: tuple[Sample, ...]
    counted: IoCounters | None
    measured_seconds: float | None
    series: tuple[Series, ...] = ()
    checks: tuple[Check, ...] = ()


class Around(Value):
    """A measurement's surroundings, for gates: what was counted outside of the program, the guest's
    memory in bytes, and the seconds asked for."""

    evidence: Evidence
    memory: int | None
    runtime: float
    path: DiskPath

    @property
    def guest_flushes(self) -> bool:
        """True if a guest's synced writes end with a flush: its disk has a write cache."""
        return not self.path.on_host and self.path.offers_write_cache


class Gate(Value):
    """A condition without which a program's number is not the disk's.

    A run that misses one is shown and not ranked; with `only_said` it is ranked nevertheless.
    """

    name: str
    met: bool
    observed: float
    condition: str
    only_said: bool = False

    @classmethod
    def at_least(cls, name: str, observed: float, least: float, *, only_said: bool = False) -> Gate:
        """The gate `observed >= least`."""
        return cls(name, observed >= least, observed, f"at least {least:g}", only_said)

    @classmethod
    def at_most(cls, name: str, observed: float, most: float) -> Gate:
        """The gate `observed <= most`."""
        return cls(name, observed <= most, observed, f"at most {most:g}")

    @classmethod
    def unknown(cls, name: str, lacking: str) -> Gate:
        """A gate that cannot be judged, because nothing counted what is `lacking`."""
        return cls(name, False, math.nan, f"{lacking} was not counted", only_said=True)

    def check(self, measurement: str) -> Check:
        """The gate as a state of the run, to be stored and shown."""
        word = "met" if self.met else f"{NOT_MET}, only said" if self.only_said else MISSED
        number = "" if math.isnan(self.observed) else f"{self.observed:.3g}, "
        observed = f"{word}: {number}{self.condition}"
        return Check(f"{measurement}{GATE}{self.name}", None, observed)


class Workload(Protocol):
    """One program.

    `needs_directory` is True if it only works on files in a directory, `needs_fresh_guest` if an
    earlier program in the same guest would change its result, by the guest's page cache or by code
    that QEMU has translated; then it gets a guest of its own. `by_server` is True if another
    process does the program's I/O. `clients_setting` is the setting of its measurements that says
    how many clients there are.
    """

    needs_directory: bool = False
    needs_fresh_guest: bool = False
    by_server: bool = False
    clients_setting: str | None = None

    def files(
        self, plan: MeasurementPlan, subject: Subject, timing: Timing
    ) -> PreparedFiles | None:
        """The files that it copies for each measurement; None if it needs none."""
        del plan, subject, timing
        return None

    def leaves_writes(self, plan: MeasurementPlan) -> bool:
        """True for a program that writes and does not flush: at its end the host's memory may hold
        what it wrote."""
        del plan
        return False

    def gates(
        self, plan: MeasurementPlan, outcome: ProgramResult, around: Around
    ) -> Iterable[Gate]:
        """What has to hold for the numbers to be the disk's."""
        del plan, outcome, around
        return ()

    def script(self, plan: MeasurementPlan, subject: Subject, timing: Timing) -> Script:
        """The script to run.

        Raises PlanError for settings that the program does not have, and if the subject or the
        memory is too small for them.
        """

    def parse(self, plan: MeasurementPlan, output: Outputs) -> ProgramResult:
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


def shell_script(*names: str) -> str:
    """The shell scripts of these names, one after the other."""
    folder = resources.files("vdisklab.workload") / "scripts"
    return "\n".join((folder / f"{name}.sh").read_text() for name in names)


def database_script(name: str) -> str:
    """The shell script of a database, after the part that all have in common."""
    return shell_script("database", name)


def step(script: str, verb: str, *arguments: str, timeout: float) -> SideCommand:
    """A step of such a script."""
    return SideCommand(("sh", "-s", "--", verb, *arguments), timeout, script)


def facts_of(plan: MeasurementPlan, outcome: ProgramResult) -> dict[str, str]:
    """What a program's checks say, by name without that of the measurement."""
    return {check.name.removeprefix(f"{plan.name}."): check.observed for check in outcome.checks}


def flushed(what: str, done: float, around: Around) -> Iterator[Gate]:
    """The gate that each of `done` synced writes of one client reaches the disk as a flush.

    None where the guest need not flush, or nobody counted it.
    """
    qemu = around.evidence.qemu
    flushes = None if qemu is None else qemu.flush_operations
    if around.guest_flushes and flushes is not None and done:
        yield Gate.at_least(f"flushes ÷ {what}", flushes / done, 0.9)


def server_gates(
    facts: Mapping[str, str], rate: float, commits: str | None, around: Around
) -> Iterator[Gate]:
    """The gates of every database server, by what was counted in `facts`.

    `commits` names the count of commits; None with several clients, or for reads.
    """
    if commits is not None and commits in facts:
        yield from flushed("commits", float(facts[commits]), around)
    elif commits is not None:
        yield Gate.unknown("flushes ÷ commits", commits)
    if commits is not None and "fdatasync" in facts:
        yield Gate.at_most(FASTER_THAN_DISK, rate * float(facts["fdatasync"]), 1.1)
    elif commits is not None:
        yield Gate.unknown(FASTER_THAN_DISK, "fdatasync")
    if "cpu" in facts:
        yield Gate.at_most("busy processors", float(facts["cpu"]), 0.9)
    else:
        yield Gate.unknown("busy processors", "cpu")
    if around.memory and "data_bytes" in facts:
        share = int(facts["data_bytes"]) / around.memory
        yield Gate.at_least("data ÷ guest memory", share, 4, only_said=True)


def busy_share(spent: Sequence[int]) -> str | None:
    """The busy share of all processors, from the growth of the first line of /proc/stat; None if no
    time passed."""
    # Without guest time, which is in user time, too; idle and iowait are the fourth and fifth.
    total = sum(spent[:8])
    return f"{1 - sum(spent[3:5]) / total:.3f}" if total > 0 else None


def default_data(subject: Subject) -> int:
    """Bytes of data: four guest memories, or what fits on most of the disk."""
    room = subject.nominal * 6 // 10
    return room if subject.memory is None else min(room, 4 * subject.memory)


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


class NamedResult(Value):
    """One measurement in a result file, with its name in the file or in vdisklab's profiles."""

    name: str
    outcome: ProgramResult


class Report(Value):
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


class Moved(Value):
    """Bytes completed in an interval, in seconds from the start."""

    begin: float
    end: float
    size: float


def series_of(direction: Direction, moved: Sequence[Moved], seconds: float) -> Series | None:
    """Bytes per second in each whole second of a run of `seconds`; None below one second."""
    # By the program's own clock, a run of 5 seconds may end after 4.999.
    whole = math.floor(seconds + 0.005)
    if whole < 1:
        return None
    values = [0.0] * whole
    for piece in moved:
        _spread(values, piece)
    return Series("bandwidth", direction, 1.0, tuple(values))


def _spread(values: list[float], piece: Moved) -> None:
    width = piece.end - piece.begin
    if width <= 0:
        return
    for second in range(int(piece.begin), min(len(values), math.ceil(piece.end))):
        shared = min(piece.end, second + 1) - max(piece.begin, second)
        values[second] += piece.size * shared / width


def longest_gap(moved: Iterable[Moved], seconds: float) -> float:
    """The longest time within a run of `seconds` without a completion."""
    longest, until = 0.0, 0.0
    for piece in sorted(moved, key=lambda interval: interval.begin):
        if piece.size > 0:
            longest = max(longest, piece.begin - until)
            until = max(until, piece.end)
    return max(longest, seconds - until)


def worst_second(series: Series) -> Sample:
    """The smallest value of the series."""
    return Sample("worst_second", series.direction, min(series.values))


class BandwidthLog(Value):
    """Bandwidth over time from a log, with the worst second and the longest stall."""

    series: tuple[Series, ...]
    samples: tuple[Sample, ...]


class LoggedRun(Value):
    """fio's report of a run: seconds of the log's window and of the run, bytes of each direction,
    and the slowest request's latency in seconds.
    """

    window: float
    seconds: float
    totals: Mapping[Direction, int]
    longest: float


def read_log(text: str, run: LoggedRun) -> BandwidthLog:
    """The bandwidth over time of a run.

    Windows without a line are a stall only if a request took that long; otherwise fio's helper
    thread was late, or the job paused. Raises WorkloadError for a malformed line.
    """
    moved: dict[Direction, list[Moved]] = {}
    for direction, piece in _pieces(text, run):
        moved.setdefault(direction, []).append(piece)
    series: list[Series] = []
    for direction, pieces in moved.items():
        moved[direction] = _completed(pieces, run, run.totals.get(direction, 0))
        series_read = series_of(direction, moved[direction], run.seconds)
        if series_read is not None:
            series.append(series_read)
    samples = [worst_second(points) for points in series]
    if series:
        side = series[0].direction if len(series) == 1 else Direction.NONE
        every = [piece for pieces in moved.values() for piece in pieces]
        gap = longest_gap(every, run.seconds)
        samples.append(Sample("longest_stall", side, gap if gap >= run.window else 0.0))
    return BandwidthLog(tuple(series), tuple(samples))


def lines_of_log(text: str) -> tuple[str, ...]:
    """The log lines in fio's standard error, as one text; empty if there are none."""
    lines = _LINES.findall(text)
    return ("\n".join(lines),) if lines else ()


def _is_stall(gap: float, run: LoggedRun) -> bool:
    """True if a request waited during a gap in the log: it started at most two windows after the
    gap began, or ended at most two windows before the gap's end."""
    return gap >= 2 * run.window and run.longest >= gap - 2 * run.window


def _completed(pieces: Sequence[Moved], run: LoggedRun, total: int) -> list[Moved]:
    """The pieces, completed with the unlogged end of the run, so that they add up to `total` bytes.

    The bytes that the log lacks were transferred at the end. If the log lacks none (a shortened
    window is logged with its full rate), the end has the mean rate, unless it is a stall.
    """
    every = list(pieces)
    last = max(piece.end for piece in every)
    measured = sum(piece.size for piece in every)
    left = run.seconds - last
    if left > 0:
        stalled = _is_stall(left, run)
        size = max(total - measured, 0.0)
        if size == 0 and not stalled:
            size = measured / last * left
        every.append(Moved(last, last + run.window if stalled else run.seconds, size))
    factor = total / sum(piece.size for piece in every) if total and measured else 1.0
    return [Moved(piece.begin, piece.end, piece.size * factor) for piece in every]


def _pieces(text: str, run: LoggedRun) -> Iterator[tuple[Direction, Moved]]:
    last: dict[Direction, float] = {}
    before = 0.0
    for number, line in enumerate(text.splitlines(), 1):
        end, rate, direction = _line(line, number)
        if end < before:
            last = {}  # the next job begins
        before = end
        begin = last.get(direction, 0.0)
        last[direction] = end
        if _is_stall(end - begin, run):
            begin = end - run.window
        yield direction, Moved(begin, end, rate * (end - begin))


def _line(line: str, number: int) -> tuple[float, float, Direction]:
    fields = line.split(",")
    try:
        end, rate, direction = (int(field) for field in fields[:3])
        if end < 0 or rate < 0 or direction < 0:
            raise ValueError
        return end / 1000, rate * 1024.0, _DIRECTIONS[direction]
    except (ValueError, IndexError, OverflowError) as error:
        raise WorkloadError(
            f"line {number} of fio's bandwidth log is {line[:60]!r}, "
            "not milliseconds, KiB/s and direction"
        ) from error
