"""Existing guests' disks: what this host knows of each, groups of them, and which path is better.

Disks of one path on one file system are one group, for which one measurement answers. A group's
image is measured as allocated, because an image in use is; host layers that only hold the image's
directory are not built again: the directory itself is measured.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping
from enum import StrEnum
from functools import cached_property, partial
from pathlib import Path
from typing import Annotated

from vdisklab.analysis.candidates import (
    RatioOf,
    candidates,
    possible_winners,
    ratio_of,
    ratios_among,
    to_use,
)
from vdisklab.analysis.diagnostics.caveats import Caveats
from vdisklab.analysis.observations import MeasureKey, narrowed
from vdisklab.analysis.paired_ratios import Ratio
from vdisklab.analysis.rank_intervals import Ranking
from vdisklab.analysis.score import Score
from vdisklab.analysis.summary import Summary
from vdisklab.answers.analysis import Analysis
from vdisklab.answers.choice import (
    ChoiceVerdict,
    Decision,
    as_ranked,
    decide,
    in_use,
    told_apart,
)
from vdisklab.documents import RARE, Answer
from vdisklab.host.mounts import (
    is_out_of_sight,
    is_surely_absent,
    is_visible_device,
    is_visible_directory,
)
from vdisklab.inspection.disk_on_host import is_mounted, local_source
from vdisklab.path.adjacent import nearest_settings
from vdisklab.path.architecture import host_of
from vdisklab.path.backing import backing_below
from vdisklab.path.cell import MeasuredCell
from vdisklab.path.disk_path import Attachment, DiskPath, Image, Layer, Options, parse_path
from vdisklab.path.durability import (
    CrashVerdicts,
    Durability,
    DurabilityKind,
    HostDisk,
    durability,
)
from vdisklab.path.named_target import names_device
from vdisklab.path.needs import Need, distance, other_format
from vdisklab.path.platforms import Platform
from vdisklab.path.power_cut_words import ClientKind
from vdisklab.path.segments import BUS_OPTIONS, LayerKind
from vdisklab.plan.guest import USUAL_GUEST
from vdisklab.plan.race_terms import RaceTerms
from vdisklab.plan.settings import DEFAULT_PROFILE, Request
from vdisklab.platforms.configured_disk import THROWN_AWAY, ConfiguredDisk, drops_beside_path
from vdisklab.platforms.dialect import Change
from vdisklab.platforms.disk_context import DiskContext
from vdisklab.platforms.network import command_on_server, same_server
from vdisklab.platforms.registry import dialect_of
from vdisklab.platforms.risk_kinds import Risk
from vdisklab.units import counted
from vdisklab.value import HIDDEN, Value, field, replace

STARTS = "the guest does not start with it now"
"""How the reason of a change ends with which a guest starts."""

NONE_MEASURED = "none of its paths has been measured on this host"
"""The reason of no advice before any measurement."""

NOT_HERE = "it cannot be measured on this host"
"""Begins the reason of no advice for a disk that another host has."""

SERVER_NOT_MEASURED = "its server was not measured"
"""The reason of no advice for a disk that a server has."""

DEVICE_NOT_HERE = "the layers of its device are not known on this host"
"""The reason of no advice for a device that another host has."""

DEVICE_HAS_DATA = "its device holds a guest's data, and no spare one was measured"
"""The reason of no advice for a device of this host."""

MEASURED_ALONE = "no other setting that is as safe was measured beside its own"
"""The reason of no advice where nothing can be compared with."""


def known_loss(disk: ConfiguredDisk, rules: CrashVerdicts) -> Durability | None:
    """How a disk without a path loses flushed data by its bus and cache mode, whatever its storage
    and the format of its image are; None if it has a path, or if these keep it. `audit` and
    `advise` decide by it.
    """
    if disk.path is not None or disk.read_only:
        return None
    below = THROWN_AWAY if disk.is_thrown_away else disk.lost_below
    if disk.assumed is not None:
        found = durability(disk.assumed, CrashVerdicts(disk=rules.disk, lost_below=below))
        if not found.kind.acceptable:
            return found
    reason = "its cache mode drops flushes" if drops_beside_path(disk) else below
    if reason is None:
        return None
    lost = DurabilityKind.LOST_BY_CONSTRUCTION
    return Durability(lost, flush_free=False, reason=reason, disk=rules.disk)


def problem_of(
    disk: ConfiguredDisk, path: DiskPath | None, disk_risks: Iterable[Risk], machine: str
) -> str | None:
    """Why a disk cannot be measured here, as a clause; None if it can.

    `machine` is this host's architecture as uname(2) names it.
    """
    blocking = next((risk for risk in disk_risks if risk.blocks), None)
    if disk.problem is not None or path is None:
        return disk.problem or "it has no disk path"
    if path.shares_directory:
        return "it is a host directory, not a disk: compare both kinds, `vdisklab run virtiofs 9p`"
    if blocking is not None:
        return blocking.clause
    return _problem_here(disk, path, machine)


def _problem_here(disk: ConfiguredDisk, path: DiskPath, machine: str) -> str | None:
    arch = disk.architecture
    if arch is not None and host_of(arch) != host_of(machine):
        return f"its guest is {arch} and this host is {machine}: ask on a host of its architecture"
    if path.target is not None and disk.source is not None:
        return SERVER_NOT_MEASURED
    if path.image is None and not path.layers:
        return device_not_here(disk)
    return None


def is_on_device_here(disk: ConfiguredDisk) -> bool:
    """True for a block device of this host; its node may name it as another host's."""
    source = local_source(disk)
    return source is not None and not disk.node and is_visible_device(source)


