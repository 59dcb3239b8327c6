"""How many guests each path carries, as a table and as a document."""

from __future__ import annotations

from vdisklab.analysis.guest_groups import LimitedBy
from vdisklab.render import numbers
from vdisklab.render.documents.conversion import copy_fields
from vdisklab.render.documents.densities import (
    DensityDocument,
    DensityEntry,
    DensityRow,
    StepEntry,
)
from vdisklab.render.tables.layout import NAMES, WORDS, Column, Table
from vdisklab.services.density_answer import DensityAnswer, PathCapacity

EMULATED = (
    "Measured under emulation (TCG): the host's CPUs limit nearly everything, so these numbers are "
    "no measure of KVM guests."
)
_FROM_MEMORY = "Where the page cache is the limit, the host's memory was measured, not the disk."


def density_rows(answer: DensityAnswer) -> tuple[DensityRow, ...]:
    """The rows as JSON and CSV carry them."""
    return tuple(map(_row, answer.paths))


def _row(path: PathCapacity) -> DensityRow:
    carried, step = path.capacity, path.at_limit
    return DensityRow(
        path=path.path,
        guests=None if carried is None else carried.guests,
        low=None if carried is None else carried.low,
        high=None if carried is None else carried.high,
        at_least=carried is not None and carried.at_least,
        limited_by=path.limited.limit.value,
        evidence=path.limited.evidence,
        iops=None if step is None else step.iops,
        worst=None if step is None else step.worst,
        fairness=None if step is None else step.fairness,
        cpu_for_each=None if step is None else step.cpu_for_each,
        reached=path.reached,
        failure=path.failure,
    )


def density_document(answer: DensityAnswer) -> DensityDocument:
    """The answer with every run."""
    return DensityDocument(
        campaign=answer.campaign,
        load=answer.load,
        until=str(answer.criterion),
        emulated=answer.emulated,
        paths=tuple(
            DensityEntry(
                answer=_row(path), steps=tuple(copy_fields(StepEntry, step) for step in path.steps)
            )
            for path in answer.paths
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
    rows = density_rows(answer)
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
    row = _row(path)
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
