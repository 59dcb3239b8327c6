"""The contents common to all report formats: answer, diagnostics, claims, and medians as rows."""

from __future__ import annotations

from contextlib import suppress
from enum import StrEnum
from typing import Any

from vdisklab import numbers
from vdisklab.analysis.claim_verdicts import ClaimStatus
from vdisklab.analysis.diagnostics.diagnostic import Diagnostic, grouped_sentences
from vdisklab.analysis.observations import MeasureKey
from vdisklab.analysis.score import Score
from vdisklab.answers.claim_answers import status
from vdisklab.answers.report_contents import FEATURED, Contents
from vdisklab.errors import PlanError
from vdisklab.path.cell import MeasuredCell
from vdisklab.platforms.dialect import ExportRequest
from vdisklab.platforms.registry import configure, forms
from vdisklab.units import counted, named
from vdisklab.views import recommend
from vdisklab.views.claim_results import claims_counts, stated, verdict_text
from vdisklab.views.compare import compared_rows, shape_text
from vdisklab.views.density import density_headline, density_lines
from vdisklab.views.documents.reports import ReportValue
from vdisklab.views.durability import durability_kind_of
from vdisklab.views.layout import Table


class ReportFormat(StrEnum):
    """The formats of a report."""

    HTML = "html"
    PNG = "png"
    SVG = "svg"
    CSV = "csv"
    JSON = "json"
    PARQUET = "parquet"
    MARKDOWN = "md"

    @property
    def is_directory(self) -> bool:
        """True for the formats that have one file for each chart."""
        return self in (ReportFormat.PNG, ReportFormat.SVG)


def caution_of(contents: Contents) -> str | None:
    """The warning shown at every figure, or None."""
    return contents.caveats.warning


def described_caution(contents: Contents) -> str:
    """The warning as the end of a chart's description; empty if no caveat applies."""
    warning = caution_of(contents)
    return "" if warning is None else f" {warning}."


def question(contents: Contents) -> str:
    """What the report answers."""
    host = contents.campaigns[0].host.hostname
    if contents.density is not None:
        return f"How many guests does each disk path carry on {host}?"
    return f"Which disk should a guest have on {host}?"


def headline(contents: Contents) -> str:
    """The answer in a few words."""
    if contents.density is not None:
        return density_headline(contents.density)
    if contents.recommendation is None:
        return "No answer yet"
    return recommend.headline(contents.recommendation)


def answer_sentences(contents: Contents) -> tuple[str, ...]:
    """The answer, the runner-up, how certain it is, durability, and the gain over the default."""
    if contents.density is not None:
        return tuple(f"{subject}: {line}" for subject, line in density_lines(contents.density))
    if contents.recommendation is None:
        return (contents.why_none,)
    answer = contents.recommendation
    return (*recommend.verdict_sentences(answer), *recommend.reasons(answer))


def first_lines(contents: Contents) -> tuple[tuple[str, str], ...]:
    """At most three lines below the headline, each with its subject."""
    if contents.density is not None:
        return density_lines(contents.density)
    if contents.recommendation is None:
        return (("Why", contents.why_none),)
    return recommend.first_lines(contents.recommendation)


def explanation(contents: Contents) -> tuple[str, ...]:
    """What the verdict says beside its first lines, and its reasons."""
    answer = contents.recommendation
    return () if answer is None else recommend.explanation(answer)


def configurations(contents: Contents) -> tuple[tuple[str, str], ...]:
    """The recommended path as configuration by platform, without comments.

    Platforms that cannot express it are left out.
    """
    answer = contents.recommendation
    path = None if answer is None else answer.recommendation.cell.path
    texts: list[tuple[str, str]] = []
    if path is not None:
        titled = [form for form in forms().values() if form.title]
        for form in sorted(titled, key=lambda form: not form.leads):
            with suppress(PlanError):
                text = configure(ExportRequest(path), form.name).text
                lines = text.splitlines(keepends=True)
                plain = "".join(line for line in lines if not line.startswith(_COMMENTS))
                texts.append((form.title, plain.strip("\n")))
    return tuple(texts)


_COMMENTS = ("#", "<!--", "<?")


def diagnostic_sentences(contents: Contents) -> tuple[str, ...]:
    """All diagnostics as sentences; only the first ones if there are many of one kind."""
    lines = grouped_sentences((*contents.findings, *contents.failed))
    if contents.cached:
        lines.append(
            f"In {counted(len(contents.cached), 'cell')} less than half of the bytes reached the "
            "device in some measurement: such a number shows the host's page cache (RAM)."
        )
    return tuple(lines)


