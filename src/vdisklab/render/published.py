"""Published numbers beside the user's own, as a table and as a document."""

from __future__ import annotations

from dataclasses import dataclass

from vdisklab.analysis.diagnostics.findings import Caveats, Finding
from vdisklab.analysis.published import Shape, ShapeComparison, ShapeRow
from vdisklab.render import numbers
from vdisklab.render.document import Json, campaign_json, document, findings_json
from vdisklab.render.tables import Column, Table, Value, as_records, text
from vdisklab.render.wording import caution, sentence
from vdisklab.results.model import Campaign


@dataclass(frozen=True, slots=True)
class PublishedAnswer:
    """A series of an article beside a campaign. `command` would measure what is missing."""

    campaigns: tuple[Campaign, ...]
    caveats: Caveats
    comparison: ShapeComparison
    title: str
    command: str | None
    findings: tuple[Finding, ...] = ()


_COLUMNS = (
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
    rows = tuple(_row(row) for row in comparison.rows)
    return Table(title, _COLUMNS, rows, tuple(notes), command)


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


def _row(row: ShapeRow) -> tuple[Value, ...]:
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
