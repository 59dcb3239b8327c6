"""From a request to a campaign plan: defaults, the baseline, and what must hold of the numbers.

Where nothing was said, neither by the user nor by the profile:

    blocks 5      a median with an interval; ask for more to settle small differences
    runtime 5 s   long against the tenths of a second that a cell costs beside it
    ramp 0.5 s    passes over the first I/O of a fresh attach, for a tenth of the time
    size 1 GiB    written out in seconds; too small to fill the write cache of a large disk
    seed          derived from the rest of the plan, so that the same plan continues
    baseline      the first path on the host, else `host`, which is then measured as well
"""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from vdisklab.errors import PlanError
from vdisklab.path.backing import BackingDevices
from vdisklab.path.braces import expand_segments
from vdisklab.path.cell import Cell, PageCacheChoice
from vdisklab.path.disk_path import DiskPath, parse_path
from vdisklab.path.rules import too_many_queues
from vdisklab.path.segments import HOST
from vdisklab.plan.bootable import bootable
from vdisklab.plan.campaign import CampaignPlan, Dropped
from vdisklab.plan.capabilities import Capabilities, infeasible
from vdisklab.plan.guest import AcceleratorChoice, GuestPlan, UserGuest
from vdisklab.plan.matrix import Matrix, cells_of, expand_matrix, require_possible
from vdisklab.plan.profile import Profile
from vdisklab.plan.qemu import Qemu, with_each
from vdisklab.plan.request import GuestRequest, Request
from vdisklab.units import GIB, MIB, format_size

DEFAULT_BLOCKS = 5
DEFAULT_RUNTIME = 5.0
DEFAULT_RAMP = 0.5
DEFAULT_SIZE = 1 * GIB

SMALLEST_SIZE = 16 * MIB
LARGEST_SIZE = 1 << 50
LONGEST_SECONDS = 86_400.0
MOST_BLOCKS = 10_000
SMALLEST_MEMORY = 128 * MIB
MOST_CPUS = 255
MOST_SCALE = 1000
MOST_DISKS = 26
SMALLEST_ARC = 64 * MIB  # arc_init of OpenZFS: zfs_arc_max below 64 MiB is ignored
LARGEST_SEED = (1 << 63) - 1

NO_BASELINE = "none"
"""As a baseline this is the word for leaving it out; as a disk path it would not be possible."""

_Value = TypeVar("_Value")


def build_plan(
    request: Request,
    capabilities: Capabilities,
    profile: Profile,
    qemus: tuple[Qemu, ...] = (),
    own: UserGuest | None = None,
) -> CampaignPlan:
    """The plan that a request stands for on a host with these capabilities and QEMUs.

    `own` is the guest that the request names by its image.

    Raises PlanError for values or paths that cannot be, HostError for those not to be had here.
    """
    backing = backing_of(request)
    names = tuple(qemu.name for qemu in qemus)
    matrix = expand_matrix(
        request.paths, _or(request.page_cache, PageCacheChoice.BOTH), capabilities, backing, names
    )
    guest = replace(_guest(request.guest), own=own)
    matrix = bootable(_fitting(matrix, guest), profile)
    if profile.boots and request.baseline is None:
        request = replace(request, baseline=NO_BASELINE)
    baseline, matrix = _with_baseline(request, matrix, capabilities, names)
    matrix = bootable(matrix, profile)
    usual = profile.usual
    plan = CampaignPlan(
        cells=matrix.cells,
        dropped=matrix.dropped,
        profile=profile,
        blocks=_or(request.blocks, _or(usual.blocks, DEFAULT_BLOCKS)),
        seed=_or(request.seed, 0),
        size_bytes=_or(request.size_bytes, _or(usual.size_bytes, DEFAULT_SIZE)),
        runtime=float(_or(request.runtime, _or(usual.runtime, DEFAULT_RUNTIME))),
        ramp=float(_or(request.ramp, _or(usual.ramp, DEFAULT_RAMP))),
        directory=_or(request.directory, Path()).absolute(),
        baseline=baseline,
        guest=guest,
        backing=backing,
        label=_or(request.label, ""),
        scale=_or(request.scale, 1.0),
        qemus=qemus,
    )
    _check(plan)
    return plan if request.seed is not None else replace(plan, seed=_seed(plan))


def _or(value: _Value | None, default: _Value) -> _Value:
    return default if value is None else value


def backing_of(request: Request) -> BackingDevices:
    """What the stacks of a request stand on; devices by their absolute paths."""
    return BackingDevices(
        devices=tuple(device.absolute() for device in request.devices),
        destroy=tuple(device.absolute() for device in request.destroy),
        disks=request.disks,
        arc_bytes=request.arc_bytes,
    )


def _guest(request: GuestRequest) -> GuestPlan:
    """Raises PlanError for what is said of an image when there is none."""
    _check_image(request)
    usual = GuestPlan()
    return GuestPlan(
        cpus=_or(request.cpus, usual.cpus),
        memory_bytes=_or(request.memory_bytes, usual.memory_bytes),
        accelerator=_or(request.accelerator, AcceleratorChoice.AUTO).accelerator,
        kernel=request.kernel,
    )