def is_own_unseen(disk: ConfiguredDisk) -> bool:
    """True for a disk whose file or device this user may not look for."""
    source = local_source(disk)
    return source is not None and is_out_of_sight(source)


def device_not_here(disk: ConfiguredDisk) -> str:
    """Why a disk that is a whole device is not measured itself, as a clause."""
    if is_on_device_here(disk):
        return DEVICE_HAS_DATA
    if disk.platform is not Platform.KUBEVIRT:
        return DEVICE_NOT_HERE
    source = disk.source or ""
    if source.startswith("/"):
        node = disk.node or "the node that has it"
        return f"its device {source} is not on this host: ask on {node}"
    way = "for a volume of a CSI driver a spare device of its kind can stand in (--on)"
    return f"its claim's device is not known here: {disk.unseen or way}"


def is_for_machine(disk: ConfiguredDisk, risks: Iterable[Risk], machine: str) -> bool:
    """True if nothing but where a disk is keeps it from being measured on a machine like this.

    `machine` is this host's architecture as uname(2) names it.
    """
    arch = disk.architecture
    same_machine = arch is None or host_of(arch) == host_of(machine)
    return same_machine and not any(risk.blocks for risk in risks)


def command_to_measure(
    path: DiskPath,
    beside: DiskPath | None = None,
    disk: ConfiguredDisk | None = None,
    place: Path | None = None,
) -> str:
    """`vdisklab run` for a disk's path and one to compare it with, with the options they need, as a
    clause. A disk on a server without `beside` is compared with a local one; `place` is the
    directory of the disk's image, if it is known.

    BIN is the program of a QEMU that a path names. DEVICE is one that may be overwritten: a path
    without layers and image needs a whole one, and an image beside it needs a file system there.
    """
    if path.target is not None and disk is not None and disk.source is not None:
        return command_on_server(path, beside, disk.source, disk.server)
    both = [given for given in (path, beside) if given is not None]
    devices = any(backing_below(given).devices for given in both)
    ext4 = (Layer(LayerKind.EXT4),)
    paths = dict.fromkeys(
        replace(given, layers=ext4) if devices and given.image and not given.layers else given
        for given in both
    )
    argv = ["vdisklab", "run", *(path.canonical for path in paths)]
    for name in dict.fromkeys(path.attachment.qemu for path in paths if path.attachment.qemu):
        argv += ["--qemu", f"{name}=BIN"]
    cpus = cpus_needed(paths)
    argv += [] if cpus is None else ["--guest-cpus", str(cpus)]
    argv += [] if place is None or devices else ["--dir", str(place)]
    return f"`{shlex.join([*argv, *(['--on', 'DEVICE'] if devices else [])])}`"


