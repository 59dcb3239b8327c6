"""Measures the cells of claims that are unmeasured on this machine."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import partial

from vdisklab.actions.cell_search import Narrowed
from vdisklab.actions.measure import measure
from vdisklab.actions.planning import rounds_of
from vdisklab.analysis.claim_verdicts import judge_claims
from vdisklab.analysis.claimfile import Claim
from vdisklab.answers.joining import Joining
from vdisklab.answers.loading import NOTHING, Loaded, load_chosen
from vdisklab.answers.missing_cells import missing_cells, request_for
from vdisklab.errors import HostError, PlanError
from vdisklab.host.command import LocalHost
from vdisklab.host.facts import machine_facts
from vdisklab.path.rules import impossible
from vdisklab.plan.accelerator import AcceleratorChoice
from vdisklab.plan.campaign import CampaignPlan
from vdisklab.plan.option_rows import given
from vdisklab.plan.plan_file import request_alike
from vdisklab.plan.settings import Request
from vdisklab.progress import Note, Progress
from vdisklab.results.model import Campaign
from vdisklab.results.store import Store
from vdisklab.units import counted
from vdisklab.value import Value, replace

_LABEL = re.compile(r"for claims: (\d{1,5}) (?:round|block)s?")  # blocks: the earlier word


def whole_claims(plan: CampaignPlan, claims: Collection[Claim]) -> Narrowed:
    """The plan limited to claims whose cells can all be measured here.

    Raises HostError if there is none: a ratio needs both of its sides.
    """
    possible_cells = set(plan.cells)
    claim_cells = {
        cell for claim in claims if possible_cells.issuperset(claim.cells) for cell in claim.cells
    }
    cells = tuple(cell for cell in plan.cells if cell in claim_cells)
    if not cells:
        reasons = "; ".join(f"{drop.path}: {drop.reason}" for drop in plan.dropped)
        raise HostError(
            f"this host cannot measure every path of {', '.join(claim.name for claim in claims)}: "
            f"{reasons}",
            hint="fix these problems, or exclude those claims with --only",
        )
    return Narrowed(replace(plan, cells=cells))


class MeasuredClaims(Value):
    """The campaigns that answer the claims, oldest first."""

    campaigns: tuple[str, ...]
    interrupted: bool


def measure_missing(
    store: Store,
    claims: Sequence[Claim],
    requested: Request,
    names: Sequence[str] | None,
    progress: Progress,
) -> MeasuredClaims:
    """Measures the requested cells that no campaign of this machine has, as far as it can.

    `names` are the campaigns to consider, None for all. Raises PlanError if a named campaign cannot
    be joined with the new measurements.
    """
    machine = machine_facts(LocalHost()).machine_id
    measured = _measured_before(store, names, requested, machine)
    like = measured.campaigns[0] if measured.campaigns else None
    campaigns = measured.ids
    possible = tuple(_possible(claims, progress))
    for cells in missing_cells(judge_claims(possible, measured.observations, measured.outlines)):
        request = request_for(cells, requested, like)
        rounds = rounds_of(request)
        request = replace(request, rounds=rounds, label=label_of(rounds))
        narrow = partial(whole_claims, claims=cells.claims)
        try:
            outcome = measure(store, request, progress, narrow=narrow)
        except HostError as error:
            hint = f" ({error.hint})" if error.hint else ""
            progress(Note(f"not measured: {error}{hint}"))
            continue
        campaigns += [] if outcome.campaign is None else [outcome.campaign]
        if outcome.interrupted:
            return MeasuredClaims(tuple(campaigns), interrupted=True)
    return MeasuredClaims(tuple(campaigns), interrupted=False)


def _possible(claims: Sequence[Claim], progress: Progress) -> Iterator[Claim]:
    """The claims whose paths all exist for these guests; says why others are not measured."""
    for claim in claims:
        for cell in claim.cells:
            verdict = impossible(cell.path)
            if verdict is not None:
                progress(Note(f"claim {claim.name} is not measured: {cell.path}: {verdict.reason}"))
                break
        else:
            yield claim


def _measured_before(
    store: Store, names: Sequence[str] | None, requested: Request, machine: str
) -> Loaded:
    """The campaigns of this machine with the requested settings, among the named ones or all.

    An unfinished campaign of `measure_missing` is excluded: so the same cells are missing as at its
    start, the plan is the same, and the campaign continues.
    """
    if names:
        campaigns = tuple({item.id: item for item in map(store.campaign, names)}.values())
        _require_alike(campaigns, machine, requested)
    else:
        campaigns = store.campaigns(with_runs=True)
    usable = [
        campaign
        for campaign in campaigns
        if campaign.host.machine_id == machine
        and not _difference(campaign, requested)
        and not _is_unfinished(store, campaign, requested.rounds)
    ]
    if not usable:
        return NOTHING
    joined = Joining(store, usable[0])
    return load_chosen(store, tuple(item for item in usable if joined.add(item) is None))


def _require_alike(campaigns: Iterable[Campaign], machine: str, requested: Request) -> None:
    for campaign in campaigns:
        if campaign.host.machine_id != machine:
            raise PlanError(
                f"campaign {campaign.id} was measured on another machine "
                f"({campaign.host.hostname})",
                hint="results of two machines cannot be joined: leave --campaign or --run out",
            )
        different = _difference(campaign, requested)
        if different:
            raise PlanError(
                f"campaign {campaign.id} was measured with another {different}",
                hint=f"only equal settings can be joined: leave --campaign or --{different} out",
            )


def _difference(campaign: Campaign, requested: Request) -> str | None:
    """The first requested option whose value differs in the campaign."""
    measured = request_alike(campaign.plan, Request)
    if requested.directory is not None:
        requested = replace(requested, directory=requested.directory.absolute())
    if requested.accelerator is AcceleratorChoice.AUTO:
        requested = replace(requested, accelerator=None)  # no wish: any accelerator will do
    return next(
        (
            row.flag.removeprefix("--")
            for row, value in given(requested)
            if row.stored and value != getattr(measured, row.name)
        ),
        None,
    )


def _is_unfinished(store: Store, campaign: Campaign, rounds: int | None) -> bool:
    """True for a campaign of `measure_missing` whose runs are incomplete."""
    label = _LABEL.fullmatch(campaign.label)
    if label is None:
        return False
    runs = len(campaign.cells) * (int(label[1]) if rounds is None else rounds)
    return len(store.finished(campaign.id)) < runs


def label_of(rounds: int) -> str:
    """The label of a campaign for claims, by which an interrupted one is recognised."""
    return f"for claims: {counted(rounds, 'round')}"
