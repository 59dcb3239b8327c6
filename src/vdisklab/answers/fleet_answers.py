"""One answer from many hosts: `--hosts` of `rank`, `compare`, `recommend` and `claims`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from vdisklab.analysis.claim_verdicts import ClaimStatus
from vdisklab.analysis.claimfile import ClaimFile
from vdisklab.answers.claims import JudgedClaim, evaluate_claims
from vdisklab.answers.hosts import HostsAnalysis
from vdisklab.answers.loading import load_chosen
from vdisklab.plan.settings import Request


@dataclass(frozen=True, slots=True)
class FleetClaim:
    """One claim on each host: the names of the hosts by status."""

    claim: JudgedClaim
    hosts: Mapping[ClaimStatus, tuple[str, ...]]


def answer_fleet_claims(
    fleet: HostsAnalysis, files: Sequence[ClaimFile], requested: Request
) -> tuple[FleetClaim, ...]:
    """Every claim, judged on each host by its own rounds."""
    by_claim: dict[tuple[str, str], tuple[JudgedClaim, dict[ClaimStatus, list[str]]]] = {}
    for host in fleet.hosts:
        campaigns = tuple(c for c in fleet.campaigns if c.id in host.campaigns)
        answer = evaluate_claims(load_chosen(fleet.results, campaigns), files, requested)
        for claim in answer.claims:
            hosts = by_claim.setdefault((claim.article, claim.claim), (claim, {}))[1]
            hosts.setdefault(claim.status, []).append(host.name)
    return tuple(
        FleetClaim(claim, {kind: tuple(names) for kind, names in hosts.items()})
        for claim, hosts in by_claim.values()
    )
