"""The documents of recommendations, reports and tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from vdisklab.analysis.observations import MeasureKey
from vdisklab.analysis.summary import IntervalMethod
from vdisklab.path.cell import MeasuredCell
from vdisklab.path.durability import DurabilityKind
from vdisklab.path.needs import Need
from vdisklab.path.platforms import Platform
from vdisklab.path.segments import PageCache
from vdisklab.views.documents.conversion import At, CampaignEntry, DiagnosticEntry, Key
from vdisklab.views.documents.rankings import (
    AssumedDisk,
    BestEntry,
    ClaimsDocument,
    MeasuredUnder,
    Number,
    PathDurability,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Alternative:
    """A path that meets all needs."""

    cell: MeasuredCell
    rank: Annotated[str | None, "`1–3` is a tie; null without a rank"]
    values: Annotated[Mapping[str, float], "median by measure"]
    low: Annotated[Mapping[str, float], "lower end of the median's 95 % interval, by measure"]
    high: Annotated[Mapping[str, float], "upper end, by measure"]
    ratio: Annotated[Number, "how many times as good as the first; null for those not shown"]
    power_cut: DurabilityKind
    flush_free: Annotated[bool, "true when data are safe without a flush"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceEntry:
    """What a need costs."""

    need: Need
    without: Annotated[MeasuredCell, "the best cell without this need"]
    ratio: Annotated[Number, "ratio of that cell to the recommended one", At("ratio.ratio")]
    ratio_low: Annotated[Number, At("ratio.low")]
    ratio_high: Annotated[Number, At("ratio.high")]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecommendDocument:
    """`vdisklab recommend`: the path to use, and why."""

    format: Literal["vdisklab.recommend/1"] = "vdisklab.recommend/1"
    campaigns: tuple[CampaignEntry, ...]
    caveats: MeasuredUnder
    path: Annotated[str, "the path to use: the winner, or the simplest of those that tie"]
    cell: Annotated[MeasuredCell, At("recommendation.cell")]
    measure: Annotated[MeasureKey, "the measure that decided", At("recommendation.measure")]
    needs: Annotated[tuple[Need, ...], At("recommendation.needs")]
    host_disk: AssumedDisk
    considered: Annotated[int, "paths that were measured", At("recommendation.considered")]
    excluded: Annotated[
        Mapping[Need, int], "need: paths that it rules out", At("recommendation.excluded")
    ]
    winner: Annotated[MeasuredCell | None, "null if several may be the best"]
    ties: Annotated[tuple[MeasuredCell, ...], "the others that may be the best"]
    best: Annotated[
        BestEntry | None,
        "null without ranked cells, or if they differ in their number of guests",
        At("recommendation.ranking.best"),
    ]
    alternatives: Annotated[tuple[Alternative, ...], "best first"]
    prices: Annotated[tuple[PriceEntry, ...], At("recommendation.prices")]
    default: Annotated[
        MeasuredCell | None, "what QEMU does by default", At("recommendation.default")
    ]
    over_default: Annotated[
        Number, "ratio to that default", At("recommendation.over_default.ratio")
    ]
    over_platforms: Annotated[
        Mapping[Platform, Number],
        "ratio to a new guest's disk by platform, as far as measured; null for the same path",
    ]
    sentences: tuple[str, ...]
    findings: tuple[DiagnosticEntry, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AlternativeRow:
    """One alternative of `recommend`, in CSV."""

    rank: str | None
    path: MeasuredCell
    metrics: Annotated[Mapping[str, Number], "the median of each measure", Key.INLINE]
    ratio: Number
    power_cut: str


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
    recommendation: RecommendDocument | None
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