def cpus_needed(paths: Iterable[DiskPath]) -> int | None:
    """The CPUs of a guest that can use all queues of these paths; None if the usual guest can."""
    queues = max((path.attachment.queues or 0 for path in paths), default=0)
    return queues if queues > USUAL_GUEST.cpus else None


def place_of(disk: ConfiguredDisk) -> Path | None:
    """The directory of a disk's image; None if the image is not on this host.

    A directory of that name says nothing about an image that is not in it: the file of a guest was
    copied from another host.
    """
    source = local_source(disk)
    if source is None or names_device(str(source)) or is_surely_absent(source):
        return None
    directory = source.parent
    return directory if is_visible_directory(directory) else None


def number_of(directory: Path | None) -> int | None:
    """The number of a directory's file system; None if it cannot be read."""
    try:
        return None if directory is None else os.stat(directory).st_dev  # noqa: PTH116
    except OSError:
        return None


def in_place_of(present: DiskPath | None, path: DiskPath) -> DiskPath:
    """A path of other settings for a disk that is there: on its file system, with its image as it
    was made."""
    if present is None:
        return path
    image = path.image
    if image is not None and present.image is not None and image.format is present.image.format:
        image = present.image
    return replace(path, layers=path.layers or present.layers, image=image)


def default_path(platform: Platform, path: DiskPath) -> DiskPath | None:
    """The platform's default on a disk's host layers."""
    if platform.new_guest is None:
        return None
    usual = parse_path(platform.new_guest.path)
    if dialect_of(platform).aio_of is not None and usual.cache.direct is path.cache.direct:
        # The platform chooses the aio mode by the storage, which is the disk's.
        options = dict(usual.attachment.options) | {"aio": path.attachment.aio.value}
        attachment = Attachment(usual.attachment.bus, tuple(options.items()))
        usual = replace(usual, attachment=attachment)
    return replace(usual, layers=path.layers, image=None) if path.layers else usual


def as_made(disk: ConfiguredDisk, path: DiskPath, context: DiskContext) -> DiskPath:
    """The path with its image as it was made: as its file shows, else as a new guest's disk.

    Without its file, only an image that a platform gives a new guest is known to be made that way.
    Any other image counts as allocated, because an image in use is.
    """
    usual, image, found = default_path(disk.platform, replace(path, layers=())), path.image, None
    if context.image is not None:
        found = context.image
    elif (
        usual is not None
        and in_use(usual).spelled_out == in_use(replace(path, layers=())).spelled_out
    ):
        found = usual.image
    if image is None or found is None or found.format is not image.format:
        return path
    made = tuple(option for option in found.options if option[0] == "preallocation")
    kept = tuple(option for option in image.options if option[0] != "preallocation")
    return replace(path, image=Image(image.format, (*kept, *made)))


def limits_of(disk: ConfiguredDisk, path: DiskPath) -> tuple[str, ...]:
    """The limits on a disk's speed: those that a path cannot express, then its path's own."""
    schema = BUS_OPTIONS[path.attachment.bus]
    return disk.limits + tuple(
        f"{name}={schema[name].format(value)}"
        for name, value in path.attachment.options
        if name.startswith(("throttle_", "cgroup_"))
    )


def is_alike(path: DiskPath, measured: DiskPath) -> bool:
    """True if the measured path equals the disk's path in all that affects speed or safety.

    An image in use is allocated where it matters, so how it was allocated does not count. Unknown
    layers of a file may be any plain file system.
    """
    layers = {path.layers, measured.layers} - {()}
    plain = all(
        layer.kind.facts.holds_files and not layer.options and layer.kind.facts.target is None
        for stack in layers
        for layer in stack
    )
    return (
        not measured.on_host
        and measured.guest_side == path.guest_side
        and _lasting(measured.image) == _lasting(path.image)
        and (path.layers == measured.layers or (len(layers) < 2 and plain))
    )


def _lasting(image: Image | None) -> Options:
    """The options of an image that matter for as long as it is used."""
    options = () if image is None else image.options
    return tuple(option for option in options if option[0] not in ("preallocation", "overlay"))


