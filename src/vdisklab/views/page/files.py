"""The report in each of its formats, as files."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping

from vdisklab.answers.report_contents import Contents
from vdisklab.documents import document
from vdisklab.errors import HostError
from vdisklab.views.charts.figures import figures
from vdisklab.views.charts.svg import LIGHT, Draw, draw_here
from vdisklab.views.charts.vega import to_png, to_svg
from vdisklab.views.claim_results import claims_document
from vdisklab.views.documents.conversion import copy_fields, diagnostic_entries, to_json
from vdisklab.views.documents.reports import FigureEntry, ReportDocument
from vdisklab.views.layout import as_csv
from vdisklab.views.page.contents import (
    ReportFormat,
    answer_sentences,
    diagnostic_sentences,
    headline,
    long_table,
)
from vdisklab.views.page.html import render_page
from vdisklab.views.page.markdown import to_markdown

Files = Mapping[str, bytes]
"""File names with their contents: one file, or one for each figure."""


def build(contents: Contents, form: ReportFormat, draw: Draw = draw_here) -> Files:
    """The files of a report; figures that were not measured have none.

    `draw` draws the charts of the HTML page; the other formats draw in this process.
    """
    if form is ReportFormat.HTML:
        return {"report.html": render_page(contents, draw).encode()}
    return _BUILDERS[form](contents)


def _pictures(suffix: str) -> Callable[[Contents], Files]:
    def build_all(contents: Contents) -> Files:
        return {
            f"{figure.key}.{suffix}": to_svg(figure.spec).encode()
            if suffix == "svg"
            else to_png(figure.spec)
            for figure in figures(contents, LIGHT)
            if figure.spec is not None
        }

    return build_all


def _csv(contents: Contents) -> Files:
    return {"report.csv": as_csv(long_table(contents)).encode()}


def _json(contents: Contents) -> Files:
    text = json.dumps(to_json(report_document(contents)), indent=1, allow_nan=False)
    return {"report.json": text.encode()}


def report_document(contents: Contents) -> ReportDocument:
    """The JSON form of the report."""
    recommendation, claims = contents.recommendation, contents.claims
    return copy_fields(
        ReportDocument,
        contents,
        headline=headline(contents),
        answer=answer_sentences(contents),
        recommendation=None if recommendation is None else document(recommendation),
        doubts=diagnostic_sentences(contents),
        findings=diagnostic_entries((*contents.findings, *contents.failed)),
        values=tuple(long_table(contents).rows),
        claims=None if claims is None else claims_document(claims),
        published=tuple(map(document, contents.published)),
        figures=tuple(copy_fields(FigureEntry, figure) for figure in figures(contents, LIGHT)),
    )


def _parquet(contents: Contents) -> Files:
    try:
        import pyarrow  # noqa: PLC0415 - an extra: 170 MB that only this format needs
        from pyarrow import parquet  # noqa: PLC0415
    except ImportError as error:
        raise HostError(
            "Parquet needs the Python package pyarrow, which is not installed",
            hint="pip install 'vdisklab[parquet]'; in a checkout script/install --extras; "
            "or write CSV: --format csv",
        ) from error

    kinds = {
        "median": pyarrow.float64(), "low": pyarrow.float64(), "high": pyarrow.float64(),
        "rounds": pyarrow.int32(), "rank_best": pyarrow.int32(), "rank_worst": pyarrow.int32(),
        "from_page_cache": pyarrow.bool_(), "emulation": pyarrow.bool_(),
        "emulated_host": pyarrow.bool_(), "lab": pyarrow.bool_(),
    }  # fmt: skip
    table = long_table(contents)
    schema = pyarrow.schema([(key, kinds.get(key, pyarrow.string())) for key in table.keys])
    sink = io.BytesIO()
    parquet.write_table(pyarrow.Table.from_pylist(to_json(table.rows), schema=schema), sink)
    return {"report.parquet": sink.getvalue()}


def _markdown(contents: Contents) -> Files:
    return {"report.md": to_markdown(contents).encode()}


_BUILDERS: Mapping[ReportFormat, Callable[[Contents], Files]] = {
    ReportFormat.PNG: _pictures("png"),
    ReportFormat.SVG: _pictures("svg"),
    ReportFormat.CSV: _csv,
    ReportFormat.JSON: _json,
    ReportFormat.PARQUET: _parquet,
    ReportFormat.MARKDOWN: _markdown,
}
