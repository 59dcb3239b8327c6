"""How many guests each path carries, and what a noisy neighbour does to one."""

from __future__ import annotations

from vdisklab import numbers
from vdisklab.analysis.guest_groups import LimitedBy
from vdisklab.answers.density_answer import DensityAnswer, PathCapacity
from vdisklab.answers.noisy_neighbour import NeighbourAnswer
from vdisklab.units import named
from vdisklab.views.documents.conversion import copy_fields
from vdisklab.views.documents.densities import (
    DensityDocument,
    DensityEntry,
    DensityRow,
    NeighbourDocument,
    NeighbourRow,
)
from vdisklab.views.layout import NAMES, WORDS, Column, Table

_MOST_NAMED = 4
_FROM_MEMORY = "Where the page cache is the limit, the host's memory was measured, not the disk."


def density_document(answer: DensityAnswer) -> DensityDocument:
    """The answer with every run."""
    return copy_fields(
        DensityDocument,
        answer,
        until=str(answer.criterion),
        paths=tuple(
            copy_fields(DensityEntry, path, answer=DensityRow.of(path)) for path in answer.paths
        ),
    )


def density_table(answer: DensityAnswer) -> Table[DensityRow]:
    """One row per path, the one that carries most guests first."""
    columns: tuple[Column[DensityRow], ...] = (
        Column("path", lambda row: row.path, folds=NAMES),
        Column("guests", _guests, right=True),
        Column("95 %", _interval, right=True),
        Column("limited by", _limited, folds=WORDS),
        Column("IOPS", lambda row: numbers.value(row.iops, "1/s"), right=True, spare=2),
        Column("worst guest", lambda row: numbers.value(row.worst, "s"), right=True, spare=1),
        Column("p99 of all", lambda row: numbers.value(row.p99, "s"), right=True, spare=3),
        Column("fairness", lambda row: _plain(row.fairness, 2), right=True, spare=4),
        Column("CPUs each", lambda row: _plain(row.cpu_for_each, 2), right=True, spare=5),
    )
    rows = tuple(map(DensityRow.of, answer.paths))
    notes = [
        "at the limit: IOPS of all guests, latency of the worst one, p99 of all requests together, "
        "Jain's fairness index",
        *(
            f"{row.path}: one guest alone is too slow; the numbers are of that one"
            for row in rows
            if row.guests == 0
        ),
        *(
            f"not shown to carry that many: {named(answer.left_out, _MOST_NAMED)}"
            for _ in range(bool(answer.left_out))
        ),
        *answer.caveats.notes,
        *(_FROM_MEMORY for _ in range(any(row.limited_by == LimitedBy.PAGE_CACHE for row in rows))),
        *(
            f"{row.path}: one guest alone reaches {row.reached:.0f} of {answer.load} requests a "
            "second: choose a smaller --load"
            for row in rows
            if row.reached is not None
        ),
        *(
            f"{row.path}: the search did not end: {row.failure or 'the same command continues it'}"
            for row in rows
            if not row.complete
        ),
    ]
    return Table(
        f"Guests with {answer.load} requests a second each, at {answer.criterion}",
        columns,
        rows,
        notes=tuple(notes),
    )


def density_headline(answer: DensityAnswer) -> str:
    """The paths that carry most guests, in a few words."""
    rows = [row for row in map(DensityRow.of, answer.paths) if row.guests is not None]
    if not rows:
        return "No answer yet"
    number = _guests(rows[0])
    best = [row.path for row in rows if _guests(row) == number]
    verb = "carries" if len(best) == 1 else "carry"
    noun = "guest" if rows[0].guests == 1 else "guests"
    return f"{named(best, _MOST_NAMED)} {verb} {number} {noun}"


def density_lines(answer: DensityAnswer) -> tuple[tuple[str, str], ...]:
    """At most three lines below the headline, each with its subject."""
    known = [path for path in answer.paths if path.capacity is not None]
    if not known:
        failures = [path.failure for path in answer.paths if path.failure]
        return (("Why", failures[-1] if failures else "No run of this search was measured."),)
    others = "; ".join(f"{path.path}: {capacity_text(path)}" for path in known[:_MOST_NAMED])
    first, *rest = known
    tied = [path for path in rest if _may_carry_as_many(path, first)]
    load = f"{answer.load} requests a second in each guest, each at {answer.criterion}. {others}."
    limit = f"{first.path}: {_limited(DensityRow.of(first))}."
    doubt = (
        f"The intervals of {named([path.path for path in (first, *tied)], _MOST_NAMED)} overlap: "
        "which carries more is not shown. More `--rounds` narrow them."
    )
    lines = (("Load", load), ("Limited by", limit))
    return (*lines, ("Doubt", doubt)) if tied else lines


def _may_carry_as_many(path: PathCapacity, best: PathCapacity) -> bool:
    if path.capacity is None or best.capacity is None:
        return False
    return path.capacity.at_least or path.capacity.high >= best.capacity.low


def capacity_text(path: PathCapacity) -> str:
    """The number of guests with its interval, such as `3 (2–4)`."""
    row = DensityRow.of(path)
    return _guests(row) if row.guests is None else f"{_guests(row)} ({_interval(row)})"


def _guests(row: DensityRow) -> str:
    if row.guests is None:
        return numbers.MISSING
    return f"at least {row.guests}" if row.at_least else str(row.guests)


def _interval(row: DensityRow) -> str:
    if row.low is None or row.high is None:
        return numbers.MISSING
    return f"{row.low}–{row.high}{' or more' if row.at_least else ''}"


def _limited(row: DensityRow | NeighbourRow) -> str:
    if row.limited_by is None:
        return numbers.MISSING
    return f"{row.limited_by} ({row.evidence})" if row.evidence else row.limited_by


def _plain(number: float | None, places: int) -> str:
    return numbers.MISSING if number is None else f"{number:.{places}f}"


def neighbour_document(answer: NeighbourAnswer) -> NeighbourDocument:
    """The answer as JSON."""
    return copy_fields(NeighbourDocument, answer)


def neighbour_table(answer: NeighbourAnswer) -> Table[NeighbourRow]:
    """One row per path; first the path on which the victim loses least."""
    columns: tuple[Column[NeighbourRow], ...] = (
        Column("path", lambda row: row.path, folds=NAMES),
        Column("alone", lambda row: numbers.value(row.alone, "s"), right=True),
        Column("beside", lambda row: numbers.value(row.beside, "s"), right=True),
        Column("ratio", lambda row: numbers.ratio(row.ratio), right=True),
        Column("95 %", lambda row: numbers.ratio_interval(row.low, row.high), right=True),
        Column("limited by", _limited, folds=WORDS, spare=1),
    )
    rows = neighbour_document(answer).paths
    return Table(
        f"p99 of {answer.victim}, alone and beside {answer.neighbour}",
        columns,
        rows,
        notes=(
            "the ratio is paired within rounds; its interval needs three of them",
            *answer.caveats.notes,
            *(f"{row.path}: {row.failure}" for row in rows if row.failure),
        ),
    )
