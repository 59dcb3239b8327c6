"""The paths that no other beats in all measures, as a table and as a document."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from vdisklab import numbers
from vdisklab.analysis.pareto import Standing
from vdisklab.answers.pareto_front import ParetoAnswer
from vdisklab.results.model import METRICS
from vdisklab.views.documents.conversion import copy_fields
from vdisklab.views.documents.rankings import ParetoDocument, ParetoRow
from vdisklab.views.durability import keeping_of, loss_sentences, power_cut_of
from vdisklab.views.layout import NAMES, Column, Table
from vdisklab.views.wording import WITH_STEP

WORDS = {
    Standing.FRONT: "not beaten",
    Standing.MAY_BE: "may be beaten",
    Standing.BEATEN: "beaten",
}


def pareto_rows(answer: ParetoAnswer) -> tuple[ParetoRow, ...]:
    """The rows as JSON and CSV carry them."""
    return tuple(
        copy_fields(
            ParetoRow,
            placed,
            keeping=keeping_of(placed.cell, answer.verdicts),
            shares=dict(zip(answer.names, placed.shares, strict=True)),
            intervals={
                f"{name}_{end}": value
                for name, ends in zip(answer.names, placed.intervals, strict=True)
                for end, value in zip(("low", "high"), ends or (None, None), strict=True)
            },
        )
        for placed in answer.front.cells
    )


def pareto_table(answer: ParetoAnswer) -> Table[ParetoRow]:
    """One row per path: those that no other beats in all measures come first."""
    columns: tuple[Column[ParetoRow], ...] = (
        Column("path", lambda row: row.cell.label, folds=NAMES),
        Column("in all", lambda row: WORDS[row.standing]),
        *(Column(name, partial(_share, name), right=True, spare=1) for name in answer.names),
        Column("power cut", lambda row: power_cut_of(row.cell, answer.verdicts), spare=1),
        Column(
            "by", lambda row: row.beaten_by.label if row.beaten_by else "", folds=NAMES, spare=2
        ),
    )
    front = answer.front.of(Standing.FRONT)
    title = (
        f"No path beats {'this one' if len(front) == 1 else f'these {len(front)}'} in all of "
        f"{', '.join(answer.names)}: {', '.join(map(str, front))}"
    )
    notes = (*_notes(answer), *answer.caveats.notes)
    losses = loss_sentences(front, answer.verdicts)
    return Table(". ".join((title, *losses)), columns, pareto_rows(answer), notes, kind=ParetoRow)


def pareto_document(answer: ParetoAnswer) -> ParetoDocument:
    """The JSON form."""
    return copy_fields(
        ParetoDocument,
        answer,
        measures=dict(zip(answer.names, answer.front.measures, strict=True)),
        cells=pareto_rows(answer),
    )


def _share(name: str, row: ParetoRow) -> str:
    return numbers.value(row.shares[name], "1")


def _notes(answer: ParetoAnswer) -> Iterator[str]:
    yield "A number is the share of the best path that this one reaches: 0.5 is half as good."
    if any(share is None for placed in answer.front.cells for share in placed.shares):
        yield (
            "–: the share is unknown: the path was too slow to end, or its ratio is one to a rate "
            "(or of a time) of zero."
        )
    if any(key.quantity.step and key.metric in METRICS for key in answer.front.measures):
        yield WITH_STEP
    if answer.front.of(Standing.MAY_BE):
        yield (
            "May be beaten: another path is better in all by its means, but that is not shown in "
            f"all (error {answer.front.alpha:.0%}). More rounds decide."
        )
    if answer.front.left_out:
        yield f"Left out, as a measure is missing: {', '.join(map(str, answer.front.left_out))}."
