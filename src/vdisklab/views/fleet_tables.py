"""Answers from many hosts as tables and documents."""

from __future__ import annotations

from vdisklab.analysis.claim_verdicts import ClaimStatus
from vdisklab.answers.fleet_answers import (
    FleetClaim,
)
from vdisklab.answers.hosts import HostsAnalysis
from vdisklab.units import counted
from vdisklab.views.documents.conversion import copy_fields
from vdisklab.views.documents.fleets import (
    FleetClaimEntry,
    FleetClaimsDocument,
    FleetKeys,
)
from vdisklab.views.hosts import (
    left_out_sentences,
    names,
)
from vdisklab.views.layout import NAMES, Column, Table

_STATUSES = (
    ClaimStatus.HOLDS,
    ClaimStatus.FAILS,
    ClaimStatus.INCONCLUSIVE,
    ClaimStatus.VOID,
    ClaimStatus.NOT_MEASURED,
)


def fleet_claims_table(
    fleet: HostsAnalysis, claims: tuple[FleetClaim, ...]
) -> Table[FleetClaimEntry]:
    """One row per claim: on how many hosts it holds, and where it fails."""
    columns: tuple[Column[FleetClaimEntry], ...] = (
        Column("article", lambda row: row.article, spare=2),
        Column("claim", lambda row: row.name, folds=NAMES),
        Column("holds", lambda row: str(row.holds), right=True),
        Column("fails", lambda row: str(row.fails), right=True),
        Column("incon-\nclusive", lambda row: str(row.inconclusive), right=True),
        Column("void", lambda row: str(row.void), right=True, spare=1),
        Column("not\nmeasured", lambda row: str(row.not_measured), right=True, spare=1),
    )
    notes = [
        f"{entry.claim.claim} fails on {names(entry.hosts[ClaimStatus.FAILS])}."
        for entry in claims
        if entry.hosts.get(ClaimStatus.FAILS)
    ]
    return Table(
        f"Claims on {counted(len(fleet.hosts), 'host')}, each judged by its own rounds",
        columns,
        [_claim(entry) for entry in claims],
        (*fleet.loaded.caveats.notes, *notes, *left_out_sentences(fleet.left_out)),
        kind=FleetClaimEntry,
    )


def _claim(entry: FleetClaim) -> FleetClaimEntry:
    holds, fails, open_, void, missing = (len(entry.hosts.get(kind, ())) for kind in _STATUSES)
    return copy_fields(
        FleetClaimEntry,
        entry,
        holds=holds,
        fails=fails,
        inconclusive=open_,
        void=void,
        not_measured=missing,
        failing=" ".join(entry.hosts.get(ClaimStatus.FAILS, ())),
    )


def fleet_claims_document(
    fleet: HostsAnalysis, claims: tuple[FleetClaim, ...]
) -> FleetClaimsDocument:
    """The JSON form."""
    return copy_fields(
        FleetClaimsDocument,
        fleet.loaded,
        fleet=copy_fields(FleetKeys, fleet),
        claims=tuple(map(_claim, claims)),
    )
