"""The risks that a disk may have, each a class that says itself.

`disk_risks` decides which of them a disk has.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import StrEnum
from typing import Annotated, ClassVar

from vdisklab.as_text import Saying
from vdisklab.path.disk_path import DiskPath
from vdisklab.path.platforms import Platform
from vdisklab.path.segments import BUS_OPTIONS, Bus, CacheMode, ImageFormat, LayerKind
from vdisklab.units import counted, format_bytes
from vdisklab.value import Value


class Risk(Saying, Value):
    """What may go wrong with a disk as it is configured, with its remedy.

    `short` is the same in a few words. A `serious` risk loses data that the guest believes to be
    safe. One that `blocks` leaves nothing to measure.
    """

    short: ClassVar[str]
    serious: ClassVar[bool] = False
    blocks: ClassVar[bool] = False

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


class FlushesDropped(Risk):
    """Cache mode unsafe: what the guest has flushed is lost in a power cut.

    The remedy starts whatever the I/O mode is: aio=native needs O_DIRECT (block/file-posix.c).
    """

    short = "flushes dropped"
    serious = True

    by_default: Annotated[str, "the platform's rule that drops them, if no setting does"] = ""

    def __str__(self) -> str:
        rule = f" ({self.by_default})" if self.by_default else ""
        return (
            f"Flushes are dropped{rule}: a power cut may lose or corrupt what the guest believes "
            "to be safe. Use none, which passes them on, or writeback, which does so without "
            "io=native."
        )


class WritesThrownAway(Risk):
    """A snapshot or volume that is removed when the guest stops takes all writes."""

    short = "writes thrown away"
    serious = True

    def __str__(self) -> str:
        return (
            "All that the guest writes is thrown away when it stops: the disk is transient (a "
            "snapshot of QEMU's, or a volume that is deleted with the guest). Remove snapshot or "
            "<transient/>, or use a claim, if its data matter."
        )


class Ephemeral(Risk):
    """A volume of a pod's own, which is deleted with the pod by design."""

    short = "ephemeral"

    kind: str

    def __str__(self) -> str:
        return (
            f"Ephemeral ({self.kind}): what the guest writes is lost when its pod ends, by design. "
            "Data that matter belong on a claim."
        )


class ErrorsIgnored(Risk):
    """werror or rerror is `ignore`: the guest is told that failed requests succeeded."""

    short = "write errors ignored"
    serious = True

    errors: tuple[str, ...]
    instead: Annotated[str | None, "the platform's setting that pauses the guest"] = None

    def __str__(self) -> str:
        what = {"writes": "a write or flush", "reads": "a read"}
        failed = " or ".join(what[error] for error in self.errors)
        return (
            f"Errors are ignored (werror, rerror, error_policy): the guest is told that {failed} "
            f"succeeded although the host's disk is full or broken. Set {self.setting}: QEMU then "
            "pauses the guest for every error."
        )

    @property
    def setting(self) -> str:
        """The setting that pauses the guest, in its platform's words."""
        return self.instead or "werror=stop and rerror=stop"


class ReadErrorsIgnored(ErrorsIgnored):
    """Only rerror is `ignore`."""

    short = "read errors ignored"


class PendingChange(Risk):
    """Settings that are not in effect yet."""

    short = "pending change"
    serious = True

    settings: str

    def __str__(self) -> str:
        return f"From the guest's next start on: {self.settings}."


class PendingLoss(PendingChange):
    """The same, and what the guest writes will be lost."""

    short = "pending loss"


class FlushesDroppedBelow(Risk):
    """A host layer drops flushes: what the guest has flushed may be lost in a power cut."""

    short = "flushes dropped below"
    serious = True

    reason: str
    instead: Annotated[str | None, "what to change there"] = None

    def __str__(self) -> str:
        return (
            f"Flushes are dropped below the image: {self.reason}. A power cut may lose or corrupt "
            f"what the guest believes to be safe.{f' {self.instead}.' if self.instead else ''}"
        )


class ServerMayLose(Risk):
    """Flushed data is lost on a condition that is not known here: a server in a file that was named
    runs where the disk's address says, or the disk has a cache that the kernel does not flush."""

    short = "may lose data"
    serious = True

    why: Annotated[str, "the condition and the loss, as a clause"]
    instead: Annotated[str, "what to change there, as a sentence without a stop"]

    def __str__(self) -> str:
        return f"{self.why[:1].upper()}{self.why[1:]}. {self.instead}."


