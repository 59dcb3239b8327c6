"""The documents of rankings, comparisons and claims.

A new key does not change a document's version; a key that is removed or changes its meaning raises
it. Rows of tables are dataclasses here, too: CSV has the same keys.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

from vdisklab.analysis.claim_verdicts import ClaimStatus, Void
from vdisklab.analysis.observations import MeasureKey
from vdisklab.path.cell import Cell
from vdisklab.path.durability import DurabilityKind, HostDisk, PowerCutOutcome
from vdisklab.results.model import Better
from vdisklab.views.documents.conversion import (
    At,
    CampaignEntry,
    DiagnosticEntry,
    Key,
    Limit,
)

Number = float | None
Count = Annotated[int, Limit("minimum", 0)]
Positive = Annotated[Number, Limit("exclusiveMinimum", 0)]
Probability = Annotated[Number, Limit("minimum", 0), Limit("maximum", 1)]
Emulation = Annotated[
    bool,
    "true when a measured guest ran under TCG: good for comparing host-side choices, not for the "
    "speed of a KVM guest",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class CaveatKeys:
    """Why the numbers do not measure a machine's speed; keys of most documents."""

    emulation: Annotated[Emulation, At("emulated")]
    emulated_host: Annotated[
        bool,
        "true when a measured guest ran under KVM in a host that is emulated itself: proof that "
        "code works under KVM, not a speed",
    ]
    lab: Annotated[
        bool,
        "true when a run was made by `vdisklab lab run`: proof that a stack works, not a speed",
    ]


MeasuredUnder = Annotated[CaveatKeys, Key.INLINE]


AssumedDisk = Annotated[HostDisk, "the host's disk in a power cut, as --disk says"]

PowerCutAnswer = Annotated[
    PowerCutOutcome | None,
    "what `vdisklab powercut` found on this host: `kept-flushed`: clients that never flush were "
    "not tested; `kept-flushed-only`: unflushed data were lost; `kept-unflushed`, "
    "`lost-unflushed`: flushing clients were not tested; null: not tested, or fewer than 20 "
    "states without judging all",
]

PathDurability = Annotated[
    DurabilityKind | None,
    "what happens to flushed data in a power cut, by rule or as tested here; null on the host",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class RankedKeys:
    """What is ranked."""

    measure: Annotated[MeasureKey, "what is ranked, as MEASUREMENT/DIRECTION/METRIC"]
    unit: Annotated[str, At("measure.quantity.unit")]
    better: Annotated[Better, At("measure.quantity.better")]


@dataclass(frozen=True, slots=True, kw_only=True)
class PairKeys:
    """How many pairs of cells a ranking tells apart."""

    alpha: Annotated[float, "family-wise error"]
    comparisons: Annotated[int, "pairs of cells"]
    separated: Annotated[int, "pairs shown to differ"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimRow:
    """The verdict on one claim, as in CSV."""

    article: Annotated[str, At("claim.article")]
    claim: Annotated[str, At("claim.name")]
    sentence: Annotated[str, At("claim.sentence")]
    status: ClaimStatus
    verdict: Annotated[str, "the status in words"]
    ratio: Annotated[Positive, "left/right within rounds"]
    ratio_low: Annotated[Positive, At("low")]
    ratio_high: Annotated[Positive, At("high")]
    stated_low: Annotated[Positive, "the claimed range; null for an open end"]
    stated_high: Positive
    p: Annotated[Probability, "for this claim alone"]
    p_adjusted: Annotated[Probability, "corrected for all claims (Holm); this one decides"]
    rounds: Annotated[Count, "rounds in which all cells of the claim were measured"]
    more_rounds: Annotated[int | None, "how many more rounds would decide", Limit("minimum", 1)]
    void: Annotated[Void | None, "why the claim says nothing about this machine"]
    command: Annotated[str | None, "measures what is missing; null unless not measured"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimEntry(ClaimRow):
    """The verdict on one claim with what it compares."""

    pairs: Annotated[tuple[tuple[Cell, Cell], ...], "the compared cells", At("claim.pairs")]
    measures: Annotated[tuple[MeasureKey, ...], At("claim.measures")]
    absolute: Annotated[bool, At("claim.absolute")]
    missing: Annotated[tuple[Cell, ...], "cells to measure"]
    failures: Annotated[tuple[str, ...], "why its runs failed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimsDocument:
    """`vdisklab claims`: a verdict on each claim of the articles."""

    format: Literal["vdisklab.claims/1"] = "vdisklab.claims/1"
    campaigns: tuple[CampaignEntry, ...]
    caveats: MeasuredUnder
    articles: Annotated[Mapping[str, str], "name: title", At("titles")]
    counts: Annotated[Mapping[ClaimStatus, int], "claims of each status"]
    claims: tuple[ClaimEntry, ...]
    left_out: Annotated[tuple[str, ...], "why other campaigns could not be joined"]
    findings: tuple[DiagnosticEntry, ...]
