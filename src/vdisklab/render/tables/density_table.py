"""How many guests each path carries, as a table and as a document."""

from __future__ import annotations

from vdisklab.analysis.guest_groups import LimitedBy
from vdisklab.render import numbers
from vdisklab.render.documents.conversion import copy_fields
from vdisklab.render.documents.densities import DensityDocument, DensityEntry, DensityRow
from vdisklab.render.tables.layout import NAMES, WORDS, Column, Table
from vdisklab.services.density_answer import DensityAnswer, PathCapacity

EMULATED = (
    "Measured under emulation (TCG): the host's CPUs limit nearly everything, so these numbers are "
    "no measure of KVM guests."
)
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
    columns = (
        Column[DensityRow]("path", lambda row: row.path, folds=NAMES),
        Column[DensityRow]("guests", _guests, right=True),
        Column[DensityRow]("95 %", _interval, right=True),
        Column[DensityRow]("limited by", _limited, folds=WORDS),
        Column[DensityRow]("IOPS", lambda row: numbers.value(row.iops, "1/s"), right=True, spare=2),
        Column[DensityRow](
            "worst guest", lambda row: numbers.value(row.worst, "s"), right=True, spare=1
        ),
        Column[DensityRow]("fairness", lambda row: _plain(row.fairness, 2), right=True, spare=3),
        Column[DensityRow](
            "CPUs each", lambda row: _plain(row.cpu_for_each, 2), right=True, spare=4
        ),
    )
    rows = tuple(map(DensityRow.of, answer.paths))
    notes = [
        "IOPS of all guests, latency of the worst one, and Jain's fairness index, at the limit",
        *(EMULATED for _ in range(answer.emulated)),
        *(_FROM_MEMORY for _ in range(any(row.limited_by == LimitedBy.PAGE_CACHE for row in rows))),
        *(
            f"{row.path}: one guest alone reaches {row.reached:.0f} of {answer.load} requests a "
            "second: choose a smaller --load"
            for row in rows
            if row.reached is not None
        ),
        *(f"{row.path}: {row.failure}" for row in rows if row.failure and row.guests is None),
    ]
    return Table(
        f"Guests with {answer.load} requests a second each, at {answer.criterion}",
        columns,
        rows,
        notes=tuple(notes),
    )


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


def _limited(row: DensityRow) -> str:
    return f"{row.limited_by} ({row.evidence})" if row.evidence else row.limited_by


def _plain(number: float | None, places: int) -> str:
    return numbers.MISSING if number is None else f"{number:.{places}f}"
