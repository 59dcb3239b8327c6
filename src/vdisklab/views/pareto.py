"""The answer of `rank --pareto` in words and columns."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from vdisklab import numbers
from vdisklab.analysis.pareto import Standing
from vdisklab.answers.pareto import ParetoAnswer, ParetoCell
from vdisklab.results.model import METRICS
from vdisklab.units import in_percent
from vdisklab.views.durability import losses, power_cut_text
from vdisklab.views.layout import NAMES, Column, Table
from vdisklab.views.wording import WITH_STEP

_WORDS = {Standing.FRONT: "not beaten", Standing.MAY_BE: "may be beaten", Standing.BEATEN: "beaten"}


def tables(answer: ParetoAnswer) -> Iterator[Table[ParetoCell]]:
    """One row per path: those that no other beats in all measures come first."""
    columns: tuple[Column[ParetoCell], ...] = (
        Column("path", lambda row: row.cell.label, folds=NAMES),
        Column("in all", lambda row: _WORDS[row.standing]),
        *(Column(name, partial(_share, name), right=True, spare=1) for name in answer.measures),
        Column("power cut", lambda row: power_cut_text(row.cell, row.power_cut), spare=1),
        Column("by", lambda row: row.by.label if row.by else "", folds=NAMES, spare=2),
    )
    front = answer.of(Standing.FRONT)
    title = (
        f"No path beats {'this one' if len(front) == 1 else f'these {len(front)}'} in all of "
        f"{', '.join(answer.measures)}: {', '.join(map(str, front))}"
    )
    lost = losses({row.cell: row.power_cut for row in answer.cells}, front)
    notes = (*_notes(answer), *answer.caveats.notes)
    yield Table(". ".join((title, *lost)), columns, answer.cells, notes, kind=ParetoCell)


def _share(name: str, row: ParetoCell) -> str:
    return numbers.value(row.shares[name].share, "1")


def _notes(answer: ParetoAnswer) -> Iterator[str]:
    yield "A number is the share of the best path that this one reaches: 0.5 is half as good."
    if any(share.share is None for row in answer.cells for share in row.shares.values()):
        yield (
            "–: the share is unknown: the path was too slow to end, or one of the two rates or "
            "times that it compares is zero."
        )
    if any(key.quantity.step and key.metric in METRICS for key in answer.measures.values()):
        yield WITH_STEP
    if answer.of(Standing.MAY_BE):
        yield (
            "May be beaten: another path's means are better in every measure, but not every "
            f"difference is shown (error {in_percent(answer.alpha)}). More rounds decide."
        )
    if answer.left_out:
        yield f"Left out, as a measure is missing: {', '.join(map(str, answer.left_out))}."
