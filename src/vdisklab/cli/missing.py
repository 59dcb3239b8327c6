"""The campaigns that would measure what an answer lacks, and the commands that start them."""

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
class Group:
    """Cells that one campaign can measure: of one profile and one state of the page cache.

    `claims` are those that they are measured for.
    """

    profile: str
    page_cache: PageCacheChoice
    paths: tuple[str, ...]
    claims: tuple[Claim, ...] = ()


def missing_groups(answers: Sequence[ClaimAnswer]) -> tuple[Group, ...]:
    """What must be measured so that every claim can be answered, in as few campaigns as can be."""
    groups: dict[tuple[str, PageCacheChoice], list[ClaimAnswer]] = {}
    for answer in answers:
        if answer.missing:
            key = (answer.claim.profile, answer.claim.page_cache)
            groups.setdefault(key, []).append(answer)
    return tuple(
        Group(
            *key,
            tuple(dict.fromkeys(cell.path.canonical for each in found for cell in each.missing)),
            tuple(each.claim for each in found),
        )
        for key, found in groups.items()
    )


def whole_claims(plan: CampaignPlan, claims: Collection[Claim]) -> CampaignPlan:
    """The plan with the cells of those claims of which every cell can be measured here.

    Raises HostError when there is none: half a ratio is not worth measuring.
    """
    here = set(plan.cells)
    wanted = {cell for claim in claims if here.issuperset(claim.cells) for cell in claim.cells}
    kept = tuple(cell for cell in plan.cells if cell in wanted)
    if not kept:
        reasons = "; ".join(f"{one.path}: {one.reason}" for one in plan.dropped)
        raise HostError(
            f"of {', '.join(claim.name for claim in claims)} not every path can be measured here: "
            f"{reasons}",
            hint="mend what the reasons name, or leave those claims out with --only",
        )
    return replace(plan, cells=kept)


def request_for(group: Group, asked: Request, like: Campaign | None) -> Request:
    """The campaign that measures a group, alike to what it will be joined with."""
    plan = {} if like is None else dict(like.plan)
    guest = dict(plan.get("guest") or {})
    known = guest.get("accelerator")
    image = guest.get("image")
    return replace(
        asked,
        paths=group.paths,
        profile=group.profile,
        page_cache=group.page_cache,
        baseline=NO_BASELINE,
        runtime=asked.runtime or plan.get("runtime"),
        ramp=plan.get("ramp") if asked.ramp is None else asked.ramp,
        size_bytes=asked.size_bytes or plan.get("size_bytes"),
        directory=asked.directory or _path(plan.get("directory")),
        devices=tuple(map(Path, plan.get("devices") or ())),
        disks=plan.get("disks"),
        arc_bytes=plan.get("arc_bytes"),
        scale=plan.get("scale"),
        guest=GuestRequest(
            cpus=guest.get("cpus"),
            memory_bytes=guest.get("memory_bytes"),
            accelerator=asked.guest.accelerator or (AcceleratorChoice(known) if known else None),
            kernel=guest.get("kernel"),
            image=_path(image),
            firmware=Firmware(guest["firmware"]) if image else None,
            system_bus=SystemBus(guest["system_bus"]) if image else None,
        ),
    )


def _path(text: str | None) -> Path | None:
    return None if text is None else Path(text)


def spell(request: Request) -> str:
    """The `vdisklab run` command that a request stands for."""
    said: list[tuple[str, object]] = [
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
    for option, value in said:
        words += [] if value is None else [option, str(value)]
    return shlex.join(words)
