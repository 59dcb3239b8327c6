"""The articles' tables as data, and the comparison of their shape with this machine's.

Absolute numbers of another machine say nothing about this one. Only shapes can be compared: a
number's ratio to the baseline of its own table, and the user's ratio to the same baseline.

A file contains an article's tables as printed, so that anyone with the article can check them
(`script/check-published` does). The keys of row and column say what a number means.
"""

from __future__ import annotations

import html
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from functools import cache
from typing import Annotated

import numpy as np
from pydantic import Field

from vdisklab.analysis.claimfile import ClaimCache
from vdisklab.analysis.distributions import t_sf
from vdisklab.analysis.intervals import MIN_ROUNDS
from vdisklab.analysis.observations import MeasureKey, Observations
from vdisklab.analysis.paired_ratios import PRECISION, Ratio, holm, paired_ratios
from vdisklab.errors import PlanError
from vdisklab.path.cell import Cell, PageCacheChoice, page_cache_states
from vdisklab.path.disk_path import parse_path
from vdisklab.plan.toml_file import TomlTable, builtin_texts, read_toml
from vdisklab.value import HIDDEN, Value

_Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,62}$")]
_UNITS: Mapping[str, tuple[float, str]] = {
    "GB/s": (1e9, "B/s"),
    "GB/sec": (1e9, "B/s"),
    "GB / sec": (1e9, "B/s"),
    "MB/s": (1e6, "B/s"),
    "MB/sec": (1e6, "B/s"),
    "MiB/s": (2.0**20, "B/s"),
    "KiB/s": (2.0**10, "B/s"),
    "IOPS": (1.0, "1/s"),
    "1/s": (1.0, "1/s"),
    "us": (1e-6, "s"),
    "min": (60.0, "s"),
    "M": (2.0**20, "B"),
    "1024": (1024.0, "1"),
    "%": (0.01, "1"),
}

_PRINTED = re.compile(
    r"\D*(?:(?P<minutes>\d+):(?P<seconds>\d\d)|(?P<number>\d+(?:\.\d+)?)) ?"
    r"(?P<unit>GB ?/ ?s(?:ec)?|MB/s(?:ec)?|IOPS|us|min|M)?\b.*"
)


class PublishedNumber(Value):
    """One number of an article, with its table, row and column.

    `path` and `measure` are its nearest counterpart in vdisklab, None without one.
    """

    article: Annotated[str, "with `table`, `row`, `column`: where the number is printed"]
    table: str
    row: str
    column: str
    printed: Annotated[str, "the number as it is printed"]
    value: Annotated[float | None, "in `unit`; null where the article could not measure it"]
    unit: str
    path: str | None
    measure: MeasureKey | None


class PublishedTable(Value):
    """A table of an article."""

    article: str
    name: str
    series: str
    """The published series that the table belongs to."""
    title: str
    machine: str
    program: str
    statistic: str
    """What each number is of several runs: a mean, a single run."""
    baseline: str | None
    """The path that ratios relate to; None if the table has none."""
    page_cache: PageCacheChoice
    numbers: Annotated[tuple[PublishedNumber, ...], HIDDEN]
    lines: Annotated[tuple[str, ...], HIDDEN]
    """The table's printed rows, the header first."""
    contiguous: Annotated[bool, HIDDEN]
    """True if the lines stand together in the article."""


class Publication(Value):
    """An article with its tables."""

    article: str
    title: str
    author: str
    tables: tuple[PublishedTable, ...]


class _Part(TomlTable):
    path: str | None = None
    measure: str | None = None


class _Column(_Part):
    title: str = Field(min_length=1)
    metric: str | None = None
    unit: str | None = None


class _Row(_Part):
    label: str = Field(min_length=1)
    cells: list[str] = Field(min_length=1)


class _TableTable(_Part):
    name: _Name
    series: _Name
    title: str
    header: str = ""
    machine: str
    program: str
    statistic: str
    unit: str
    baseline: str | None = None
    page_cache: Annotated[ClaimCache, Field(strict=False)] = ClaimCache.COLD
    contiguous: bool = True
    column: list[_Column] = Field(min_length=1)
    row: list[_Row] = Field(min_length=1)


class _PublicationTable(TomlTable):
    article: _Name
    title: str
    author: str
    table: list[_TableTable] = Field(min_length=1)


def parse_publication(text: str, origin: str) -> Publication:
    """The tables in a TOML text. Raises PlanError naming `origin`, table, row and key."""
    publication = read_toml(text, origin, _PublicationTable)
    return Publication(
        publication.article,
        publication.title,
        publication.author,
        tuple(_table(publication.article, table, origin) for table in publication.table),
    )


@cache
def builtin_publications() -> tuple[Publication, ...]:
    """The five articles, by the names of their files."""
    files = builtin_texts("analysis/published_data")
    return tuple(parse_publication(text, name) for name, text in files)