def differences(path: DiskPath, measured: DiskPath) -> Iterator[str]:
    """The differences between a disk's path and the measured one: `backing=1, not 0`."""
    if path.layers != measured.layers:
        layers = f"host layers {path.stack}" if path.layers else "unknown host layers"
        yield f"{layers}, not {measured.stack or 'those of the work directory'}"
    if path.cache.spelled_out is not measured.cache.spelled_out:
        yield f"cache mode {path.cache}, not {measured.cache}"
    for wanted, found in ((path.image, measured.image), (path.attachment, measured.attachment)):
        names = ["no format" if part is None else part.name for part in (wanted, found)]
        if names[0] != names[1]:
            yield f"{names[0]}, not {names[1]}"
        elif wanted is not None and found is not None:
            for name in dict(wanted.options) | dict(found.options):
                own_word, other_word = wanted.word(name), found.word(name)
                if own_word != other_word:
                    yield f"{name}={own_word}, not {other_word}"


def unlikeness(path: DiskPath, measured: DiskPath) -> tuple[bool, bool, bool, bool, int]:
    """Orders measured paths by how little they differ from a path, the guest's side first.

    Then comes the format: a device and a raw image hold the same bytes, and qcow2 costs more than
    another cache mode. Writeback is the default's meaning.
    """
    path = path.spelled_out.without_error_policy
    measured = measured.spelled_out.without_error_policy
    return (
        measured != path,
        not is_alike(path, measured),
        measured.guest_side != path.guest_side,
        other_format(path, measured),
        distance(path, measured),
    )


class DiskStanding(Value):
    """A measured path that stands for a disk: its score, and its rank among `cells` ranked cells.

    `better` keeps flushed data and may be chosen for the disk; without one, no such cell is shown
    to be better.
    """

    cell: Annotated[MeasuredCell, "the measured cell that is compared with the disk"]
    exact: Annotated[bool, "true if the disk's path itself was measured"]
    differs: Annotated[tuple[str, ...], "what the disk has otherwise: `backing=1, not 0`"]
    measure: Annotated[MeasureKey, "what `score` and ranks are of"]
    score: Summary | None
    best: Annotated[int | None, "its rank, from `best` to `worst`"]
    worst: int | None
    cells: Annotated[int, "number of ranked cells"]
    better: Annotated[MeasuredCell | None, "the cell worth changing to"] = None
    gain: Annotated[Ratio | None, "the ratio of `better` to it"] = None


class ClaimedCache(Value):
    """A host disk's claim about its write cache; null if the kernel does not know it."""

    name: str
    write_cache: Annotated[str | None, "queue/write_cache"]
    fua: Annotated[bool | None, "queue/fua"]


class DiskAction(StrEnum):
    """What to do about a disk."""

    CHANGE = "change"
    KEEP = "keep"
    UNKNOWN = "unknown"


class StandIn(StrEnum):
    """What is measured for storage that is not on this host, or that must not be written to."""

    STORAGE = "storage"
    """The disks' own paths in the current directory: an answer for another disk of this kind."""
    NODE = "node"
    """The same on the node that has the disks, where the command is run."""
    SERVER = "server"
    """The same on the disks' server, beside them."""
    KIND = "kind"
    """The same on layers built anew or on a spare device of this host, whose own one has a guest's
    data."""


class QuickLook(Value):
    """The same paths with a shorter profile; `differs` is what that does otherwise, as a clause."""

    profile: str
    command: str
    seconds: float
    differs: str


