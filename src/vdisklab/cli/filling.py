"""`claims --run`: measures what claims lack on this machine, and nothing else."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from rich.console import Console

from vdisklab.analysis.claimfile import Claim
from vdisklab.analysis.claims import answer_claims
from vdisklab.analysis.observations import from_numbers
from vdisklab.cli.run import measure
from vdisklab.errors import HostError, PlanError
from vdisklab.host.command import LocalHost
from vdisklab.host.facts import collect_facts
from vdisklab.plan.settings import Request
from vdisklab.results.model import Campaign
from vdisklab.results.store import Store, open_store
from vdisklab.services.answers import Loaded, database_url, disagreement, load_chosen
from vdisklab.services.missing_claims import MissingCells, missing_cells, request_for, whole_claims
from vdisklab.services.planning import blocks_of
from vdisklab.units import counted

NOTHING = Loaded((), (), from_numbers({}))


@dataclass(frozen=True, slots=True)
class Filled:
    """The campaigns to answer from, old ones first, and whether measuring was cut off."""

    campaigns: tuple[str, ...]
    interrupted: bool


def measure_missing(
    claims: Sequence[Claim], asked: Request, names: Sequence[str] | None, console: Console
) -> Filled:
    """Measures what no campaign of this machine holds; paths not to be had are named.

    Raises PlanError for a named campaign of another machine, beside which nothing that is
    measured here may stand.
    """
    with open_store(database_url(asked.db)) as store:
        held = _held(store, names, asked)
        like = held.campaigns[0] if held.campaigns else None
        found = [each.id for each in held.campaigns]
        answers = answer_claims(claims, held.observations, held.outlines)
        for group in missing_cells(answers):
            campaign, interrupted = _measure(store, group, asked, like, console)
            found += [] if campaign is None else [campaign]
            if interrupted:
                return Filled(tuple(found), interrupted=True)
    return Filled(tuple(found), interrupted=False)


def _measure(
    store: Store, group: MissingCells, asked: Request, like: Campaign | None, console: Console
) -> tuple[str | None, bool]:
    """The campaign of a group, None where this host cannot measure it; whether it was cut off."""
    request = request_for(group, asked, like)
    blocks = blocks_of(request)
    request = replace(request, blocks=blocks, label=label_of(blocks))
    try:
        campaign, _, interrupted = measure(
            store,
            request,
            console,
            new=False,
            narrow=lambda plan: whole_claims(plan, group.claims),
        )
    except HostError as error:
        way_out = f" ({error.hint})" if error.hint else ""
        console.print(f"not measured: {error}{way_out}", markup=False, soft_wrap=True)
        return None, False
    return campaign, interrupted


def _held(store: Store, names: Sequence[str] | None, asked: Request) -> Loaded:
    """What this machine measured before as it is asked for now, of the named campaigns or of all.

    A campaign of ours that lacks blocks does not count: what is missing is then what it was when
    that campaign began, so the same plan comes out, and it is continued.
    """
    machine = collect_facts(LocalHost()).machine_id
    if names:
        campaigns = tuple({each.id: each for each in map(store.campaign, names)}.values())
        _must_fit(campaigns, machine, asked)
    else:
        campaigns = store.campaigns(with_runs=True)
    whole = [
        each
        for each in campaigns
        if each.host.machine_id == machine
        and not _differs(each, asked)
        and not _begun(store, each, asked.blocks)
    ]
    if not whole:
        return NOTHING
    joined = (each for each in whole if disagreement(whole[0], each) is None)
    return load_chosen(store, tuple(joined))


def _must_fit(campaigns: Iterable[Campaign], machine: str, asked: Request) -> None:
    """Raises PlanError for a campaign beside which what is measured now may not stand."""
    for each in campaigns:
        if each.host.machine_id != machine:
            raise PlanError(
                f"campaign {each.id} was measured on another machine ({each.host.hostname})",
                hint="what is measured here cannot stand beside it: leave --campaign or --run out",
            )
        different = _differs(each, asked)
        if different:
            raise PlanError(
                f"campaign {each.id} was measured with another {different}",
                hint=f"what is measured now must be alike: leave --campaign or --{different} out",
            )


def _differs(campaign: Campaign, asked: Request) -> str | None:
    """The option by which a campaign is not as it was asked for; None when it is."""
    directory, choice = asked.directory, asked.accelerator
    guest = campaign.plan.get("guest") or {}
    said = {
        "size": (asked.size_bytes, campaign.plan.get("size_bytes")),
        "runtime": (asked.runtime, campaign.plan.get("runtime")),
        "ramp": (asked.ramp, campaign.plan.get("ramp")),
        "dir": (directory and str(directory.absolute()), campaign.plan.get("directory")),
        "accelerator": (choice and choice.accelerator, guest.get("accelerator")),
    }
    return next((name for name, (new, old) in said.items() if new is not None and new != old), None)


def _begun(store: Store, campaign: Campaign, blocks: int | None) -> bool:
    """True for a campaign of ours of which runs are left to do."""
    ours = _LABEL.fullmatch(campaign.label)
    if ours is None:
        return False
    wanted = int(ours[1]) if blocks is None else blocks
    cells = len(campaign.plan.get("cells", ()))
    return len(store.finished(campaign.id)) < cells * wanted


def label_of(blocks: int) -> str:
    """What a campaign that is made here is called: by that an interrupted one is known."""
    return f"for claims: {counted(blocks, 'block')}"


_LABEL = re.compile(r"for claims: (\d{1,5}) blocks?")
