"""Comparisons as tables: of cells, and of published numbers with the user's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from vdisklab import numbers
from vdisklab.analysis.intervals import MIN_ROUNDS
from vdisklab.analysis.paired_ratios import Comparison, Verdict
from vdisklab.analysis.published import Shape, ShapeRow
from vdisklab.answers.advice import ComparisonAnswer
from vdisklab.answers.claim_answers import PublishedAnswer
from vdisklab.units import counted
from vdisklab.views.documents.conversion import copy_fields
from vdisklab.views.documents.rankings import (
    ComparedMeasure,
    ComparedPair,
    ComparisonDocument,
    PublishedDocument,
    PublishedRow,
)
from vdisklab.views.durability import keeping_of, loss_sentences
from vdisklab.views.layout import NAMES, WORDS, Column, Table
from vdisklab.views.wording import OTHER_VERB, WITH_STEP, measure_name, verdict


def comparison_table(answer: ComparisonAnswer, *, everything: bool = False) -> Table[Comparison]:
    """A summary, and one row per main measure; with `everything` one per measure."""
    rows = [row for row in answer.comparisons if row.main or everything]
    rows = rows or list(answer.comparisons)
    notes = [*answer.caveats.notes, *map(str, answer.findings)]
    if not answer.comparisons:
        notes.append("The two cells have no measure in common.")
    elif any(row.verdict is not Verdict.TOO_FEW for row in answer.comparisons):
        notes.append(
            "A/B is taken within rounds. Intervals hold for each row alone; p and verdicts are "
            "corrected for the number of main measures, or of others (Holm). Likely: the interval "
            f"excludes 1, but not after that correction. {OTHER_VERB}"
        )
    if any(row.measure.quantity.step is not None for row in rows):
        notes.append(WITH_STEP)
    hidden = len(answer.comparisons) - len(rows)
    if hidden:
        notes.append(f"{counted(hidden, 'more measure')} with --all.")
    columns: tuple[Column[Comparison], ...] = (
        Column("measure", lambda row: measure_name(row.measure), folds=NAMES),
        Column(
            "A",
            lambda row: numbers.value(row.a.median, row.measure.quantity.unit),
            right=True,
            spare=1,
        ),
        Column(
            "B",
            lambda row: numbers.value(row.b.median, row.measure.quantity.unit),
            right=True,
            spare=1,
        ),
        Column("A/B", lambda row: numbers.ratio(row.ratio.ratio), right=True),
        Column(
            "95 % interval",
            lambda row: numbers.ratio_interval(row.ratio.low, row.ratio.high),
            right=True,
        ),
        Column("p", lambda row: numbers.probability(row.p_adjusted), right=True, spare=2),
        Column("n", lambda row: str(row.ratio.pairs), right=True, spare=1),
        Column("verdict", lambda row: verdict(row.verdict, row.ratio), folds=WORDS),
    )
    return Table(
        f"A = {answer.a}\nB = {answer.b}",
        columns,
        rows,
        tuple(notes),
        intro=(
            *((comparison_summary(answer),) if answer.comparisons else ()),
            *loss_sentences((answer.a, answer.b), answer.verdicts),
        ),
        kind=ComparedMeasure,
        record=lambda row: _compared(answer, row),
    )


def comparison_summary(answer: ComparisonAnswer) -> str:
    """What the main measures show: how many for A, for B, likely, and the score's ratio."""
    rows = [row for row in answer.comparisons if row.main] or list(answer.comparisons)
    if not rows:
        return "The two cells have no measure in common."
    counts = Counter(row.verdict for row in rows)
    if counts[Verdict.TOO_FEW] == len(rows):
        most = max(row.ratio.pairs for row in rows)
        return f"Too few rounds for a verdict: {most} in common; {MIN_ROUNDS} are needed."
    parts = [
        words.format(counts[outcome]) for outcome, words in _OUTCOMES.items() if counts[outcome]
    ]
    sentence_parts = [f"Of {counted(len(rows), 'main measure')}: {', '.join(parts)}"]
    score = next((row for row in rows if row.measure.name == "score"), None)
    if score is not None and score.ratio.ratio is not None:
        interval = numbers.ratio_interval(score.ratio.low, score.ratio.high)
        sentence_parts.append(
            f"by the score A/B is {numbers.ratio(score.ratio.ratio)} (95 %: {interval})"
        )
    return "; ".join(sentence_parts) + "."


