"""`plan`: what `run` would do, how long it takes and how much space it needs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from vdisklab.analysis.race import LOOKS, USUAL_ROUNDS
from vdisklab.answers.race import contestants
from vdisklab.answers.race_plan import in_every_round
from vdisklab.campaign import context
from vdisklab.campaign.guests import boot_from, system_to_boot
from vdisklab.campaign.host_stacks import takes_turns
from vdisklab.campaign.preview import RUN, CellCommands, GuestFiles, preview_cell
from vdisklab.campaign.schedule import (
    Slot,
    build_seconds,
    builds,
    campaign_seconds,
    of_unknown_length,
    plan_warnings,
    room_needed,
    round_order,
    run_seconds,
    schedule,
)
from vdisklab.documents import HIDDEN, Answer, Count
from vdisklab.errors import HostError
from vdisklab.guest.factory import boot_files, known_accelerator
from vdisklab.host.command import Host
from vdisklab.host.facts import memory_bytes
from vdisklab.host.ledger import cache_directory
from vdisklab.path.cell import Cell, MeasuredCell
from vdisklab.path.disk_path import DiskPath
from vdisklab.path.durability import CrashVerdicts
from vdisklab.path.segments import PageCache
from vdisklab.plan.campaign import CampaignPlan, Dropped
from vdisklab.plan.guest import Accelerator
from vdisklab.plan.race_terms import DEFAULT_MARGIN
from vdisklab.storage.site import memory_of_guests


@dataclass(frozen=True, slots=True)
class PlannedCell:
    """A cell that `run` would measure."""

    number: int
    path: DiskPath
    page_cache: PageCache
    fingerprint: str
    position: Annotated[int, "position in the first round"]
    seconds_estimated: Annotated[float, "for each run"]


@dataclass(frozen=True, slots=True)
class PlanAnswer(Answer):
    """`vdisklab plan`: what `run` would do."""

    FORMAT = "vdisklab.plan/2"

    plan: Annotated[Mapping[str, Any], "the plan as stored with a campaign"]
    fingerprint: Annotated[str, "hash of the plan; `run` continues a campaign with the same hash"]
    runs: Annotated[tuple[int, int], "the fewest and the most, equal unless it is a race"]
    seconds_at_least: Annotated[float, "how long the fewest runs take"]
    seconds_usually: Annotated[float, "most races end sooner"]
    seconds_estimated: Annotated[float, "how long the most runs take"]
    of_unknown_length: Annotated[
        tuple[str, ...],
        "measurements that end by themselves or by a job file, and are in no estimate",
    ]
    bytes_needed: Annotated[int, "in the work directory"]
    guests: Annotated[int, "how many exist at a time"]
    guest_bytes: Annotated[int, "the memory that those guests need, with their QEMUs"]
    builds: Annotated[
        Count | None, "how many times stacks are built on the user's devices; null without `--on`"
    ]
    build_seconds: Annotated[float | None, "how long the building takes"]
    takes_turns: Annotated[bool, "true if several stacks share the user's devices"]
    cells: tuple[PlannedCell, ...]
    dropped: tuple[Dropped, ...]
    warnings: Annotated[tuple[str, ...], "what limits the numbers, known before measuring"]
    refusals: Annotated[tuple[str, ...], "why `run` would refuse the plan on this host"]
    order: Annotated[
        tuple[tuple[str, ...], ...], "the labels of the cells, for each round that has them all"
    ]
    commands: Annotated[Mapping[Cell, CellCommands], "of each cell; empty without `--commands`"]
    kvm_assumed: Annotated[bool, "true if `commands` use KVM, which `run` tries first"]
    campaign: CampaignPlan = field(metadata=HIDDEN)


def answer_plan(plan: CampaignPlan, host: Host | None = None) -> PlanAnswer:
    """The order, time and space of a plan; with `host` also the commands that it would run."""
    commands, kvm_assumed = ({}, False) if host is None else _cell_commands(host, plan)
    rounds = plan.rounds if plan.race is None else min(plan.rounds, LOOKS[0])
    slots = tuple(_at_most(plan, rounds))
    surely = tuple(slot for slot in slots if slot.round <= rounds)
    least, most = (campaign_seconds(plan, some) for some in (surely, slots))
    guests = context.most_guests(plan) if plan.guest_buses else 0
    positions = {slot.cell: slot.position for slot in reversed(slots) if slot.round == 1}
    on_devices = bool(plan.backing.devices)
    seconds = run_seconds(plan)
    return PlanAnswer(
        plan=plan.as_json() | {"rounds": plan.rounds, "label": plan.label},
        fingerprint=plan.fingerprint,
        runs=(len(surely), len(slots)),
        seconds_at_least=least,
        seconds_usually=least + _usual_share(plan) * (most - least),
        seconds_estimated=most,
        of_unknown_length=of_unknown_length(plan),
        bytes_needed=room_needed(plan),
        guests=guests,
        guest_bytes=memory_of_guests(plan.guest.memory_bytes, guests),
        builds=builds(plan, slots) if on_devices else None,
        build_seconds=build_seconds(plan, slots) if on_devices else None,
        takes_turns=takes_turns(plan),
        cells=tuple(
            PlannedCell(
                number, cell.path, cell.page_cache, cell.fingerprint, positions[cell],
                seconds(cell),
            )
            for number, cell in enumerate(plan.cells, 1)
        ),
        dropped=plan.dropped,
        warnings=tuple(plan_warnings(plan, memory_bytes())),
        refusals=_refusals(plan),
        order=tuple(
            tuple(cell.label for cell in round_order(plan, round))
            for round in range(1, rounds + 1)
        ),
        commands=commands,
        kvm_assumed=kvm_assumed,
        campaign=plan,
    )  # fmt: skip


def _at_most(plan: CampaignPlan, rounds: int) -> Iterator[Slot]:
    """All runs, if no path of a race is dropped: after the first rounds only some paths race."""
    racing: set[MeasuredCell] = set()
    if plan.race is not None:
        cells = tuple(cell.measured for cell in plan.cells)
        for group in plan.race.groups or ((),):
            racing |= set(contestants(cells, plan.race, CrashVerdicts(), group))
    for slot in schedule(plan):
        race = plan.race
        if (
            race is None
            or slot.round <= rounds
            or slot.cell.measured in racing
            or in_every_round(slot.cell, plan, race.metric)
        ):
            yield slot


def _usual_share(plan: CampaignPlan) -> float:
    """How much of the rounds after the first look most races take; with half of the margin, four
    times as many."""
    if plan.race is None or plan.rounds <= LOOKS[0]:
        return 1.0
    wider = DEFAULT_MARGIN / plan.race.margin
    share: float = USUAL_ROUNDS * wider * wider / (plan.rounds - LOOKS[0])
    return min(1.0, share)


def _refusals(plan: CampaignPlan) -> tuple[str, ...]:
    """Why `run` would not start: the work directory or the memory is too small."""
    try:
        context.require_space(plan)
    except HostError as error:
        return (f"{error}; {error.hint}",)
    return ()


def _cell_commands(host: Host, plan: CampaignPlan) -> tuple[Mapping[Cell, CellCommands], bool]:
    """The exact commands of each cell, and whether KVM is only assumed in them."""
    buses = plan.guest_buses
    cache = cache_directory()
    boot = system = None
    if buses and plan.guest.user is None:
        if plan.profile.boots:
            system, micro = system_to_boot(host, cache, buses, plan.guest)
            boot = boot_from(micro, system, f"vdl{RUN}")
        else:
            boot = boot_files(host, cache, buses, plan.guest)
    files = GuestFiles(boot, system, context.planned_packages(host, cache, plan))
    tried = known_accelerator(host, cache, plan.guest, context.qemus_of(plan), boot)
    accelerator = tried or Accelerator.KVM
    commands = {cell: preview_cell(host, plan, cell, files, accelerator) for cell in plan.cells}
    return commands, bool(buses) and tried is None
