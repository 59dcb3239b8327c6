"""Estimates a campaign's time and space before it starts, and warns about its settings.

The order of a campaign: every cell once in each round, at random, and repeatable.
"""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial

from vdisklab.campaign.host_stacks import (
    Stack,
    guests_of,
    room_of_image,
    stack_of,
    stacks_of,
    takes_turns,
)
from vdisklab.errors import PlanError
from vdisklab.host.mounts import mount_of, without_flushes
from vdisklab.operations.registry import parse_operation
from vdisklab.operations.ways.registry import parse_way
from vdisklab.path import backing, disk_path, segments
from vdisklab.path.cell import Cell
from vdisklab.path.named_target import COPIES
from vdisklab.plan.age import REWRITTEN
from vdisklab.plan.campaign import CampaignPlan
from vdisklab.plan.profile import LIFE, MeasurementPlan
from vdisklab.units import GIB, MIB, format_bytes
from vdisklab.value import Value
from vdisklab.workload import fio, load_windows, open_load, registry
from vdisklab.workload.program import Script, Subject, Timing, read_settings
from vdisklab.workload.registry import MICRO_GUEST_ONLY, workload_for

AttachGroups = tuple[tuple[bool, tuple[MeasurementPlan, ...]], ...]
"""(needs a freshly booted guest, the measurements that share an attach), in order."""

# Seconds of overhead, measured in campaigns under TCG on two cores (bench/overhead.py).
_PER_PROGRAM = 0.9

_PER_PART = 0.1
_PER_RUN = 0.5
_PER_BOOT = 4.0
_PER_USER_BOOT = 60.0
_PER_BUILD = 3.0
_PER_GUEST = 1.0  # of a group, beyond the first, for each measurement
_PER_DISK = 0.1  # of a group without guests
_WRITE_RATE = 150 * MIB
_COPY_RATE = 200 * MIB  # of cp and the flush after it, in bench/results/life-times.json
_REWRITE_RATE = 30 * MIB

PROBE = Timing(2.0, 0.5, 1.0)
"""How long it is tried what a path carries, before the load beside an operation."""
_BESIDE_PROGRAMS = 3
"""The load beside an operation begins, is ended, and is read: each takes as long as a program."""


class Slot(Value):
    """One run to do: a cell and its place in a round. Both numbers count from 1.

    `later` counts the runs of the round that follow, as far as that is known.
    """

    round: int
    position: int
    cell: Cell
    later: int = 0


def round_order(plan: CampaignPlan, round: int) -> tuple[Cell, ...]:
    """The cells of one round in random order, which depends on the plan and the round alone.

    If stacks take turns on the user's devices, each is built once per round: the cells of one stack
    follow each other, in random order, and so do the stacks.
    """
    cells = list(plan.cells)
    random.Random(f"{plan.seed}/{round}").shuffle(cells)  # noqa: S311 - no secret
    if not takes_turns(plan):
        return tuple(cells)
    # the place of a stack is that of its first cell; sorting keeps the order within a stack
    turns: dict[Stack | None, int] = {}
    for cell in cells:
        turns.setdefault(_device_stack(plan, cell), len(turns))
    return tuple(sorted(cells, key=lambda cell: turns[_device_stack(plan, cell)]))


def _device_stack(plan: CampaignPlan, cell: Cell) -> Stack | None:
    """The stack on the user's devices that a cell needs, or None."""
    if not cell.path.has_storage or not plan.backing.on_devices(cell.path.layers):
        return None
    return stack_of(plan, cell.path)


def schedule(plan: CampaignPlan, finished: Collection[tuple[int, str]] = ()) -> Iterator[Slot]:
    """The runs to do, round by round; `finished` holds (round, cell fingerprint)."""
    for round in range(1, plan.rounds + 1):
        for position, cell in enumerate(round_order(plan, round), 1):
            if (round, cell.fingerprint) not in finished:
                yield Slot(round, position, cell)


def attach_groups(plans: Sequence[MeasurementPlan]) -> AttachGroups:
    """All measurements, in order. One that needs a fresh guest starts a new group."""
    groups: list[tuple[bool, tuple[MeasurementPlan, ...]]] = []
    for plan in plans:
        if groups and not workload_for(plan).needs_fresh_guest:
            fresh, group = groups[-1]
            groups[-1] = (fresh, (*group, plan))
        else:
            groups.append((workload_for(plan).needs_fresh_guest, (plan,)))
    return tuple(groups)


