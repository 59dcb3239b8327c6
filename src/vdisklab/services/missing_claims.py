"""Finds what claims lack, and plans the campaigns that measure it."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from vdisklab.analysis.claimfile import Claim
from vdisklab.analysis.claims import ClaimAnswer
from vdisklab.errors import HostError
from vdisklab.path.cell import PageCacheChoice
from vdisklab.plan.build import NO_BASELINE
from vdisklab.plan.campaign import CampaignPlan
from vdisklab.plan.guest import AcceleratorChoice, Firmware, SystemBus
from vdisklab.plan.request import GuestRequest, Request
from vdisklab.results.address import without_password
from vdisklab.results.model import Campaign
from vdisklab.units import format_size


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
    plan = {} if like is None else dict(like.plan)
    guest = dict(plan.get("guest") or {})
    known = guest.get("accelerator")
    image = guest.get("image")
    return replace(
        requested,
        paths=cells.paths,
        profile=cells.profile,
        page_cache=cells.page_cache,
        baseline=NO_BASELINE,
        runtime=requested.runtime or plan.get("runtime"),
        ramp=plan.get("ramp") if requested.ramp is None else requested.ramp,
        size_bytes=requested.size_bytes or plan.get("size_bytes"),
        directory=requested.directory or _path(plan.get("directory")),
        devices=tuple(map(Path, plan.get("devices") or ())),
        disks=plan.get("disks"),
        arc_bytes=plan.get("arc_bytes"),
        scale=plan.get("scale"),
        guest=GuestRequest(
            cpus=guest.get("cpus"),
            memory_bytes=guest.get("memory_bytes"),
            accelerator=requested.guest.accelerator
            or (AcceleratorChoice(known) if known else None),
            kernel=guest.get("kernel"),
            image=_path(image),
            firmware=Firmware(guest["firmware"]) if image else None,
            system_bus=SystemBus(guest["system_bus"]) if image else None,
        ),
    )


def _path(text: str | None) -> Path | None:
    return None if text is None else Path(text)


def run_command(request: Request) -> str:
    """The `vdisklab run` command for a request."""
    options: list[tuple[str, object]] = [
        ("--profile", request.profile),
        ("--page-cache", request.page_cache.value if request.page_cache else None),
        ("--baseline", request.baseline),
        ("--blocks", request.blocks),
        ("--runtime", None if request.runtime is None else f"{request.runtime:g}"),
        ("--ramp", None if request.ramp is None else f"{request.ramp:g}"),
        ("--size", None if request.size_bytes is None else format_size(request.size_bytes)),
        ("--dir", request.directory),
        *(("--on", device) for device in request.devices),
        ("--disks", request.disks),
        ("--arc", None if request.arc_bytes is None else format_size(request.arc_bytes)),
        ("--scale", None if request.scale is None else f"{request.scale:g}"),
        ("--accelerator", request.guest.accelerator),
        ("--guest", request.guest.image),
        ("--guest-firmware", request.guest.firmware),
        ("--guest-bus", request.guest.system_bus),
        ("--guest-cpus", request.guest.cpus),
        (
            "--guest-memory",
            None if request.guest.memory_bytes is None else format_size(request.guest.memory_bytes),
        ),
        ("--db", None if request.db is None else without_password(request.db)),
    ]
    words = ["vdisklab", "run", *request.paths]
    for option, value in options:
        words += [] if value is None else [option, str(value)]
    return shlex.join(words)
