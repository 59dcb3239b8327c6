"""The documents of verbs that list what is stored, planned or found on the host."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from vdisklab.path.disk_path import DiskPath
from vdisklab.path.segments import PageCache
from vdisklab.plan.campaign import Dropped
from vdisklab.views.documents.conversion import At, Limit
from vdisklab.views.documents.rankings import Number


@dataclass(frozen=True, slots=True, kw_only=True)
class PieceEntry:
    """One thing that measurements need, such as a program or a kernel module."""

    topic: str
    state: Literal["ok", "limited", "missing"]
    seen: str
    costs: Annotated[str | None, "what is not possible without it"]
    mend: Annotated[str | None, "the command that fixes it"]
    essential: Annotated[bool, "true when nothing can be measured without it"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorDocument:
    """`vdisklab doctor`: what this host can measure."""

    format: Literal["vdisklab.doctor/1"] = "vdisklab.doctor/1"
    main_job: Annotated[bool, "true when a guest's disk can be measured here"]
    findings: tuple[PieceEntry, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandsEntry:
    """The commands of one cell."""

    host: tuple[str, ...]
    qemu: str | None
    qmp: tuple[str, ...]
    measurements: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedCell:
    """A cell that `run` would measure."""

    path: DiskPath
    page_cache: PageCache
    fingerprint: str
    seconds_estimated: float
    commands: Annotated[CommandsEntry | None, "null without `--commands`"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedCellRow:
    """A `PlannedCell` as a row of CSV."""

    number: int
    path: DiskPath
    page_cache: PageCache
    position: Annotated[int, "position in the first round"]
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanDocument:
    """`vdisklab plan`: what `run` would do."""

    format: Literal["vdisklab.plan/1"] = "vdisklab.plan/1"
    plan: Annotated[Mapping[str, Any], "the plan as stored with a campaign"]
    fingerprint: Annotated[
        str,
        "hash of the plan; `run` continues a campaign with the same hash",
        At("plan.fingerprint"),
    ]
    seconds_estimated: Annotated[float, At("seconds")]
    bytes_needed: Annotated[int, "in the work directory", At("room_bytes")]
    guests: Annotated[int, "how many exist at a time"]
    guest_bytes: Annotated[int, "the memory that those guests need, with their QEMUs"]
    builds: Annotated[
        int | None,
        "how many times stacks are built on the user's devices; null without `--on`",
        Limit("minimum", 0),
    ]
    build_seconds: Annotated[Number, "how long the building takes", Limit("minimum", 0)]
    cells: tuple[PlannedCell, ...]
    dropped: Annotated[tuple[Dropped, ...], At("plan.dropped")]
    warnings: Annotated[tuple[str, ...], "what limits the numbers, known before measuring"]
    refusals: Annotated[tuple[str, ...], "why `run` would refuse the plan on this host"]
    order: Annotated[tuple[tuple[str, ...], ...], "the labels of the cells, for each round"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileRow:
    """One profile, with the time and space that one path and its baseline need."""

    profile: Annotated[str, At("plan.profile.name")]
    title: Annotated[str, At("plan.profile.title")]
    programs: str
    measurements: int
    rounds: Annotated[int, At("plan.rounds")]
    seconds: float
    disk_bytes: Annotated[int, At("plan.size_bytes")]
    room_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfilesDocument:
    """`vdisklab profiles`: all profiles."""

    format: Literal["vdisklab.profiles/1"] = "vdisklab.profiles/1"
    profiles: tuple[ProfileRow, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileMeasurement:
    """One measurement of a profile."""

    name: str
    program: str
    filesystem: Annotated[str | None, "null: the disk itself"]
    settings: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileDocument:
    """`vdisklab profiles PROFILE`: its measurements."""

    format: Literal["vdisklab.profile/1"] = "vdisklab.profile/1"
    measurements: tuple[ProfileMeasurement, ...]
