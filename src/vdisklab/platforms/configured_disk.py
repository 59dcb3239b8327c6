"""One disk of an existing guest: its path and its risks.

A new risk is one class, which says itself, and one function in `_CHECKS`. `vdisklab.path` defines
the meaning of paths.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, ClassVar

from vdisklab.as_text import Saying
from vdisklab.documents import HIDDEN
from vdisklab.path.backing import backing_below
from vdisklab.path.disk_path import DiskPath, Image, Layer
from vdisklab.path.durability import (
    FlushDropper,
    HostDisk,
    dropped_flushes,
    needs_no_flush,
    writes_in_place,
)
from vdisklab.path.platforms import Platform
from vdisklab.path.rules import impossible, native_without_direct
from vdisklab.path.segments import BUS_OPTIONS, Bus, CacheMode, ImageFormat, LayerKind
from vdisklab.path.volume_names import NamedVolume
from vdisklab.platforms.conversion import remedy_for
from vdisklab.platforms.machine_buses import MaybeUnseen, NoSuchBus, verdict_on
from vdisklab.platforms.network import ServerDisk
from vdisklab.units import counted, format_bytes

THROWN_AWAY = "what the guest writes is thrown away when it stops"
"""Why a transient disk loses what the guest has flushed."""


@dataclass(frozen=True, slots=True)
class ConfiguredDisk:
    """A disk as a guest's configuration describes it."""

    domain: str
    """The guest's name in its configuration."""
    target: str
    """The guest's name for the disk, such as `vda`."""
    source: str | None
    """The disk's file or device, or its place on a `server` as `--target` spells it; None for an
    empty disk.
    """
    path: Annotated[
        DiskPath | None,
        "as configured, without host layers, except what a server has; null with `problem`",
    ]
    """Computed from the configuration."""
    noted: DiskPath | None = None
    """The path that vdisklab wrote into the configuration."""
    problem: Annotated[str | None, "why there is no disk path"] = None
    read_only: Annotated[bool, "the guest cannot write, so a power cut loses nothing"] = False
    """Nothing is ever written to the disk, so it loses nothing in a power cut."""
    platform: Platform = Platform.LIBVIRT
    """The platform whose configuration it is."""
    guest: Annotated[str, "its platform's name for the guest"] = ""
    """That platform's name for the guest: a VMID, NAMESPACE/NAME."""
    text: str = field(default="", metadata=HIDDEN)
    """The disk as the configuration spells it."""
    assumed: DiskPath | None = field(default=None, metadata=HIDDEN)
    """With `problem`, the path if its unknown storage were a directory: bus and cache mode hold."""
    by_policy: DiskPath | None = field(default=None, metadata=HIDDEN)
    """With `problem`, a path with the disk's bus and error policy, by which alone the needs of
    failing storage are judged."""
    server: ServerDisk | None = field(default=None, metadata=HIDDEN)
    controller: str = field(default="", metadata=HIDDEN)
    """The model of its SCSI controller."""
    io_thread: str | None = field(default=None, metadata=HIDDEN)
    """An I/O thread that the guest has already."""
    architecture: str | None = None
    """The guest's; None if the configuration does not say."""
    on_file_volume: bool = field(default=False, metadata=HIDDEN)
    """True for a Kubernetes claim that holds a file system with an image file."""
    probed: bool = field(default=False, metadata=HIDDEN)
    """True if the configuration names no format, and QEMU looks for one in the file."""
    limits: Annotated[
        tuple[str, ...], "I/O limits and other settings that a path cannot express, as written"
    ] = ()
    drops_flushes: bool = field(default=False, metadata=HIDDEN)
    """True if the cache mode ignores flushes, which is known without a path."""
    drops_by_default: str = field(default="", metadata=HIDDEN)
    """The platform's rule by which flushes are dropped, if the configuration does not say it."""
    on_thin_volume: bool = field(default=False, metadata=HIDDEN)
    """True if the disk's storage makes thin volumes."""
    lost_below: str | None = field(default=None, metadata=HIDDEN)
    """Why what is below the image loses flushed data, as the configuration tells."""
    below_instead: str = field(default="", metadata=HIDDEN)
    """What to change there, as a sentence without a stop; empty if that is not known."""
    soft_mount: tuple[str, str] | None = field(default=None, metadata=HIDDEN)
    """How the configuration has a server's directory mounted, as a sentence begins, if requests
    fail once the server does not answer in time; and how to change it, as a clause."""
    idle_aio: str = field(default="", metadata=HIDDEN)
    """The I/O mode that the configuration asks for where QEMU has none: on a server's disk."""
    serial: str = field(default="", metadata=HIDDEN)
    """The serial number that a QEMU's arguments give it; empty without one."""
    refused: tuple[str, str] | None = field(default=None, metadata=HIDDEN)
    """Why the platform does not start a guest with the disk, and the way out."""
    past: str | None = field(default=None, metadata=HIDDEN)
    """What the configuration is, if it is not the guest's of today."""
    may_differ: str = field(default="", metadata=HIDDEN)
    """Why its settings may be others, as a clause: a file that sets some was not read."""
    was_unsafe: bool = field(default=False, metadata=HIDDEN)
    """True if an earlier start of the guest, in the same log, lost what the guest flushed."""
    changed_in: str = field(default="", metadata=HIDDEN)
    """What a program writes the guest from anew: a change belongs there."""
    changed_at: str = field(default="", metadata=HIDDEN)
    """Where its cache mode is set there, as a noun; empty if that is not known."""
    transient: Annotated[bool, "what the guest writes is thrown away when it stops"] = False
    node: str = field(default="", metadata=HIDDEN)
    """The node of a cluster of Kubernetes or Proxmox VE that has the disk; empty if not known."""
    template: Annotated[bool, "no guest runs on it: clones are made of it, with its settings"] = (
        False
    )
    ephemeral: str = field(default="", metadata=HIDDEN)
    """The kind of volume that is made for a guest's pod and deleted with it, by design."""
    shareable: Annotated[bool, "several guests may have the disk at once"] = False
    unseen: Annotated[
        str | None,
        "what makes its storage known, which what was read does not say: a command, and what to do "
        "with its output",
    ] = None
    pending: Annotated[str, "settings that hold from the guest's next start on"] = ""
    pending_loss: Annotated[str | None, "how they lose what the guest writes"] = None
    ignored_errors: Annotated[
        tuple[str, ...],
        "failed requests that QEMU reports as successful: writes (and flushes), reads",
    ] = ()
    held: frozenset[tuple[int, int]] | None = field(default=None, metadata=HIDDEN)
    """Device and inode of the files that the guest's process has open, if a process's arguments are
    the configuration: no other file is opened for it.
    """

    @property
    def bus(self) -> Bus | None:
        """The disk's bus, which may be known without its path."""
        path = self.path or self.assumed or self.by_policy
        return None if path is None else path.attachment.bus

    @property
    def is_thrown_away(self) -> bool:
        """True if a guest's administrator has the writes thrown away: with QEMU's `snapshot`,
        libvirt's <transient/>, Proxmox's snapshot=1."""
        return self.transient and not self.ephemeral and not self.read_only

    @property
    def known_once_running(self) -> bool:
        """True if a variable, or a file that was not read, decides settings of the disk: the
        arguments of the running QEMU have the values."""
        return self.held is None and bool(self.may_differ or "$" in (self.problem or ""))

    @property
    def stale_note(self) -> DiskPath | None:
        """The noted path if the configuration was changed after vdisklab wrote it; else None."""
        if self.noted is None or self.path is None:
            return None
        stated, noted = (
            image.options if image else () for image in (self.path.image, self.noted.image)
        )
        # That the data lie in a file of their own is stated, and not whether it is raw.
        given = dict(noted) | ({"data_file": "on"} if "data_file" in dict(noted) else {})
        alike = self.noted.guest_side == self.path.guest_side and {*stated} <= {*given.items()}
        return None if alike else self.noted

    @property
    def valid_note(self) -> DiskPath | None:
        """The noted path, with all its layers, if the configuration still agrees; else None."""
        return None if self.stale_note is not None or self.path is None else self.noted