def by_program(plans: Sequence[MeasurementPlan]) -> tuple[tuple[MeasurementPlan, ...], ...]:
    """The measurements that one program can make together in a guest, in order: of fio those that
    follow each other and fit together, of all others each one alone."""
    return tuple(
        part
        for together, group in itertools.groupby(plans, _joins)
        for members in (tuple(group),)
        for part in ((members,) if together else tuple((plan,) for plan in members))
    )


def _joins(plan: MeasurementPlan) -> bool:
    workload = workload_for(plan)
    return isinstance(workload, fio.Fio) and workload.fits_together(plan)


def run_seconds(plan: CampaignPlan) -> Callable[[Cell], float]:
    """A function that estimates the seconds of one run of a cell."""
    count = len(plan.profile.measurements)
    measured = sum(map(partial(_expected, plan), plan.profile.measurements))
    measured += (_PER_PART + plan.profile.usual.interval) * count + _PER_RUN
    groups = attach_groups(plan.profile.measurements)
    in_steps = sum(len(by_program(members)) for _, members in groups)

    per_other = _PER_DISK if plan.profile.without_guests else _PER_GUEST

    def seconds(cell: Cell) -> float:
        boots = boot_seconds(plan) * _boots(plan, cell, groups)
        refill = plan.size_bytes / (4 * GIB) if cell.page_cache is segments.PageCache.WARM else 0.0
        image = cell.path.image
        ageing = _rewrite_seconds(plan) if image is not None and image.is_made_anew else 0.0
        others = per_other * (guests_of(cell.path) - 1)
        joins = not cell.path.on_host and plan.guest.user is None and guests_of(cell.path) == 1
        copies = _copy_seconds(plan, cell) if plan.profile.makes_disks else 0.0
        copies += _operation_seconds(plan, cell)
        programs = _PER_PROGRAM * (in_steps if joins else count)
        if plan.profile.without_guests:
            programs = 0.0
        return measured + programs + boots + (refill + others) * count + ageing + copies

    return seconds


def _copy_seconds(plan: CampaignPlan, cell: Cell) -> float:
    """Seconds to write the disks of a cell twice: they are made, and made anew."""
    made = cell.path.attachment.made
    if made is None or not parse_way(made).kind.copies:
        return 0.0
    return 2 * guests_of(cell.path) * plan.size_bytes / _COPY_RATE


def _operation_seconds(plan: CampaignPlan, cell: Cell) -> float:
    """Seconds that an operation adds to a measurement of one window: what the path carries is
    tried first, the load has a lead, and two windows more, one of which lasts until the operation
    has ended."""
    text = cell.path.attachment.during
    if text is None:
        return 0.0
    order = parse_operation(text)
    probe = PROBE.ramp + PROBE.runtime + _PER_PROGRAM if plan.settings.load is None else 0.0
    waits = order.option("seconds") if "seconds" in order.kind.options else None
    takes = float(waits or 0)
    if order.kind.copies:
        speed = order.option("speed") if "speed" in order.kind.options else None
        takes = plan.size_bytes / min(float(speed or _COPY_RATE), _COPY_RATE)
    windows = plan.runtime + max(plan.runtime, takes)
    return probe + load_windows.LEAD_SECONDS + windows + _BESIDE_PROGRAMS * _PER_PROGRAM


def _boots(plan: CampaignPlan, cell: Cell, groups: AttachGroups) -> int:
    """The number of guests that one run boots for itself; shared guests are counted per round."""
    if cell.path.on_host or plan.profile.boots:
        return 0
    if not cell.path.attachment.bus.hot_pluggable:
        return len(groups)
    return sum(fresh for fresh, _ in groups)


def _expected(plan: CampaignPlan, measurement: MeasurementPlan) -> float:
    """The time of a program and of the steps before it in seconds; 0 if it runs until its work is
    done."""
    script = planned_script(plan, measurement, in_windows=plan.guest.is_windows)
    return script.expected + script.before


def of_unknown_length(plan: CampaignPlan) -> tuple[str, ...]:
    """The measurements that end by themselves or by a job file; no estimate counts their time."""
    return tuple(
        measurement.name
        for measurement in plan.profile.measurements
        if not _expected(plan, measurement)
    )


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


def planned_script(
    plan: CampaignPlan, measurement: MeasurementPlan, *, in_windows: bool = False
) -> Script:
    """The script of a measurement, for a planned disk.

    Raises PlanError for settings that the program lacks.
    """
    subject = planned_subject(plan, measurement)
    grouped = has_groups(plan)
    if grouped and measurement.neighbour is not None:
        planned_script(plan, measurement.neighbour)
    return script_for(plan, measurement, subject, grouped=grouped, in_windows=in_windows)