def _table(article: str, table: _TableTable, origin: str) -> PublishedTable:
    where = f"table {table.name!r} of {origin}"
    numbers: list[PublishedNumber] = []
    for row in table.row:
        if len(row.cells) != len(table.column):
            raise PlanError(
                f"row {row.label!r} of {where} has {len(row.cells)} cells (key 'cells') for "
                f"{len(table.column)} columns"
            )
        for column, printed in zip(table.column, row.cells, strict=True):
            try:
                numbers.append(_number(article, table, row, column, printed))
            except (PlanError, ValueError) as error:
                raise PlanError(
                    f"row {row.label!r}, column {column.title!r} of {where}: {error}"
                ) from error
    lines = [" ".join([row.label, *row.cells]) for row in table.row]
    return PublishedTable(
        article=article,
        name=table.name,
        series=f"{article}/{table.series}",
        title=table.title,
        machine=table.machine,
        program=table.program,
        statistic=table.statistic,
        baseline=None if table.baseline is None else parse_path(table.baseline).canonical,
        page_cache=PageCacheChoice(table.page_cache.value),
        numbers=tuple(numbers),
        lines=tuple([table.header, *lines] if table.header else lines),
        contiguous=table.contiguous,
    )


def _number(
    article: str, table: _TableTable, row: _Row, column: _Column, printed: str
) -> PublishedNumber:
    value, unit = in_si(printed, column.unit or table.unit)
    parts = [part for part in (table.path, row.path, column.path) if part]
    spelled = "/".join(parts)
    # A row without a path (an older QEMU) has no counterpart, even if its column names a path.
    whole = bool(parts) and (row.path is not None or not _rows_name_paths(table))
    measure = row.measure or column.measure
    if measure and row.measure and column.metric:
        measure = f"{row.measure}/{column.metric}"
    key = None if not measure else MeasureKey.parse(measure)
    return PublishedNumber(
        article=article,
        table=table.name,
        row=row.label,
        column=column.title,
        printed=printed,
        value=value,
        unit=unit,
        path=parse_path(spelled).canonical if whole else None,
        measure=key,
    )


def _rows_name_paths(table: _TableTable) -> bool:
    return any(row.path is not None for row in table.row)


def in_si(printed: str, unit: str) -> tuple[float | None, str]:
    """The printed value, in its SI unit; a unit printed with the number takes precedence.

    Raises ValueError for a text without a number, or an unknown unit.
    """
    if printed and not printed.strip("+"):  # printed by bonnie++ for a time too short to measure
        return None, _UNITS[unit][1]
    match = _PRINTED.fullmatch(printed)
    if match is None:
        raise ValueError(f"{printed!r} is not a number")
    symbol = match["unit"] or unit
    if symbol not in _UNITS:
        raise ValueError(f"{symbol!r} is not a known unit; known units: {', '.join(_UNITS)}")
    factor, si = _UNITS[symbol]
    if match["minutes"]:
        return int(match["minutes"]) * 60.0 + int(match["seconds"]), "s"
    return float(match["number"]) * factor, si


def lines_missing(table: PublishedTable, article_text: str) -> tuple[str, ...]:
    """The rows of a table that are missing in an article's text; empty if it has all of them.

    Ignores markup and line breaks. In the text the rows must follow one another.
    """
    text = flat(article_text)
    if table.contiguous:
        whole = flat(" ".join(table.lines))
        return () if whole in text else table.lines
    return tuple(line for line in table.lines if flat(line) not in text)


def flat(text: str) -> str:
    """The text without tags and entities, with each run of white space as one space."""
    return " ".join(html.unescape(re.sub(r"</?[A-Za-z][^<>]*>", " ", text)).split())


def find_series(name: str, publications: Sequence[Publication]) -> tuple[PublishedTable, ...]:
    """The tables of a series `article/series`, or of an article's only series with a baseline.

    Raises PlanError for an unknown name, and for a series without a baseline.
    """
    tables = [table for publication in publications for table in publication.tables]
    usable = {table.series: table.article for table in tables if table.baseline}
    matches = [series for series, article in usable.items() if name in (series, article)]
    if not matches and any(name in (table.series, table.article) for table in tables):
        raise PlanError(
            f"the published numbers {name!r} have no baseline, so their shape cannot be compared",
            hint=f"choose one of {', '.join(usable)}",
        )
    if not matches:
        raise PlanError(
            f"no published numbers named {name!r}", hint=f"choose one of {', '.join(usable)}"
        )
    if len(matches) > 1:
        raise PlanError(f"{name!r} has several series", hint=f"write one of {', '.join(matches)}")
    return tuple(table for table in tables if table.series == matches[0])


class Shape(StrEnum):
    """How a published ratio compares with the one measured here."""

    AGREES = "agrees"
    DIFFERS = "differs"
    TOO_FEW = "too-few-rounds"
    NOT_MEASURED = "not-measured"