class LossyImage(Risk):
    """The image's format, or an option of it, lost flushed data in simulated power cuts."""

    short = "loses flushed data"
    serious = True

    reason: str
    remedy: str

    def __str__(self) -> str:
        return f"The image is not safe in a power cut: {self.reason}. {self.remedy}"


class DurableOnceFlushed(Risk):
    """A volatile write cache: only what the guest flushes is durable.

    `in_memory` is True unless it is known that the disk's own cache holds all that finds the data
    again: otherwise the host's memory may hold them, or the tables that say where they are.
    """

    short = ""

    in_memory: bool

    @property
    def where(self) -> str:
        """A clause that says where unflushed data are."""
        if self.in_memory:
            return "the host's memory may hold them, or the only note of where they are"
        return "they are in the disk's own cache"

    def __str__(self) -> str:
        return f"Data are durable once the guest has flushed them; until then {self.where}."


class OnServer(Risk):
    """Storage that is not in this machine: only its server knows when data are durable."""

    short = ""

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


class FuaForgotten(Risk):
    """QEMU's NVMe device with a write cache: it acknowledges FUA writes before they are durable."""

    short = "FUA forgotten"
    serious = True

    def __str__(self) -> str:
        return (
            "QEMU's NVMe device answers FUA writes before they are durable, so fsync in the "
            "guest may return too early: acknowledged writes were lost with QEMU 7.2. "
            "Use the bus virtio or scsi, or the device's property write-cache=off."
        )


class FlushAfterEachWrite(Risk):
    """No write cache is offered, so QEMU flushes after each write: safe, and slow."""

    short = "flush after each write"

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

PAUSING_LINES = {
    Platform.LIBVIRT: "error_policy='enospace' in its <driver>",
    Platform.PROXMOX: "werror=enospc on its drive",
    Platform.KUBEVIRT: "errorPolicy: enospace of its disk",
    Platform.QEMU: "werror=enospc of its device",
}
"""How platforms say that QEMU pauses a guest whose storage is full."""


STOPPING_LINES = {
    Platform.LIBVIRT: "error_policy='stop' in its <driver>",
    Platform.PROXMOX: "werror=stop on its drive",
    Platform.KUBEVIRT: "errorPolicy: stop of its disk",
    Platform.QEMU: "werror=stop of its device",
}
"""How platforms say that QEMU pauses a guest for every failed write."""

STOPPING_FOR_ALL = {
    **STOPPING_LINES,
    Platform.LIBVIRT: "error_policy='stop' and rerror_policy='stop' in its <driver>",
    Platform.PROXMOX: "werror=stop,rerror=stop on its drive",
    Platform.QEMU: "werror=stop and rerror=stop of its device",
}
"""How they say it for failed reads, too: a rerror_policy of libvirt's goes before its error_policy
(formatdomain.html)."""


def policy_setting(platform: Platform, path: DiskPath) -> str | None:
    """The platform's setting of a path's error policy; None if it has none."""
    stops = path.attachment.option("werror") == "stop"
    return (STOPPING_FOR_ALL if stops else PAUSING_LINES).get(platform)


class MayFill(Risk, kw_only=True):
    """Storage below a thin disk that may have no space left."""

    when_full: Annotated[WhenFull, "what QEMU then does with the guest"] = WhenFull.PAUSED
    instead: Annotated[str | None, "the platform's setting that pauses the guest"] = None

    @property
    def weight(self) -> int:
        """A guest that gets errors may need a repair; a paused one does not."""
        return self.when_full.weight


class MayOutgrow(MayFill):
    """A thin image that may grow by more bytes than its file system has left, alone or together
    with the other images on that file system."""

    short = "may outgrow its disk"

    may_grow: int
    free: int
    others: Annotated[int, "other images on its file system that may grow"] = 0
    others_grow: Annotated[int, "bytes by which those may grow"] = 0
    at_quota: Annotated[bool, "true if a quota may end its space: the error is then EDQUOT"] = False

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