class PlannedMeasurement(Value):
    """A campaign that answers for some disks, each by a race of its own paths."""

    request: Annotated[Request, HIDDEN]
    race: Annotated[RaceTerms | None, HIDDEN]
    command: str
    command_seconds: Annotated[float, "estimate of what this command usually takes"]
    seconds_at_least: Annotated[float, "estimate, if the first rounds decide"]
    seconds_usually: Annotated[float, "estimate; most races end sooner"]
    seconds: Annotated[float, "estimate of the most"]
    paths: Annotated[int, "number of disks' paths that it answers for"]
    stands_in: Annotated[
        StandIn | None,
        "what it measures for disks that are not on this host, or on its devices; else null",
    ] = None
    begun: Annotated[BegunMeasurement | None, HIDDEN] = None
    """The measurement that the command continues."""
    disks: Annotated[tuple[str, ...], HIDDEN] = ()
    """The names of the disks that it answers for."""
    node: Annotated[str, HIDDEN] = ""
    """The node on which the command is run; empty if its name is not known."""
    said: Annotated[tuple[str, ...], HIDDEN] = ()
    """What the words of the command stand for, as clauses."""
    not_with: Annotated[str, HIDDEN] = ""
    """Why the command does not take the profile that is stored; empty if it does."""
    as_root: Annotated[bool, HIDDEN] = False
    """True if this user may not write where the command measures."""
    lacks: Annotated[str, HIDDEN] = ""
    """The program that this host lacks for the profile, and how to get it; empty if none."""
    to_name: Annotated[str | None, HIDDEN] = None
    """The directory that the next `advise` has to name, because no disk's file says it."""
    finds_guests: Annotated[bool, HIDDEN] = False
    """True if `advise` without a name reads the disks' guests on their node."""
    quick: Annotated[QuickLook | None, HIDDEN] = None
    """A short profile that may come first; None if there is none."""

    @property
    def is_elsewhere(self) -> bool:
        """True for a command that is run on another host, or needs a server: it comes later."""
        return self.stands_in in (StandIn.NODE, StandIn.SERVER)


class BegunMeasurement(Value):
    """A campaign with too few rounds of a disk's path; `planned` is None for a race."""

    rounds: int
    planned: int | None
    paths: frozenset[str]
    profile: str

    def __str__(self) -> str:
        if self.planned is None or self.planned <= self.rounds:
            return f"measured in {counted(self.rounds, 'round')}, too few"
        return f"measured in {self.rounds} of {counted(self.planned, 'round')}"


class Advice(Value):
    """What to do about a disk."""

    path: Annotated[
        DiskPath | None,
        "as it is measured: on the disk's own file system, the image allocated; null if no disk "
        "path can express the disk",
    ] = None
    standing: Annotated[
        DiskStanding | None, "among its own path and those that it can change to; null if unknown"
    ] = None
    action: DiskAction = DiskAction.UNKNOWN
    reason: Annotated[str, "why nothing is advised, or what is not known"] = ""
    in_short: Annotated[str, HIDDEN] = ""
    """The reason in a few words, if these are not what stands before its first colon."""
    measurable: Annotated[bool, "true if a measurement here would answer"] = False
    directory: Annotated[Path | None, "where it can be measured; null if not on this host"] = None
    far: Annotated[bool, "true for an image in a directory that is mounted from a server"] = False
    campaign: str | None = None
    begun: Annotated[BegunMeasurement | None, HIDDEN] = None
    """The rounds so far of a measurement that continues; None if there is none, or enough."""
    to: Annotated[DiskPath | None, "the path to change to; null unless `action` is `change`"] = None
    other: Annotated[DiskPath | None, "the best other setting that was measured, or `to`"] = None
    gain: Annotated[Ratio | None, "of `other` to the present path"] = None
    gain_over: Annotated[
        MeasuredCell | None,
        "the cell that `gain` compares with, if the disk's own has an image that is made otherwise",
    ] = None
    for_safety: Annotated[bool, "true if the present path loses flushed data"] = False
    then: Annotated[Durability | None, "what a power cut does to `to`"] = None
    change: Annotated[Change | None, "the line to paste"] = None
    rebuilt: Annotated[
        DiskPath | None, "a better path that needs a conversion or a guest's driver"
    ] = None
    over_rebuilt: Annotated[Ratio | None, "of `rebuilt` to the present path"] = None
    over_default: Annotated[Ratio | None, "of the advised path to the platform's default"] = None
    elsewhere: Annotated[
        Path | None,
        "the directory or device where it was measured, if that is not known to be on the disk's "
        "file system",
    ] = None
    elsewhere_gone: Annotated[bool, HIDDEN] = False
    """True if nothing of that name is on this host any more."""
    elsewhere_unseen: Annotated[bool, HIDDEN] = False
    """True if this user may not look whether it is there."""
    own_unseen: Annotated[bool, HIDDEN] = False
    """True if this user may not look for the disk's own file or device."""
    on_device_here: Annotated[bool, HIDDEN] = False
    """True for a device of this host, which must not be written to."""
    stands_in: Annotated[bool, HIDDEN] = False
    """True if `directory` is what the user named for an image that is not on this host."""


