"""Finds what claims lack, and plans the campaigns that measure it."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from vdisklab.analysis.claimfile import Claim
from vdisklab.analysis.claims import ClaimAnswer
from vdisklab.errors import HostError
from vdisklab.path.cell import PageCacheChoice
from vdisklab.plan.campaign import CampaignPlan
from vdisklab.plan.plan_file import request_alike
from vdisklab.plan.settings import NO_BASELINE, Request, command_words, merge
from vdisklab.results.address import without_password
from vdisklab.results.model import Campaign


@dataclass(frozen=True, slots=True)
class MissingCells:
    """Unmeasured cells of one profile and page-cache choice, which one campaign can measure.

    `claims` are the claims that need them.
    """

    profile: str
    page_cache: PageCacheChoice
    paths: tuple[str, ...]
    claims: tuple[Claim, ...] = ()


def missing_cells(answers: Sequence[ClaimAnswer]) -> tuple[MissingCells, ...]:
    """The cells that the answers lack, in as few campaigns as possible."""
    lacking: dict[tuple[str, PageCacheChoice], list[ClaimAnswer]] = {}
    for answer in answers:
        if answer.missing:
            key = (answer.claim.profile, answer.claim.page_cache)
            lacking.setdefault(key, []).append(answer)
    return tuple(
        MissingCells(
            *key,
            tuple(dict.fromkeys(cell.path.canonical for one in group for cell in one.missing)),
            tuple(answer.claim for answer in group),
        )
        for key, group in lacking.items()
    )


def whole_claims(plan: CampaignPlan, claims: Collection[Claim]) -> CampaignPlan:
    """The plan reduced to the claims whose cells can all be measured here.

    Raises HostError if there is no such claim: half a ratio is not worth measuring.
    """
    here = set(plan.cells)
    wanted = {cell for claim in claims if here.issuperset(claim.cells) for cell in claim.cells}
    cells = tuple(cell for cell in plan.cells if cell in wanted)
    if not cells:
        reasons = "; ".join(f"{one.path}: {one.reason}" for one in plan.dropped)
        raise HostError(
            f"this host cannot measure every path of {', '.join(claim.name for claim in claims)}: "
            f"{reasons}",
            hint="remove these reasons, or leave those claims out with --only",
        )
    return replace(plan, cells=cells)


def request_for(cells: MissingCells, requested: Request, like: Campaign | None) -> Request:
    """The campaign that measures the cells, with the settings of the campaign that it joins."""
    alike = Request() if like is None else request_alike(like.plan)
    return replace(
        merge(alike, requested),
        paths=cells.paths,
        profile=cells.profile,
        page_cache=cells.page_cache,
        baseline=NO_BASELINE,
    )


def run_command(request: Request) -> str:
    """The `vdisklab run` command for a request."""
    public = request.db and without_password(request.db)
    return shlex.join(command_words(replace(request, db=public)))
