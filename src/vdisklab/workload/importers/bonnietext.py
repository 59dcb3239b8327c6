"""bonnie++'s classic table, as bonnie++ and bon_csv2txt print it (1.03 to 2.00)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum

from vdisklab.errors import WorkloadError
from vdisklab.results.model import Sample
from vdisklab.units import KIB
from vdisklab.workload.bonnie import FILE_TESTS, SMALL_TESTS, cpu_samples
from vdisklab.workload.program import NamedResult, ProgramResult, Report

HEADING = re.compile(r"\s*Version\s+([0-9][0-9.a-z]*)\s+-+Sequential (?:Output|Create)-+ .*")
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


def parse_bonnie_text(text: str) -> tuple[Report, ...]:
    """One report for each line of the first table, with its line of the second one.

    Raises WorkloadError naming the line.
    """
    tables = _read_tables(text)
    if not tables.version or not (tables.rows or tables.small):
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
        if heading is not None and tables.version not in ("", heading[1]):
            raise WorkloadError(
                f"line {number}: a table of bonnie++ {heading[1]} follows one of {tables.version}",
                hint="put the results of each version into a separate file",
            )
        if heading is not None:
            tables.version = heading[1]
        if _SMALL_HEADING.fullmatch(line):
            tables.has_small, part = True, _Lines.NONE
            tables.trusted = heading is None or not _WRONG_SMALL_RATES.fullmatch(heading[1])
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


def _reports(tables: _Tables) -> Iterator[Report]:
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
        measured = (NamedResult("bonnie", ProgramResult(every, None, None)),)
        yield Report("bonnie++", tables.version, name or None, measured)


def _file_row(line: str, unit: int, number: int) -> tuple[str, list[Sample]]:
    """The name in a row, and its rates."""
    words = line.split()
    if _are_rates(words[-12:]):
        named, pairs = words[:-12], list(_pairs(words[-12:]))
    else:
        named, pairs = line[:_NAME_COLUMNS].split(), _columns(line, number)
    samples = []
    for (metric, direction, _), (word, percent) in zip(FILE_TESTS, pairs, strict=True):
        value = _rate(word, number)
        if value is not None:
            scale = 1 if metric == "seeks" else unit
            samples.append(Sample(metric, direction, value * scale))
            samples += cpu_samples(metric, direction, percent)
    return " ".join(named[:-1]), samples


def _pairs(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    return zip(words[::2], words[1::2], strict=True)


def _small_row(line: str, number: int) -> list[Sample] | None:
    """The samples of a row; None for other text, such as the CSV below."""
    words = line.split()
    if "," in line or len(words) < 13:
        return None
    if not _are_rates(words[-12:]):
        raise WorkloadError(f"line {number}: {line.strip()[:60]!r} are not rates of bonnie++")
    samples = []
    for (metric, direction, _), (word, percent) in zip(
        SMALL_TESTS, _pairs(words[-12:]), strict=True
    ):
        value = _rate(word, number)
        if value is not None:
            samples += [Sample(metric, direction, value), *cpu_samples(metric, direction, percent)]
    return samples


def _are_rates(words: Sequence[str]) -> bool:
    return len(words) == 12 and all(
        not word.strip("+") or _RATE.fullmatch(word) is not None for word in words
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


def _rate(word: str, number: int) -> float | None:
    """None for a skipped test, or a too short one (`+++++`, which bon_csv2txt shows as `0k`)."""
    if not word.strip("+"):
        return None
    match = _RATE.fullmatch(word)
    if match is None:
        raise WorkloadError(f"line {number}: {word[:30]!r} is not a rate of bonnie++")
    return float(match[1]) * float(1024 ** " kmg".index(match[2] or " ")) or None