def planned_subject(plan: CampaignPlan, measurement: MeasurementPlan) -> Subject:
    """The disk of a measurement, or the directory on it, as far as the plan knows it."""
    return Subject(
        "/dev/null",
        plan.size_bytes,
        is_device=measurement.filesystem is None,
        is_directory=measurement.filesystem is not None,
        memory=plan.guest.memory_bytes,
    )


def script_for(
    plan: CampaignPlan,
    measurement: MeasurementPlan,
    subject: Subject,
    *,
    grouped: bool,
    in_windows: bool,
) -> Script:
    """The script of a measurement, for one guest or, if `grouped`, for each of several at once.

    Raises PlanError for settings that the program lacks.
    """
    timing = Timing(plan.runtime, plan.ramp, plan.scale)
    if not grouped or measurement.program == LIFE:
        workload = registry.workload_for(measurement, in_windows=in_windows)
        return workload.script(measurement, subject, timing)
    together = registry.grouped_workload_for(measurement)
    return together.group_script(measurement, subject, timing, open_load.GroupStart(1.0, 1))


def largest_group(plan: CampaignPlan) -> int:
    """The most guests that are measured at once; 1 without groups."""
    return max((guests_of(cell.path) for cell in plan.cells), default=1)


def has_groups(plan: CampaignPlan) -> bool:
    """True when guests are measured in groups; then so are all guests of the campaign."""
    return any(
        not cell.path.on_host and cell.path.attachment.guests is not None for cell in plan.cells
    )


def boot_seconds(plan: CampaignPlan) -> float:
    """Seconds until a guest answers; for a user guest this is a rough guess."""
    return _PER_BOOT if plan.guest.user is None else _PER_USER_BOOT


def campaign_seconds(plan: CampaignPlan, slots: tuple[Slot, ...], pace: float = 1.0) -> float:
    """Seconds that the remaining runs are likely to take, with building and booting, if each takes
    `pace` times its estimate."""
    if not slots:
        return 0.0
    rounds = len({slot.round for slot in slots})
    seconds = run_seconds(plan)
    measuring = pace * sum(seconds(slot.cell) for slot in slots)
    guests = rounds * max(1, len(plan.qemus)) * largest_group(plan) if plan.guest_buses else 0
    return measuring + guests * boot_seconds(plan) + build_seconds(plan, slots)


def room_needed(plan: CampaignPlan) -> int:
    """Bytes that the campaign occupies in the work directory, without stacks on tmpfs."""
    total = plan.size_bytes  # the random bytes that images are filled with
    if any(cell.path.image and cell.path.image.compressed for cell in plan.cells):
        total += plan.size_bytes  # the bytes that compress
    if plan.profile.makes_disks:
        total += plan.size_bytes  # the template
    for stack, capacity in stacks_of(plan).items():
        layers = stack.layers
        elsewhere = plan.backing.target_of(layers) is not None
        if elsewhere or plan.backing.on_devices(layers) or backing.in_memory(layers):
            continue
        total += stack_bytes(plan, layers, capacity) if layers else capacity
    return total + _room_of_copies(plan)


def _room_of_copies(plan: CampaignPlan) -> int:
    """Bytes of the copy that an operation makes in the work directory, and of what is saved for it;
    both are gone when the next one begins."""
    orders = [cell.path.attachment.during for cell in plan.cells]
    if not any(order is not None and parse_operation(order).kind.copies for order in orders):
        return 0
    image, scratch = disk_path.Image(segments.ImageFormat.QCOW2), plan.size_bytes
    room = room_of_image(image, plan.size_bytes)
    if plan.destination is None:
        return room + scratch
    layers = plan.destination.path.layers
    if plan.backing.on_devices(layers) or plan.backing.target_of(layers) is not None:
        return scratch
    if backing.in_memory(layers):
        return scratch
    return scratch + (stack_bytes(plan, layers, room) if layers else room)


def memory_needed(plan: CampaignPlan) -> int:
    """Bytes of memory that full stacks on tmpfs take, without the guests' memory."""
    return sum(
        stack_bytes(plan, stack.layers, capacity)
        for stack, capacity in stacks_of(plan).items()
        if backing.in_memory(stack.layers)
    )


def stack_bytes(plan: CampaignPlan, layers: tuple[disk_path.Layer, ...], capacity: int) -> int:
    """Bytes that a stack occupies at the bottom, over all its disks."""
    disks = plan.backing.disks_for(layers)
    return disks * backing.size_for(layers, capacity, disks)


