"""The comparison of two cells as a table and as a document."""

from __future__ import annotations

from collections.abc import Sequence

from vdisklab.analysis.compare import Comparison, Verdict
from vdisklab.analysis.published import Shape, ShapeRow
from vdisklab.render import numbers
from vdisklab.render.document import Json, campaign_json, document, findings_json
from vdisklab.render.tables.layout import Column, Table, Value, as_records, text
from vdisklab.render.wording import caution, sentence, verdict
from vdisklab.services.advice import ComparisonAnswer
from vdisklab.services.claim_answers import PublishedAnswer

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
                "a": answer.a.label,
                "b": answer.b.label,
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
        text(answer.a.label),
        text(answer.b.label),
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


_PUBLISHED_COLUMNS = (
    Column("path", "path", folds=True),
    Column("page_cache", "cache", only_wide=True),
    Column("measure", "measure", folds=True),
    Column("published", "published", right=True),
    Column("published_ratio", "÷ its\nbase", right=True),
    Column("ratio", "ours\n÷ base", right=True),
    Column("ratio_interval", "95 %\ninterval", right=True, only_shown=True),
    Column("ratio_low", "", only_data=True),
    Column("ratio_high", "", only_data=True),
    Column("p_adjusted", "p", right=True, only_wide=True),
    Column("pairs", "n", right=True),
    Column("shape", "shape", folds=True),
    Column("factor", "", only_data=True),
    Column("unit", "", only_data=True),
    Column("article", "", only_data=True),
    Column("table", "", only_data=True),
    Column("row", "", only_data=True),
    Column("column", "", only_data=True),
    Column("printed", "", only_data=True),
)


def published_table(answer: PublishedAnswer) -> Table:
    """One row per published number that has a counterpart here."""
    comparison = answer.comparison
    first = comparison.tables[0]
    notes = [
        f"Other hardware: {first.machine}; {first.program}, {first.statistic}.",
        f"Only shapes compare: each number over {comparison.baseline.label} of its own machine.",
        *(sentence(finding) for finding in answer.findings),
    ]
    if any(row.p_adjusted is not None for row in comparison.rows):
        notes.append(
            "The article's numbers have no interval; ours has. `differs` is corrected for the "
            "number of rows (Holm)."
        )
    if answer.command:
        notes.append("What is not measured needs:")
    title = f"{answer.title}\n({first.series})"
    beware = caution(answer.caveats)
    if beware is not None:
        title = f"{title}, ours {beware}"
    command = (answer.command,) if answer.command else ()
    rows = tuple(_published_row(row) for row in comparison.rows)
    return Table(title, _PUBLISHED_COLUMNS, rows, tuple(notes), command)


def published_document(answer: PublishedAnswer) -> Json:
    """The JSON form."""
    comparison = answer.comparison
    first = comparison.tables[0]
    return document(
        "published",
        1,
        campaigns=[campaign_json(campaign) for campaign in answer.campaigns],
        emulation=answer.caveats.emulated,
        lab=answer.caveats.lab,
        article=first.article,
        title=answer.title,
        series=first.series,
        machine=first.machine,
        program=first.program,
        statistic=first.statistic,
        baseline=comparison.baseline.label,
        numbers=as_records(published_table(answer)),
        missing=[cell.label for cell in comparison.missing],
        command=answer.command,
        findings=findings_json(answer.findings),
    )


def shape_text(row: ShapeRow) -> str:
    """`no difference shown`, `differs: published is ×2.1 of ours`, `not measured`."""
    match row.shape:
        case Shape.DIFFERS:
            return f"differs: published is {numbers.ratio(row.factor)} of ours"
        case Shape.TOO_FEW:
            return f"too few blocks ({row.ours.pairs})"
        case Shape.AGREES:
            return "no difference shown"
        case Shape.NOT_MEASURED:
            return "not measured"


def _published_row(row: ShapeRow) -> tuple[Value, ...]:
    number, ours = row.number, row.ours
    return (
        text(row.cell.path.canonical),
        text(row.cell.page_cache.value),
        text(str(number.measure)),
        Value(number.value, numbers.value(number.value, number.unit)),
        Value(row.published, numbers.ratio(row.published)),
        Value(ours.ratio, numbers.ratio(ours.ratio)),
        Value(None, numbers.ratio_interval(ours.low, ours.high)),
        Value(ours.low, ""),
        Value(ours.high, ""),
        Value(row.p_adjusted, numbers.probability(row.p_adjusted)),
        Value(ours.pairs, str(ours.pairs)),
        Value(row.shape.value, shape_text(row)),
        Value(row.factor, ""),
        Value(number.unit, ""),
        text(number.article),
        text(number.table),
        text(number.row),
        text(number.column),
        text(number.printed),
    )


def compared_rows(answer: PublishedAnswer) -> Sequence[ShapeRow]:
    """The rows of a series that have a counterpart here."""
    return [row for row in answer.comparison.rows if row.shape is not Shape.NOT_MEASURED]
