"""`plan`: what `run` would do, how long it takes and how much space it needs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Annotated, Any

from vdisklab.analysis.race import LOOKS
from vdisklab.answers.effort import NOTHING_SO_FAR, SoFar, WithinBudget, effort, rivals
from vdisklab.campaign import context, space
from vdisklab.campaign.guests import boot_from, system_to_boot
from vdisklab.campaign.host_stacks import takes_turns
from vdisklab.campaign.prepared_data import require_programs_of_data
from vdisklab.campaign.preview import RUN, CellCommands, GuestFiles, preview_cell
from vdisklab.campaign.schedule import (
    build_seconds,
    builds,
    of_unknown_length,
    plan_warnings,
    room_needed,
    round_order,
    run_seconds,
)
from vdisklab.documents import Answer, Count
from vdisklab.errors import HostError
from vdisklab.guest.factory import boot_files, known_accelerator
from vdisklab.host.command import Host, LocalHost
from vdisklab.host.facts import memory_bytes
from vdisklab.host.state_directory import cache_directory
from vdisklab.path.cell import Cell
from vdisklab.path.disk_path import DiskPath
from vdisklab.path.segments import PageCache
from vdisklab.plan.accelerator import Accelerator
from vdisklab.plan.campaign import CampaignPlan, Dropped
from vdisklab.storage.site import memory_of_guests
from vdisklab.value import HIDDEN, Value


class PlannedCell(Value):
    """A cell that `run` would measure."""

    number: int
    path: DiskPath
    page_cache: PageCache
    fingerprint: str
    position: Annotated[int, "position in the first round"]
    seconds_estimated: Annotated[float, "for each run"]


class PlanAnswer(Answer):
    """`vdisklab plan`: what `run` would do."""

    FORMAT = "vdisklab.plan/2"

    plan: Annotated[Mapping[str, Any], "the plan as stored with a campaign"]
    fingerprint: Annotated[str, "hash of the plan; `run` continues a campaign with the same hash"]
    runs: Annotated[
        tuple[int, int],
        "the fewest and the most that are still to do, equal unless it is a race",
    ]
    finished: Annotated[Count, "of the campaign that `run` continues"]
    seconds_at_least: Annotated[float, "how long the fewest runs take"]
    seconds_usually: Annotated[float, "most races end sooner"]
    seconds_estimated: Annotated[float, "how long the most runs take"]
    within_budget: Annotated[WithinBudget | None, "null without `--budget`"]
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
    campaign: Annotated[CampaignPlan, HIDDEN]
    races: Annotated[bool, HIDDEN]
    """True if two paths or more race for the best."""
    seconds_between: Annotated[float, HIDDEN]
    """How much of `seconds_estimated` no run takes: images and stacks are made, guests boot."""


def answer_plan(
    plan: CampaignPlan,
    host: Host | None = None,
    so_far: SoFar = NOTHING_SO_FAR,
    budget: float = math.inf,
) -> PlanAnswer:
    """The order, time and space of a plan; with `host` also the commands that it would run.

    `so_far` is what stored campaigns say of its time, `budget` the seconds of `--budget`.
    """
    commands, kvm_assumed = ({}, False) if host is None else _cell_commands(host, plan)
    rounds = plan.rounds if plan.race is None else min(plan.rounds, LOOKS[0])
    planned = effort(plan, so_far, budget)
    guests = space.most_guests(plan) if plan.guest_buses else 0
    positions = {cell: place for place, cell in enumerate(round_order(plan, 1), 1)}
    on_devices = bool(plan.backing.devices)
    seconds = run_seconds(plan)
    return PlanAnswer(
        plan=plan.as_json() | {"rounds": plan.rounds, "label": plan.label},
        fingerprint=plan.fingerprint,
        runs=(planned.least_runs, len(planned.slots)),
        finished=len(so_far.finished),
        seconds_at_least=planned.at_least,
        seconds_usually=planned.usually,
        seconds_estimated=planned.at_most,
        within_budget=planned.within,
        of_unknown_length=of_unknown_length(plan),
        bytes_needed=room_needed(plan),
        guests=guests,
        guest_bytes=memory_of_guests(plan.guest.memory_bytes, guests),
        builds=builds(plan, planned.slots) if on_devices else None,
        build_seconds=build_seconds(plan, planned.slots) if on_devices else None,
        takes_turns=takes_turns(plan),
        cells=tuple(
            PlannedCell(
                number, cell.path, cell.page_cache, cell.fingerprint, positions[cell],
                so_far.pace * seconds(cell),
            )
            for number, cell in enumerate(plan.cells, 1)
        ),
        dropped=plan.dropped,
        warnings=tuple(plan_warnings(plan, memory_bytes())),
        refusals=tuple(_refusals(plan)),
        order=tuple(
            tuple(cell.label for cell in round_order(plan, round))
            for round in range(1, rounds + 1)
        ),
        commands=commands,
        kvm_assumed=kvm_assumed,
        campaign=plan,
        races=plan.race is not None and bool(rivals(plan, plan.race)),
        seconds_between=planned.at_most
        - sum(so_far.pace * seconds(slot.cell) for slot in planned.slots),
    )  # fmt: skip


def _refusals(plan: CampaignPlan) -> Iterator[str]:
    """Why `run` would not start: the work directory or the memory is too small, or a program that
    makes the data is missing."""
    checks = space.require_space, partial(require_programs_of_data, LocalHost())
    for check in checks:
        try:
            check(plan)
        except HostError as error:
            yield f"{error}; {error.hint}"


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
