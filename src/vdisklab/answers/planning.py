"""Makes the plan of a campaign on this host from a request, with plan file, profile and survey."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from vdisklab.campaign.context import guest_buses, most_guests, qemus_of, require_space
from vdisklab.campaign.estimate import (
    build_seconds,
    builds,
    campaign_seconds,
    device_bytes_needed,
    plan_warnings,
    planned_script,
    room_needed,
    run_seconds,
)
from vdisklab.campaign.guests import boot_from, requested_guest, system_to_boot
from vdisklab.campaign.host_stacks import takes_turns
from vdisklab.campaign.preview import RUN, CellCommands, GuestFiles, preview_cell
from vdisklab.campaign.schedule import round_order, schedule
from vdisklab.campaign.survey import find_qemus, survey
from vdisklab.errors import HostError, PlanError
from vdisklab.guest.factory import boot_files, kernel_for, known_accelerator
from vdisklab.guest.image.debian_packages import planned_packages
from vdisklab.host.blockdevice import open_device
from vdisklab.host.command import Host
from vdisklab.host.facts import memory_bytes
from vdisklab.host.ledger import Ledger, cache_directory
from vdisklab.host.mounts import require_work_directory
from vdisklab.path.cell import Cell
from vdisklab.plan.build import Draft, backing_of, build_plan, draft_plan
from vdisklab.plan.campaign import CampaignPlan
from vdisklab.plan.capabilities import Capabilities, QemuLimits
from vdisklab.plan.guest import Accelerator
from vdisklab.plan.matrix import expand_matrix
from vdisklab.plan.profile import Profile, parse_profile
from vdisklab.plan.settings import DEFAULT_PROFILE, Request, defaults
from vdisklab.plan.toml_file import text_of
from vdisklab.progress import Progress
from vdisklab.storage.device import require_usable
from vdisklab.storage.room import memory_of_guests
from vdisklab.workload.fiojob import job_profile
from vdisklab.workload.registry import MICRO_GUEST_ONLY, builtin_profile_text, workload_for
from vdisklab.workload.systems import systems_of

EXAMPLE_PATH = "raw/none"
"""A path whose image bypasses the page cache, for the cost of a profile."""


def load_profile(name: str) -> Profile:
    """A built-in profile, or one from a file: TOML, or a job file of fio. Raises PlanError."""
    if not name.endswith((".toml", ".fio")):
        return parse_profile(builtin_profile_text(name), f"profile {name}")
    hint = "name a readable file in UTF-8, or a profile that `vdisklab profiles` lists"
    text = text_of(Path(name), "profile", hint)
    return parse_profile(text, name) if name.endswith(".toml") else job_profile(text, name)


def rounds_of(request: Request) -> int:
    """The number of rounds: the request's, else its profile's, else the default."""
    usual = load_profile(request.profile or DEFAULT_PROFILE).usual.rounds
    return request.rounds or usual or defaults(Request).rounds or 0


def make_plan(host: Host, ledger: Ledger, request: Request, progress: Progress) -> CampaignPlan:
    """Makes the plan of a request on this host, after trying to build its stacks.

    Raises PlanError if no host could measure it, HostError if this host cannot.
    """
    draft, able = _possible_draft(host, request)
    capabilities = survey(
        host,
        ledger,
        draft.directory,
        draft.paths_to_survey,
        progress,
        backing=draft.backing,
        qemus=able,
    )
    plan = draft.on(capabilities)
    require_usable(host, plan.backing, device_bytes_needed(plan))
    return plan


def possible_plan(host: Host, request: Request) -> CampaignPlan:
    """The plan of a request if this host can build all stacks, which are not tried.

    Raises what `make_plan` and the start of the campaign would, but for that.
    """
    draft, able = _possible_draft(host, request)
    plan = draft.on(Capabilities(qemus=able))
    require_space(plan)
    return plan


def _possible_draft(host: Host, request: Request) -> tuple[Draft, Mapping[str, QemuLimits]]:
    """The draft of a request that some host can measure, and its QEMUs that start here."""
    for device in request.devices:
        open_device(device)  # before a path is judged by it
    profile = load_profile(request.profile or DEFAULT_PROFILE)
    if request.neighbour is not None:
        profile = profile.beside(load_profile(request.neighbour))
    qemus, able = find_qemus(host, request.qemu)
    require_work_directory((request.directory or Path()).absolute())
    draft = draft_plan(request, profile, qemus, requested_guest(host, request))
    # Refuse requests that no host could measure before trying anything on this one.
    plan = draft.on(Capabilities(qemus=able))
    check_measurements(plan)
    if plan.guest.kernel is not None and guest_buses(plan):
        kernel_for(host, cache_directory(), guest_buses(plan), plan.guest)
    return draft, able


def require_possible_paths(request: Request) -> None:
    """Raises PlanError if no host can have the request's paths, or else its profile's.

    With --qemu nothing is checked: a path may name a version that only the program itself tells.
    """
    if not request.qemu:
        usual = load_profile(request.profile or DEFAULT_PROFILE).usual.paths
        expand_matrix(request.patterns or usual, backing=backing_of(request))


def check_measurements(plan: CampaignPlan) -> None:
    """Raises PlanError for settings that a program lacks, and for unsuitable disks or guests."""
    for measurement in plan.profile.measurements:
        if plan.guest.user is not None and measurement.program in MICRO_GUEST_ONLY:
            raise PlanError(
                f"measurement {measurement.name!r} needs vdisklab's micro guest, but --guest "
                f"names {plan.guest.user.image}",
                hint="leave out --guest, or choose another profile",
            )
        workload = workload_for(measurement)
        if workload.needs_directory and measurement.filesystem is None:
            raise PlanError(
                f"measurement {measurement.name!r}: {measurement.program} works on files",
                hint='name its file system: filesystem = "ext4"',
            )
        planned_script(plan, measurement)
        if plan.guest.is_windows:
            planned_script(plan, measurement, in_windows=True)


@dataclass(frozen=True, slots=True)
class PlanDescription:
    """The effects and costs of running a plan; times are in seconds.

    `guests` exist at a time, and need `guest_bytes` of memory with their QEMUs.
    `positions` are the cells' positions in round 1. `builds` and `build_seconds` are for stacks on
    the user's devices. `refusals` are the reasons why `run` would not start.
    """

    plan: CampaignPlan
    seconds: float
    room_bytes: int
    guests: int
    guest_bytes: int
    run_seconds: Mapping[Cell, float]
    positions: Mapping[Cell, int]
    order: tuple[tuple[str, ...], ...]
    builds: int
    build_seconds: float
    takes_turns: bool
    warnings: tuple[str, ...]
    refusals: tuple[str, ...]
    commands: Mapping[Cell, CellCommands]
    kvm_assumed: bool


def describe_plan(plan: CampaignPlan, host: Host | None = None) -> PlanDescription:
    """The order, time and space of a plan; with `host` also the commands that it would run."""
    commands, kvm_assumed = ({}, False) if host is None else _cell_commands(host, plan)
    slots = tuple(schedule(plan))
    guests = most_guests(plan) if guest_buses(plan) else 0
    return PlanDescription(
        plan=plan,
        seconds=campaign_seconds(plan, slots),
        room_bytes=room_needed(plan),
        guests=guests,
        guest_bytes=memory_of_guests(plan.guest.memory_bytes, guests),
        run_seconds=dict(zip(plan.cells, map(run_seconds(plan), plan.cells), strict=True)),
        positions={slot.cell: slot.position for slot in reversed(slots) if slot.round == 1},
        order=tuple(
            tuple(cell.label for cell in round_order(plan, round))
            for round in range(1, plan.rounds + 1)
        ),
        builds=builds(plan, slots),
        build_seconds=build_seconds(plan, slots),
        takes_turns=takes_turns(plan),
        warnings=tuple(plan_warnings(plan, memory_bytes())),
        refusals=_refusals(plan),
        commands=commands,
        kvm_assumed=kvm_assumed,
    )


def describe_profile(profile: Profile) -> PlanDescription:
    """Describes a profile's smallest useful campaign: one path and its baseline."""
    request = Request(paths=(EXAMPLE_PATH,), directory=Path("/"))
    return describe_plan(build_plan(request, Capabilities(), profile))


def _refusals(plan: CampaignPlan) -> tuple[str, ...]:
    """Why `run` would not start: the work directory or the memory is too small."""
    try:
        require_space(plan)
    except HostError as error:
        return (f"{error}; {error.hint}",)
    return ()


def _cell_commands(host: Host, plan: CampaignPlan) -> tuple[Mapping[Cell, CellCommands], bool]:
    """The exact commands of each cell, and whether KVM is only assumed in them."""
    buses = guest_buses(plan)
    cache = cache_directory()
    boot = system = None
    if buses and plan.guest.user is None:
        if plan.profile.boots:
            system, micro = system_to_boot(host, cache, buses, plan.guest)
            boot = boot_from(micro, system, f"vdl{RUN}")
        else:
            boot = boot_files(host, cache, buses, plan.guest)
    systems = systems_of(plan.profile)
    packages = {system.name: planned_packages(host, cache, system) for system in systems}
    files = GuestFiles(boot, system, packages)
    known = known_accelerator(host, cache, plan.guest, qemus_of(plan), boot)
    accelerator = known or Accelerator.KVM
    commands = {cell: preview_cell(host, plan, cell, files, accelerator) for cell in plan.cells}
    return commands, bool(buses) and known is None