def diagnostics_by_cell(contents: Contents) -> dict[str, tuple[str, ...]]:
    """The diagnostics of each cell as sentences, by its label."""
    by_cell: dict[str, list[str]] = {}
    for finding in (*contents.findings, *contents.failed):
        for cell in _cells_of(finding):
            by_cell.setdefault(cell.label, []).append(str(finding))
    for cell, names in contents.cached.items():
        line = f"{cell}: from the host's page cache in {named(names, FEATURED)}."
        by_cell.setdefault(cell.label, []).append(line)
    return {label: tuple(lines) for label, lines in by_cell.items()}


def _cells_of(finding: Diagnostic) -> tuple[MeasuredCell, ...]:
    """The cells that a diagnostic names; none for one about the machine or the campaign."""
    several = getattr(finding, "cells", ())
    named = getattr(finding, "cell", None)
    cells = several if isinstance(several, tuple) else ()
    return cells if named is None else (*cells, named)


def long_table(contents: Contents) -> Table[ReportValue]:
    """Every median with its interval, one per row: the form for CSV and Parquet."""
    ranked = {row.cell: row for row in contents.ranking.rows}
    rows = []
    keeping = {cell: durability_kind_of(cell, contents.verdicts) for cell in contents.measured}
    for key, summaries in contents.summaries.items():
        for cell, summary in summaries.items():
            row = ranked.get(cell)
            rows.append(
                ReportValue(
                    cell=cell,
                    path=cell.name,
                    page_cache=cell.known_page_cache,
                    measure=str(key),
                    unit=key.quantity.unit,
                    median=summary.median,
                    low=summary.low,
                    high=summary.high,
                    interval_method=summary.method,
                    rounds=summary.rounds,
                    rank_best=None if row is None else row.best,
                    rank_worst=None if row is None else row.worst,
                    keeping=keeping[cell],
                    from_page_cache=key.name in contents.cached.get(cell, ()),
                    emulation=contents.caveats.emulated,
                    emulated_host=contents.caveats.emulated_host,
                    lab=contents.caveats.lab,
                )
            )
    return Table("Report", (), rows, kind=ReportValue)


def score_keys(contents: Contents) -> tuple[MeasureKey, ...]:
    """The scores that this report has."""
    return tuple(score.key for score in Score if score.key in contents.summaries)


def claims_title(contents: Contents) -> str:
    """How many claims have which status."""
    claims = contents.claims
    return "" if claims is None else f"{claims_counts(claims)}."


def claim_rows(contents: Contents) -> list[dict[str, str]]:
    """The measured claims as text; the others are only counted."""
    claims = contents.claims
    if claims is None:
        return []
    return [
        {
            "article": answer.claim.article,
            "name": answer.claim.name,
            "sentence": answer.claim.sentence,
            "status": status(answer),
            "verdict": verdict_text(answer),
            "ratio": numbers.ratio(answer.ratio),
            "interval": numbers.ratio_interval(answer.low, answer.high),
            "stated": stated(answer.claim),
            "rounds": str(answer.rounds) if answer.rounds else numbers.MISSING,
        }
        for answer in claims.answers
        if status(answer) is not ClaimStatus.NOT_MEASURED
    ]


def unmeasured_claims(contents: Contents) -> str:
    """How many claims were not measured, and the command that measures them."""
    claims = contents.claims
    count = 0 if claims is None else claims.counts.get(ClaimStatus.NOT_MEASURED, 0)
    if not count:
        return ""
    return (
        f"{counted(count, 'claim')} could not be answered from these campaigns: `vdisklab claims` "
        "lists what is missing, `vdisklab claims --run` measures it."
    )


def published_parts(contents: Contents) -> list[dict[str, Any]]:
    """Each published series with a counterpart here, as text."""
    parts = []
    for answer in contents.published:
        first, rows = answer.table, compared_rows(answer)
        parts.append(
            {
                "title": answer.title,
                "series": first.series,
                "machine": first.machine,
                "baseline": answer.comparison.baseline.label,
                "missing": len(answer.comparison.rows) - len(rows),
                "command": answer.command or "",
                "rows": [
                    {
                        "cell": row.cell.label,
                        "measure": str(row.number.measure),
                        "published": numbers.value(row.number.value, row.number.unit),
                        "published_ratio": numbers.ratio(row.published),
                        "ratio": numbers.ratio(row.ours.ratio),
                        "interval": numbers.ratio_interval(row.ours.low, row.ours.high),
                        "shape": shape_text(row),
                    }
                    for row in rows
                ],
            }
        )
    return parts