def device_bytes_needed(plan: CampaignPlan) -> int:
    """Bytes that each device of --on must have; 0 if none is used."""
    sizes = [
        backing.size_for(stack.layers, capacity, plan.backing.disks_for(stack.layers))
        for stack, capacity in stacks_of(plan).items()
        if plan.backing.device_below(stack.layers) == backing.ON
    ]
    return max(sizes, default=0)


def builds(plan: CampaignPlan, slots: Sequence[Slot]) -> int:
    """The number of times that a stack is built on the user's devices for these runs."""
    used = [stack_of(plan, slot.cell.path) for slot in slots if slot.cell.path.has_storage]
    on_devices = [stack for stack in used if plan.backing.on_devices(stack.layers)]
    return sum(1 for _ in itertools.groupby(on_devices))


def _rewrite_seconds(plan: CampaignPlan) -> float:
    """Seconds of all passes of rewrites over one image."""
    return plan.age.rewrites * plan.size_bytes * REWRITTEN / 100 / _REWRITE_RATE


def build_seconds(plan: CampaignPlan, slots: Sequence[Slot]) -> float:
    """Seconds to build stacks and write images, including each rebuild on the user's devices."""
    images = {cell.path.image for cell in plan.cells if cell.path.has_storage}
    written = 2.0 * room_needed(plan)
    if plan.profile.makes_disks:  # the random data, and the template on each path
        places = {(cell.path.stack, cell.path.image) for cell in plan.cells}
        written = plan.size_bytes * (1 + len(places))
    seconds = written / _WRITE_RATE + len(images) * _rewrite_seconds(plan)
    stacks = [
        capacity
        for stack, capacity in stacks_of(plan).items()
        if plan.backing.on_devices(stack.layers)
    ]
    if not stacks:
        return seconds
    # each build fills one stack's images; the mean stack stands for all
    return seconds + builds(plan, slots) * (_PER_BUILD + sum(stacks) / len(stacks) / _WRITE_RATE)


def plan_warnings(plan: CampaignPlan, host_memory: int) -> tuple[str, ...]:
    """One sentence per warning; `host_memory` in bytes, 0 if unknown."""
    reason = None if plan.backing.devices else without_flushes(mount_of(plan.directory))
    flushes = f"{reason}: a power cut may lose what a guest has flushed, on every path"
    return (
        *_held_by_the_host(plan, host_memory), *([flushes] if reason else []), *_unnamed(plan),
    )  # fmt: skip


def _unnamed(plan: CampaignPlan) -> Iterator[str]:
    """A sentence for each target that neither a path nor --to names: nothing is measured there."""
    names = [cell.path.canonical for cell in plan.cells] + [each.path for each in plan.dropped]
    names += [str(plan.settings.to or "")]
    for target in plan.settings.target:
        named = rf"(^|:at=){re.escape(target.name)}(/|$)"
        if target.name != COPIES and not any(re.search(named, name) for name in names):
            yield (
                f"no path is on target {target.name} ({target.place}), so it is not measured: name "
                f"one, such as {target.name}/raw/none"
            )


def _held_by_the_host(plan: CampaignPlan, host_memory: int) -> Iterator[str]:
    """bonnie++ makes its file twice as large as the guest's memory, but the host caches it too."""
    cached = [cell.path.canonical for cell in plan.cells if _uses_page_cache(cell)]
    measured = [each for each in plan.profile.measurements if each.program == registry.BONNIE]
    if not cached or not measured:
        return
    from vdisklab.workload.bonnie import BonnieSettings, file_size  # noqa: PLC0415 - for few

    sizes = [
        file_size(measurement, read_settings(measurement, BonnieSettings), plan.guest.memory_bytes)
        for measurement in measured
    ]
    if min(sizes) < host_memory:
        enough = -(-host_memory // (2 * GIB))
        yield (
            f"bonnie++'s file of {format_bytes(min(sizes))} fits into the host's page cache "
            f"({format_bytes(host_memory)} of memory): reads may never reach the disk on "
            f"{', '.join(dict.fromkeys(cached))}. Use --guest-memory {enough}G and a --size of "
            f"more than {2 * enough}G, or measure paths that bypass it"
        )


def _uses_page_cache(cell: Cell) -> bool:
    # bonnie++ on the host reads and writes files as any program does.
    return cell.path.on_host or cell.page_cache is not segments.PageCache.BYPASSED