class ExistingDisk(Value):
    """One disk of an existing guest: how it is configured, how it was measured on this machine,
    the needs that it does not meet, and, from `advise`, what to do."""

    disk: ConfiguredDisk
    path: Annotated[
        DiskPath | None,
        "with its host layers and what the image's header shows; null if no disk path can express "
        "the disk",
    ]
    risks: Annotated[tuple[Risk, ...], "most serious first"]
    standing: Annotated[
        DiskStanding | None,
        "among all measured cells; null from `advise`, and when no path with the same options was "
        "measured",
    ] = None
    nearest: Annotated[
        DiskStanding | None,
        "without `standing`, the measured path that differs least; not its speed",
    ] = None
    power_cut: Annotated[
        Durability | None, "null for a read-only disk, and if the guest does not start"
    ] = None
    lacks: Annotated[Mapping[Need, str], "why, for each requested need that is not met"] = field(
        default_factory=dict
    )
    undecided: Annotated[Mapping[Need, str], "why, for each of which it is unknown"] = field(
        default_factory=dict
    )
    instead: Annotated[
        DiskPath | None,
        "the nearest path that meets all needs and that the platform has; null when none is unmet",
    ] = None
    lost_below: Annotated[
        str | None, "why flushed data are lost below the image, whatever the guest's settings are"
    ] = None
    caches: Annotated[tuple[ClaimedCache, ...], "of the host's disks that hold the source"] = ()
    to_measure: Annotated[
        str | None,
        "a clause with the command that measures its path beside another setting; "
        "null from `advise`, if it was measured, and if it cannot be",
    ] = None
    lacks_here: Annotated[str, HIDDEN] = ""
    """Why the command cannot run on this host; `to_measure` is None then."""
    measured_before: Annotated[str | None, HIDDEN] = None
    """Another campaign, which measured the disk's path, if those that were asked did not."""
    on_other_storage: Annotated[bool, HIDDEN] = False
    """True if the speeds were measured on another file system of this host than the disk's own."""
    measured_at: Annotated[str, HIDDEN] = ""
    """Where its speed was measured, unless that is known to be its own storage: a directory, `on`
    another host, or `elsewhere`."""
    advice: Annotated[Advice | None, RARE, "null from `audit`"] = None

    @property
    def name(self) -> str:
        """The guest and its disk."""
        of = " (template)" if self.disk.template else ""
        return f"{self.disk.domain} {self.disk.target}{of}"

    @property
    def advised(self) -> Advice:
        """Its advice; one that knows nothing from `audit`."""
        return self.advice or Advice()


class DisksAnswer(Answer):
    """`vdisklab audit` and `vdisklab advise`: existing guests' disks, for `advise` those to change
    first."""

    FORMAT = "vdisklab.disks/2"

    disks: tuple[ExistingDisk, ...]
    caveats: Annotated[Caveats, "of the campaigns that the speeds come from"]
    why_no_speed: Annotated[str | None, "a sentence if there is no database"] = None
    needs: Annotated[tuple[Need, ...], "as requested"] = ()
    host_disk: Annotated[HostDisk, "the host's disk in a power cut, as --disk says"] = (
        HostDisk.VOLATILE
    )
    planned: Annotated[
        tuple[PlannedMeasurement, ...], "what `advise` would measure for disks without an answer"
    ] = ()
    unplaced: Annotated[int, "paths to measure of images that are not on this host"] = 0
    measured_in: Annotated[
        tuple[str, ...], "for `audit`: the campaigns that the speeds come from"
    ] = ()
    measured_on: Annotated[str | None, "the host of the speeds, if it is not this machine"] = None
    profile: Annotated[str | None, HIDDEN] = None
    """The profile that was asked for."""
    unasked_profiles: Annotated[tuple[str, ...], HIDDEN] = ()
    """For `advise`: the profiles that measured the speeds, if the user named none."""
    commits: Annotated[ClientKind | None, HIDDEN] = None
    """The database of the profile that was asked for."""
    of_commits: Annotated[bool, HIDDEN] = False
    """True if the profile that was asked for, or one that measured the speeds, waits for flushes as
    a database's commits do."""
    databases: Annotated[Mapping[str, tuple[str, ...]], HIDDEN] = field(default_factory=dict)
    """For `advise`: the guests that are databases by their names, by the profile for them."""
    measured_at: Annotated[tuple[str, ...], HIDDEN] = ()
    """For `audit`: the directories in which the speeds were measured."""
    notes: Annotated[tuple[str, ...], "what could not be read"] = ()

    @property
    def profiles_to_measure(self) -> tuple[str, ...]:
        """The profiles with which the planned campaigns measure."""
        names = (each.request.profile or DEFAULT_PROFILE for each in self.planned)
        return tuple(sorted(set(names)))