def with_pending(
    now: Sequence[ConfiguredDisk],
    then: Sequence[ConfiguredDisk],
    say: Callable[[ConfiguredDisk], str] = lambda disk: f"{disk.path or disk.problem}",
) -> tuple[ConfiguredDisk, ...]:
    """A guest's disks. `say` words the changes that take effect at the guest's next start."""
    later = {disk.target: disk for disk in then}
    targets = {disk.target for disk in now}
    changed = (_with_change(disk, later.get(disk.target), say) for disk in now)
    new = (replace(disk, pending="it is new") for disk in then if disk.target not in targets)
    return (*changed, *new)


def _with_change(
    disk: ConfiguredDisk, later: ConfiguredDisk | None, say: Callable[[ConfiguredDisk], str]
) -> ConfiguredDisk:
    if later is None:
        return replace(disk, pending="it is gone")
    if _settings(disk) == _settings(later):
        return disk
    loss = loses_writes(later) or ("its cache mode drops flushes" if later.drops_flushes else None)
    said = say(later)
    if said == say(disk):  # something beside the disk's own settings changes it
        said = f"{later.path or later.problem}"
    said = said if loss is None else f"{said}: {loss}"
    return replace(disk, pending=said, pending_loss=loss)


def _settings(disk: ConfiguredDisk) -> tuple[object, ...]:
    return (
        disk.path and disk.path.guest_side, disk.problem, disk.source, disk.limits,
        disk.drops_flushes, disk.transient, disk.shareable, disk.ignored_errors, disk.lost_below,
        disk.soft_mount,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class ThinPool:
    """The pool of a thin volume; sizes are bytes."""

    name: str
    may_grow: int
    """By how much its thin volumes may still grow together."""
    free: int
    volumes: int
    waits: bool
    """True if requests wait for space when it is full; false if they fail at once."""


@dataclass(frozen=True, slots=True)
class DiskContext:
    """What this host knows about a disk's source; unknown values are None, sizes are bytes."""

    header: ImageFormat | None = None
    """The format that the image's first bytes show."""
    layers: tuple[Layer, ...] | None = None
    """The file system that holds the image."""
    below: str | None = None
    """Stacked devices below that file system, of which the layers are not read."""
    image: Image | None = None
    """The image's format, with the options that qemu-img reads."""
    not_followed: str | None = None
    """A backing file that only the image's header names."""
    without_flushes: str | None = None
    """Why its file system sends no flushes."""
    lost_below: str | None = None
    """Why flushed data are lost below the image, whatever the disk is."""
    virtual_size: int | None = None
    allocated: int | None = None
    free: int | None = None
    others: int = 0
    """Images of the same configurations that lie on the same file system and may grow, too."""
    others_grow: int = 0
    """Bytes by which those may grow."""
    pool: ThinPool | None = None
    """The pool of a thin volume."""
    soft_mount: str | None = None
    """How its directory is mounted, if requests fail once a server does not answer in time."""
    named_volume: NamedVolume | None = None
    """For a device that is not on this host: the logical volume that its name probably means."""
    has_quota: bool = False
    """True if a quota may refuse writes before the file system is full."""
    disk: HostDisk = HostDisk.VOLATILE
    """What the user says about the host's disk."""

    @property
    def file_system(self) -> str | None:
        """The file system of the image's directory, on which power cuts count for it; None if it is
        not known, or not alone below the image."""
        return self.layers[0].kind.value if self.layers and len(self.layers) == 1 else None

    @property
    def drops_flushes(self) -> str | None:
        """Why flushed data are lost below the image in a power cut, as far as a path does not say
        it; None if they are not."""
        return self.lost_below or (None if self.disk.keeps_its_cache else self.without_flushes)


UNKNOWN_CONTEXT = DiskContext()


def disk_path(disk: ConfiguredDisk, context: DiskContext = UNKNOWN_CONTEXT) -> DiskPath | None:
    """The complete path: the noted one if still valid, else the configuration with the context.

    The image's header applies to both.
    """
    path = disk.path
    if path is None:
        return None
    path = disk.valid_note or path
    image, found = path.image, context.image
    if found is not None and image is not None and found.format is image.format:
        path = replace(path, image=Image(image.format, (*image.options, *found.options)))
    if disk.valid_note is not None or context.layers is None:
        return path
    return replace(path, layers=context.layers)


def unknown_layers(disk: ConfiguredDisk, context: DiskContext = UNKNOWN_CONTEXT) -> str | None:
    """A clause that says why the disk's host layers are unknown; None if all are known."""
    if disk.valid_note is not None or (disk.path is not None and disk.path.target is not None):
        return None
    if context.layers is None:
        return f"the host layers of {disk.source or 'its source'} are unknown"
    return context.below and f"the host layers below its file system are unknown: {context.below}"


class Risk(Saying):
    """What may go wrong with a disk as it is configured, with its remedy.

    `short` is the same in a few words. A `serious` risk loses data that the guest believes to be
    safe. One that `blocks` leaves nothing to measure.
    """

    __slots__ = ()
    short: ClassVar[str]
    serious: ClassVar[bool]
    blocks: ClassVar[bool]

    def __init_subclass__(
        cls, short: str | None = None, *, serious: bool = False, blocks: bool = False
    ) -> None:
        """Notes the class's words; a class that dataclass copies for its slots has them already."""
        if short is not None:
            cls.short, cls.serious, cls.blocks = short, serious, blocks

    @property
    def weight(self) -> int:
        """How bad it is, for the order: 2 loses data or does not start, 1 gives the guest errors, 0
        costs speed, space or a pause."""
        return 2 if self.serious or self.blocks else 0

    @property
    def clause(self) -> str:
        """The same without a capital and a full stop."""
        text = str(self).rstrip(".")
        return text[:1].lower() + text[1:]


@dataclass(frozen=True, slots=True)
class FlushesDropped(Risk, short="flushes dropped", serious=True):
    """Cache mode unsafe: what the guest has flushed is lost in a power cut."""

    by_default: Annotated[str, "the platform's rule that drops them, if no setting does"] = ""

    def __str__(self) -> str:
        rule = f" ({self.by_default})" if self.by_default else ""
        return (
            f"Flushes are dropped{rule}: a power cut may lose or corrupt what the guest believes "
            "to be safe. Use none or writeback, which pass them on."
        )


@dataclass(frozen=True, slots=True)
class WritesThrownAway(Risk, short="writes thrown away", serious=True):
    """A snapshot or volume that is removed when the guest stops takes all writes."""

    def __str__(self) -> str:
        return (
            "All that the guest writes is thrown away when it stops: the disk is transient (a "
            "snapshot of QEMU's, or a volume that is deleted with the guest). Remove snapshot or "
            "<transient/>, or use a claim, if its data matter."
        )


@dataclass(frozen=True, slots=True)
class Ephemeral(Risk, short="ephemeral"):
    """A volume of a pod's own, which is deleted with the pod by design."""

    kind: str

    def __str__(self) -> str:
        return (
            f"Ephemeral ({self.kind}): what the guest writes is lost when its pod ends, by design. "
            "Data that matter belong on a claim."
        )


@dataclass(frozen=True, slots=True)
class ErrorsIgnored(Risk, short="write errors ignored", serious=True):
    """werror or rerror is `ignore`: the guest is told that what failed went well."""

    errors: tuple[str, ...]
    instead: Annotated[str | None, "the platform's setting that pauses the guest"] = None

    def __str__(self) -> str:
        what = {"writes": "a write or flush", "reads": "a read"}
        failed = " or ".join(what[error] for error in self.errors)
        setting = self.instead or "werror=stop and rerror=stop"
        return (
            f"Errors are ignored (werror, rerror, error_policy): the guest is told that {failed} "
            f"succeeded although the host's disk is full or broken. Set {setting}: QEMU then "
            "pauses the guest for every error, and it loses nothing."
        )


@dataclass(frozen=True, slots=True)
class PendingChange(Risk, short="pending change", serious=True):
    """Settings that are not in effect yet."""

    settings: str

    def __str__(self) -> str:
        return f"From the guest's next start on: {self.settings}."


@dataclass(frozen=True, slots=True)
class PendingLoss(PendingChange, short="pending loss", serious=True):
    """The same, and what the guest writes will be lost."""


@dataclass(frozen=True, slots=True)
class FlushesDroppedBelow(Risk, short="flushes dropped below", serious=True):
    """A host layer drops flushes: what the guest has flushed may be lost in a power cut."""

    reason: str
    instead: Annotated[str | None, "what to change there"] = None

    def __str__(self) -> str:
        return (
            f"Flushes are dropped below the image: {self.reason}. A power cut may lose or corrupt "
            f"what the guest believes to be safe.{f' {self.instead}.' if self.instead else ''}"
        )


@dataclass(frozen=True, slots=True)
class LossyImage(Risk, short="loses flushed data", serious=True):
    """The image's format, or an option of it, lost flushed data in simulated power cuts."""

    reason: str
    remedy: str

    def __str__(self) -> str:
        return f"The image is not safe in a power cut: {self.reason}. {self.remedy}"


@dataclass(frozen=True, slots=True)
class DurableOnceFlushed(Risk, short=""):
    """A volatile write cache: only what the guest flushes is durable.

    `in_memory` is True unless it is known that the disk's own cache holds all that finds the data
    again: otherwise the host's memory may hold them, or the tables that say where they are.
    """

    in_memory: bool

    @property
    def where(self) -> str:
        """A clause that says where unflushed data are."""
        if self.in_memory:
            return "the host's memory may hold them, or the only note of where they are"
        return "they are in the disk's own cache"

    def __str__(self) -> str:
        return f"Data are durable once the guest has flushed them; until then {self.where}."


@dataclass(frozen=True, slots=True)
class OnServer(Risk, short=""):
    """Storage that is not in this machine: only its server knows when data are durable."""

    layer: LayerKind
    cached: Annotated[bool, "true if this host's memory may hold what was not flushed"]
    no_wait: Annotated[bool, "true for a librbd that caches before the first flush, too"] = False
    flushes_each: Annotated[bool, "true if the cache mode flushes each write"] = False

    def __str__(self) -> str:
        facts = self.layer.facts.target
        promise = "" if facts is None else str(facts.promise)
        what = f"{self.layer} is storage of a server, which answers for what is durable"
        if self.layer is LayerKind.RBD and self.cached:
            first = (
                "from the first write on, as Proxmox VE's QEMU turns "
                "rbd_cache_writethrough_until_flush off"
                if self.no_wait
                else "once the guest has flushed for the first time"
            )
            return f"{what}: librbd keeps writes in this host's memory between flushes, {first}."
        if self.cached:
            return f"{what}: this host's memory may hold what the guest has not flushed."
        if self.flushes_each:
            return f"{what}: each write is flushed, and stable once the server says so."
        if self.layer is LayerKind.NFS:
            promise += ", so directsync is the same; with `async` not even a flush is durable"
        direct = "" if facts is None or facts.by_qemu else "with O_DIRECT "
        return f"{what}: {direct}a write is stable {promise}."


@dataclass(frozen=True, slots=True)
class FuaForgotten(Risk, short="FUA forgotten", serious=True):
    """QEMU's NVMe device with a write cache: it acknowledges FUA writes before they are durable."""

    def __str__(self) -> str:
        return (
            "QEMU's NVMe device answers FUA writes before they are durable, so fsync in the "
            "guest may return too early: acknowledged writes were lost with QEMU 7.2. "
            "Use the bus virtio or scsi, or the device's property write-cache=off."
        )


@dataclass(frozen=True, slots=True)
class FlushAfterEachWrite(Risk, short="flush after each write"):
    """No write cache is offered, so QEMU flushes after each write: safe, and slow."""

    def __str__(self) -> str:
        return "No write cache: each write is flushed at once, which is safe and slow."


class WhenFull(StrEnum):
    """What becomes of a guest when the storage of its thin disk is full, by QEMU's policy."""

    PAUSED = "paused"
    ERRORS = "errors"
    IGNORED = "ignored"

    @classmethod
    def of(cls, path: DiskPath) -> WhenFull:
        """By the disk's werror; QEMU's default, enospc, and KubeVirt's, stop, pause the guest."""
        if "werror" not in BUS_OPTIONS[path.attachment.bus]:
            return cls.ERRORS
        policies = {"report": cls.ERRORS, "ignore": cls.IGNORED}
        return policies.get(str(path.attachment.option("werror")), cls.PAUSED)

    @property
    def weight(self) -> int:
        """That of a risk which has this end."""
        return (WhenFull.PAUSED, WhenFull.ERRORS, WhenFull.IGNORED).index(self)


_WHEN_FULL = {
    WhenFull.PAUSED: "this guest is paused, not damaged, and goes on once there is space and it is "
    "continued",
    WhenFull.ERRORS: "this guest gets I/O errors, and its file system may turn read-only",
    WhenFull.IGNORED: "QEMU drops what this guest writes and says that it was written",
}

_PAUSING_LINES = {
    Platform.LIBVIRT: "error_policy='enospace' in its <driver>",
    Platform.PROXMOX: "werror=enospc on its drive",
    Platform.KUBEVIRT: "errorPolicy: enospace of its disk",
    Platform.QEMU: "werror=enospc of its device",
}
"""How platforms say that QEMU pauses a guest whose storage is full."""


_STOPPING_LINES = {
    Platform.LIBVIRT: "error_policy='stop' in its <driver>",
    Platform.PROXMOX: "werror=stop on its drive",
    Platform.KUBEVIRT: "errorPolicy: stop of its disk",
    Platform.QEMU: "werror=stop of its device",
}
"""How platforms say that QEMU pauses a guest for every failed write."""

_STOPPING_FOR_ALL = {
    **_STOPPING_LINES,
    Platform.PROXMOX: "werror=stop,rerror=stop on its drive",
    Platform.QEMU: "werror=stop and rerror=stop of its device",
}
"""How they say it for failed reads, too."""


def policy_setting(platform: Platform, path: DiskPath) -> str | None:
    """The platform's setting of a path's error policy; None if it has none."""
    stops = path.attachment.option("werror") == "stop"
    return (_STOPPING_FOR_ALL if stops else _PAUSING_LINES).get(platform)


@dataclass(frozen=True, slots=True)
class MayOutgrow(Risk, short="may outgrow its disk"):
    """A thin image that may grow by more bytes than its file system has left, alone or together
    with the other images on that file system."""

    may_grow: int
    free: int
    others: Annotated[int, "other images on its file system that may grow"] = 0
    others_grow: Annotated[int, "bytes by which those may grow"] = 0
    when_full: Annotated[WhenFull, "what QEMU then does with the guest"] = WhenFull.PAUSED
    instead: Annotated[str | None, "the platform's setting that pauses the guest"] = None
    at_quota: Annotated[bool, "true if a quota may end its space: the error is then EDQUOT"] = False

    @property
    def weight(self) -> int:
        """A guest that gets errors may need a repair; a paused one does not."""
        return self.when_full.weight

    def __str__(self) -> str:
        together = (
            f" and {counted(self.others, 'other image')} there by {format_bytes(self.others_grow)}"
            if self.others
            else ""
        )
        remedy = "Free some space, or allocate the image in full."
        if self.instead is not None:
            remedy = f"Set {self.instead}, so that QEMU pauses the guest instead."
        return (
            f"The image may grow by {format_bytes(self.may_grow)}{together}, and its file system "
            f"has {format_bytes(self.free)} left: when it is full, {_WHEN_FULL[self.when_full]}. "
            f"{remedy}"
        )


@dataclass(frozen=True, slots=True)
class PoolMayFill(Risk, short="thin pool may fill"):
    """A thin volume whose pool has less space than its volumes may still take."""

    pool: str
    may_grow: Annotated[int, "bytes by which the pool's thin volumes may grow"]
    free: Annotated[int, "bytes that the pool has left"]
    volumes: Annotated[int, "its thin volumes"] = 1
    waits: Annotated[bool, "true if requests wait for space first, and fail after that"] = False
    when_full: Annotated[WhenFull, "what QEMU then does with the guest"] = WhenFull.PAUSED
    instead: Annotated[str | None, "the platform's setting that pauses the guest"] = None

    @property
    def weight(self) -> int:
        """A guest that gets errors may need a repair; a paused one does not."""
        return self.when_full.weight

    def __str__(self) -> str:
        subject = "Its volume" if self.volumes == 1 else f"Its {self.volumes} thin volumes"
        first = "the guest's writes wait for up to 60 s; then " if self.waits else ""
        remedy = "Watch the pool, and grow it in time."
        if self.instead is not None:
            remedy = f"Set {self.instead}, so that QEMU pauses the guest instead."
        return (
            f"The thin pool {self.pool} has {format_bytes(self.free)} left. {subject} may grow by "
            f"{format_bytes(self.may_grow)}: when the pool is full, {first}"
            f"{_WHEN_FULL[self.when_full]}. {remedy}"
        )


@dataclass(frozen=True, slots=True)
class QuotaReached(Risk, short="a quota may be reached"):
    """A thin image below a quota: QEMU's default pauses a guest for ENOSPC, and not for EDQUOT."""

    instead: Annotated[str | None, "the platform's setting that pauses the guest"] = None

    @property
    def weight(self) -> int:
        """The guest gets errors."""
        return WhenFull.ERRORS.weight

    def __str__(self) -> str:
        setting = self.instead or "werror=stop"
        return (
            "Its file system has a quota. When that is reached, the error is EDQUOT, for which "
            "QEMU's default (werror=enospc) does not pause the guest: it gets I/O errors, and its "
            f"file system may turn read-only. Set {setting}, which pauses it for every error."
        )


@dataclass(frozen=True, slots=True)
class SlowBus(Risk, short="slow bus"):
    """A bus that emulates a real controller, although virtio is faster."""

    bus: Bus

    def __str__(self) -> str:
        return f"{self.bus} emulates a real controller; virtio does the same with less work."


@dataclass(frozen=True, slots=True)
class AioConflict(Risk, short="does not start", blocks=True):
    """aio=native without O_DIRECT: QEMU does not start."""

    cache: CacheMode

    @property
    def reason(self) -> str:
        """Why QEMU does not start, as a clause."""
        return f"io=native needs O_DIRECT, which {self.cache} does not use"

    def __str__(self) -> str:
        safe = CacheMode.choices(lambda mode: mode.direct and not mode.no_flush)
        return f"{self.reason}: QEMU refuses to start. Use cache {safe}, or io threads."


@dataclass(frozen=True, slots=True)
class NoDiscard(Risk, short="never shrinks"):
    """A thin image or volume that never shrinks, because the guest's discards are ignored."""

    def __str__(self) -> str:
        return (
            "It is thin, and discards are ignored: it only ever grows. "
            "Set discard=unmap and run fstrim in the guest."
        )


@dataclass(frozen=True, slots=True)
class CannotWork(Risk, short="cannot work", blocks=True):
    """A path that is impossible."""

    reason: str
    instead: str

    def __str__(self) -> str:
        return f"It cannot work: {self.reason}; {self.instead}."


@dataclass(frozen=True, slots=True)
class MayBeUnseen(Risk, short="may not be seen"):
    """The guest's firmware or kernel may have no driver for what the disk is attached to."""

    guest: Annotated[str, "its architecture"]
    what: str
    remedy: str

    def __str__(self) -> str:
        return f"A guest of {self.guest} may not see it: {self.what}. {self.remedy}."


@dataclass(frozen=True, slots=True)
class OtherArchitecture(Risk, short="foreign guest"):
    """The guest's architecture is not that of the guests that are measured here."""

    guest: Annotated[str, "its architecture"]
    measured: Annotated[str, "that of the guests measured here"]

    def __str__(self) -> str:
        return (
            f"Its guest is {self.guest}, and the guests measured here are {self.measured}: no "
            "speed is shown for it. Ask on a host of its architecture."
        )


@dataclass(frozen=True, slots=True)
class NotOfToday(Risk, short="not of today"):
    """The configuration of a snapshot: the guest of today may have another one."""

    what: str

    def __str__(self) -> str:
        return f"This is {self.what}, not the guest of today: look at that with `virsh dumpxml`."


@dataclass(frozen=True, slots=True)
class MayDiffer(Risk, short="settings in doubt"):
    """A file that sets some of the disk's settings was not read."""

    why: Annotated[str, "the file, and why it was not read, as a clause"]

    def __str__(self) -> str:
        return f"Its settings are in doubt: {self.why}."


@dataclass(frozen=True, slots=True)
class UnsafeBefore(Risk, short="was unsafe"):
    """An earlier start of the guest dropped flushes; the last one, which holds, does not."""

    def __str__(self) -> str:
        return (
            "An earlier start in this log was unsafe: after a power cut of that time, check the "
            "disk (fsck in the guest)."
        )


@dataclass(frozen=True, slots=True)
class OtherFormat(Risk, short="other format", serious=True, blocks=True):
    """The image's first bytes show another format than the configuration says."""

    configured: ImageFormat
    header: ImageFormat

    def __str__(self) -> str:
        begins = (
            f"has no header of {self.configured}"
            if self.header is ImageFormat.RAW
            else f"begins like {self.header}"
        )
        return (
            f"It is configured as {self.configured}, and its file {begins}: check it with "
            "`qemu-img info` before the guest writes to it again."
        )


@dataclass(frozen=True, slots=True)
class FileVolume(Risk, short="file volume"):
    """A claim of volumeMode Filesystem: QEMU opens a file on it instead of the block device."""

    def __str__(self) -> str:
        return (
            "The claim has volumeMode Filesystem: QEMU opens an image file on it. In one "
            "published cluster random writes were 48 times as fast with volumeMode Block "
            "(neil1taylor/storage-perf-tests, latency-patterns.md); measure it in yours."
        )


_LIFTING_LINES = {
    Platform.LIBVIRT: "`virsh blkdeviotune {guest} {disk}` shows and changes them while it runs",
    Platform.PROXMOX: "`qm config {guest}` shows them, and `qm set` changes them",
    Platform.QEMU: "`block_set_io_throttle` of QEMU's monitor changes them while it runs",
}
"""How platforms show and change a disk's limits."""

_IS_LIMIT = re.compile("iops|bps|bytes|limits|^throttle_|^cgroup_")


def limits_in(settings: Iterable[str]) -> tuple[str, ...]:
    """Those of a disk's settings that limit its speed."""
    return tuple(word for word in settings if _IS_LIMIT.search(word))


@dataclass(frozen=True, slots=True)
class Throttled(Risk, short="limited"):
    """Limits of the disk's own, which no faster storage or setting lifts."""

    limits: tuple[str, ...]
    lifted: Annotated[str, "how the platform shows and changes them"] = ""

    def __str__(self) -> str:
        how = f": {self.lifted}" if self.lifted else ""
        return (
            f"It is as slow as its own limits ({', '.join(self.limits)}), however fast its storage "
            f"is. If the guest is too slow, look at these first{how}."
        )


@dataclass(frozen=True, slots=True)
class SoftMount(Risk, short="soft mount"):
    """A directory of a server whose requests fail when the server does not answer in time: nfs(5)
    warns of silent corruption with `soft`; it is the default of mount.cifs(8)."""

    mount: str
    paused: Annotated[bool, "true if QEMU pauses the guest for every failed write"] = False
    instead: Annotated[str | None, "where the platform says how it is mounted"] = None

    @property
    def weight(self) -> int:
        """That of the end that it has for the guest."""
        return (WhenFull.PAUSED if self.paused else WhenFull.ERRORS).weight

    def __str__(self) -> str:
        guest = "the guest is paused" if self.paused else "the guest gets I/O errors"
        return (
            f"{self.mount}: when the server does not answer in time, requests fail, {guest}, and "
            "writes that are still in this host's memory may be lost. Mount it with `hard`, so "
            f"that requests wait for the server{f': {self.instead}' if self.instead else ''}."
        )


@dataclass(frozen=True, slots=True)
class IdleAio(Risk, short=""):
    """An I/O mode for a disk that QEMU opens on a server: only its drivers of files and of host
    devices have one (BlockdevOptionsFile). QEMU 7.2 ignores that of -drive, as libvirt does."""

    mode: str
    layer: LayerKind

    def __str__(self) -> str:
        return (
            f"aio={self.mode} has no effect: QEMU opens the disk with its driver for {self.layer}, "
            "and only files and devices of the host have I/O modes."
        )


@dataclass(frozen=True, slots=True)
class LimitsBeyondPath(Risk, short="other settings"):
    """Settings that a path cannot express, so no speed measured without them is this disk's."""

    limits: tuple[str, ...]

    def __str__(self) -> str:
        limits = limits_in(self.limits)
        what = "I/O limits" if limits else "settings"
        instead = (
            "; a path has throttle_iops=N and throttle_bps=SIZE, for reads and writes together and "
            "without bursts"
        )
        return (
            f"It has {what} that a path cannot express ({', '.join(self.limits)}), so no speed "
            f"that was measured without them is shown for it{instead if limits else ''}."
        )


@dataclass(frozen=True, slots=True)
class BackingNotFollowed(Risk, short="backing not followed"):
    """A backing file that only the image's header names; a guest may have written that header."""

    name: str

    def __str__(self) -> str:
        return (
            f"The image's header names the backing file {self.name}, which was not opened: it "
            "counts as one image below. Name the chain in the configuration (backingStore) if you "
            "trust it."
        )


@dataclass(frozen=True, slots=True)
class ProbablyVolume(Risk, short=""):
    """A device that is not on this host, and that LVM makes by its name."""

    volume: str

    def __str__(self) -> str:
        return (
            f"Its device is not on this host. By its name it is probably LVM ({self.volume}): "
            "DEVICE in a command is then a spare volume of the same group."
        )


@dataclass(frozen=True, slots=True)
class StaleNote(Risk, short="stale note"):
    """The path noted in the metadata is not the configured one: the XML was changed since."""

    noted: str

    def __str__(self) -> str:
        return (
            f"vdisklab's note in the metadata says {self.noted}, but the XML was changed since; "
            "the XML counts."
        )


def works_for(disk: ConfiguredDisk, path: DiskPath) -> bool:
    """True if the disk's own guest, whatever runs here, could have the path."""
    bus = path.attachment.bus
    verdict = verdict_on(disk.architecture, disk.platform, bus, disk.controller)
    possible = impossible(path, backing_below(path), guest=None) is None
    return possible and not isinstance(verdict, NoSuchBus)


def loses_writes(disk: ConfiguredDisk) -> str | None:
    """Why a disk's settings lose what the guest has flushed, whatever its path is; None if not."""
    if disk.read_only:
        return None
    if disk.transient:
        return THROWN_AWAY
    if "writes" in disk.ignored_errors:
        return "a write or flush that fails is called good (its error policy is ignore)"
    if _drops_beside_path(disk):
        return "its cache mode drops flushes"
    if disk.lost_below is not None:
        return disk.lost_below
    later = disk.pending_loss
    return None if later is None else f"from the guest's next start on {later}"


def _drops_beside_path(disk: ConfiguredDisk) -> bool:
    """True if flushes are dropped where the path does not show it: there is none, or a data file
    has another cache mode."""
    shown = disk.path is not None and disk.path.cache.no_flush
    return disk.drops_flushes and not shown


def _risks_of_settings(disk: ConfiguredDisk) -> Iterator[Risk]:
    """The risks of a disk's settings beside its path."""
    if _drops_beside_path(disk) and not disk.read_only:
        yield FlushesDropped(disk.drops_by_default)
    if disk.ephemeral and not disk.read_only:
        yield Ephemeral(disk.ephemeral)
    elif disk.transient and not disk.read_only:
        yield WritesThrownAway()
    errors = tuple(error for error in disk.ignored_errors if error == "reads" or not disk.read_only)
    if errors:
        yield ErrorsIgnored(errors, _STOPPING_FOR_ALL.get(disk.platform))
    if disk.refused is not None:
        yield CannotWork(*disk.refused)
    match verdict_on(disk.architecture, disk.platform, disk.bus, disk.controller):
        case NoSuchBus(reason, instead):
            yield CannotWork(reason, instead)
        case MaybeUnseen(what, remedy):
            yield MayBeUnseen(disk.architecture or "", what, remedy)
        case None:
            pass
    yield from _throttled(disk)
    if disk.past is not None:
        yield NotOfToday(disk.past)
    if disk.may_differ:
        yield MayDiffer(disk.may_differ)
    if disk.was_unsafe and not disk.read_only:
        yield UnsafeBefore()
    if disk.pending:
        yield (PendingLoss if disk.pending_loss else PendingChange)(disk.pending)


def risks(disk: ConfiguredDisk, context: DiskContext = UNKNOWN_CONTEXT) -> tuple[Risk, ...]:
    """The disk's risks, most serious first; if it has no path, those of its settings alone.

    A read-only disk has only the risks of reading.
    """
    path = disk_path(disk, context)
    soft = context.soft_mount or (disk.soft_mount and disk.soft_mount[0])
    lost_below = disk.lost_below or context.lost_below
    context = replace(context, lost_below=lost_below, soft_mount=soft)
    of_settings = [*_risks_of_settings(disk)]
    if path is None:
        if context.drops_flushes and not disk.read_only:
            of_settings.append(FlushesDroppedBelow(context.drops_flushes))
        forgotten = disk.assumed and not disk.read_only and _forgotten_fua(disk.assumed, context)
        if forgotten:
            of_settings.append(forgotten)
        if disk.assumed is not None and native_without_direct(disk.assumed):
            of_settings.append(AioConflict(disk.assumed.cache))
        return tuple(of_settings)
    skipped: frozenset[_Check] = _OF_WRITES if disk.read_only else frozenset()
    if any(isinstance(risk, CannotWork | MayBeUnseen) for risk in of_settings):
        skipped |= {_slow_bus}  # a bus that does not work is not slow
    checks = [check for check in _CHECKS if check not in skipped]
    risky = [
        *of_settings,
        *(risk for check in checks if (risk := check(path, context)) is not None),
    ]
    if not disk.read_only and _is_promised(path) and context.lost_below is None:
        is_rbd = path.layers[0].kind is LayerKind.RBD
        caches = path.offers_write_cache and not path.cache.direct
        cached = caches and (is_rbd or not path.opened_by_qemu)
        no_wait = cached and is_rbd and disk.platform is Platform.PROXMOX
        flushes_each = not path.offers_write_cache and not path.cache.direct
        risky.append(OnServer(path.layers[0].kind, cached, no_wait, flushes_each))
    risky = [_with_setting(_with_configuration(risk, disk, path), disk, path) for risk in risky]
    ignores = path.attachment.option("discard") == "ignore"
    if disk.on_thin_volume and ignores and not disk.read_only and NoDiscard() not in risky:
        risky.append(NoDiscard())
    risky += _to_know(disk, path, context)
    return tuple(sorted(risky, key=lambda risk: -risk.weight))


def _to_know(disk: ConfiguredDisk, path: DiskPath, context: DiskContext) -> Iterator[Risk]:
    """What is otherwise than it seems, and loses nothing."""
    if disk.on_file_volume:
        yield FileVolume()
    if disk.limits:
        yield LimitsBeyondPath(disk.limits)
    if disk.idle_aio and path.opened_by_qemu:
        yield IdleAio(disk.idle_aio, path.layers[0].kind)
    if context.not_followed is not None:
        yield BackingNotFollowed(context.not_followed)
    if context.named_volume is not None and path.image is None and not path.layers:
        yield ProbablyVolume(str(context.named_volume))
    if disk.stale_note is not None:
        yield StaleNote(disk.stale_note.canonical)


def _throttled(disk: ConfiguredDisk) -> Iterator[Risk]:
    """The limits of a disk's speed, as written and by its path."""
    attachment = None if disk.path is None else disk.path.attachment
    options = () if attachment is None else attachment.options
    schema = BUS_OPTIONS[attachment.bus] if attachment is not None else {}
    of_path = (f"{name}={schema[name].format(value)}" for name, value in options)
    limits = limits_in((*disk.limits, *of_path))
    if limits:
        line = _LIFTING_LINES.get(disk.platform, "")
        guest = shlex.quote(disk.guest or disk.domain)
        yield Throttled(limits, line.format(guest=guest, disk=disk.target))


def _with_setting(risk: Risk, disk: ConfiguredDisk, path: DiskPath) -> Risk:
    """The risk with the platform's own words for its remedy, if the guest could be paused."""
    if "werror" not in BUS_OPTIONS[path.attachment.bus]:
        return risk
    if isinstance(risk, QuotaReached) or (isinstance(risk, MayOutgrow) and risk.at_quota):
        return replace(risk, instead=_STOPPING_LINES.get(disk.platform))
    if isinstance(risk, MayOutgrow | PoolMayFill) and risk.when_full is not WhenFull.PAUSED:
        return replace(risk, instead=_PAUSING_LINES.get(disk.platform))
    return risk


def _cannot_work(path: DiskPath, _context: DiskContext) -> Risk | None:
    if native_without_direct(path):
        return AioConflict(path.cache)
    # What the guest's machine lacks is said of the guest's own (`verdict_on`).
    reason = impossible(path, backing_below(path), guest=None)
    if reason is None or reason.exists:
        return None
    return CannotWork(reason.reason, reason.instead)


def _other_format(path: DiskPath, context: DiskContext) -> Risk | None:
    """QEMU refuses an image without the header of its format, and gives the guest any file as raw.

    An encrypted raw image and a raw disk whose guest wrote such a header look the same.
    """
    configured = ImageFormat.RAW if path.image is None else path.image.format
    header = context.header
    return None if header is None or header is configured else OtherFormat(configured, header)


def _forgotten_fua(path: DiskPath, context: DiskContext) -> Risk | None:
    droppers = {drop.dropper for drop in dropped_flushes(path, context.disk)}
    # Where all flushes are dropped, no other bus and no property of the device keeps anything.
    every = {FlushDropper.CACHE_MODE, FlushDropper.LAYER, FlushDropper.IMAGE}
    forgets = FlushDropper.DEVICE in droppers and droppers.isdisjoint(every)
    return FuaForgotten() if forgets and context.drops_flushes is None else None


def _flushes_below(path: DiskPath, context: DiskContext) -> Risk | None:
    below = (FlushDropper.LAYER, FlushDropper.IMAGE)
    drops = dropped_flushes(path, context.disk)
    reasons = (drop.reason for drop in drops if drop.dropper in below)
    reason = next(reasons, context.drops_flushes)
    return None if reason is None else FlushesDroppedBelow(reason)


def _lossy_image(path: DiskPath, context: DiskContext) -> Risk | None:
    drops = dropped_flushes(path, context.disk)
    drop = next((drop for drop in drops if drop.dropper is FlushDropper.TABLES), None)
    return None if drop is None else LossyImage(drop.reason, drop.remedy)


def _with_configuration(risk: Risk, disk: ConfiguredDisk, path: DiskPath) -> Risk:
    """The risk with what the disk's configuration adds: the rule of a default, the command for its
    own image."""
    if isinstance(risk, FlushesDropped):
        return FlushesDropped(disk.drops_by_default)
    if isinstance(risk, FlushesDroppedBelow) and risk.reason == disk.lost_below:
        return replace(risk, instead=disk.below_instead or None)
    if isinstance(risk, SoftMount) and disk.soft_mount is not None:
        return replace(risk, instead=disk.soft_mount[1])
    file = disk.source or ""
    is_file = file.startswith("/") and not file.startswith("/dev/") and disk.server is None
    if not isinstance(risk, LossyImage) or path.image is None or not is_file:
        return risk
    return replace(risk, remedy=remedy_for(Path(file), path.image.format))


def _flushes(path: DiskPath, context: DiskContext) -> Risk | None:
    """Risks for flushes in the cache mode; `_forgotten_fua` checks the device."""
    if any(drop.dropper is FlushDropper.CACHE_MODE for drop in dropped_flushes(path, context.disk)):
        return FlushesDropped()
    if _flushes_below(path, context) or _lossy_image(path, context):
        return None
    if not path.offers_write_cache:
        return FlushAfterEachWrite()
    if needs_no_flush(path, context.disk) or _is_promised(path):
        return None
    return DurableOnceFlushed(in_memory=not writes_in_place(path))


def _is_promised(path: DiskPath) -> bool:
    """True for storage of a server that passes flushes on: `OnServer` says what it promises."""
    promise = path.target is not None and path.target.promise is not None
    return promise and not path.cache.no_flush


def _too_little_room(path: DiskPath, context: DiskContext) -> Risk | None:
    size, allocated, free = context.virtual_size, context.allocated, context.free
    if size is None or allocated is None or free is None or path.image is None:
        return None
    grows = size - allocated
    if grows <= 0 or grows + context.others_grow <= free:
        return None
    when_full = WhenFull.of(path)
    at_quota = _quota(path, context) is not None
    if at_quota and when_full is WhenFull.PAUSED:
        when_full = WhenFull.ERRORS
    return MayOutgrow(
        grows, free, context.others, context.others_grow, when_full, at_quota=at_quota
    )


def _full_pool(path: DiskPath, context: DiskContext) -> Risk | None:
    pool = context.pool
    if pool is None or pool.may_grow <= pool.free:
        return None
    return PoolMayFill(
        pool.name, pool.may_grow, pool.free, pool.volumes, pool.waits, WhenFull.of(path)
    )


def _quota(path: DiskPath, context: DiskContext) -> Risk | None:
    is_thin = path.image is not None and path.image.is_thin
    policy = str(path.attachment.option("werror") or "enospc")
    stops = "werror" in BUS_OPTIONS[path.attachment.bus] and policy in ("stop", "ignore")
    return QuotaReached() if is_thin and context.has_quota and not stops else None


def _soft_mount(path: DiskPath, context: DiskContext) -> Risk | None:
    paused = path.attachment.option("werror") == "stop"
    return None if context.soft_mount is None else SoftMount(context.soft_mount, paused)


def _slow_bus(path: DiskPath, _context: DiskContext) -> Risk | None:
    slow = (Bus.IDE, Bus.SATA, Bus.USB)
    return SlowBus(path.attachment.bus) if path.attachment.bus in slow else None


def _ignored_discards(path: DiskPath, context: DiskContext) -> Risk | None:
    thin = path.image is not None and path.image.is_thin
    if context.virtual_size is not None and context.allocated is not None:
        thin = context.allocated < context.virtual_size
    thin |= any(layer.kind is LayerKind.LVMTHIN for layer in path.layers[-1:])
    return NoDiscard() if thin and path.attachment.option("discard") == "ignore" else None


_Check = Callable[[DiskPath, DiskContext], Risk | None]

_CHECKS: tuple[_Check, ...] = (
    _cannot_work, _other_format, _forgotten_fua, _flushes, _flushes_below, _lossy_image,
    _too_little_room, _full_pool, _quota, _soft_mount, _slow_bus, _ignored_discards,
)  # fmt: skip
_OF_WRITES: frozenset[_Check] = frozenset(
    {
        _forgotten_fua,
        _flushes,
        _flushes_below,
        _lossy_image,
        _too_little_room,
        _full_pool,
        _quota,
        _ignored_discards,
    }
)