class ShapeRow(Value):
    """One published number and its counterpart, each as a ratio to its own baseline.

    `factor` is the published ratio over the one measured here.
    """

    number: PublishedNumber
    published: Annotated[float, "its ratio to its own baseline"]
    cell: Annotated[Cell, "the counterpart here"]
    ours: Annotated[Ratio, "the same ratio as measured here"]
    factor: Annotated[float | None, "published ratio over the ratio here"]
    p_adjusted: Annotated[float | None, "corrected for the number of rows (Holm)"]
    shape: Annotated[Shape, "`agrees`: no difference is shown"]


class ShapeComparison(Value):
    """A series compared with the user's numbers."""

    tables: Annotated[tuple[PublishedTable, ...], HIDDEN]
    baseline: Cell
    rows: tuple[ShapeRow, ...]
    missing: Annotated[tuple[Cell, ...], "cells that were not measured here"]

    @property
    def compared(self) -> Sequence[ShapeRow]:
        """The rows that have a counterpart here."""
        return [row for row in self.rows if row.shape is not Shape.NOT_MEASURED]


def compare_shape(
    tables: Sequence[PublishedTable], observations: Observations, alpha: float = 0.05
) -> ShapeComparison:
    """Compares the numbers of a series that have a path and a measure with the user's.

    A published number has no interval, so it is tested as a fixed ratio against the ratios measured
    here within rounds (Student's t on logarithms), corrected for the number of rows (Holm).
    """
    first = tables[0]
    assert first.baseline is not None  # noqa: S101 - find_series chose it
    base = _cell(first.baseline, first.page_cache)
    rows = [
        _row(number, over, _cell(number.path or "", first.page_cache), base, observations)
        for number, over in _ratios(tables, first.baseline)
    ]
    p = [_p_value(row, observations, base) for row in rows]
    tested = [place for place, value in enumerate(p) if value is not None]
    adjusted = holm(np.array([p[place] for place in tested], dtype=np.float64))
    judged = list(rows)
    for order, place in enumerate(tested):
        judged[place] = _judged(rows[place], float(adjusted[order]), alpha)
    missing = dict.fromkeys(row.cell for row in judged if row.shape is Shape.NOT_MEASURED)
    if missing:
        missing = {base: None, **missing}
    return ShapeComparison(tuple(tables), base, tuple(judged), tuple(missing))


def _cell(path: str, choice: PageCacheChoice) -> Cell:
    parsed = parse_path(path)
    return Cell(parsed, next(state for state in page_cache_states(parsed) if choice.admits(state)))


def _ratios(
    tables: Sequence[PublishedTable], baseline: str
) -> Iterator[tuple[PublishedNumber, float]]:
    """Each number that has a counterpart, with its ratio to the baseline's in the same series."""
    numbers = [number for table in tables for number in table.numbers if number.measure]
    base = {number.measure: number.value for number in numbers if number.path == baseline}
    for number in numbers:
        over = base.get(number.measure)
        if number.path not in (None, baseline) and number.value and over:
            yield number, number.value / over


def _row(
    number: PublishedNumber, over: float, cell: Cell, base: Cell, observations: Observations
) -> ShapeRow:
    logs = _log_ratios(number, cell, base, observations)
    if number.measure is None or not len(logs):
        return ShapeRow(number, over, cell, Ratio(0), None, None, Shape.NOT_MEASURED)
    grid = observations.grid(number.measure)
    ours, theirs = (grid[observations.place[side.measured]] for side in (cell, base))
    (ratio,) = paired_ratios(ours, theirs, number.measure.quantity, forecast=False)
    factor = over / ratio.ratio if ratio.ratio else None
    return ShapeRow(number, over, cell, ratio, factor, None, Shape.TOO_FEW)


def _log_ratios(
    number: PublishedNumber, cell: Cell, base: Cell, observations: Observations
) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Log ratios within rounds; empty when one of the two was not measured."""
    names = (cell.measured, base.measured)
    if number.measure is None or any(name not in observations.place for name in names):
        return np.array([], dtype=np.float64)
    logs = observations.logs(number.measure)
    difference = logs[observations.place[names[0]]] - logs[observations.place[names[1]]]
    return np.asarray(difference[np.isfinite(difference)])


def _p_value(row: ShapeRow, observations: Observations, base: Cell) -> float | None:
    logs = _log_ratios(row.number, row.cell, base, observations)
    if len(logs) < MIN_ROUNDS:
        return None
    error = max(float(logs.std(ddof=1)), PRECISION) / math.sqrt(len(logs))
    assert row.number.measure is not None  # noqa: S101 - it has log ratios
    resolution = observations.resolution(row.number.measure)
    rounding = sum(resolution[observations.place[side.measured]] for side in (row.cell, base))
    distance = max(0.0, abs(float(logs.mean()) - math.log(row.published)) - float(rounding))
    return float(2 * t_sf(distance / error, len(logs) - 1))


def _judged(row: ShapeRow, adjusted: float, alpha: float) -> ShapeRow:
    shape = Shape.DIFFERS if adjusted <= alpha else Shape.AGREES
    return ShapeRow(row.number, row.published, row.cell, row.ours, row.factor, adjusted, shape)
