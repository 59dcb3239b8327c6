"""bonnie++: a file system's sequential writes and reads, seeks, and small files."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from vdisklab.errors import PlanError, WorkloadError
from vdisklab.plan.profile import MeasurementPlan
from vdisklab.results.model import Direction, Sample
from vdisklab.units import KIB, MIB, format_bytes, parse_size
from vdisklab.workload.program import (
    Output,
    ProgramResult,
    Script,
    Settings,
    Subject,
    Timing,
    Workload,
    read_settings,
    require_room,
)

_TIMEOUT = 6 * 3600.0

# Small synced files make btrfs reserve metadata space. If that runs out, the transaction ends with
# ENOSPC and the file system becomes read-only, as with a file of 384 MiB on a guest's disk of
# 515 MiB. More space guarantees nothing: Linux 6.18 failed with 16 * 1024 files after 384 MiB on
# 640 and 900 MiB, and after 256 MiB on 512 and 1024 MiB. Then bonnie++ reports it and the cell
# fails.
_BTRFS_METADATA = 256 * MIB

# The tests in the order in which every version lists them, each followed by its %CPU. Rates of
# the first five are in K/sec, where K is 1024 bytes (bon_csv2txt divides by 1024 for M).
FILE_TESTS: tuple[tuple[str, Direction, int], ...] = (
    ("per_char", Direction.WRITE, KIB),
    ("bandwidth", Direction.WRITE, KIB),
    ("rewrite", Direction.WRITE, KIB),
    ("per_char", Direction.READ, KIB),
    ("bandwidth", Direction.READ, KIB),
    ("seeks", Direction.NONE, 1),
)
SMALL_TESTS: tuple[tuple[str, Direction, int], ...] = tuple(
    (f"{order}_{test}", Direction.NONE, 1)
    for order in ("seq", "random")
    for test in ("create", "stat", "delete")
)

# Fields before the first test, and before the first test of small files, by format: DoReportIO and
# DoReportFile in bon_time.cpp; published lines of 1.93c, 1.96 and 1.97 have these 48 fields. 1.98
# (of bonnie++ 1.98 and 2.00) added the number of seeks and of seekers.
_BEFORE_1_98 = (7, 24)
_NEW_LAYOUTS = (
    (re.compile(r"1\.9[3-7][a-z]?"), _BEFORE_1_98),
    (re.compile(r"1\.98"), (9, 26)),
)
# Before 1.98 a line without tests of the large file (-s 0) has one field too few before that
# with the number of small files.
_SIZE, _SHIFTED_FILES = 5, 18
# -x writes a heading first. In 2.00 it has 48 columns over lines of 50: nothing is read from it.
_HEADINGS = (("format_version", "bonnie_version"), ("name", "file_size"))
_LATENCY = re.compile(r"[0-9]{1,12}(?:us|ms|s)")
_OLD_LAYOUT = (2, 15)
_OLD_FIELDS = 27
# 1.03 names no version: its line has a size, and then only rates and the number of files.
_OLD_SIZE = re.compile(r"(?:[0-9]{1,9}[kKMGT](?::[0-9]{1,9}[kKMGT]?)?)?")
_OLD_FIELD = re.compile(r"[0-9.]{0,20}|\+{1,9}|[0-9]{1,9}(?:[:/][0-9]{1,9}){1,3}")


class BonnieSettings(Settings):
    """Settings of a bonnie++ measurement.

    `size` is the size of its large file; the default is twice the memory, so that the guest's page
    cache cannot hold it. `files` is the number of small files in units of 1024. `fsync` is -b,
    `fast` is -f: no tests by single characters.
    """

    size: str | None = None
    files: Annotated[int, Field(ge=0, le=10_000)] = 16
    fsync: bool = True
    fast: bool = False


@dataclass(frozen=True, slots=True)
class Line:
    """One line of bonnie++'s CSV: the machine's name, and the version that wrote it."""

    name: str
    version: str
    samples: tuple[Sample, ...]


class Bonnie(Workload):
    """bonnie++ by Russell Coker."""

    needs_directory = True

    def script(self, plan: MeasurementPlan, subject: Subject, timing: Timing) -> Script:
        """-q leaves only the CSV on standard output; -r is the memory to assume."""
        settings = read_settings(plan, BonnieSettings)
        size = file_size(plan, settings, subject.memory)
        less = ", or a smaller --guest-memory" if settings.size is None else ", or a smaller file"
        require_room(plan, size, subject.size * 9 // 10, or_less=less)
        if plan.filesystem == "btrfs":
            require_room(plan, size + _BTRFS_METADATA, subject.size, or_less=less)
        memory = size // 2 if subject.memory is None else min(subject.memory, size // 2)
        files = max(1, round(settings.files * timing.scale)) if settings.files else 0
        options = (
            "-q", "-d", subject.path, "-s", str(size // MIB), "-r", str(memory // MIB),
            "-n", str(files), "-m", plan.name[:32],
        )  # fmt: skip
        user = ("-u", "root") if subject.as_root else ()
        flags = (*(("-b",) if settings.fsync else ()), *(("-f",) if settings.fast else ()))
        return Script(("bonnie++", *options, *user, *flags), 0.0, _TIMEOUT)

    def parse(self, plan: MeasurementPlan, output: Output) -> ProgramResult:
        """The numbers of its one line, except for tests that were too short for bonnie++."""
        del plan
        lines = parse_csv(output.stdout)
        if len(lines) != 1:
            raise WorkloadError(f"bonnie++ printed {len(lines)} lines of results instead of one")
        return ProgramResult(lines[0].samples, None, None)


def file_size(plan: MeasurementPlan, settings: BonnieSettings, memory: int | None) -> int:
    """Bytes of the large file. Raises PlanError if the page cache could hold it."""
    if settings.size is not None:
        size = parse_size(settings.size)
    elif memory is not None:
        size = 2 * memory
    else:
        size = 2 * 1024 * MIB
    size = -(-size // MIB) * MIB
    if memory is not None and size < 2 * memory:
        raise PlanError(
            f"measurement {plan.name!r}: a file of {format_bytes(size)} fits into the page cache "
            f"of {format_bytes(memory)} of memory",
            hint="make the file twice as large as the memory, or reduce the memory with "
            "--guest-memory",
        )
    return size


def is_csv_line(line: str) -> bool:
    """True for a line of CSV, also a damaged one, and its heading; false for other tables."""
    fields = line.strip().split(",")
    if len(fields) < _OLD_FIELDS:
        return False
    if tuple(fields[:2]) in _HEADINGS or any(form.fullmatch(fields[0]) for form, _ in _NEW_LAYOUTS):
        return True
    return (
        len(fields) == _OLD_FIELDS
        and _OLD_SIZE.fullmatch(fields[1]) is not None
        and all(map(_OLD_FIELD.fullmatch, fields[2:]))
    )


def parse_csv(text: str) -> tuple[Line, ...]:
    """The CSV of bonnie++ 1.03 to 2.00, without its heading. Raises WorkloadError naming the
    line."""
    lines = [
        (number, line.strip().split(","))
        for number, line in enumerate(text.splitlines(), 1)
        if is_csv_line(line)
    ]
    parsed = [row for row in lines if tuple(row[1][:2]) not in _HEADINGS]
    if not parsed:
        raise WorkloadError("there is no line of bonnie++'s CSV (27 fields or more)")
    return tuple(_line(fields, number) for number, fields in parsed)


def _line(fields: Sequence[str], number: int) -> Line:
    layout = next((columns for form, columns in _NEW_LAYOUTS if form.fullmatch(fields[0])), None)
    if layout is None and len(fields) == _OLD_FIELDS:
        return Line(fields[0], "1.03", _samples(fields, _OLD_LAYOUT, number))
    if layout is None:
        raise WorkloadError(
            f"line {number}: {len(fields)} fields and {fields[0][:20]!r} in the first are not "
            "the CSV of bonnie++ 1.03 or of format 1.93 to 1.98"
        )
    if _is_shifted(fields, layout):
        fields = [*fields[:_SIZE], "", *fields[_SIZE:]]
    _require_whole(fields, layout[1] + 2 * len(SMALL_TESTS), number)
    return Line(fields[2], fields[1], _samples(fields, layout, number))


def _is_shifted(fields: Sequence[str], layout: tuple[int, int]) -> bool:
    """True for a line that lacks a field: before 1.98, and without tests of the large file."""
    before = fields[_SIZE:_SHIFTED_FILES]
    return (
        layout == _BEFORE_1_98
        and len(fields) > _SHIFTED_FILES
        and not any(before)
        and bool(fields[_SHIFTED_FILES])
    )


def _require_whole(fields: Sequence[str], rates: int, number: int) -> None:
    """Raises WorkloadError for a line that does not end with the latencies of its tests.

    They are not used, but a line without them was truncated, perhaps within a number.
    """
    latencies = len(FILE_TESTS) + len(SMALL_TESTS)
    if len(fields) != rates + latencies:
        raise WorkloadError(
            f"line {number} of bonnie++'s CSV has {len(fields)} fields instead of "
            f"{rates + latencies}: it is damaged or was cut off"
        )
    done, latency = fields[rates - 2].strip(), fields[-1].strip()
    if _LATENCY.fullmatch(latency) is None if done else latency:
        raise WorkloadError(
            f"line {number} of bonnie++'s CSV ends with {fields[-1][:20]!r}, where the last "
            "test's latency belongs"
        )


def _samples(fields: Sequence[str], layout: tuple[int, int], number: int) -> tuple[Sample, ...]:
    tests = [
        (first + 2 * place, test)
        for first, group in zip(layout, (FILE_TESTS, SMALL_TESTS), strict=True)
        for place, test in enumerate(group)
    ]
    parsed = []
    for at, (metric, direction, unit) in tests:
        value = _rate(fields[at], number, at)
        if value is not None:
            parsed.append(Sample(metric, direction, value * unit))
            parsed += cpu_samples(metric, direction, fields[at + 1])
    return tuple(parsed)


def cpu_samples(metric: str, direction: Direction, percent: str) -> list[Sample]:
    """The %CP beside a rate, as a ratio; none for `+++` and other text."""
    if re.fullmatch(r"[0-9]{1,4}", percent) is None:
        return []
    return [Sample(f"{metric}_cpu", direction, int(percent) / 100)]


def _rate(field: str, number: int, at: int) -> float | None:
    """None for `+++++` (the test took less than half a second) and for a skipped test."""
    if not field or not field.strip("+"):
        return None
    if re.fullmatch(r"[0-9]{1,12}(\.[0-9]{1,6})?", field) is None:
        raise WorkloadError(
            f"line {number}, field {at + 1} of bonnie++'s CSV is {field[:30]!r}, not a number"
        )
    return float(field) or None
