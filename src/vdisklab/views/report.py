"""The report in words, as figures and as files; page/ lays out its HTML."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from enum import StrEnum
from typing import Any, get_type_hints

from vdisklab import numbers
from vdisklab.analysis.claim_verdicts import ClaimStatus
from vdisklab.analysis.diagnostics.diagnostic import Diagnostic, grouped_sentences
from vdisklab.analysis.observations import MeasureKey
from vdisklab.analysis.score import Score
from vdisklab.answers.claims import JudgedClaim
from vdisklab.answers.hosts import MeasuredHost, varying
from vdisklab.answers.report import FEATURED, ReportAnswer, ReportValue
from vdisklab.documents import as_csv, document, plain
from vdisklab.errors import HostError, extra_hint
from vdisklab.path.cell import MeasuredCell
from vdisklab.sanitise import sanitise_line
from vdisklab.units import counted, named
from vdisklab.views import claims, hosts, recommend
from vdisklab.views.charts.figures import figures
from vdisklab.views.choice import MOST_CHARACTERS
from vdisklab.views.density import density_headline, density_lines
from vdisklab.views.durability import power_cut_text
from vdisklab.views.layout import Table
from vdisklab.views.rank import rank_text
from vdisklab.views.wording import measure_name

HOST_PATHS = 24
"""Columns of the table of hosts and paths."""


class ReportFormat(StrEnum):
    """The formats of a report."""

    HTML = "html"
    CSV = "csv"
    JSON = "json"
    PARQUET = "parquet"
    MARKDOWN = "md"


def question(report: ReportAnswer) -> str:
    """What the report answers."""
    if report.ranked.hosts is not None:
        return f"Which disk should a guest have on these {_hosts(report)}?"
    host = report.ranked.campaigns[0].host.hostname
    if report.density is not None:
        return f"How many guests does each disk path carry on {host}?"
    return f"Which disk should a guest have on {host}?"


def headline(report: ReportAnswer) -> str:
    """The answer in a few words."""
    if report.density is not None:
        return density_headline(report.density)
    answer, over = report.recommendation, _over(report)
    return f"{recommend.headline(answer)}{over}" if answer else f"No answer yet{over}"


def page_headline(report: ReportAnswer) -> str:
    """The same in at most 60 characters; the rest stands in the first line."""
    answer, over = report.recommendation, _over(report)
    if report.density is not None or answer is None:
        return headline(report)
    return f"{recommend.short_headline(answer, MOST_CHARACTERS - len(over))}{over}"


def _over(report: ReportAnswer) -> str:
    return "" if report.ranked.hosts is None else f", on {_hosts(report)}"


def _hosts(report: ReportAnswer) -> str:
    return counted(report.ranked.rounds, "host")


def answer_sentences(report: ReportAnswer) -> tuple[str, ...]:
    """The answer, the runner-up, how certain it is, durability, and the gain over the default."""
    answer = report.recommendation
    if report.ranked.hosts is not None or answer is None:
        return tuple(f"{subject}: {line}" for subject, line in first_lines(report))
    return (*recommend.verdict_sentences(answer), *recommend.reasons(answer))


def first_lines(report: ReportAnswer) -> tuple[tuple[str, str], ...]:
    """The lines below the headline, each with its subject."""
    if report.density is not None:
        return density_lines(report.density)
    answer, over = report.recommendation, report.ranked.hosts
    lines = (("Why", report.why_none),) if answer is None else ()
    if over is None:
        return lines if answer is None else recommend.first_lines(answer)
    return (
        *lines,
        *([] if answer is None else recommend.first_lines(answer)),
        *(("The fastest", sentence) for sentence in hosts.first_sentences(over)),
        *(("Hosts", sentence) for sentence in hosts.left_out_sentences(over.left_out)),
    )


def page_lines(report: ReportAnswer) -> tuple[tuple[str, str], ...]:
    """The lines below a page's headline: what did not fit into it, and the first lines."""
    whole = headline(report)
    left = () if page_headline(report) == whole else (("Answer", f"{whole}."),)
    return (*left, *first_lines(report))


def explanation(report: ReportAnswer) -> tuple[str, ...]:
    """The verdict's further sentences, after its first lines, and its reasons."""
    answer = report.recommendation
    if answer is None or report.ranked.hosts is not None:
        return ()
    return recommend.explanation(answer)


def diagnostic_sentences(report: ReportAnswer) -> tuple[str, ...]:
    """All diagnostics as sentences; only the first ones if there are many of one kind."""
    lines = grouped_sentences(report.findings)
    if report.cached:
        lines.append(
            f"In {counted(len(report.cached), 'cell')} less than half of the bytes reached the "
            "device in some measurement: such a number shows the host's page cache (RAM)."
        )
    return tuple(lines)


