"""The documents of verbs that list what is stored, planned or found on the host."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Literal

from vdisklab.path.cell import MeasuredCell
from vdisklab.path.disk_path import DiskPath
from vdisklab.path.segments import PageCache
from vdisklab.plan.campaign import Dropped
from vdisklab.results.model import Direction, Failure, GuestGroup, IoCounters, Origin
from vdisklab.views.documents.conversion import At, DiagnosticEntry, Key, Limit
from vdisklab.views.documents.rankings import MeasuredUnder, Number


@dataclass(frozen=True, slots=True, kw_only=True)
class CampaignRow:
    """One stored campaign."""

    campaign: Annotated[str, At("id")]
    started: datetime
    hostname: Annotated[str, At("host.hostname")]
    label: str
    cells: int
    rounds: int
    measured: Annotated[int, "runs"]
    failed: Annotated[int, "runs"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CampaignsDocument:
    """`vdisklab runs`: the stored campaigns."""

    format: Literal["vdisklab.campaigns/1"] = "vdisklab.campaigns/1"
    campaigns: tuple[CampaignRow, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRow:
    """One run of a campaign."""

    run: Annotated[str, At("id")]
    cell: Annotated[MeasuredCell, At("measured_cell")]
    round: int
    started: datetime
    accelerator: Annotated[str, "`kvm` or `tcg`; empty on the host itself"]
    emulated: Annotated[bool, "true if the host itself is emulated"]
    origin: Origin
    failed: bool
    reason: Annotated[str | None, "why it failed", At("failure.message")]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunsDocument:
    """`vdisklab runs CAMPAIGN`: its runs in the order in which they were measured."""

    format: Literal["vdisklab.runs/1"] = "vdisklab.runs/1"
    runs: tuple[RunRow, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckEntry:
    """A property that was set and read back."""

    name: str
    requested: Annotated[str | None, "the requested value; null when the state is only recorded"]
    observed: str
    confirmed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleEntry:
    """One number that a program reported."""

    metric: str
    direction: Direction
    value: float
    unit: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleRow:
    """One number of a run, in CSV."""

    run: str
    measurement: str
    direction: Direction
    metric: str
    value: float
    unit: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceEntry:
    """The counters of a measurement."""

    guest: Annotated[IoCounters | None, "counted in the guest, or by the program on the host"]
    qemu: IoCounters | None
    device: IoCounters | None
    host_cpu_seconds: Number
    host_cpu_seconds_per_operation: Number
    resident_before: Annotated[Number, "share of the image in the host's page cache"]
    resident_after: Number
    allocated_before: Annotated[int | None, "bytes of the image on the host"]
    allocated_after: int | None
    steal_seconds: Annotated[Number, "CPU time taken by the hypervisor"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasurementEntry:
    """One measurement of a run."""

    name: str
    program: str
    command: str
    started: datetime
    wall_seconds: Number
    measured_seconds: Number
    samples: tuple[SampleEntry, ...]
    evidence: EvidenceEntry
    group: Annotated[GuestGroup | None, "the guests, if several ran at once", Key.ABSENT]
    raw: Annotated[str | None, "what the program printed, with `--raw`", Key.ABSENT]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunDocument:
    """`vdisklab show RUN`: the run as it is stored."""

    format: Literal["vdisklab.run/1"] = "vdisklab.run/1"
    id: str
    campaign: str
    cell: str
    path: str
    page_cache: PageCache
    round: int
    position: Annotated[int, "position in the round"]
    origin: Origin
    started: datetime
    wall_seconds: Annotated[Number, "null for an imported run"]
    accelerator: Annotated[str | None, "`kvm` or `tcg`; null on the host itself"]
    emulated: Annotated[bool, "true if the host itself is emulated"]
    caveats: MeasuredUnder
    medium: Annotated[str | None, "the device under the image"]
    checks: tuple[CheckEntry, ...]
    commands: tuple[str, ...]
    measurements: tuple[MeasurementEntry, ...]
    failure: Failure | None
    findings: tuple[DiagnosticEntry, ...]


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
