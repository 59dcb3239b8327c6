"""bonnie++'s classic table, as it and bon_csv2txt print it (1.03 to 2.00)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum

from vdisklab.errors import WorkloadError
from vdisklab.result.model import Direction, Sample
from vdisklab.units import KIB
from vdisklab.workload.base import Outcome
from vdisklab.workload.bonnie import cpu_samples
from vdisklab.workload.foreign.base import Found, Report

HEADING = re.compile(r"\s*Version\s+([0-9][0-9.a-z]*)\s+-+Sequential Output-+ .*")
_SMALL_HEADING = re.compile(r".*-+Sequential Create-+\s+-+Random Create-+.*")
_UNITS = re.compile(r"\s*(?:Machine|Name:Size).*/sec %CP.*")
_SMALL_UNITS = re.compile(r"\s*files(?::max:min)?\s+/sec.*")
_RATE = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,3})?)([kmg]?)")

# Where each pair of a rate and its %CPU stands, when a left-out test leaves a gap.
_FIRST_COLUMN, _COLUMN = 20, 10

_FILE_TESTS = (
    ("per_char", Direction.WRITE), ("bandwidth", Direction.WRITE), ("rewrite", Direction.WRITE),
    ("per_char", Direction.READ), ("bandwidth", Direction.READ), ("seeks", Direction.NONE),
)  # fmt: skip
_SMALL_TESTS = tuple(
    (f"{order}_{test}", Direction.NONE)
    for order in ("seq", "random")
    for test in ("create", "stat", "delete")
)


def parse_bonnie_text(text: str) -> tuple[Report, ...]:
    """One report for each line of the first table, with its line of the second one.

    Raises WorkloadError naming the line.
    """
    tables = _read_tables(text)
    if not tables.version or not tables.rows:
        raise WorkloadError(
            "bonnie++'s heading `Version … ------Sequential Output------` is missing"
        )
    if len(tables.small) not in (0, len(tables.rows)):
        raise WorkloadError(
            f"bonnie++'s tables have {len(tables.rows)} and {len(tables.small)} lines"
        )
    return tuple(_reports(tables))


@dataclass(slots=True)
class _Tables:
    version: str = ""
    unit: int = KIB
    rows: list[tuple[str, list[Sample]]] = field(default_factory=list)
    small: list[list[Sample]] = field(default_factory=list)


class _Part(Enum):
    """Which lines are being read."""

    NONE = 0
    FILES = 1
    SMALL = 2


def _read_tables(text: str) -> _Tables:
    tables, part = _Tables(), _Part.NONE
    for number, line in enumerate(text.splitlines(), 1):
        heading = HEADING.fullmatch(line)
        if heading is not None:
            tables.version, part = heading[1], _Part.NONE
        elif _UNITS.fullmatch(line):
            # 1.x gives the unit in the heading, 2.x with each number.
            tables.unit = KIB if "K/sec" in line else 1
            part = _Part.FILES
        elif _SMALL_HEADING.fullmatch(line):
            part = _Part.NONE
        elif _SMALL_UNITS.fullmatch(line):
            part = _Part.SMALL
        elif line.strip() and not line.startswith("Latency"):
            _read_line(tables, part, line, number)
    return tables


def _read_line(tables: _Tables, part: _Part, line: str, number: int) -> None:
    if part is _Part.FILES:
        tables.rows.append((line[:14].strip(), _file_row(line, tables.unit, number)))
    elif part is _Part.SMALL:
        found = _small_row(line, number)
        if found is not None:
            tables.small.append(found)


def _reports(tables: _Tables) -> Iterator[Report]:
    for place, (name, samples) in enumerate(tables.rows):
        every = tuple(samples + (tables.small[place] if tables.small else []))
        if not every:
            raise WorkloadError(f"no test of bonnie++'s line {name!r} was long enough")
        measured = (Found("bonnie", Outcome(every, None, None)),)
        yield Report("bonnie++", tables.version, name or None, measured)


def _file_row(line: str, unit: int, number: int) -> list[Sample]:
    words = line.split()
    pairs = _pairs(words[-12:]) if _are_rates(words[-12:]) else _columns(line)
    samples = []
    for (metric, direction), (word, percent) in zip(_FILE_TESTS, pairs, strict=True):
        value = _rate(word, number)
        if value is not None:
            scale = 1 if metric == "seeks" else unit
            samples.append(Sample(metric, direction, value * scale))
            samples += cpu_samples(metric, direction, percent)
    return samples


def _pairs(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    return zip(words[::2], words[1::2], strict=True)


def _small_row(line: str, number: int) -> list[Sample] | None:
    """None for a line that goes on to speak of other things, such as the CSV below."""
    words = line.split()
    if "," in line or len(words) < 13:
        return None
    if not _are_rates(words[-12:]):
        raise WorkloadError(f"line {number}: {line.strip()[:60]!r} are no rates of bonnie++")
    samples = []
    for (metric, way), (word, percent) in zip(_SMALL_TESTS, _pairs(words[-12:]), strict=True):
        value = _rate(word, number)
        if value is not None:
            samples += [Sample(metric, way, value), *cpu_samples(metric, way, percent)]
    return samples


def _are_rates(words: Sequence[str]) -> bool:
    return len(words) == 12 and all(
        not word.strip("+") or _RATE.fullmatch(word) is not None for word in words
    )


def _columns(line: str) -> Iterator[tuple[str, str]]:
    for place in range(len(_FILE_TESTS)):
        begin = _FIRST_COLUMN + _COLUMN * place
        pair = line[begin : begin + _COLUMN].split()
        yield (pair[0], pair[1]) if len(pair) == 2 else ("", "")


def _rate(word: str, number: int) -> float | None:
    """None for a test left out, or too short (`+++++`, which bon_csv2txt shows as `0k`)."""
    if not word.strip("+"):
        return None
    match = _RATE.fullmatch(word)
    if match is None:
        raise WorkloadError(f"line {number}: {word[:30]!r} is no rate of bonnie++")
    return float(match[1]) * float(1024 ** " kmg".index(match[2] or " ")) or None
