"""The comparison of two cells as a table and as a document."""

from __future__ import annotations

from dataclasses import dataclass

from vdisklab.analysis.compare import Comparison, Verdict
from vdisklab.analysis.diagnostics.findings import Caveats, Finding
from vdisklab.render import numbers
from vdisklab.render.document import Json, campaign_json, document, findings_json
from vdisklab.render.tables import Column, Table, Value, as_records, text
from vdisklab.render.wording import caution, sentence, verdict
from vdisklab.results.model import Campaign


@dataclass(frozen=True, slots=True)
class ComparisonAnswer:
    """Two cells, by label, and what each measure says of them."""

    campaigns: tuple[Campaign, ...]
    caveats: Caveats
    a: str
    b: str
    comparisons: tuple[Comparison, ...]
    findings: tuple[Finding, ...] = ()


_COLUMNS = (
    Column("a", "", only_data=True),
    Column("b", "", only_data=True),
    Column("measure", "measure", folds=True),
    Column("unit", "", only_data=True),
    Column("a_median", "A", right=True),
    Column("a_low", "", only_data=True),
    Column("a_high", "", only_data=True),
    Column("b_median", "B", right=True),
    Column("b_low", "", only_data=True),
    Column("b_high", "", only_data=True),
    Column("ratio", "A/B", right=True),
    Column("ratio_interval", "95 % interval", right=True, only_shown=True),
    Column("ratio_low", "", only_data=True),
    Column("ratio_high", "", only_data=True),
    Column("p_adjusted", "p", right=True, only_wide=True),
    Column("pairs", "n", right=True),
    Column("blocks_needed", "", only_data=True),
    Column("verdict", "verdict", folds=True),
)


def comparison_table(answer: ComparisonAnswer) -> Table:
    """One row per measure."""
    title = f"A = {answer.a}\nB = {answer.b}"
    notes = [sentence(finding) for finding in answer.findings]
    if not answer.comparisons:
        notes.append("No measure was taken of both.")
    elif any(row.verdict is not Verdict.TOO_FEW for row in answer.comparisons):
        notes.append(
            "A/B is taken within blocks. Intervals hold for each row alone; p and verdicts are "
            "corrected for the number of rows (Holm)."
        )
    beware = caution(answer.caveats)
    if beware is not None:
        notes.insert(0, f"Measured {beware}.")
    rows = tuple(_row(answer, comparison) for comparison in answer.comparisons)
    return Table(title, _COLUMNS, rows, tuple(notes))


def comparison_document(answers: tuple[ComparisonAnswer, ...]) -> Json:
    """The JSON form: one entry of `pairs` for each two cells that were compared."""
    return document(
        "compare",
        1,
        campaigns=[campaign_json(campaign) for campaign in answers[0].campaigns],
        emulation=any(answer.caveats.emulated for answer in answers),
        lab=any(answer.caveats.lab for answer in answers),
        pairs=[
            {
                "a": answer.a,
                "b": answer.b,
                "measures": as_records(comparison_table(answer)),
                "findings": findings_json(answer.findings),
            }
            for answer in answers
        ],
    )


def _row(answer: ComparisonAnswer, found: Comparison) -> tuple[Value, ...]:
    unit = found.measure.quantity.unit
    ratio = found.ratio
    shown = numbers.ratio_interval(ratio.low, ratio.high)
    needed = ratio.blocks_needed
    return (
        text(answer.a),
        text(answer.b),
        text(str(found.measure)),
        text(unit),
        Value(found.a.median, numbers.value(found.a.median, unit)),
        Value(found.a.low, ""),
        Value(found.a.high, ""),
        Value(found.b.median, numbers.value(found.b.median, unit)),
        Value(found.b.low, ""),
        Value(found.b.high, ""),
        Value(ratio.ratio, numbers.ratio(ratio.ratio)),
        Value(None, shown),
        Value(ratio.low, ""),
        Value(ratio.high, ""),
        Value(found.p_adjusted, numbers.probability(found.p_adjusted)),
        Value(ratio.pairs, str(ratio.pairs)),
        Value(needed, numbers.MISSING if needed is None else str(needed)),
        Value(found.verdict.value, verdict(found.verdict, ratio)),
    )
