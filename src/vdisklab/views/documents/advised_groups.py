"""The document of `vdisklab advise`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from vdisklab.answers.disk_advice import DiskAction
from vdisklab.path.disk_path import DiskPath
from vdisklab.path.durability import Keeping
from vdisklab.path.platforms import Platform
from vdisklab.views.documents.conversion import At, DiagnosticEntry
from vdisklab.views.documents.rankings import MeasuredUnder, Number


@dataclass(frozen=True, slots=True, kw_only=True)
class AdvisedDiskEntry:
    """One disk of a group, and the line that changes it."""

    domain: str
    target: str
    source: str | None
    guest: Annotated[str, "its manager's name for the guest"]
    paste: Annotated[str | None, "null unless `advice` is `change`"]
    undo: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AdvisedGroupEntry:
    """Disks with one path on one file system, and what to do about them."""

    advice: Annotated[DiskAction, At("verdict")]
    sentence: str
    path: Annotated[DiskPath | None, "null if no disk path can express them", At("group.path")]
    manager: Annotated[Platform, At("group.platform")]
    directory: Annotated[
        Path | None, "where they can be measured; null if not on this host", At("group.directory")
    ]
    to: Annotated[DiskPath | None, "the path to change to; null unless `advice` is `change`"]
    for_safety: Annotated[bool, "true if the present path loses flushed data"]
    other: Annotated[DiskPath | None, "the best other setting that was measured"]
    gain: Annotated[Number, "ratio of `other` to the present path", At("gain.ratio")]
    gain_low: Annotated[Number, At("gain.low")]
    gain_high: Annotated[Number, At("gain.high")]
    power_cut_now: Annotated[Keeping | None, At("now.keeping")]
    power_cut_then: Annotated[Keeping | None, At("then.keeping")]
    rebuilt: Annotated[DiskPath | None, "a better path that needs a conversion or a guest's driver"]
    over_rebuilt: Annotated[Number, "its ratio to the present path", At("over_rebuilt.ratio")]
    over_default: Annotated[
        Number, "ratio of the advised path to the manager's default", At("over_default.ratio")
    ]
    campaign: str | None
    reason: Annotated[str | None, "why nothing is advised, or what is not known"]
    disks: tuple[AdvisedDiskEntry, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedEntry:
    """A campaign that would answer for the groups that were not measured."""

    command: str
    seconds: Annotated[float, "estimate"]
    paths: Annotated[int, "number of groups that it answers for", At("groups")]


@dataclass(frozen=True, slots=True, kw_only=True)
class AdviseDocument:
    """`vdisklab advise`: what to do about existing guests' disks."""

    format: Literal["vdisklab.advise/1"] = "vdisklab.advise/1"
    caveats: MeasuredUnder
    headline: str
    groups: tuple[AdvisedGroupEntry, ...]
    planned: tuple[PlannedEntry, ...]
    notes: Annotated[tuple[str, ...], "what could not be read"]
    findings: Annotated[tuple[DiagnosticEntry, ...], At("caveats.findings")]


@dataclass(frozen=True, slots=True, kw_only=True)
class AdviceRow:
    """One group, in CSV."""

    advice: Annotated[DiskAction, At("verdict")]
    disks: int
    first: str
    path: Annotated[DiskPath | None, At("group.path")]
    to: DiskPath | None
    gain: Number
    gain_low: Number
    gain_high: Number
    power_cut_now: Annotated[Keeping | None, At("now.keeping")]
    power_cut_then: Annotated[Keeping | None, At("then.keeping")]
    reason: str | None
