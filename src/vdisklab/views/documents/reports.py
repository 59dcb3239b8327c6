"""The documents of recommendations, reports and tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from vdisklab.analysis.summary import IntervalMethod
from vdisklab.path.cell import MeasuredCell
from vdisklab.path.segments import PageCache
from vdisklab.views.documents.conversion import At, CampaignEntry, DiagnosticEntry
from vdisklab.views.documents.rankings import (
    ClaimsDocument,
    MeasuredUnder,
    Number,
    PathDurability,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportValue:
    """The median of one measure of one cell, as in the report's CSV and Parquet forms."""

    cell: MeasuredCell
    path: str
    page_cache: Annotated[PageCache | None, "null for an import, which does not say it"]
    measure: str
    unit: str
    median: float
    low: Number
    high: Number
    interval_method: IntervalMethod | None
    rounds: int
    rank_best: int | None
    rank_worst: int | None
    keeping: PathDurability
    from_page_cache: bool
    emulation: bool
    emulated_host: bool
    lab: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class FigureEntry:
    """One figure of the report."""

    key: str
    title: str
    description: Annotated[str, At("alt")]
    missing: Annotated[str | None, "the command that would measure it; null when it is drawn"]
    note: str
    cells: Annotated[tuple[str, ...], "the drawn cells"]
    vega_lite: Annotated[Mapping[str, Any] | None, "the chart's specification", At("spec")]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportDocument:
    """`vdisklab report --format json`: everything that the page shows."""

    format: Literal["vdisklab.report/1"] = "vdisklab.report/1"
    campaigns: tuple[CampaignEntry, ...]
    caveats: MeasuredUnder
    headline: str
    answer: tuple[str, ...]
    recommendation: Annotated[Mapping[str, Any] | None, "as `recommend` prints it"]
    doubts: Annotated[tuple[str, ...], "the diagnostics as sentences"]
    findings: tuple[DiagnosticEntry, ...]
    values: tuple[ReportValue, ...]
    claims: ClaimsDocument | None
    published: Annotated[tuple[Mapping[str, Any], ...], "as `compare --published` prints each"]
    figures: tuple[FigureEntry, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """How a kind of number is computed."""

    title: str
    shown_by: Annotated[tuple[str, ...], "verbs"]
    keys: Annotated[tuple[str, ...], "in JSON and CSV"]
    how: str
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplanationRow:
    """An `Explanation` as a row of CSV."""

    number: str
    how: str
    source: str
    shown_by: str
    keys: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MethodDocument:
    """`vdisklab method`: how each number is computed."""

    format: Literal["vdisklab.method/1"] = "vdisklab.method/1"
    numbers: tuple[Explanation, ...]
