"""The documents of rankings, comparisons and claims.

A new key does not change a document's version; a key that is removed or changes its meaning raises
it. Rows of tables are dataclasses here, too: CSV has the same keys.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from vdisklab.analysis.observations import MeasureKey
from vdisklab.path.durability import DurabilityKind, HostDisk, PowerCutOutcome
from vdisklab.results.model import Better
from vdisklab.views.documents.conversion import (
    At,
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