def diagnostics_by_cell(report: ReportAnswer) -> dict[str, tuple[str, ...]]:
    """The diagnostics of each cell as sentences, by its label."""
    by_cell: dict[str, list[str]] = {}
    for finding in report.findings:
        for cell in _cells_of(finding):
            by_cell.setdefault(cell.label, []).append(str(finding))
    for cell, names in report.cached.items():
        line = f"{cell}: from the host's page cache in {named(names, FEATURED)}."
        by_cell.setdefault(cell.label, []).append(line)
    return {label: tuple(lines) for label, lines in by_cell.items()}


def _cells_of(finding: Diagnostic) -> tuple[MeasuredCell, ...]:
    """The cells that a diagnostic names; none for one about the machine or the campaign."""
    several = getattr(finding, "cells", ())
    named = getattr(finding, "cell", None)
    cells = several if isinstance(several, tuple) else ()
    return cells if named is None else (*cells, named)


def score_keys(report: ReportAnswer) -> tuple[MeasureKey, ...]:
    """The scores that this report has."""
    return tuple(score.key for score in Score if score.key in report.summaries)


def claims_title(report: ReportAnswer) -> str:
    """A title that counts the claims by status."""
    return "" if report.claims is None else f"{claims.claims_counts(report.claims)}."


def claims_table(report: ReportAnswer) -> Table[JudgedClaim] | None:
    """The measured claims; the others are only counted. None without any."""
    if report.claims is None:
        return None
    (table,) = claims.tables(report.claims)
    measured = [row for row in table.rows if row.status is not ClaimStatus.NOT_MEASURED]
    return replace(table, rows=measured) if measured else None


def unmeasured_claims(report: ReportAnswer) -> str:
    """How many claims were not measured, and the command that measures them."""
    counts = {} if report.claims is None else report.claims.counts
    count = counts.get(ClaimStatus.NOT_MEASURED, 0)
    if not count:
        return ""
    return (
        f"{counted(count, 'claim')} could not be answered from these campaigns: `vdisklab claims` "
        "lists what is missing, `vdisklab claims --run` measures it."
    )


def hosts_part(report: ReportAnswer) -> dict[str, Any] | None:
    """The report's part about hosts, as text: outliers, classes, hosts and paths, each host's
    answer.
    """
    over = report.ranked.hosts
    if over is None:
        return None
    pairs = [row.hosts.agreement for row in report.ranked.cells if row.hosts]
    shown = [pair for pair in pairs if pair is not None][:HOST_PATHS]
    by_host = [{host.host: host for host in pair.hosts} for pair in shown]
    facts = ", ".join(varying(over.hosts))
    outliers = over.outliers
    slow = {one.host for one in outliers.outliers} if outliers else set()
    return {
        "outliers": list(hosts.outlier_sentences(outliers) if outliers else ())
        or ["No host differs."],
        "classes": list(hosts.class_sentences(over))
        or [f"The hosts differ in {facts}, but no paths are compared." if facts else "All alike."],
        "measure": measure_name(report.measure),
        "paths": [pair.a.label for pair in shown],
        "mean": [numbers.ratio(pair.ratio.ratio) for pair in shown],
        "rows": [
            {
                "name": own.host.name,
                "id": _anchor(own.host),
                "outlier": own.host.name in slow,
                "ratios": [
                    (
                        numbers.ratio(None if here is None else here.ratio),
                        here is not None and not here.agrees,
                    )
                    for here in (column.get(own.host.name) for column in by_host)
                ],
                "facts": ", ".join(map(" ".join, zip(_FACT_NAMES, own.host.kind, strict=True))),
                "first": [
                    f"{numbers.place(one.best, one.worst)}: {one.cell.label} "
                    f"({100 * one.share:.0f} % of its best)"
                    for one in own.first
                ]
                or ["No path has a rank on this host."],
                "command": "vdisklab report "
                + " ".join(f"--campaign {campaign}" for campaign in own.host.campaigns),
            }
            for own in report.own
        ],
    }


_FACT_NAMES = ("CPU", "medium", "kernel", "QEMU")


def _anchor(host: MeasuredHost) -> str:
    return "host-" + "".join(c if c.isalnum() else f"-{ord(c):x}" for c in host.name)


