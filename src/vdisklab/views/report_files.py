"""The report as a file of each format; page/ lays out the HTML."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator
from enum import StrEnum
from typing import Any, get_type_hints

from vdisklab import numbers
from vdisklab.answers.measured_for import seconds_of_measurements
from vdisklab.answers.report import ReportAnswer, ReportValue
from vdisklab.documents import as_csv, document, plain
from vdisklab.errors import HostError, extra_hint
from vdisklab.path.named_target import as_typed
from vdisklab.sanitise import sanitise_line
from vdisklab.units import runtime_text
from vdisklab.value import replace
from vdisklab.views.charts.figures import figures
from vdisklab.views.durability import power_cut_text
from vdisklab.views.layout import Table
from vdisklab.views.life import counts_table, times_table
from vdisklab.views.page.html import render_page
from vdisklab.views.rank import rank_text
from vdisklab.views.report import (
    answer_sentences,
    claims_table,
    claims_title,
    diagnostic_sentences,
    headline,
    hosts_part,
    operations_part,
    page_lines,
    score_keys,
)

_SPECIAL = re.compile(r"([\\`*\[\]#|<>&~]|(?<![0-9A-Za-z])_|_(?![0-9A-Za-z])|^[+-])")
"""What begins an element somewhere in a line, or the line's text; a parenthesis does so only after
a bracket."""


class ReportFormat(StrEnum):
    """The formats of a report."""

    HTML = "html"
    CSV = "csv"
    JSON = "json"
    PARQUET = "parquet"
    MARKDOWN = "md"


def build(report: ReportAnswer, form: ReportFormat) -> bytes:
    """A report as a file.

    Raises HostError if a Python package that the format needs is not installed.
    """
    if form is ReportFormat.PARQUET:
        return _parquet(report)
    if form is ReportFormat.HTML:
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


def escape(text: str) -> str:
    """Text on one line, escaped for Markdown and the HTML in it."""
    return _escaped(sanitise_line(text))


def _escaped(line: str) -> str:
    special = _SPECIAL.sub(r"\\\1", as_typed(line))
    return special.replace("\\<", "&lt;").replace("\\>", "&gt;")


def _prose(text: str) -> str:
    """A sentence, escaped but for what it marks as code, which is read and copied."""
    parts = sanitise_line(text).split("`")
    if len(parts) % 2 == 0:  # a backquote in a name from outside
        return _escaped("`".join(parts))
    return "".join(_code(part) if place % 2 else _escaped(part) for place, part in enumerate(parts))


def _code(text: str) -> str:
    """Text as code; what a program that does not know code might take for HTML is escaped."""
    return f"`{as_typed(text)}`" if text.strip() and "<" not in text else _escaped(f"`{text}`")


def _markdown(report: ReportAnswer) -> Iterator[str]:
    yield f"# vdisklab: {_prose(headline(report))}"
    warning = [f"{escape(report.caveats.warning)}."] if report.caveats.warning else []
    if said := " ".join((*warning, *map(_prose, report.caveats.remedies))):
        yield f"\n**{said[0].upper()}{said[1:]}**"
    if report.places:
        yield f"\n{' '.join(map(_prose, report.places))}"
    yield ""
    lines = answer_sentences(report)
    if report.operations is not None:  # the rest follows their table
        lines = tuple(f"{subject}: {line}" for subject, line in page_lines(report))
    lines = tuple(line for line in lines if line != f"{headline(report)}.")
    yield from (f"* {_prose(sentence)}" for sentence in lines)
    yield from _operations(report)
    yield from _lives(report)
    yield "\n## Cells\n"
    seconds = seconds_of_measurements(report.ranked.campaigns)
    if seconds is not None:
        yield f"Each measurement took {runtime_text(seconds)}.\n"
    keys = (report.measure,) if report.operations else score_keys(report) or (report.measure,)
    titles = [key.metric.replace("_", " ") for key in keys]
    of = "rounds" if report.ranked.hosts is None else "hosts"
    others = [title for key, title in zip(keys, titles, strict=True) if key != report.measure]
    if others and report.measure in keys:
        yield (
            f"{report.measure.metric.replace('_', ' ')} is the geometric mean of the {of}; "
            f"{' and '.join(others)} are medians of the {of}.\n"
        )
    yield f"| rank | path | page cache | {' | '.join(titles)} | RAM | power cut | {of} |"
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
            "RAM" if row.from_page_cache else "",
            power_cut_text(cell, row.power_cut),
            str(max((summary.rounds for summary in summaries if summary), default=0)),
        )
        yield f"| {' | '.join(columns)} |"
    yield from _hosts(report)
    yield from _claims(report)
    yield "\n## Diagnostics\n"
    yield from (f"* {_prose(sentence)}" for sentence in diagnostic_sentences(report) or ("None.",))
    yield "\n## Machine\n"
    for campaign in report.ranked.campaigns:
        host = campaign.host
        facts = (("", host.hostname), ("", host.cpu), ("kernel ", host.kernel),
                 ("QEMU ", host.qemu), ("fio ", host.fio))  # fmt: skip
        described = ", ".join(f"{name}{fact}" for name, fact in facts if fact) or "not known"
        label = f" {escape(campaign.label)}" if campaign.label else ""
        yield f"* {campaign.id}{label}: {escape(described)}"


def _hosts(report: ReportAnswer) -> Iterator[str]:
    """Who differs, and each host's own answer with the command of its whole report."""
    part = hosts_part(report)
    if part is None:
        return
    yield "\n## Hosts"
    for title, sentences in (("Outliers", part["outliers"]), ("Classes of hosts", part["classes"])):
        yield f"\n### {title}\n"
        yield from (f"* {_prose(sentence)}" for sentence in sentences)
    yield "\n## Each host's own answer\n"
    for row in part["rows"]:
        yield f"* {escape(row['name'])}: {_prose(row['answer'].rstrip('.'))}. `{row['command']}`"


def _claims(report: ReportAnswer) -> Iterator[str]:
    """The articles' claims that could be answered."""
    table = claims_table(report)
    if table is None:
        return
    yield f"\n## Claims\n\n{escape(claims_title(report))}\n"
    if report.caveats.warning:
        yield f"Measured {escape(report.caveats.warning)}.\n"
    yield from _table(table)


def _operations(report: ReportAnswer) -> Iterator[str]:
    """What each operation cost, and the lines to paste, which are code."""
    part = operations_part(report)
    if part is None:
        return
    yield "\n## Operations\n"
    yield from _table(part["table"])
    yield ""
    yield from (f"* {_prose(note)}" for note in part["table"].notes)
    if part["lines"] or part["without"]:
        yield "\n## To paste"
    for title, pasted in part["lines"].items():
        yield f"\n{escape(title)}:\n"
        yield from (f"    {as_typed(sanitise_line(line))}" for line in pasted)
    if part["without"]:
        yield ""
    yield from (f"* {_prose(reason)}" for reason in part["without"])


def _lives(report: ReportAnswer) -> Iterator[str]:
    """The times of each disk's steps, and what was counted."""
    if report.lives is None:
        return
    for title, table in (
        ("Steps of each disk", times_table(report.lives)),
        ("What was counted", counts_table(report.lives)),
    ):
        yield f"\n## {title}\n"
        yield from _table(table)


def _table(table: Table[Any]) -> Iterator[str]:
    yield f"| {' | '.join(escape(column.heading) for column in table.columns)} |"
    yield f"|{'---|' * len(table.columns)}"
    for row in table.rows:
        yield f"| {' | '.join(escape(column.show(row)) for column in table.columns)} |"
