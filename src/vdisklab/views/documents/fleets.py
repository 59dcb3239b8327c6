"""The documents of answers from several hosts (`--hosts`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

from vdisklab.views.documents.conversion import At, Key
from vdisklab.views.documents.rankings import (
    Count,
    MeasuredUnder,
    Number,
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