def _check_image(request: GuestRequest) -> None:
    said = {
        "--guest-firmware": request.firmware,
        "--guest-bus": request.system_bus,
        "--guest-boot": request.boot_seconds,
        "--diskspd": request.diskspd,
    }
    given = [option for option, value in said.items() if value is not None]
    if request.image is None and given:
        raise PlanError(
            f"{given[0]} is about a guest of your own", hint="name its image: --guest IMAGE"
        )
    if request.image is not None and request.kernel is not None:
        raise PlanError(
            "a guest of your own boots its own kernel", hint="leave kernel out, or --guest"
        )
    seconds = request.boot_seconds
    if seconds is not None and not (math.isfinite(seconds) and 0 < seconds <= LONGEST_SECONDS):
        raise PlanError(
            f"--guest-boot is {seconds:g} s", hint="write how long its boot may take, such as 5m"
        )


def _fitting(matrix: Matrix, guest: GuestPlan) -> Matrix:
    """The matrix without the paths that have more queues than the guest has CPUs."""
    kept: list[Cell] = []
    dropped: dict[str, Dropped] = {}
    for cell in matrix.cells:
        verdict = too_many_queues(cell.path, guest.cpus)
        if verdict is None:
            kept.append(cell)
            continue
        name = cell.path.canonical
        dropped[name] = Dropped(name, verdict.reason, verdict.instead)
    if not kept:
        first = next(iter(dropped.values()))
        raise PlanError(f"{first.path} cannot exist: {first.reason}", hint=first.instead)
    return replace(matrix, cells=tuple(kept), dropped=(*matrix.dropped, *dropped.values()))


def _seed(plan: CampaignPlan) -> int:
    """32 bits that hang on everything else in the plan but the number of blocks."""
    return int(plan.fingerprint[:8], 16)


def _with_baseline(
    request: Request, matrix: Matrix, capabilities: Capabilities, qemus: tuple[str, ...]
) -> tuple[DiskPath, Matrix]:
    """The baseline, and the matrix with its cells; they come first when they were not in it."""
    if request.baseline == NO_BASELINE:
        return matrix.cells[0].path, matrix
    if request.baseline is not None:
        baseline = _one_path(request.baseline, qemus)
        require_possible(baseline, capabilities, backing_of(request))
        return baseline, _including(baseline, request, matrix, capabilities)
    for cell in matrix.cells:
        if cell.path.on_host:
            return cell.path, matrix
    host = parse_path(HOST)
    verdict = infeasible(host, capabilities)
    if verdict is not None:
        dropped = Dropped(host.canonical, verdict.reason, verdict.instead)
        if dropped not in matrix.dropped:
            matrix = replace(matrix, dropped=(*matrix.dropped, dropped))
        return matrix.cells[0].path, matrix
    return host, _including(host, request, matrix, capabilities)


def _one_path(text: str, qemus: tuple[str, ...]) -> DiskPath:
    spelled = expand_segments(text) if text else [text]
    paths = [each for one in spelled for each in with_each(parse_path(one), qemus)]
    if len(paths) != 1:
        raise PlanError(
            f"the baseline {text!r} stands for {len(paths)} paths",
            hint=f"write one path, such as {paths[0]}" if paths else "write one path",
        )
    return paths[0]


def _including(
    path: DiskPath, request: Request, matrix: Matrix, capabilities: Capabilities
) -> Matrix:
    if any(cell.path == path for cell in matrix.cells):
        return matrix
    choice = _or(request.page_cache, PageCacheChoice.BOTH)
    added: list[Cell] = cells_of(path, choice, capabilities)
    return replace(matrix, cells=(*added, *matrix.cells))


def _check(plan: CampaignPlan) -> None:
    """Raises PlanError for a number that no campaign can be run with."""
    _check_between("blocks", plan.blocks, 1, MOST_BLOCKS)
    _check_between("seed", plan.seed, 0, LARGEST_SEED)
    _check_between("cpus of the guest", plan.guest.cpus, 1, MOST_CPUS)
    if plan.backing.disks is not None:
        _check_between("disks", plan.backing.disks, 1, MOST_DISKS)
    if plan.backing.arc_bytes is not None and plan.backing.arc_bytes < SMALLEST_ARC:
        raise PlanError(
            f"arc is {format_size(plan.backing.arc_bytes)}",
            hint=f"ZFS takes no less than {format_size(SMALLEST_ARC)}",
        )
    _check_seconds(plan)
    if not 0 < plan.scale <= MOST_SCALE:
        raise PlanError(
            f"scale is {plan.scale:g}", hint=f"write more than 0 and at most {MOST_SCALE}"
        )
    _check_size(plan.size_bytes)
    if plan.guest.memory_bytes < SMALLEST_MEMORY:
        raise PlanError(
            f"the guest's memory is {format_size(plan.guest.memory_bytes)}, too little to boot in",
            hint=f"give it at least {format_size(SMALLEST_MEMORY)}",
        )


def _check_between(what: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        raise PlanError(f"{what} is {value}", hint=f"write a whole number from {low} to {high}")


def _check_seconds(plan: CampaignPlan) -> None:
    longest = f"at most {LONGEST_SECONDS:.0f} seconds (a day)"
    if not (math.isfinite(plan.runtime) and 0 < plan.runtime <= LONGEST_SECONDS):
        raise PlanError(f"runtime is {plan.runtime:g} s", hint=f"write more than 0 and {longest}")
    if not (math.isfinite(plan.ramp) and 0 <= plan.ramp <= LONGEST_SECONDS):
        raise PlanError(f"ramp is {plan.ramp:g} s", hint=f"write 0 or more and {longest}")


def _check_size(size: int) -> None:
    if not SMALLEST_SIZE <= size <= LARGEST_SIZE or size % MIB:
        raise PlanError(
            f"size is {format_size(size)}",
            hint=f"write a multiple of 1M from {format_size(SMALLEST_SIZE)} "
            f"to {format_size(LARGEST_SIZE)}, such as 1G",
        )
