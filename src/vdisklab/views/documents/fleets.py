"""The documents of answers from several hosts (`--hosts`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal, Self

from vdisklab.analysis.fleet.agreement import Agreement
from vdisklab.analysis.observations import MeasureKey
from vdisklab.path.cell import MeasuredCell
from vdisklab.path.needs import Need
from vdisklab.results.model import Better
from vdisklab.views.documents.conversion import At, Key, copy_fields
from vdisklab.views.documents.rankings import (
    Count,
    MeasuredUnder,
    Number,
    PathDurability,
    Positive,
    Probability,
)

HostRatioText = Annotated[Number, "A / B within hosts, of the mean host", At("ratio.ratio")]


@dataclass(frozen=True, slots=True, kw_only=True)
class HostEntry:
    """One host with its facts."""

    name: str
    facts: Mapping[str, str]
    campaigns: Annotated[tuple[str, ...], "ids"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetKeys:
    """The hosts of an answer; keys of its document."""

    hosts: tuple[HostEntry, ...]
    left_out: Annotated[tuple[str, ...], "chosen hosts without numbers of this plan, and why"]


FleetHosts = Annotated[FleetKeys, Key.INLINE]


@dataclass(frozen=True, slots=True, kw_only=True)
class AgreementEntry:
    """A / B in one measure over hosts."""

    measure: MeasureKey
    a: MeasuredCell
    b: MeasuredCell
    hosts: Annotated[Count, "hosts that have both"]
    ratio: HostRatioText
    ratio_low: Annotated[Number, "95 % interval; the hosts are the replications", At("ratio.low")]
    ratio_high: Annotated[Number, At("ratio.high")]
    p: Annotated[Probability, At("ratio.p")]
    next_low: Annotated[Number, "with 95 % the ratio on another host of this fleet is above this"]
    next_high: Number
    between: Annotated[
        Number, "standard deviation of the log ratio between hosts, without their own noise"
    ]
    agreeing: Annotated[Count, "hosts on which the mean host's leader is better"]
    disagreeing: Annotated[tuple[str, ...], "the other hosts"]
    shown_disagreeing: Annotated[
        tuple[str, ...], "those that show it by their own rounds (Holm over hosts)"
    ]

    @classmethod
    def of(cls, pair: Agreement) -> Self:
        """The entry of a comparison over hosts."""
        return copy_fields(
            cls,
            pair,
            hosts=len(pair.hosts),
            agreeing=pair.agreeing,
            disagreeing=tuple(host.host for host in pair.disagreeing),
            shown_disagreeing=tuple(host.host for host in pair.disagreeing if host.shown),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class OutlierEntry:
    """A host that is slower or faster than others with the same facts."""

    host: str
    measure: MeasureKey
    ratio: Annotated[float, "its speed relative to its peers'; 0.6 is 40 % slower"]
    peers: Annotated[Count, "other hosts with the same facts"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FactEntry:
    """Whether paths compare differently on hosts that differ in a fact."""

    fact: str
    hosts: Annotated[Mapping[str, int], "by value"]
    p: Annotated[Probability, "corrected for the facts that vary (Holm); null: too few hosts"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BetterEntry:
    """A path that is shown to beat the fleet's on the hosts of a class."""

    path: Annotated[MeasuredCell, At("cell")]
    ratio: Annotated[Number, "above 1; null if a rate of zero makes it unknown"]
    p: Probability


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassEntry:
    """Hosts with equal facts, and the path to use there."""

    name: Annotated[str, "the facts that vary in the fleet, with their values"]
    hosts: tuple[str, ...]
    path: Annotated[
        MeasuredCell | None, "the simplest that may be the best; null below 3 hosts", At("cell")
    ]
    ties: Annotated[tuple[MeasuredCell, ...], "paths that may be the best there"]
    better: Annotated[tuple[BetterEntry, ...], "paths shown to beat the fleet's path there"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetState:
    """What is to be known about the hosts of an answer."""

    outliers: Annotated[tuple[OutlierEntry, ...], At("outliers.outliers")]
    unchecked: Annotated[
        tuple[str, ...],
        "hosts that were not checked: fewer than 5 have the same facts",
        At("outliers.unchecked"),
    ]
    false_alarms: Annotated[
        float,
        "share of sound fleets in which any host is called an outlier, at most; half of the large "
        "ones if hosts' levels differ by 10 % and have heavy tails",
        At("outliers.alpha"),
    ]
    facts: Annotated[tuple[FactEntry, ...], "the facts that vary"]
    classes: Annotated[
        tuple[ClassEntry, ...],
        "by all facts that vary; empty if none does",
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetMeasure:
    """One measure of a comparison over hosts."""

    measure: MeasureKey
    unit: Annotated[str, At("measure.quantity.unit")]
    better: Annotated[Better, At("measure.quantity.better")]
    a: Annotated[float, "median over hosts", At("a.median")]
    b: Annotated[float, At("b.median")]
    ratio: HostRatioText
    ratio_low: Annotated[Number, At("ratio.low")]
    ratio_high: Annotated[Number, At("ratio.high")]
    p_adjusted: Annotated[Probability, "corrected for all main measures, or all others (Holm)"]
    hosts: Annotated[Count, At("ratio.pairs")]
    a_better_on: Annotated[int | None, "hosts; main measures only"]
    verdict: Annotated[str, "as in `vdisklab.compare`; the replications are hosts"]
    main: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetPair:
    """Two cells over hosts."""

    a: MeasuredCell
    b: MeasuredCell
    measures: tuple[FleetMeasure, ...]
    agreements: Annotated[tuple[AgreementEntry, ...], "of the main measures"]
    by_class: Annotated[
        Mapping[str, AgreementEntry], "the first measure by the facts that vary; empty if none does"
    ]
    sentences: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetCompareDocument:
    """`vdisklab compare A B --hosts`."""

    format: Literal["vdisklab.fleet-compare/1"] = "vdisklab.fleet-compare/1"
    fleet: FleetHosts
    caveats: MeasuredUnder
    pairs: tuple[FleetPair, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetAlternative:
    """One path that meets the needs, against the recommended one."""

    rank: str | None
    path: MeasuredCell
    ratio: Annotated[
        Positive,
        "recommended / this one, of the mean host; 1 for the recommended",
        At("ratio.ratio"),
    ]
    ratio_low: Annotated[Positive, At("ratio.low")]
    ratio_high: Annotated[Positive, At("ratio.high")]
    worse_on: Annotated[int | None, "hosts on which the recommended one is better"]
    hosts: Annotated[int | None, "hosts that have both"]
    power_cut: PathDurability


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetRecommendDocument:
    """`vdisklab recommend --hosts`."""

    format: Literal["vdisklab.fleet-recommend/1"] = "vdisklab.fleet-recommend/1"
    fleet: FleetHosts
    caveats: MeasuredUnder
    path: Annotated[str, At("cell.name")]
    cell: MeasuredCell
    measure: MeasureKey
    needs: tuple[Need, ...]
    considered: Count
    excluded: Annotated[Mapping[Need, int], "paths that each need rules out"]
    ties: Annotated[tuple[MeasuredCell, ...], "others that may be the best over hosts"]
    alternatives: tuple[FleetAlternative, ...]
    state: FleetState
    sentences: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetClaimEntry:
    """One claim on each host."""

    article: Annotated[str, At("claim.article")]
    name: Annotated[str, At("claim.claim")]
    sentence: Annotated[str, At("claim.sentence")]
    holds: Annotated[Count, "hosts on which it holds"]
    fails: Count
    inconclusive: Count
    void: Count
    not_measured: Count
    failing: Annotated[str, "names of the hosts on which it fails, separated by spaces"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetClaimsDocument:
    """`vdisklab claims --hosts`."""

    format: Literal["vdisklab.fleet-claims/1"] = "vdisklab.fleet-claims/1"
    fleet: FleetHosts
    caveats: MeasuredUnder
    claims: tuple[FleetClaimEntry, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberEntry:
    """One worker."""

    host: str
    address: str
    vdisklab: Annotated[str, "version"]
    silent_seconds: Annotated[float, "since the scheduler last heard of it"]
    measuring_since: Annotated[float | None, "seconds since 1970; null: no campaign is running"]
    line: Annotated[str, "the last line that the campaign printed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetStatusDocument:
    """`vdisklab fleet status`: the workers that are there."""

    format: Literal["vdisklab.fleet-status/1"] = "vdisklab.fleet-status/1"
    scheduler: str
    hosts: tuple[MemberEntry, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberCheck:
    """What `vdisklab fleet doctor` found on one host."""

    host: str
    versions: Annotated[str, "empty if they are this end's"]
    database: Annotated[str, "empty if the host can use it with its own password, else why not"]
    directory: Annotated[
        str | None, "empty if images can be built in the work directory; null: none was asked for"
    ] = None
    free_bytes: Annotated[int | None, "in the work directory"] = None
    certificate_until: str
    leftovers: Annotated[int | None, "things that killed runs left behind; null: could not look"]
    facts: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetDoctorDocument:
    """`vdisklab fleet doctor`."""

    format: Literal["vdisklab.fleet-doctor/1"] = "vdisklab.fleet-doctor/1"
    scheduler: str
    hosts: tuple[MemberCheck, ...]