class PoolMayFill(MayFill):
    """A thin volume whose pool has less space than its volumes may still take."""

    short = "thin pool may fill"

    pool: str
    may_grow: Annotated[int, "bytes by which the pool's thin volumes may grow"]
    free: Annotated[int, "bytes that the pool has left"]
    volumes: Annotated[int, "its thin volumes"] = 1
    waits: Annotated[bool, "true if requests wait for space first, and fail after that"] = False

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


class QuotaReached(Risk):
    """A thin image below a quota: QEMU's default pauses a guest for ENOSPC, and not for EDQUOT."""

    short = "a quota may be reached"

    instead: Annotated[str | None, "the platform's setting that pauses the guest"] = None

    @property
    def weight(self) -> int:
        """That of errors in the guest, which a reached quota gives."""
        return WhenFull.ERRORS.weight

    def __str__(self) -> str:
        setting = self.instead or "werror=stop"
        return (
            "Its file system has a quota. When that is reached, the error is EDQUOT, for which "
            "QEMU's default (werror=enospc) does not pause the guest: it gets I/O errors, and its "
            f"file system may turn read-only. Set {setting}, which pauses it for every error."
        )


class SlowBus(Risk):
    """A bus that emulates a real controller, although virtio is faster."""

    short = "slow bus"

    bus: Bus

    def __str__(self) -> str:
        return f"{self.bus} emulates a real controller; virtio does the same with less work."


class AioConflict(Risk):
    """aio=native without O_DIRECT: QEMU does not start."""

    short = "does not start"
    blocks = True

    cache: CacheMode

    @property
    def reason(self) -> str:
        """Why QEMU does not start, as a clause."""
        return f"io=native needs O_DIRECT, which {self.cache} does not use"

    def __str__(self) -> str:
        safe = CacheMode.choices(lambda mode: mode.direct and not mode.no_flush)
        return f"{self.reason}: QEMU refuses to start. Use cache {safe}, or io threads."


class NoDiscard(Risk):
    """A thin image or volume that never shrinks, because the guest's discards are ignored."""

    short = "never shrinks"

    def __str__(self) -> str:
        return (
            "It is thin, and discards are ignored: it only ever grows. "
            "Set discard=unmap and run fstrim in the guest."
        )


class CannotWork(Risk):
    """A path that is impossible."""

    short = "cannot work"
    blocks = True

    reason: str
    instead: str

    def __str__(self) -> str:
        return f"It cannot work: {self.reason}; {self.instead}."


class MayBeUnseen(Risk):
    """The guest's firmware or kernel may have no driver for what the disk is attached to."""

    short = "may not be seen"

    guest: Annotated[str, "its architecture"]
    what: str
    remedy: str

    def __str__(self) -> str:
        return f"A guest of {self.guest} may not see it: {self.what}. {self.remedy}."


class OtherArchitecture(Risk):
    """The guest's architecture is not that of the guests that are measured here."""

    short = "foreign guest"

    guest: Annotated[str, "its architecture"]
    measured: Annotated[str, "that of the guests measured here"]

    def __str__(self) -> str:
        return (
            f"Its guest is {self.guest}, and the guests measured here are {self.measured}: no "
            "speed is shown for it. Ask on a host of its architecture."
        )


class NotOfToday(Risk):
    """The configuration of a snapshot: the guest of today may have another one."""

    short = "not of today"

    what: str

    def __str__(self) -> str:
        return f"This is {self.what}, not the guest of today: look at that with `virsh dumpxml`."


class MayDiffer(Risk):
    """A file that sets some of the disk's settings was not read."""

    short = "settings in doubt"

    why: Annotated[str, "the file, and why it was not read, as a clause"]

    def __str__(self) -> str:
        return f"Its settings are in doubt: {self.why}."


class ImageShared(Risk):
    """Another disk has the same image, and one of the two writes to it: QEMU's lock does not let
    them do so at once."""

    short = "image opened twice"
    serious = True

    instead: ClassVar[str] = "an image of its own"

    others: Annotated[str, "the names of the other disks"]

    def __str__(self) -> str:
        return (
            f"{self.others} has the same image: QEMU locks it, and what opens it second does not "
            f"start (Failed to get write lock). Give each {self.instead}: without the lock "
            "(locking=off) two writers corrupt it."
        )


