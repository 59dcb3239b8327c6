"""bonnie++: a file system's sequential writes and reads, seeks, and small files.

Its CSV is read, and the classic table, as bonnie++ and bon_csv2txt print it (1.03 to 2.00).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Annotated

from pydantic import Field

from vdisklab.errors import PlanError, WorkloadError
from vdisklab.plan.profile import MeasurementPlan
from vdisklab.results.model import Direction, Sample
from vdisklab.units import KIB, MIB, format_bytes, parse_size
from vdisklab.value import Value
from vdisklab.workload import program

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
_NEW_LAYOUTS = ((re.compile(r"1\.9[3-7][a-z]?"), _BEFORE_1_98), (re.compile(r"1\.98"), (9, 26)))
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


# Some builds print `@version@`, and text that was cut has no version. Bonnie without ++ has more
# hyphens.
HEADING = re.compile(
    r"\s*(?:Version\s+([0-9][0-9.a-z]*)\s+-+|(?:Version\s+\S+\s+)?-{6})"
    r"Sequential (?:Output|Create)-+ .*"
)

_SMALL_HEADING = re.compile(r".*-Sequential Create-+\s+-+Random Create-.*")
_NAMED = re.compile(r"(.*?)-Create--\s.*")
_UNITS = re.compile(r"\s*(?:Machine|Name:Size).*/sec %CP.*")
_SMALL_UNITS = re.compile(r"\s*files(?::max(?::min)?)?\s+/sec.*")
_RATE = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,3})?)([kmg]?)")
# A row begins with the name and the size. Then each test takes ten columns, ` %5d %3d`, or more
# where its rate has more digits; a test that was left out takes ten blanks.
_NAME_COLUMNS = 19

_PAIR = re.compile(r"(?P<left_out> {10})| {1,5}(?P<rate>\S+) {1,3}(?P<cpu>\S+)")
_LONGEST_ROW = 200
# bonnie++ 1.98 began to write rates with k, m and g; 2.00a, which was tried, shows the number of
# files in place of the rates of small files. bon_csv2txt, which has no version there, does not.
_WRONG_SMALL_RATES = re.compile(r"1\.98.*|[2-9].*")


class BonnieSettings(program.Settings):
    """Settings of a bonnie++ measurement.

    `size` is the size of its large file; the default is twice the memory, so that the guest's page
    cache cannot hold it. `files` is the number of small files in units of 1024. `fsync` is -b,
    `fast` is -f: no tests by single characters.
    """

    size: str | None = None
    files: Annotated[int, Field(ge=0, le=10_000)] = 16
    fsync: bool = True
    fast: bool = False


class Line(Value):
    """One line of bonnie++'s CSV: the machine's name, and the version that wrote it."""

    name: str
    version: str
    samples: tuple[Sample, ...]


class Bonnie(program.Workload):
    """bonnie++ by Russell Coker."""

    needs_directory = True

    def script(
        self, plan: MeasurementPlan, subject: program.Subject, timing: program.Timing
    ) -> program.Script:
        """-q leaves only the CSV on standard output; -r is the memory to assume."""
        settings = program.read_settings(plan, BonnieSettings)
        size = file_size(plan, settings, subject.memory)
        less = ", or a smaller --guest-memory" if settings.size is None else ", or a smaller file"
        program.require_room(plan, size, subject.room_for_files, or_less=less)
        if plan.filesystem == "btrfs":
            program.require_room(plan, size + _BTRFS_METADATA, subject.size, or_less=less)
        memory = size // 2 if subject.memory is None else min(subject.memory, size // 2)
        files = max(1, round(settings.files * timing.scale)) if settings.files else 0
        options = (
            "-q", "-d", subject.path, "-s", str(size // MIB), "-r", str(memory // MIB),
            "-n", str(files), "-m", plan.name[:32],
        )  # fmt: skip
        user = ("-u", "root") if subject.as_root else ()
        flags = (*(("-b",) if settings.fsync else ()), *(("-f",) if settings.fast else ()))
        return program.Script(("bonnie++", *options, *user, *flags), 0.0, _TIMEOUT)

    def parse(self, plan: MeasurementPlan, output: program.Outputs) -> program.ProgramResult:
        """The numbers of its one line, except for tests that were too short for bonnie++."""
        del plan
        lines = parse_csv(output.stdout)
        if len(lines) != 1:
            raise WorkloadError(f"bonnie++ printed {len(lines)} lines of results instead of one")
        return program.ProgramResult(lines[0].samples, None, None)


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
            f"({format_bytes(memory)} of memory)",
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
    for column, (metric, direction, unit) in tests:
        value = _rate(fields[column], number, column)
        if value is not None:
            parsed.append(Sample(metric, direction, value * unit))
            parsed += cpu_samples(metric, direction, fields[column + 1])
    return tuple(parsed)


def cpu_samples(metric: str, direction: Direction, percent: str) -> list[Sample]:
    """The %CP beside a rate, as a ratio; empty for `+++` and other text."""
    if re.fullmatch(r"[0-9]{1,4}", percent) is None:
        return []
    return [Sample(f"{metric}_cpu", direction, int(percent) / 100)]


def _rate(field: str, number: int, column: int) -> float | None:
    """The rate; None for `+++++` (the test took less than half a second) and for a skipped test."""
    if not field or not field.strip("+"):
        return None
    if re.fullmatch(r"[0-9]{1,12}(\.[0-9]{1,6})?", field) is None:
        raise WorkloadError(
            f"line {number}, field {column + 1} of bonnie++'s CSV is {field[:30]!r}, not a number"
        )
    return float(field) or None


def parse_bonnie_text(text: str) -> tuple[program.Report, ...]:
    """One report for each line of the first table, with its line of the second one.

    Raises WorkloadError naming the line.
    """
    tables = _read_tables(text)
    if not (tables.rows or tables.small):
        raise WorkloadError(
            "bonnie++'s heading `Version … ------Sequential Output------` is missing"
        )
    expected = len(tables.rows) if tables.has_small else 0
    if tables.rows and len(tables.small) != expected:
        raise WorkloadError(
            f"bonnie++'s tables have {len(tables.rows)} and {len(tables.small)} lines"
        )
    return tuple(_reports(tables))


@dataclass(slots=True)
class _Tables:
    version: str = ""
    unit: int = KIB
    name: str = ""
    has_small: bool = False
    trusted: bool = True
    rows: list[tuple[str, list[Sample]]] = field(default_factory=list)
    small: list[list[Sample]] = field(default_factory=list)


class _Lines(Enum):
    """The table to which the current line belongs."""

    NONE = 0
    FILES = 1
    SMALL = 2


def _read_tables(text: str) -> _Tables:
    tables, part = _Tables(), _Lines.NONE
    for number, line in enumerate(text.splitlines(), 1):
        heading = HEADING.fullmatch(line)
        version = (heading and heading[1]) or tables.version
        if tables.version not in ("", version):
            raise WorkloadError(
                f"line {number}: a table of bonnie++ {version} follows one of {tables.version}",
                hint="put the results of each version into a separate file",
            )
        tables.version = version
        if _SMALL_HEADING.fullmatch(line):
            tables.has_small, part = True, _Lines.NONE
            in_heading = (heading and heading[1]) or ""
            tables.trusted = not _WRONG_SMALL_RATES.fullmatch(in_heading)
        elif heading is not None:
            part = _Lines.NONE
        elif _UNITS.fullmatch(line):
            # 1.x gives the unit in the heading, 2.x with each number.
            tables.unit = KIB if "K/sec" in line else 1
            part = _Lines.FILES
        elif _SMALL_UNITS.fullmatch(line):
            part = _Lines.SMALL
        elif part is _Lines.NONE and (named := _NAMED.fullmatch(line)) is not None:
            tables.name = named[1].strip()
        elif line.strip() and not line.startswith("Latency"):
            _read_line(tables, part, line, number)
    return tables


def _read_line(tables: _Tables, part: _Lines, line: str, number: int) -> None:
    if part is _Lines.FILES:
        tables.rows.append(_file_row(line, tables.unit, number))
    elif part is _Lines.SMALL:
        row = _small_row(line, number)
        if row is not None:
            tables.small.append(row if tables.trusted else [])


def _reports(tables: _Tables) -> Iterator[program.Report]:
    rows = tables.rows or [(tables.name, []) for _ in tables.small]
    for place, (name, samples) in enumerate(rows):
        every = tuple(samples + (tables.small[place] if tables.small else []))
        if not every:
            raise WorkloadError(
                f"no test of bonnie++'s line {name!r} was long enough"
                if tables.trusted
                else f"bonnie++ {tables.version} shows the number of files in place of their rate",
                hint=None if tables.trusted else "import the line of CSV that it prints below",
            )
        measured = (program.NamedResult("bonnie", program.ProgramResult(every, None, None)),)
        yield program.Report("bonnie++", tables.version or None, name or None, measured)


def _file_row(line: str, unit: int, number: int) -> tuple[str, list[Sample]]:
    """The name in a row, and its rates."""
    columns = line.split()
    if _are_rates(columns[-12:]):
        named, pairs = columns[:-12], list(_pairs(columns[-12:]))
    else:
        named, pairs = line[:_NAME_COLUMNS].split(), _columns(line, number)
    samples = []
    for (metric, direction, _), (word, percent) in zip(FILE_TESTS, pairs, strict=True):
        value = _text_rate(word, number)
        if value is not None:
            scale = 1 if metric == "seeks" else unit
            samples.append(Sample(metric, direction, value * scale))
            samples += cpu_samples(metric, direction, percent)
    return " ".join(named[:-1]), samples


def _pairs(columns: Sequence[str]) -> Iterator[tuple[str, str]]:
    return zip(columns[::2], columns[1::2], strict=True)


def _small_row(line: str, number: int) -> list[Sample] | None:
    """The samples of a row; None for other text, such as the CSV below."""
    columns = line.split()
    if "," in line or len(columns) < 13:
        return None
    if not _are_rates(columns[-12:]):
        raise WorkloadError(f"line {number}: {line.strip()[:60]!r} are not rates of bonnie++")
    samples = []
    for (metric, direction, _), (word, percent) in zip(
        SMALL_TESTS, _pairs(columns[-12:]), strict=True
    ):
        value = _text_rate(word, number)
        if value is not None:
            samples += [Sample(metric, direction, value), *cpu_samples(metric, direction, percent)]
    return samples


def _are_rates(columns: Sequence[str]) -> bool:
    return len(columns) == 12 and all(
        not word.strip("+") or _RATE.fullmatch(word) is not None for word in columns
    )


def _columns(line: str, number: int) -> list[tuple[str, str]]:
    """The pairs of a row with skipped tests. Raises WorkloadError if they are ambiguous."""
    pairs: list[tuple[str, str]] = []
    place, padded = _NAME_COLUMNS, line.rstrip().ljust(_LONGEST_ROW)
    for _ in FILE_TESTS:
        match = _PAIR.match(padded, place)
        if match is None:
            raise WorkloadError(f"line {number}: {line.strip()[:60]!r} are not rates of bonnie++")
        pairs.append((match["rate"] or "", match["cpu"] or ""))
        place = match.end()
    if padded[place:].strip():
        raise WorkloadError(f"line {number}: {line.strip()[:60]!r} are not rates of bonnie++")
    return pairs


def _text_rate(word: str, number: int) -> float | None:
    """None for a skipped test, or a too short one (`+++++`, which bon_csv2txt shows as `0k`)."""
    if not word.strip("+"):
        return None
    match = _RATE.fullmatch(word)
    if match is None:
        raise WorkloadError(f"line {number}: {word[:30]!r} is not a rate of bonnie++")
    return float(match[1]) * float(1024 ** " kmg".index(match[2] or " ")) or None
