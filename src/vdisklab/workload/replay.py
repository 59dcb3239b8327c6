"""Replays a recorded load: the program's command, and its report.

fio's replay of iologs cannot do it (docs/decisions: a replayer of our own). So a small program in C
does the requests (`programs/replay.c`), compiled by the host's compiler when it is needed; a disk
of its own brings it into the guest, with the plan of the requests.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from functools import lru_cache
from importlib import resources
from itertools import accumulate
from pathlib import Path, PurePath
from typing import Annotated, Literal

from pydantic import Field

from vdisklab.errors import LoadError, PlanError, WorkloadError
from vdisklab.loads.folding import Folded, folded, touched_bytes
from vdisklab.loads.load import IoKind, RecordedLoad
from vdisklab.loads.load_file import SUFFIX, read_load
from vdisklab.loads.parts import Cut, Part, cut
from vdisklab.loads.replay_plan import encode_plan, least_seconds, recorded_depth
from vdisklab.path.architecture import GUEST, is_foreign
from vdisklab.plan.profile import REPLAY, MeasurementPlan, Profile, Usual
from vdisklab.results.model import (
    BEGUN_LATE,
    REPEATED,
    Check,
    Direction,
    IoCounters,
    Sample,
    Series,
)
from vdisklab.units import GIB, MIB
from vdisklab.value import Value, field, replace
from vdisklab.workload import open_load, program
from vdisklab.workload.grouped import BesideRun

PROGRAM = REPLAY
TIMED, FAST = "timed", "fast"

PART_SECONDS = 60.0
"""A long recording is replayed in parts of this length, unless --runtime says another one."""

_WHOLE_SECONDS = 1.25 * PART_SECONDS
"""A recording for a minute takes a little longer; two parts of it would be nearly the same."""

_MOST_REQUESTS = 2_000_000
_REQUEST_BYTES = 36
_PROGRAM_BYTES = 2 * MIB
_SMALLEST_DISK, _LARGEST_DISK = GIB, 4 * GIB
# As in programs/replay.c.
_FEWEST_THREADS, _MOST_THREADS = 16, 256
_DIGITS = 12  # a disk's serial number has 20 characters at most

_SPARE_SECONDS = 10.0
_SPARE_SHARE = 0.25
_FAST_TIMES = 4.0
_SLACK_SECONDS = 300.0
_STEP_SECONDS = 600.0

_LATE_SECONDS = 0.005
_LATE_SHARE = 0.01
_SAME_COUNT = 0.01
_STALL_WINDOW = 0.1
_FEWEST_FOR_P99 = 100
_REQUESTS = ("read", "write", "flush", "discard", "zeroes", "forced")

_SUB_BITS = 6
_HEAD = re.compile(
    r"\Apart (?P<part>[^\n]{1,200})\nplaces (?P<places>[^\n]{1,200})\nvdisklab-replay 1$",
    re.MULTILINE,
)
_NUMBERS = re.compile(
    r"^(requests|done|refused|nanoseconds|started|direct|threads|deepest|stall|fua)"
    r" ([0-9]{1,20})$"
)
_KIND = re.compile(
    r"^kind (read|write|flush|discard|zeroes|forced|late)"
    r" ([0-9]{1,20}) ([0-9]{1,20}) ([0-9]{1,20}) ([0-9]{1,20})$"
)
_BIN = re.compile(r"^bin (read|write|flush|discard|zeroes|forced|late) ([0-9]{1,4}) ([0-9]{1,20})$")
_SECOND = re.compile(r"^second (read|write) ([0-9]{1,20})$")
_OTHER = re.compile(r"^(?:mode (?:timed|fast)|nomerges [0-9])$")
_MOST_LINES = 200_000
_LOGGED = re.compile(r"^([0-9]{1,15}) (-1|[0-9]{1,15}) ([0-5]) ([0-9]{1,10})$")
# By the plan's number of the kind: read, write, flush, discard, write-zeroes, forced write.
_DIRECTIONS = (
    Direction.READ, Direction.WRITE, Direction.NONE, Direction.TRIM, Direction.TRIM,
    Direction.WRITE,
)  # fmt: skip


class ReplaySettings(program.Settings):
    """Settings of a replay: the load file, how its requests are timed, and which part of it.

    With `timed` each request is done when it was due; with `fast` when those that it had waited for
    have ended, and its think time has passed. `digest` identifies the file's content.
    """

    load: str
    mode: Literal["timed", "fast"] = "timed"
    part: Literal["whole", "busiest", "typical"] = "whole"
    digest: Annotated[str, Field(pattern="^[0-9a-f]{12}$")] | None = None


class _Prepared(Value, eq=False):
    """The part of a load that is replayed, and its places on the disk."""

    load: RecordedLoad
    cut: Cut
    places: Folded
    least_seconds: float
    """As fast as it goes, on a disk that takes no time."""

    @property
    def seconds(self) -> float:
        return self.load.source.span_us / 1e6


@lru_cache(maxsize=1)
def _load(path: str, digest: str) -> RecordedLoad:
    del digest  # a file that changed is read again
    return read_load(Path(path))


@lru_cache(maxsize=4)
def _prepared(path: str, digest: str, part: str, seconds: float, size: int) -> _Prepared:
    load = _load(path, digest)
    chosen = cut(load, Part(part), seconds)
    load = load if chosen.part is Part.WHOLE else load.part(chosen.begin_us, chosen.end_us)
    if not len(load):
        raise LoadError(f"{path} has no requests in {chosen}", hint="record for a longer time")
    if len(load) > _MOST_REQUESTS:
        raise LoadError(
            f"{chosen} of {path} has {len(load):,} requests, and a replay does at most "
            f"{_MOST_REQUESTS:,}",
            hint="choose a shorter --runtime",
        )
    return _Prepared(load, chosen, folded(load, size), least_seconds(load))


def digest_of(path: str) -> str:
    """What identifies a load file's content. Raises LoadError for one that cannot be read."""
    try:
        with Path(path).open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()[:_DIGITS]
    except OSError as error:
        raise LoadError(
            f"the load {path} cannot be read: {error.strerror}",
            hint="name a file that `vdisklab record` or `vdisklab import` wrote",
        ) from error