def build(report: ReportAnswer, form: ReportFormat) -> bytes:
    """A report as a file.

    Raises HostError if a Python package that the format needs is not installed.
    """
    if form is ReportFormat.PARQUET:
        return _parquet(report)
    if form is ReportFormat.HTML:
        from vdisklab.views.page.html import render_page  # noqa: PLC0415 - uses this file

        text = render_page(report)
    elif form is ReportFormat.CSV:
        text = as_csv(report.values, ReportValue)
    elif form is ReportFormat.JSON:
        text = _json(report)
    else:
        text = "\n".join(_markdown(report)) + "\n"
    return text.encode()


def _json(report: ReportAnswer) -> str:
    sentences = (headline(report), *answer_sentences(report), *diagnostic_sentences(report))
    whole = document(replace(report, figures=figures(report)), sentences)
    return json.dumps(whole, indent=1, allow_nan=False)


def _parquet(report: ReportAnswer) -> bytes:
    try:
        import pyarrow  # noqa: PLC0415 - an extra: 170 MB that only this format needs
        from pyarrow import parquet  # noqa: PLC0415
    except ImportError as error:
        raise HostError(
            "Parquet needs the Python package pyarrow, which is not installed",
            hint=f"{extra_hint('parquet')}; or write CSV: --format csv",
        ) from error

    kinds: dict[Any, Any] = {
        bool: pyarrow.bool_(), int: pyarrow.int32(), float: pyarrow.float64()
    }  # fmt: skip
    kinds |= {kind | None: arrow for kind, arrow in kinds.items()}
    hints = get_type_hints(ReportValue)
    schema = pyarrow.schema((key, kinds.get(hint, pyarrow.string())) for key, hint in hints.items())
    sink = io.BytesIO()
    rows = list(map(plain, report.values))
    parquet.write_table(pyarrow.Table.from_pylist(rows, schema=schema), sink)
    return sink.getvalue()


_SPECIAL = re.compile(r"([\\`*_{}\[\]()#+!|<>&~-])")


def escape(text: str) -> str:
    """Text on one line, escaped for Markdown and the HTML in it."""
    return _SPECIAL.sub(r"\\\1", sanitise_line(text)).replace("\\<", "&lt;").replace("\\>", "&gt;")


def _markdown(report: ReportAnswer) -> Iterator[str]:
    yield f"# vdisklab: {escape(headline(report))}"
    if report.caveats.warning:
        yield f"\n**{escape(report.caveats.warning)}**"
    yield ""
    yield from (f"* {escape(sentence)}" for sentence in answer_sentences(report))
    yield "\n## Cells\n"
    keys = score_keys(report) or (report.measure,)
    titles = [key.metric.replace("_", " ") for key in keys]
    yield f"| rank | path | page cache | {' | '.join(titles)} | RAM | power cut | rounds |"
    yield f"|{'---|' * (len(keys) + 6)}"
    for row in report.ranked.cells:
        cell = row.cell
        summaries = [report.shown(row, key) for key in keys]
        values = [
            numbers.value(None if summary is None else summary.median, key.quantity.shown_unit)
            for summary, key in zip(summaries, keys, strict=True)
        ]
        columns = (
            rank_text(row),
            escape(cell.name),
            cell.known_page_cache or numbers.MISSING,
            *values,
            "RAM" if cell in report.cached else "",
            power_cut_text(cell, row.power_cut),
            str(max((summary.rounds for summary in summaries if summary), default=0)),
        )
        yield f"| {' | '.join(columns)} |"
    yield from _claims(report)
    yield "\n## Diagnostics\n"
    yield from (f"* {escape(sentence)}" for sentence in diagnostic_sentences(report) or ("None.",))
    yield "\n## Machine\n"
    for campaign in report.ranked.campaigns:
        host = campaign.host
        facts = (("", host.hostname), ("", host.cpu), ("kernel ", host.kernel),
                 ("QEMU ", host.qemu), ("fio ", host.fio))  # fmt: skip
        known = ", ".join(f"{name}{fact}" for name, fact in facts if fact) or "not known"
        yield f"* {campaign.id} {escape(campaign.label)}: {escape(known)}"


def _claims(report: ReportAnswer) -> Iterator[str]:
    """The articles' claims that could be answered."""
    table = claims_table(report)
    if table is None:
        return
    yield f"\n## Claims\n\n{escape(claims_title(report))}\n"
    if report.caveats.warning:
        yield f"Measured {escape(report.caveats.warning)}.\n"
    yield f"| {' | '.join(column.heading for column in table.columns)} |"
    yield f"|{'---|' * len(table.columns)}"
    for row in table.rows:
        yield f"| {' | '.join(escape(column.show(row)) for column in table.columns)} |"