class MeasuredPaths:
    """The measured cells that a guest could use, compared with existing disks by the score."""

    def __init__(self, analysis: Analysis) -> None:
        self.analysis = analysis
        self.cells = candidates(analysis.loaded.observations.cells)
        self.score = analysis.scored.overall or Score.OVERALL.key
        self._rankings: dict[tuple[MeasuredCell, ...], Ranking] = {}

    def ranking(self, cells: Iterable[MeasuredCell]) -> Ranking:
        """These cells ranked by the score; their comparisons have one error rate together."""
        chosen = tuple(cells)
        if chosen not in self._rankings:
            grid = narrowed(self.analysis.observations, chosen)
            self._rankings[chosen] = self.analysis.ranked_by.rank(grid, self.score)
        return self._rankings[chosen]

    @cached_property
    def _decision(self) -> Decision:
        return decide(self.analysis, self.score)

    def ranking_of(self, cell: MeasuredCell, eligible: Collection[MeasuredCell]) -> Ranking:
        """The ranking that `rank` shows; for a cell that is not in it, as one that loses flushed
        data, one of that cell beside all that compete or are eligible."""
        shown = self._decision.ranking
        if any(row.cell == cell for row in shown.rows):
            return shown
        beside = {*self.analysis.competing, *eligible}
        return self.ranking(each for each in self.cells if each == cell or each in beside)

    def winner(self, cells: Iterable[MeasuredCell]) -> MeasuredCell | None:
        """The one to use of these cells, else the one with the highest score."""
        cells = tuple(cells)
        return to_use(self.ranking(cells)) or self.highest(cells)

    def made_safe(
        self, current: MeasuredCell, cells: Collection[MeasuredCell]
    ) -> MeasuredCell | None:
        """The one of these cells that a path which loses data becomes: the answer of `recommend`,
        or of those that tie the one with the fewest changes, as before any measurement."""
        choice = self._decision.choice
        if choice is not None and choice.cell in cells:
            return choice.cell
        tied = () if choice is None else choice.tied
        best = [cell for cell in cells if cell in tied] or possible_winners(self.ranking(cells))
        nearest = nearest_settings(self.cells[current], {cell: self.cells[cell] for cell in best})
        return nearest or self.winner(cells)

    def ratio(self, cell: MeasuredCell | None, other: MeasuredCell | None) -> Ratio | None:
        """How many times as good a cell that the data chose is as another; None without one of
        them."""
        return self._held(self._ratio_of, cell, other)

    def compared(self, cell: MeasuredCell | None, other: MeasuredCell | None) -> Ratio | None:
        """The same of two cells that the data did not choose, as `compare` says it."""
        of_two = partial(ratio_of, self.analysis.observations, self.score)
        return self._held(of_two, cell, other)

    def _held(
        self, alone: RatioOf, cell: MeasuredCell | None, other: MeasuredCell | None
    ) -> Ratio | None:
        if cell is None or other is None:
            return None
        decision = self._decision
        ratio = as_ranked(alone(cell, other), cell, other, decision.ranking)
        return ratio if decision.choice is None else decision.choice.holds(ratio, cell, other)

    def on_target(self, disk: ConfiguredDisk, path: DiskPath) -> DiskPath:
        """The path with the name of a measured target on the disk's own server, if there is one."""
        if path.target is None or path.layers[0].options or disk.source is None:
            return path
        kind, source = path.layers[0].kind, disk.source
        for campaign in self.analysis.campaigns:
            for text in campaign.plan.get("target") or ():
                name, _, place = str(text).partition("=")
                directories = number_of(Path(place)), number_of(place_of(disk))
                mounted = is_mounted(path) and directories[0] is not None
                if (
                    directories[0] == directories[1]
                    if mounted
                    else same_server(kind, source, place)
                ):
                    return replace(path, layers=(Layer(kind, (("at", name),)),))
        return path

    def in_place(self, disk: ConfiguredDisk, path: DiskPath, cell: MeasuredCell) -> DiskPath:
        """The path without its file system, if the cell was measured in a directory on that: its
        layers are then those of the disk."""
        places = [Path(str(each.plan.get("directory", ""))) for each in self.analysis.campaigns]
        numbers = {number_of(place) for place in (*places, place_of(disk))}
        same = None not in numbers and len(numbers) == 1
        is_file_system = all(layer.kind.facts.holds_files for layer in path.layers)
        if not same or self.cells[cell].layers or not is_file_system:
            return path
        return replace(path, layers=())

    @cached_property
    def _numbers(self) -> dict[MeasuredCell, Summary]:
        """The numbers of `rank`; of a cell without a rank its median."""
        levels = self.analysis.levels(self.score)
        return {**self.analysis.summaries(self.score), **levels}

    @cached_property
    def _ratio_of(self) -> RatioOf:
        return ratios_among(self.analysis.observations, self.score, self.cells)

    def better(self, cell: MeasuredCell, eligible: Collection[MeasuredCell]) -> MeasuredCell | None:
        """The eligible cell to use that is shown to be better, by its rank and by its ratio."""
        ranking = self.ranking_of(cell, eligible)
        row = next((row for row in ranking.rows if row.cell == cell), None)
        if row is None:
            return None
        above = [
            other.cell
            for other in ranking.rows
            if other.cell in eligible and other.worst < row.best and self.beats(other.cell, cell)
        ]
        best = self.winner(eligible) if above else None
        return best if best in above else next(iter(above), None)

    def highest(self, cells: Iterable[MeasuredCell]) -> MeasuredCell | None:
        """The one with the highest score, whether or not it is shown to be better."""
        cells = tuple(cells)
        highest = next((row.cell for row in self.ranking(cells).rows), None)
        alone = cells[0] if len(cells) == 1 and cells[0] in self._numbers else None
        return highest or alone

    def beats(self, cell: MeasuredCell, other: MeasuredCell) -> bool:
        """True if the interval of the ratio of two cells lies above 1, or the decision among all
        shows it."""
        ratio = self.ratio(cell, other)
        if ratio is None or ratio.low is None:
            return False
        choice, ranking = self._decision.choice, self._decision.ranking
        best = choice.cell if choice and choice.verdict is ChoiceVerdict.BEST else None
        return ratio.low > 1 or (cell == best and bool(told_apart(cell, other, ranking)))

    def closest(self, path: DiskPath) -> MeasuredCell | None:
        """The cell whose path differs least; None without cells."""
        return min(
            self.cells, key=lambda cell: (unlikeness(path, self.cells[cell]), cell), default=None
        )

    def standing(
        self, path: DiskPath, cell: MeasuredCell, eligible: Collection[MeasuredCell]
    ) -> DiskStanding:
        """The score of the own cell, its rank, and which eligible cell is better."""
        ranking = self.ranking_of(cell, eligible)
        row = next((row for row in ranking.rows if row.cell == cell), None)
        alike = is_alike(path, self.cells[cell])
        better = self.better(cell, eligible) if alike else None
        return DiskStanding(
            cell,
            self.cells[cell].spelled_out == path.spelled_out,
            tuple(differences(path, self.cells[cell])),
            self.score,
            self._numbers.get(cell),
            None if row is None else row.best,
            None if row is None else row.worst,
            len(ranking.rows),
            better,
            self.ratio(better, cell),
        )
