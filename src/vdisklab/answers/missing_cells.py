"""Cells that an answer lacks, and the command that measures them."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from vdisklab.analysis.claim_verdicts import ClaimAnswer
from vdisklab.analysis.claimfile import Claim
from vdisklab.answers.elsewhere import directories_gone
from vdisklab.path.cell import PageCacheChoice
from vdisklab.path.disk_path import parse_path, some_are_alike
from vdisklab.path.rules import impossible
from vdisklab.plan.build import backing_of
from vdisklab.plan.option_rows import merge
from vdisklab.plan.plan_file import request_alike
from vdisklab.plan.settings import NO_BASELINE, Request, command_words
from vdisklab.results.database import without_password
from vdisklab.results.model import Campaign
from vdisklab.value import Value, replace


class MissingCells(Value):
    """Unmeasured cells of one profile and page-cache choice, which one campaign can measure.

    `claims` are the claims that need them.
    """

    profile: str
    page_cache: PageCacheChoice
    paths: tuple[str, ...]
    claims: tuple[Claim, ...] = ()


def missing_cells(answers: Sequence[ClaimAnswer]) -> tuple[MissingCells, ...]:
    """The cells that these claims still need, in as few campaigns as possible."""
    lacking: dict[tuple[str, PageCacheChoice], list[ClaimAnswer]] = {}
    for answer in answers:
        if answer.missing:
            key = (answer.claim.profile, answer.claim.page_cache)
            lacking.setdefault(key, []).append(answer)
    return tuple(
        MissingCells(
            *key,
            tuple(
                dict.fromkeys(
                    cell.path.canonical for claim_answer in group for cell in claim_answer.missing
                )
            ),
            tuple(answer.claim for answer in group),
        )
        for key, group in lacking.items()
    )


def request_for(cells: MissingCells, requested: Request, like: Campaign | None) -> Request:
    """The campaign that measures the cells, with the settings of the campaign that it joins."""
    alike = Request() if like is None else request_alike(like.plan, Request)
    if like is not None and directories_gone([like]):
        alike = replace(alike, directory=None)
    backing = backing_of(alike)
    if any(impossible(parse_path(path), backing, guest=None) for path in cells.paths):
        alike = replace(alike, devices=(), target=())  # its devices hold other paths
    return replace(
        merge(alike, requested),
        paths=cells.paths,
        profile=cells.profile,
        page_cache=cells.page_cache,
        baseline=NO_BASELINE,
        load=None,  # of the other campaign's profile, as the next two
        clients=None,
        neighbour=None,
        keep_equal=some_are_alike(cells.paths),
    )


def run_command(request: Request) -> str:
    """The `vdisklab run` command for a request."""
    public = request.db and without_password(request.db)
    return shlex.join(command_words(replace(request, db=public)))
