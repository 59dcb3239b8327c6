"""What a noisy neighbour does to a guest on each path, as a table and as a document."""

from __future__ import annotations

from vdisklab.render import numbers
from vdisklab.render.documents.conversion import copy_fields
from vdisklab.render.documents.densities import NeighbourDocument, NeighbourRow
from vdisklab.render.tables.density_table import EMULATED
from vdisklab.render.tables.layout import NAMES, WORDS, Column, Table
from vdisklab.services.noisy_neighbour import NeighbourAnswer


def neighbour_document(answer: NeighbourAnswer) -> NeighbourDocument:
    """The answer as JSON."""
    return copy_fields(NeighbourDocument, answer)


def neighbour_table(answer: NeighbourAnswer) -> Table[NeighbourRow]:
    """One row per path, the one on which the victim suffers least first."""
    columns = (
        Column[NeighbourRow]("path", lambda row: row.path, folds=NAMES),
        Column[NeighbourRow]("alone", lambda row: numbers.value(row.alone, "s"), right=True),
        Column[NeighbourRow]("beside", lambda row: numbers.value(row.beside, "s"), right=True),
        Column[NeighbourRow]("ratio", lambda row: numbers.ratio(row.ratio), right=True),
        Column[NeighbourRow](
            "95 %", lambda row: numbers.ratio_interval(row.low, row.high), right=True
        ),
        Column[NeighbourRow]("limited by", _limited, folds=WORDS, spare=1),
    )
    rows = neighbour_document(answer).paths
    return Table(
        f"p99 of {answer.victim}, alone and beside {answer.neighbour}",
        columns,
        rows,
        notes=(
            "the ratio is paired within blocks; its interval needs three of them",
            *(EMULATED for _ in range(answer.emulated)),
            *(f"{row.path}: {row.failure}" for row in rows if row.failure),
        ),
    )


def _limited(row: NeighbourRow) -> str:
    if row.limited_by is None:
        return numbers.MISSING
    return f"{row.limited_by} ({row.evidence})" if row.evidence else row.limited_by