def is_load(name: str) -> bool:
    """True for the name of a load file."""
    return name.endswith(SUFFIX)


def load_profile_of(name: str) -> Profile:
    """The profile that replays a load file: timed, and as fast as it goes.

    A long recording is replayed in two parts, its busiest minute and a typical one. Raises
    LoadError.
    """
    digest = digest_of(name)
    load = _load(name, digest)
    span = load.source.span_us / 1e6
    is_whole = span <= _WHOLE_SECONDS
    parts = (Part.WHOLE,) if is_whole else (Part.BUSIEST, Part.TYPICAL)
    measurements = tuple(
        MeasurementPlan(
            mode if part is Part.WHOLE else f"{mode}-{part}",
            PROGRAM,
            {"load": name, "mode": mode, "part": part.value, "digest": digest},
        )
        for part in parts
        for mode in (TIMED, FAST)
    )
    needed = touched_bytes(load)
    if load.source.disk_bytes is not None:
        needed = min(needed, load.source.disk_bytes)
    size = min(max(_SMALLEST_DISK, -(-needed * 9 // 8 // GIB) * GIB), _LARGEST_DISK)
    stem = re.sub(r"[^a-z0-9._-]+", "-", PurePath(name).stem.lower()).strip("-._")
    return Profile(
        # With the suffix no profile that comes with vdisklab has the name.
        f"{stem[:50] or 'recorded'}{SUFFIX}",
        f"{load.source.name}, as recorded: {len(load):,} requests in {span:.0f} s",
        measurements,
        usual=Usual(runtime=math.ceil(span) if is_whole else PART_SECONDS, size_bytes=size),
    )


@lru_cache(maxsize=1)
def _source() -> bytes:
    """The program's source; an upgrade of vdisklab meanwhile does not change it for a campaign."""
    return (resources.files("vdisklab.workload") / "programs" / "replay.c").read_bytes()


def _buffer_bytes(prepared: _Prepared) -> int:
    """What the program takes for what is written and read: each thread reads to its own place."""
    length, is_read = prepared.places.length, prepared.load.kind == IoKind.READ
    threads = min(max(2 * recorded_depth(prepared.load), _FEWEST_THREADS), _MOST_THREADS)
    return 2 * int(length.max()) + threads * int(length[is_read].max(initial=0)) + 6 * MIB


class Replay(program.Workload):
    """The replay of a load, by a program of our own."""

    needs_rate = False

    def files(
        self, plan: MeasurementPlan, subject: program.Subject, timing: program.Timing
    ) -> program.PreparedFiles:
        """The program, compiled for the guests' architecture, and the plan of the requests."""
        prepared = _of(plan, subject, timing)
        source = _source()
        compiler = GUEST.cross_compiler if is_foreign() else "cc"

        def requests() -> bytes:
            return encode_plan(prepared.load, prepared.places)

        return program.PreparedFiles(
            _disk_name(plan, subject, timing, source),
            program.shell_script("replay"),
            (compiler,),
            (compiler,),
            len(prepared.load) * _REQUEST_BYTES + _PROGRAM_BYTES,
            {"replay.c": lambda: source, "plan": requests},
        )

    def script(
        self, plan: MeasurementPlan, subject: program.Subject, timing: program.Timing
    ) -> program.Script:
        """The replay on the whole disk, with direct I/O."""
        settings = program.read_settings(plan, ReplaySettings)
        if subject.is_directory:
            raise PlanError(
                f"measurement {plan.name!r} replays what a guest did to its disk, so it needs the "
                "disk itself",
                hint="leave out filesystem, and paths that share a directory",
            )
        files = self.files(plan, subject, timing)
        prepared = _of(plan, subject, timing)
        needed = _buffer_bytes(prepared) + 3 * files.size + 96 * MIB
        program.require_memory(plan, needed, subject.memory)
        seconds = prepared.seconds
        timed = settings.mode == TIMED
        limit = seconds * (1 + _SPARE_SHARE) if timed else seconds * _FAST_TIMES
        limit += _SPARE_SECONDS
        directory = _directory(subject)
        text = program.shell_script("replay")
        source = subject.packages.get(files.name, files.name)

        def step(verb: str, *arguments: str) -> program.SideCommand:
            return program.step(text, verb, directory, *arguments, timeout=_STEP_SECONDS)

        return program.Script(
            (
                "sh",
                "-s",
                "--",
                "run",
                directory,
                str(prepared.cut),
                str(prepared.places),
                settings.mode,
                subject.path,
                f"{limit:.3f}",
            ),
            seconds if timed else prepared.least_seconds,
            limit + _SLACK_SECONDS,
            stdin=text,
            prepare=(step("unpack", source, subject.path),),
            conclude=(step("remove", subject.path),),
        )

    def group_script(
        self,
        plan: MeasurementPlan,
        subject: program.Subject,
        timing: program.Timing,
        start: open_load.GroupStart,
    ) -> program.Script:
        """The replay of one of several guests: after a delay, again and again until all ended."""
        seconds = timing.ramp + timing.runtime
        return _repeated(self.script(plan, subject, timing), subject, seconds, start)

    def group_requests(
        self,
        plan: MeasurementPlan,
        output: program.Outputs,
        timing: program.Timing,
        start: open_load.GroupStart,
    ) -> open_load.GuestRequests:
        """The requests of one guest of a group, from its log and the moment of its start."""
        del start
        return _requests(plan, output, timing.ramp + timing.runtime)

    def beside_script(
        self, plan: MeasurementPlan, subject: program.Subject, run: BesideRun
    ) -> program.Script:
        """The replay beside an operation: again and again."""
        timing = program.Timing(run.part_seconds, 0.0, 1.0)
        return _repeated(self.script(plan, subject, timing), subject, run.seconds, run.start)

    def beside_requests(
        self, plan: MeasurementPlan, output: program.Outputs, run: BesideRun, lasted: float
    ) -> open_load.GuestRequests:
        """The requests of a replay beside an operation, from its log."""
        return _requests(plan, output, min(lasted, run.seconds))

    def parse(self, plan: MeasurementPlan, output: program.Outputs) -> program.ProgramResult:
        """Latencies of reads, writes and flushes; as fast as it goes also requests per second.

        Raises WorkloadError for a report that is incomplete or contradicts itself.
        """
        report = read_report(output.stdout)
        timed = program.read_settings(plan, ReplaySettings).mode == TIMED
        series = tuple(
            Series("bandwidth", direction, 1.0, tuple(map(float, numbers)))
            for direction, numbers in report.seconds.items()
            if numbers
        )
        return program.ProgramResult(
            tuple(_samples(report, timed=timed)),
            report.counted if report.is_complete else None,
            report.measured_seconds,
            series,
            tuple(_facts(plan, report)),
        )

    def gates(
        self, plan: MeasurementPlan, outcome: program.ProgramResult, around: program.Around
    ) -> Iterator[program.Gate]:
        """Whether the path kept up with the recording, and whether QEMU saw the same requests."""
        facts = program.facts_of(plan, outcome)
        if program.read_settings(plan, ReplaySettings).mode == TIMED:
            late = float(facts["late_share"])
            at_most = f"at most {_LATE_SHARE:g}"
            yield program.Gate(BEGUN_LATE, late <= _LATE_SHARE, late, at_most, only_said=True)
        qemu, counted = around.evidence.qemu, outcome.counted
        if around.path.on_host or qemu is None or counted is None:
            return
        done = counted.read_operations + counted.write_operations
        if done:
            ratio = (qemu.read_operations + qemu.write_operations) / done
            yield program.Gate(
                REPEATED, abs(ratio - 1) <= _SAME_COUNT, ratio,
                "1 within 1 %", only_said=True,
            )  # fmt: skip


def _repeated(
    alone: program.Script, subject: program.Subject, seconds: float, start: open_load.GroupStart
) -> program.Script:
    """A replay that begins after a delay, and again at its end, and logs its requests."""
    log = f"{_directory(subject)}/requests.log"
    return replace(
        alone,
        command=(*alone.command[:-1], f"{seconds:.3f}", f"{start.delay:.3f}", log, "again"),
        expected=start.delay + seconds,
        timeout=start.delay + seconds + _SLACK_SECONDS,
        collect=(log,),
    )


def _requests(
    plan: MeasurementPlan, output: program.Outputs, seconds: float
) -> open_load.GuestRequests:
    """The requests of a repeated replay by the guest's clock. Raises WorkloadError."""
    report = read_report(output.stdout)
    timed = program.read_settings(plan, ReplaySettings).mode == TIMED
    (log,) = output.files.values()
    begin = report.numbers["started"] / 1e9
    end = begin + (seconds if timed else min(seconds, report.measured_seconds))
    return open_load.GuestRequests(begin, end, timed, tuple(_logged(log, begin, end)))


def _directory(subject: program.Subject) -> str:
    return f"{subject.scratch}/replay{subject.mark}"


def _logged(log: str, begin: float, end: float) -> Iterator[open_load.LoggedRequest]:
    """The requests of a log that were due before the end. Raises WorkloadError."""
    for line in log.splitlines():
        match = _LOGGED.match(line)
        if match is None:
            raise WorkloadError(f"a line of the replay's log is damaged: {line[:80]!r}")
        due, took, kind, size = map(int, match.groups())
        moment = begin + due / 1e6
        if moment < end:
            latency = None if took < 0 else took / 1e6
            yield open_load.LoggedRequest(moment, latency, _DIRECTIONS[kind], size)


def _of(plan: MeasurementPlan, subject: program.Subject, timing: program.Timing) -> _Prepared:
    """Raises LoadError, PlanError."""
    settings = program.read_settings(plan, ReplaySettings)
    digest = settings.digest or digest_of(settings.load)
    seconds = timing.runtime * timing.scale
    return _prepared(settings.load, digest, settings.part, seconds, subject.size)


def _disk_name(
    plan: MeasurementPlan, subject: program.Subject, timing: program.Timing, source: bytes
) -> str:
    """The name of a replay's files, the same for both modes."""
    settings = program.read_settings(plan, ReplaySettings)
    parts = (
        settings.digest or digest_of(settings.load), settings.part, timing.runtime * timing.scale,
        subject.size, source,
    )  # fmt: skip
    return f"replay-{hashlib.sha256(repr(parts).encode()).hexdigest()[:_DIGITS]}"


class Histogram(Value):
    """How often each latency was seen, in bins as wide as 1/64 to 1/128 of their values.

    `bins` has the counts by the bin's number; sums of histograms are histograms. Times are
    nanoseconds.
    """

    count: int = 0
    size: int = 0
    total: int = 0
    most: int = 0
    bins: Mapping[int, int] = field(default_factory=dict)

    def __add__(self, other: Histogram) -> Histogram:
        return Histogram(
            self.count + other.count,
            self.size + other.size,
            self.total + other.total,
            max(self.most, other.most),
            Counter(self.bins) + Counter(other.bins),
        )

    def percentile(self, share: float) -> float:
        """The value that `share` of all do not exceed, as the middle of its bin, in seconds."""
        rank = max(1, math.ceil(self.count * share - 1e-9))
        ordered = sorted(self.bins.items())
        reached = accumulate(number for _, number in ordered)
        bin_number = next(
            number for (number, _), sofar in zip(ordered, reached, strict=True) if sofar >= rank
        )
        return min(_middle(bin_number), float(self.most)) / 1e9

    def share_above(self, seconds: float) -> float:
        """The share of values in bins above a number of seconds."""
        above = sum(n for number, n in self.bins.items() if _middle(number) > seconds * 1e9)
        return above / self.count if self.count else 0.0


def _middle(number: int) -> float:
    """The middle of a bin in nanoseconds (replay.c, bin_of)."""
    if number < 1 << _SUB_BITS:
        return float(number)
    shift = (number >> _SUB_BITS) - 1
    return float(((number & (1 << _SUB_BITS) - 1) + (1 << _SUB_BITS) << shift) + (1 << shift) / 2)


class ReplayReport(Value):
    """What the program printed: numbers by name, histograms by kind, bytes by second.

    `part` and `places` are sentences: what was replayed, and where.
    """

    part: str
    places: str
    numbers: Mapping[str, int]
    kinds: Mapping[str, Histogram]
    seconds: Mapping[Direction, tuple[int, ...]]

    @property
    def measured_seconds(self) -> float:
        """From the start to the last end."""
        return self.numbers["nanoseconds"] / 1e9

    @property
    def is_complete(self) -> bool:
        """True if every request was done."""
        return self.numbers["done"] == self.numbers["requests"]

    def of(self, *kinds: str) -> Histogram:
        """The histogram of all requests of these kinds."""
        return sum((self.kinds[kind] for kind in kinds if kind in self.kinds), Histogram())

    @property
    def counted(self) -> IoCounters:
        """The requests that were begun; a forced write is a write, and a flush too on a disk
        without FUA."""
        reads, writes = self.of("read"), self.of("write", "forced")
        flushes = self.of("flush").count
        if not self.numbers.get("fua"):
            flushes += self.of("forced").count
        return IoCounters(reads.size, writes.size, reads.count, writes.count, flushes)


def read_report(text: str) -> ReplayReport:
    """The program's report. Raises WorkloadError for another text, or one that is cut off."""
    head, lines = _HEAD.match(text), text.splitlines()
    if head is None or lines[-1] != "end" or len(lines) > _MOST_LINES:
        last = (lines or ["nothing"])[-1]
        raise WorkloadError(f"the replay did not finish; its last line was: {last[:200]}")
    numbers: dict[str, int] = {}
    kinds: dict[str, tuple[int, ...]] = {}
    bins: dict[str, dict[int, int]] = defaultdict(dict)
    seconds: dict[Direction, list[int]] = {Direction.READ: [], Direction.WRITE: []}
    for line in lines[3:-1]:
        if match := _BIN.match(line):
            bins[match[1]][int(match[2])] = int(match[3])
        elif match := _SECOND.match(line):
            seconds[Direction(match[1])].append(int(match[2]))
        elif match := _NUMBERS.match(line):
            numbers[match[1]] = int(match[2])
        elif match := _KIND.match(line):
            kinds[match[1]] = tuple(map(int, match.groups()[1:]))
        elif not _OTHER.match(line):
            raise WorkloadError(f"the replay's report has the unknown line {line[:80]!r}")
    _require_whole(numbers, kinds, bins)
    return ReplayReport(
        head["part"],
        head["places"],
        numbers,
        {
            kind: Histogram(count, size, total, most, bins[kind])
            for kind, (count, size, total, most) in kinds.items()
        },
        {direction: tuple(values) for direction, values in seconds.items()},
    )


def _require_whole(
    numbers: Mapping[str, int],
    kinds: Mapping[str, tuple[int, ...]],
    bins: Mapping[str, Mapping[int, int]],
) -> None:
    wanted = ("requests", "done", "refused", "nanoseconds", "direct", "threads", "deepest", "stall")
    lacking = [name for name in wanted if name not in numbers]
    if lacking:
        raise WorkloadError(f"the replay's report lacks {', '.join(lacking)}")
    wrong = [kind for kind, row in kinds.items() if sum(bins.get(kind, {}).values()) != row[0]]
    if wrong or not numbers["done"] or not numbers["nanoseconds"]:
        what = f"its histogram of {wrong[0]} is incomplete" if wrong else "it did no request"
        raise WorkloadError(f"the replay's report is of no use: {what}")


def _samples(report: ReplayReport, *, timed: bool) -> Iterator[Sample]:
    """Timed: latencies of reads, writes and flushes. As fast as it goes: the rate of all requests.

    A timed replay has no rate: it is the recording's on every path.
    """
    if timed:
        yield from _latencies(report.of("read"), Direction.READ)
        yield from _latencies(report.of("write", "forced"), Direction.WRITE)
        flushes = report.of("flush")
        if flushes.count:
            yield Sample("sync_mean", Direction.WRITE, flushes.total / flushes.count / 1e9)
            yield Sample("sync_max", Direction.WRITE, flushes.most / 1e9)
            if flushes.count >= _FEWEST_FOR_P99:
                yield Sample("sync_p99", Direction.WRITE, flushes.percentile(0.99))
    else:
        done, seconds = report.numbers["done"], report.measured_seconds
        yield Sample("iops", Direction.NONE, done / seconds)
        if report.is_complete:
            yield Sample("duration", Direction.NONE, seconds)
        yield from _latencies(report.of(*_REQUESTS), Direction.NONE)
    stall = report.numbers["stall"] / 1e9
    yield Sample("longest_stall", Direction.NONE, stall if stall >= _STALL_WINDOW else 0.0)


def _latencies(latency: Histogram, direction: Direction) -> Iterator[Sample]:
    if latency.count:
        yield Sample("latency_mean", direction, latency.total / latency.count / 1e9)
        yield Sample("latency_max", direction, latency.most / 1e9)
        for metric, share in program.PERCENTILES.items():
            # Above the largest request's rank a percentile would be the maximum.
            if latency.count * (1 - share) >= 1:
                yield Sample(metric, direction, latency.percentile(share))


def _facts(plan: MeasurementPlan, report: ReplayReport) -> Iterator[Check]:
    numbers, late = report.numbers, report.of("late")
    facts = {
        "part": report.part,
        "places": report.places,
        "replayed": f"{numbers['done']} of {numbers['requests']} requests",
        "late_share": f"{late.share_above(_LATE_SECONDS):.4g}",
        "begun_late": f"p50 {late.percentile(0.5):.6f} s, p99 {late.percentile(0.99):.6f} s",
        "threads": f"{numbers['deepest']} of {numbers['threads']} busy at most",
        "direct_io": "on" if numbers["direct"] else "off: the file system has none",
    }
    if numbers["refused"]:
        facts["refused"] = f"{numbers['refused']} discards, which the disk does not take"
    for name, value in facts.items():
        yield Check(f"{plan.name}.{name}", None, value)