_OUTCOMES = {
    Verdict.A_BETTER: "A is faster in {}",
    Verdict.B_BETTER: "B is faster in {}",
    Verdict.A_LIKELY: "A is likely faster in {} (not proven)",
    Verdict.B_LIKELY: "B is likely faster in {} (not proven)",
    Verdict.NONE_SHOWN: "no difference is shown in {}",
    Verdict.TOO_FEW: "too few rounds in {}",
}


def comparison_document(answers: tuple[ComparisonAnswer, ...]) -> ComparisonDocument:
    """The JSON form: one entry of `pairs` for each two compared cells."""
    return copy_fields(
        ComparisonDocument,
        answers[0],
        pairs=tuple(
            copy_fields(
                ComparedPair,
                answer,
                a_keeping=keeping_of(answer.a, answer.verdicts),
                b_keeping=keeping_of(answer.b, answer.verdicts),
                summary=comparison_summary(answer),
                measures=tuple(_compared(answer, row) for row in answer.comparisons),
            )
            for answer in answers
        ),
    )


def _compared(answer: ComparisonAnswer, row: Comparison) -> ComparedMeasure:
    return copy_fields(ComparedMeasure, row, a=answer.a, b=answer.b)


def published_table(answer: PublishedAnswer) -> Table[ShapeRow]:
    """One row per published number that has a counterpart here."""
    comparison = answer.comparison
    first = answer.table
    notes = [
        f"Other hardware: {first.machine}; {first.program}, {first.statistic}.",
        f"Compare only shapes: each number divided by {comparison.baseline.label} on its own "
        "machine.",
        *(str(finding) for finding in answer.findings),
    ]
    if any(row.p_adjusted is not None for row in comparison.rows):
        notes.append(
            "The article's numbers have no interval; yours have one. `differs` is "
            "corrected for the number of rows (Holm)."
        )
    if answer.command:
        notes.append("To measure what is missing:")
    title = f"{answer.title}\n({first.series})"
    warning = answer.caveats.warning
    if warning is not None:
        title = f"{title}; here {warning}"
    columns: tuple[Column[ShapeRow], ...] = (
        Column("path", lambda row: row.cell.path.canonical, folds=NAMES),
        Column("page cache", lambda row: row.cell.page_cache.value, spare=2),
        Column("measure", lambda row: str(row.number.measure), folds=NAMES),
        Column(
            "published",
            lambda row: numbers.value(row.number.value, row.number.unit),
            right=True,
            spare=1,
        ),
        Column("÷ its\nbase", lambda row: numbers.ratio(row.published), right=True),
        Column("yours\n÷ base", lambda row: numbers.ratio(row.ours.ratio), right=True),
        Column(
            "95 %\ninterval",
            lambda row: numbers.ratio_interval(row.ours.low, row.ours.high),
            right=True,
            spare=1,
        ),
        Column("p", lambda row: numbers.probability(row.p_adjusted), right=True, spare=2),
        Column("n", lambda row: str(row.ours.pairs), right=True, spare=1),
        Column("shape", shape_text, folds=WORDS),
    )
    command = (answer.command,) if answer.command else ()
    return Table(
        title, columns, comparison.rows, tuple(notes), command, kind=PublishedRow, record=_published
    )


def published_document(answer: PublishedAnswer) -> PublishedDocument:
    """The JSON form."""
    return copy_fields(PublishedDocument, answer)


def shape_text(row: ShapeRow) -> str:
    """`no difference shown`, `differs: published is ×2.1 of yours`, `not measured`."""
    match row.shape:
        case Shape.DIFFERS:
            return f"differs: published is {numbers.ratio(row.factor)} of yours"
        case Shape.TOO_FEW:
            return f"too few rounds ({row.ours.pairs})"
        case Shape.AGREES:
            return "no difference shown"
        case Shape.NOT_MEASURED:
            return "not measured"


def compared_rows(answer: PublishedAnswer) -> Sequence[ShapeRow]:
    """The rows of a series that have a counterpart here."""
    return [row for row in answer.comparison.rows if row.shape is not Shape.NOT_MEASURED]


def _published(row: ShapeRow) -> PublishedRow:
    return copy_fields(PublishedRow, row)