class VolumeShared(Risk):
    """Another disk of Incus has the same custom volume (addDriveConfig in driver_qemu.go,
    validateConfig in device/disk.go of Incus)."""

    short = "volume used twice"
    serious = True

    instead: ClassVar[str] = "a volume of its own"

    others: Annotated[str, "the names of the other disks"]

    def __str__(self) -> str:
        return (
            f"{self.others} has the same volume: Incus opens it without QEMU's lock, and two "
            "writers corrupt it unless its file system is made for clusters. Give each "
            f"{self.instead}; a second instance gets it only with security.shared=true."
        )


class UnsafeBefore(Risk):
    """An earlier start of the guest dropped flushes; the last one, which holds, does not."""

    short = "was unsafe"

    def __str__(self) -> str:
        return (
            "An earlier start in this log was unsafe: after a power cut of that time, check the "
            "disk (fsck in the guest)."
        )


class OtherFormat(Risk):
    """The image's first bytes show another format than the configuration says."""

    short = "other format"
    serious = True
    blocks = True

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


class FileVolume(Risk):
    """A claim of volumeMode Filesystem: QEMU opens a file on it instead of the block device."""

    short = "file volume"

    def __str__(self) -> str:
        return (
            "The claim has volumeMode Filesystem: QEMU opens an image file on it. In one "
            "published cluster random writes were 48 times as fast with volumeMode Block "
            "(neil1taylor/storage-perf-tests, latency-patterns.md); measure it in yours."
        )


LIFTING_LINES = {
    Platform.LIBVIRT: "`virsh blkdeviotune {guest} {disk}` shows and changes them while it runs",
    Platform.PROXMOX: "`qm config {guest}` shows them, and `qm set` changes them",
    Platform.QEMU: "`block_set_io_throttle` of QEMU's monitor changes them while it runs",
}
"""How platforms show and change a disk's limits."""

_IS_LIMIT = re.compile("iops|bps|bytes|limits|^throttle_|^cgroup_")


def limits_in(settings: Iterable[str]) -> tuple[str, ...]:
    """Those of a disk's settings that limit its speed."""
    return tuple(word for word in settings if _IS_LIMIT.search(word))


class Throttled(Risk):
    """Limits of the disk's own, which no faster storage or setting lifts."""

    short = "limited"

    limits: tuple[str, ...]
    lifted: Annotated[str, "how the platform shows and changes them"] = ""

    def __str__(self) -> str:
        how = f": {self.lifted}" if self.lifted else ""
        return (
            f"It is as slow as its own limits ({', '.join(self.limits)}), however fast its storage "
            f"is. If the guest is too slow, look at these first{how}."
        )


class SoftMount(Risk):
    """A directory of a server whose requests fail when the server does not answer in time: nfs(5)
    warns of silent corruption with `soft`; it is the default of mount.cifs(8)."""

    short = "soft mount"

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


class IdleAio(Risk):
    """An I/O mode for a disk that QEMU opens on a server: only its drivers of files and of host
    devices have one (BlockdevOptionsFile). QEMU 7.2 ignores that of -drive, as libvirt does."""

    short = ""

    mode: str
    layer: LayerKind

    def __str__(self) -> str:
        return (
            f"aio={self.mode} has no effect: QEMU opens the disk with its driver for {self.layer}, "
            "and only files and devices of the host have I/O modes."
        )


class LimitsBeyondPath(Risk):
    """Settings that a path cannot express, so no speed measured without them is this disk's."""

    short = "other settings"

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


class BackingNotFollowed(Risk):
    """A backing file that only the image's header names; a guest may have written that header."""

    short = "backing not followed"

    name: str

    def __str__(self) -> str:
        return (
            f"The image's header names the backing file {self.name}, which was not opened: it "
            "counts as one image below. Name the chain in the configuration (backingStore) if you "
            "trust it."
        )


class ProbablyVolume(Risk):
    """A device that is not on this host, and that LVM makes by its name."""

    short = ""

    volume: str

    def __str__(self) -> str:
        return (
            f"Its device is not on this host. By its name it is probably LVM ({self.volume}): "
            "DEVICE in a command is then a spare volume of the same group."
        )


class StaleNote(Risk):
    """The path noted in the metadata is not the configured one: the XML was changed since."""

    short = "stale note"

    noted: str

    def __str__(self) -> str:
        return (
            f"vdisklab's note in the metadata says {self.noted}, but the XML was changed since; "
            "the XML counts."
        )
