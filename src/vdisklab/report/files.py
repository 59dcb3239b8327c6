"""The report in each of its formats, as files to be written."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping
from enum import StrEnum

from vdisklab.report.charts import LIGHT, to_png, to_svg
from vdisklab.report.contents import (
    Contents,
    answer_sentences,
    doubt_sentences,
    headline,
    long_table,
)
from vdisklab.report.document import campaign_json, document, findings_json
from vdisklab.report.figures import figures
from vdisklab.report.markdown import to_markdown
from vdisklab.report.page import render_page
from vdisklab.report.recommending import recommendation_document
from vdisklab.report.tables import as_csv, as_records

Files = Mapping[str, bytes]
"""Names and contents; one file, or one for each figure."""


class ReportFormat(StrEnum):
    """How a report is written."""

    HTML = "html"
    PNG = "png"
    SVG = "svg"
    CSV = "csv"
    JSON = "json"
    PARQUET = "parquet"
    MARKDOWN = "md"

    @property
    def is_directory(self) -> bool:
        """True for the formats that have one file for each figure."""
        return self in (ReportFormat.PNG, ReportFormat.SVG)


def build(contents: Contents, form: ReportFormat) -> Files:
    """The files of a report. What was not measured has no picture."""
    return _BUILDERS[form](contents)


def _html(contents: Contents) -> Files:
    return {"report.html": render_page(contents).encode()}


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
    answer = contents.recommendation
    found = document(
        "report",
        1,
        campaigns=[campaign_json(campaign) for campaign in contents.campaigns],
        emulation=contents.emulated,
        headline=headline(contents),
        answer=list(answer_sentences(contents)),
        recommendation=None if answer is None else recommendation_document(answer),
        doubts=list(doubt_sentences(contents)),
        findings=findings_json((*contents.findings, *contents.failed)),
        values=as_records(long_table(contents)),
        figures=[
            {
                "key": figure.key,
                "title": figure.title,
                "description": figure.alt,
                "missing": figure.missing,
                "vega_lite": figure.spec,
            }
            for figure in figures(contents, LIGHT)
        ],
    )
    return {"report.json": json.dumps(found, indent=1, allow_nan=False).encode()}


def _parquet(contents: Contents) -> Files:
    import pyarrow  # noqa: PLC0415 - takes a quarter of a second, and only this format needs it
    from pyarrow import parquet  # noqa: PLC0415

    kinds = {
        "median": pyarrow.float64(), "low": pyarrow.float64(), "high": pyarrow.float64(),
        "blocks": pyarrow.int32(), "rank_best": pyarrow.int32(), "rank_worst": pyarrow.int32(),
        "from_page_cache": pyarrow.bool_(), "emulation": pyarrow.bool_(),
    }  # fmt: skip
    table = long_table(contents)
    schema = pyarrow.schema(
        [(column.key, kinds.get(column.key, pyarrow.string())) for column in table.columns]
    )
    sink = io.BytesIO()
    parquet.write_table(pyarrow.Table.from_pylist(as_records(table), schema=schema), sink)
    return {"report.parquet": sink.getvalue()}


def _markdown(contents: Contents) -> Files:
    return {"report.md": to_markdown(contents).encode()}


_BUILDERS: Mapping[ReportFormat, Callable[[Contents], Files]] = {
    ReportFormat.HTML: _html,
    ReportFormat.PNG: _pictures("png"),
    ReportFormat.SVG: _pictures("svg"),
    ReportFormat.CSV: _csv,
    ReportFormat.JSON: _json,
    ReportFormat.PARQUET: _parquet,
    ReportFormat.MARKDOWN: _markdown,
}
