"""Whether a path's data survives a power cut: known by rule, from simulated power cuts, or unknown.

All rules about flushes: what drops them, which device ignores FUA, and which paths need no flush.
`vdisklab powercut` tests what a path really loses.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum
from functools import lru_cache
from typing import Annotated

from vdisklab.path.backing import in_memory
from vdisklab.path.cell import MeasuredCell
from vdisklab.path.disk_path import DiskPath, Image, Layer
from vdisklab.path.segments import Bus, ImageFormat, LayerKind
from vdisklab.path.stalls import MeasuredStalls
from vdisklab.value import HIDDEN, Value, field, replace

FEWEST_STATES = 20
"""Minimum number of states for a verdict; with 20 clean states the 95 % bound is still 15 %."""


AFTER_A_FLUSH = "when the server says so after a flush"
CLAIMED = "at once, as the server claims, which says that it has no write cache"
_SERVED = ("iscsi", "fc", "nvme-tcp", "nvme-rdma", "nvme-fc", "rbd", "nbd")
NO_FLUSH_OFFERED = (
    "the NBD server offers no flush, and QEMU reports success for flushes that it never sends"
)
"""Why nothing on an export without NBD_FLAG_SEND_FLUSH is durable (QEMU, block/nbd.c)."""

NOTHING_STORED = "null stores nothing"
"""Why QEMU's null-co driver keeps no data."""

_TWICE = "QEMU's {} may give out one part of its file twice after a power cut"
_CONVERT = "Convert it to qcow2 or raw: `qemu-img convert`."
CUT_SHORT = (
    "zfs-fuse may cut an image file that grows short when it replays its log; the kernel's ZFS "
    "does not"
)
"""Why flushed data of an image on zfs-fuse may be lost."""


class FailureModel(StrEnum):
    """What fails in a power cut or crash, and so which writes are lost."""

    POWER = "power"
    PLP = "plp"
    HOST_CRASH = "host-crash"
    QEMU_KILLED = "qemu-killed"
    GUEST_RESET = "guest-reset"
    STORAGE_ERROR = "storage-error"
    STORAGE_FULL = "storage-full"
    STORAGE_QUOTA = "storage-quota"
    STORAGE_SILENT = "storage-silent"

    @property
    def survivors(self) -> str:
        """What survives under this model, as a clause."""
        return {
            FailureModel.POWER: "everything before the last completed flush is durable, any subset "
            "of the rest is",
            FailureModel.PLP: "every write that the disk completed is durable, in the order of "
            "completion, and the host's memory is gone",
            FailureModel.HOST_CRASH: "every write that the disk completed survives, in the order "
            "of completion, and the host's memory is gone",
            FailureModel.QEMU_KILLED: "every write that QEMU handed to the kernel survives, in the "
            "order of completion, and QEMU's memory is gone",
            FailureModel.GUEST_RESET: "every acknowledged write survives, because QEMU and the "
            "host do",
            FailureModel.STORAGE_ERROR: "every write that the storage did not refuse survives, and "
            "for a while it refuses all requests with EIO",
            FailureModel.STORAGE_FULL: "every write that the storage did not refuse survives, and "
            "until it has been grown it refuses writes to places without data (ENOSPC)",
            FailureModel.STORAGE_QUOTA: "every write that the storage did not refuse survives, and "
            "until its quota has been raised it refuses writes to places without data (EDQUOT)",
            FailureModel.STORAGE_SILENT: "every write survives, but for a while the storage "
            "answers no request",
        }[self]

    @property
    def failure(self) -> tuple[str, str]:
        """The failure as a noun: singular and plural."""
        return {
            FailureModel.HOST_CRASH: ("crash of the host", "crashes of the host"),
            FailureModel.QEMU_KILLED: ("kill of QEMU", "kills of QEMU"),
            FailureModel.GUEST_RESET: ("reset of the guest", "resets of the guest"),
            FailureModel.STORAGE_ERROR: ("error of the storage", "errors of the storage"),
            FailureModel.STORAGE_FULL: ("full storage", "full storage"),
            FailureModel.STORAGE_QUOTA: ("reached quota", "reached quotas"),
            FailureModel.STORAGE_SILENT: ("silent storage", "silent storage"),
        }.get(self, ("power cut", "power cuts"))

    @property
    def disk_reorders(self) -> bool:
        """True if the disk's own write cache is lost, so any subset of unflushed writes may be."""
        return self is FailureModel.POWER

    @property
    def tears(self) -> bool:
        """True if the write in flight may be half on the disk; a running disk completes it."""
        return self in (FailureModel.POWER, FailureModel.PLP)

    @property
    def fails_storage(self) -> bool:
        """True if nothing dies: the storage below the image fails, and is good again."""
        return self in (
            FailureModel.STORAGE_ERROR, FailureModel.STORAGE_FULL, FailureModel.STORAGE_QUOTA,
            FailureModel.STORAGE_SILENT,
        )  # fmt: skip

    @property
    def fills_storage(self) -> bool:
        """True if the storage below the image has no space left for new data."""
        return self in (FailureModel.STORAGE_FULL, FailureModel.STORAGE_QUOTA)

    @property
    def spares_the_host(self) -> bool:
        """True if the host's kernel survives, with its page cache and file systems."""
        return self in (FailureModel.QEMU_KILLED, FailureModel.GUEST_RESET) or self.fails_storage

    @property
    def spares_qemu(self) -> bool:
        """True if QEMU survives, with all that it holds in memory."""
        return self is FailureModel.GUEST_RESET


class HostDisk(StrEnum):
    """The disk below the host: whether its own write cache survives a power cut."""

    VOLATILE = "volatile"
    PLP = "plp"

    @property
    def model(self) -> FailureModel:
        """The failure model of a power cut above this disk."""
        return FailureModel.PLP if self is HostDisk.PLP else FailureModel.POWER

    @property
    def keeps_its_cache(self) -> bool:
        """True if a write that the disk completed survives without a flush."""
        return not self.model.disk_reorders

    @property
    def above(self) -> str:
        """A clause to put after `power cut`; empty for the default disk."""
        return " above a disk with power-loss protection" if self is HostDisk.PLP else ""


class CrashStates(Value):
    """The number of judged crash states, and how many of them had lost acknowledged writes.

    `all_judged` is True when every state that a power cut could leave was judged.
    """

    judged: int = 0
    lost: int = 0
    all_judged: bool = False

    @property
    def kept(self) -> bool | None:
        """True when no state lost acknowledged writes; None with too few states for a verdict."""
        if self.lost:
            return False
        return True if self.all_judged or self.judged >= FEWEST_STATES else None

    @property
    def most_losing(self) -> float:
        """The 95 % upper bound on the share of states with losses, when no judged state had any.

        The rule of three (Hanley and Lippman-Hand, JAMA 1983); 0 if all states were judged.
        """
        return 0.0 if self.all_judged else min(1.0, 3 / self.judged) if self.judged else 1.0

    def __add__(self, other: CrashStates) -> CrashStates:
        parts = [states for states in (self, other) if states.judged]
        return CrashStates(
            self.judged + other.judged,
            self.lost + other.lost,
            bool(parts) and all(states.all_judged for states in parts),
        )


class PathCrashes(Value):
    """The results of one path's power cuts, as `vdisklab powercut` stored them.

    `flushed` is for clients that wait for a flush (or write with FUA), `unflushed` for the client
    that expects every acknowledged write to be durable.
    """

    path: str
    flushed: CrashStates = CrashStates()
    unflushed: CrashStates = CrashStates()


class PowerCutOutcome(StrEnum):
    """Power-cut results of one path: for clients that flush, and for clients that never do."""

    KEPT_ALL = "kept-all"
    KEPT_FLUSHED = "kept-flushed"
    KEPT_FLUSHED_ONLY = "kept-flushed-only"
    KEPT_UNFLUSHED = "kept-unflushed"
    LOST_UNFLUSHED = "lost-unflushed"
    LOST_FLUSHED = "lost-flushed"

    @classmethod
    def of(cls, verdict: PathCrashes) -> PowerCutOutcome | None:
        """The outcome of both kinds of clients together; None where too few states were judged."""
        return {
            (None, None): None,
            (None, True): cls.KEPT_UNFLUSHED,
            (None, False): cls.LOST_UNFLUSHED,
            (True, None): cls.KEPT_FLUSHED,
            (True, True): cls.KEPT_ALL,
            (True, False): cls.KEPT_FLUSHED_ONLY,
        }.get((verdict.flushed.kept, verdict.unflushed.kept), cls.LOST_FLUSHED)


class DurabilityKind(StrEnum):
    """Whether data that the guest has flushed survives a power cut.

    BY_SERVER: a server says so, whose disks nobody on this host sees.
    """

    LOST_BY_CONSTRUCTION = "lost-by-construction"
    LOST_IN_TEST = "lost-in-test"
    KEPT_IN_TEST = "kept-in-test"
    BY_SERVER = "by-server"
    NOT_TESTED = "not-tested"

    @property
    def acceptable(self) -> bool:
        """False if flushed data is known to be lost.

        A path that was not tested, or for which a server answers, counts as durable.
        """
        return self not in (
            DurabilityKind.LOST_BY_CONSTRUCTION, DurabilityKind.LOST_IN_TEST,
        )  # fmt: skip


class Durability(Value):
    """`reason` names the part that drops flushes; `flush_free`: writes are durable without a flush.

    `states` counts those behind the verdict, or too few states for one; `tested` holds all
    power-cut results of the path above `disk`.
    """

    kind: Annotated[DurabilityKind, "what happens to flushed data, by rule or as tested here"]
    flush_free: Annotated[bool, "true when data are safe without a flush"]
    reason: Annotated[str | None, "what drops flushes"] = None
    states: CrashStates = CrashStates()
    tested: PathCrashes | None = None
    disk: HostDisk = HostDisk.VOLATILE
    outcome: Annotated[
        PowerCutOutcome | None,
        "what `vdisklab powercut` found on this host: `kept-flushed`: clients that never flush "
        "were not tested; `kept-flushed-only`: unflushed data were lost; `kept-unflushed`, "
        "`lost-unflushed`: flushing clients were not tested; null: not tested, or fewer than 20 "
        "states without judging all",
    ] = None
    below: Annotated[
        str | None,
        "for an image in a directory: the file system that it is on, whose power cuts count; null "
        "if that is not known",
    ] = None
    elsewhere: Annotated[
        tuple[PathCrashes, ...], "without a verdict: those of this image on other file systems"
    ] = ()
    versions: Annotated[str | None, HIDDEN] = None
    """Without a verdict, where power cuts with another kernel or QEMU are stored: those that count,
    such as `kernel 6.1.0-30 and QEMU 7.2.15`."""
    hosts: Annotated[tuple[str, ...], HIDDEN] = ()
    """Over hosts: those on which the path was cut."""


class CrashVerdicts(Value):
    """The stored knowledge about power cuts above a disk: the verdicts by `verdict_name`.

    `below` is the file system of the directory in which images without host layers lie: verdicts on
    it count for them; None if that is not known. `lost_below` says why all these paths lose flushed
    data below the image, whatever the disk is.

    `zfs_fuse` is True if the host's ZFS is known to be zfs-fuse and not the kernel's.
    `without_flushes` says why the file system below all these paths sends no flushes; a target that
    the user named is not on it. `flushless` are targets, as in paths, whose server offers no flush,
    `served` those that are devices of this host, but disks of a server. With `served_device` all
    these paths are on such a device.

    `stalls` is for how long operations held a guest's requests, for needs that go by them.
    """

    by_path: Mapping[str, PathCrashes] = field(default_factory=dict)
    disk: HostDisk = HostDisk.VOLATILE
    zfs_fuse: bool = False
    without_flushes: str | None = None
    lost_below: str | None = None
    flushless: frozenset[str] = frozenset()
    served: frozenset[str] = frozenset()
    served_device: bool = False
    below: str | None = None
    stalls: MeasuredStalls = field(default_factory=MeasuredStalls)
    storage: Mapping[tuple[str, FailureModel], str] = field(default_factory=dict)
    """What became of guests whose storage failed, by `storage_name` and failure."""
    other_versions: Mapping[str, str] = field(default_factory=dict)
    """By `verdict_name` of paths that were cut with another kernel or QEMU: those that count."""
    hosts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Over hosts: those on which a path was cut, by `verdict_name`."""

    def of(self, path: DiskPath) -> PathCrashes | None:
        """All that power cuts showed of a path; None without any."""
        found = [self.by_path[name] for name in self.names(path) if name in self.by_path]
        if len(found) < 2:
            return found[0] if found else None
        (a, b) = found
        return PathCrashes(a.path, a.flushed + b.flushed, a.unflushed + b.unflushed)

    def names(self, path: DiskPath) -> Iterator[str]:
        """The names of the verdicts that count for a path."""
        yield verdict_name(path)
        if is_in_directory(path) and self.below in set(LayerKind):
            yield verdict_name(_on(path, LayerKind(self.below)))

    def on_failing_storage(self, path: DiskPath, model: FailureModel) -> str | None:
        """What became of the guests of such a path when its storage failed; None if not judged."""
        if is_in_directory(path) and self.below in set(LayerKind):
            path = _on(path, LayerKind(self.below))
        return self.storage.get((storage_name(path, model), model))

    def on_hosts(self, path: DiskPath) -> tuple[str, ...]:
        """Over hosts: those on which the path was cut, in order."""
        return tuple(
            sorted({host for name in self.names(path) for host in self.hosts.get(name, ())})
        )

    def elsewhere(self, path: DiskPath) -> tuple[PathCrashes, ...]:
        """What power cuts showed of an image in a directory on file systems other than its own."""
        names = _names_elsewhere(path)
        return tuple(self.by_path[name] for name in names if name in self.by_path)

    def versions(self, path: DiskPath) -> str | None:
        """The kernel and QEMU that count, if the path was cut with others, on any file system."""
        names = (verdict_name(path), *_names_elsewhere(path))
        return next(filter(None, map(self.other_versions.get, names)), None)


def without_made(path: DiskPath) -> DiskPath:
    """The path without the way in which its disk was made, which decides nothing in a power cut."""
    return _without(path, "made")


def for_installed_qemu(path: DiskPath) -> DiskPath:
    """The path of one guest under the installed QEMU, for which a power cut is judged."""
    return _without(path, "made", "guests", "qemu")


def _without(path: DiskPath, *names: str) -> DiskPath:
    bus = path.attachment
    options = tuple(option for option in bus.options if option[0] not in names)
    return replace(path, attachment=replace(bus, options=options))


def verdict_name(path: DiskPath) -> str:
    """The name under which verdicts on a path are looked up: writeback is the default's meaning."""
    return without_made(path).spelled_out.without_error_policy.canonical


_REFUSE_AT_ONCE = frozenset({LayerKind.EXT4, LayerKind.XFS, LayerKind.BTRFS})
"""Host layers that answer like the test's storage once they are full (ENOSPC) or at their quota
(EDQUOT): at once. A thin pool lets a write wait for 60 s first, and a ZFS data set is full at its
quota (docs/failing.md, "Thin storage")."""


def layers_when_full(path: DiskPath) -> tuple[Layer, ...]:
    """The host layers that answer in their own way when they are full; the test builds none."""
    return tuple(layer for layer in path.layers if layer.kind not in _REFUSE_AT_ONCE)


def storage_name(path: DiskPath, model: FailureModel) -> str:
    """The name under which verdicts on failing storage are looked up: the error policy decides, and
    on full storage the host layers that answer in their own way. Other failures are those of the
    image's own file, whatever is below it."""
    layers = layers_when_full(path) if model.fills_storage else ()
    return replace(path.spelled_out, layers=layers).canonical


def is_in_directory(path: DiskPath) -> bool:
    """True for an image in a directory, whose file system the path does not name."""
    return path.image is not None and not path.layers


def _on(path: DiskPath, kind: LayerKind) -> DiskPath:
    return replace(path, layers=(Layer(kind),))


@lru_cache(maxsize=1 << 12)  # an answer asks for each of its paths several times
def _names_elsewhere(path: DiskPath) -> tuple[str, ...]:
    """The names of an image in a directory on each file system; none for other paths."""
    if not is_in_directory(path):
        return ()
    return tuple(verdict_name(_on(path, kind)) for kind in LayerKind if kind.facts.holds_files)


def durability(path: DiskPath, verdicts: CrashVerdicts) -> Durability:
    """The durability of a path: by a rule if one applies, else by the stored power cuts.

    Losses of unflushed data count only if the path needs no flush.
    """
    bottom = str(path.layers[0]) if path.layers else ""
    if verdicts.lost_below is not None:
        here: str | None = verdicts.lost_below
    elif verdicts.zfs_fuse and is_cut_short(path):
        here = CUT_SHORT
    elif verdicts.without_flushes and not (
        verdicts.disk.keeps_its_cache or in_memory(path.layers) or path.target is not None
    ):
        here = verdicts.without_flushes
    else:
        here = NO_FLUSH_OFFERED if bottom in verdicts.flushless else None
    tested = verdicts.of(path)
    served = bottom in verdicts.served or verdicts.served_device
    found = _durability(path, tested, verdicts.disk, here, served)
    untested = found.kind is DurabilityKind.NOT_TESTED
    if untested and verdicts.other_versions:
        found = replace(found, versions=verdicts.versions(path))
    if verdicts.hosts:
        found = replace(found, hosts=verdicts.on_hosts(path))
    if not is_in_directory(path):
        return found
    return replace(
        found,
        below=verdicts.below,
        elsewhere=verdicts.elsewhere(path) if untested and tested is None else (),
    )


@lru_cache(maxsize=1 << 16)  # an answer asks for each of its paths up to four times
def _durability(
    path: DiskPath, tested: PathCrashes | None, disk: HostDisk, here: str | None, served: bool
) -> Durability:
    """`here` is why flushes of this path are dropped on this host; None if nothing drops them."""
    outcome = None if tested is None else PowerCutOutcome.of(tested)
    drop = next(_dropped_flushes(path, disk), None)
    reason = here if drop is None else drop.reason
    if reason is not None:
        lost = DurabilityKind.LOST_BY_CONSTRUCTION
        return Durability(lost, False, reason, tested=tested, disk=disk, outcome=outcome)
    flush_free = needs_no_flush(path, disk)
    verdict = tested or PathCrashes(path.canonical)
    states = verdict.flushed + verdict.unflushed if flush_free else verdict.flushed
    kind = _TESTED[states.kept]
    if kind is DurabilityKind.NOT_TESTED and (served or promise_of(path) is not None):
        kind = DurabilityKind.BY_SERVER
    return Durability(kind, flush_free, None, states, tested, disk, outcome)


def promise_of(path: DiskPath) -> str | None:
    """When a server says that a write with cache=none is stable; None for a local disk."""
    return None if path.target is None else path.target.promise


def what_server_keeps(path: DiskPath) -> str:
    """That nobody on this host knows what a server keeps in a power cut, and where to see it, as a
    clause."""
    look = "" if path.target is None else path.target.look
    look = look or "whoever runs it knows if its cache survives a power cut"
    return f"what the server keeps is unknown here: {look}"


def promise_of_device(seen: Mapping[str, str]) -> str | None:
    """When the server of a block device says that a write is stable; None for a local device.

    `seen` are the checks of a run. The kernel sends a flush only to a device that claims a write
    cache (block/blk-flush.c).
    """
    if seen.get("host.device.transport", "").rpartition(" ")[2] not in _SERVED:
        return None
    claims_none = seen.get("host.device.write_cache") == "write through"
    return CLAIMED if claims_none else AFTER_A_FLUSH


def known_durability(cell: MeasuredCell, verdicts: CrashVerdicts) -> Durability | None:
    """The durability of a cell's path; None on the host and for a free name."""
    path = cell.path
    return None if path is None or path.on_host else durability(path, verdicts)


_TESTED = {
    None: DurabilityKind.NOT_TESTED,
    True: DurabilityKind.KEPT_IN_TEST,
    False: DurabilityKind.LOST_IN_TEST,
}


class FlushDropper(StrEnum):
    """The part of a path that loses flushed data: most acknowledge a flush too early.

    TABLES: the flush reaches the disk, but the image's own tables do not survive the cut.
    """

    IMAGE = "image format"
    TABLES = "tables of the image"
    CACHE_MODE = "cache mode"
    DEVICE = "device"
    LAYER = "host layer"


class DroppedFlushes(Value):
    """One part of a path that drops flushes, and how; `remedy` is a sentence that prevents it."""

    dropper: FlushDropper
    reason: str
    remedy: str = ""


def dropped_flushes(
    path: DiskPath, disk: HostDisk = HostDisk.VOLATILE
) -> tuple[DroppedFlushes, ...]:
    """All parts of the path that lose flushed data: image, cache mode, layers from the bottom,
    device.

    cache=unsafe drops the guest's flushes (qemu(1)); tmpfs lives in memory; ZFS with sync=disabled
    acknowledges before data is stable (zfsprops(7)); with barrier=0 and nobarrier the device's
    cache is not flushed, which a disk that keeps its cache does not need (ext4(5), btrfs(5)).
    """
    return tuple(_dropped_flushes(path, disk))


def _dropped_flushes(path: DiskPath, disk: HostDisk) -> Iterator[DroppedFlushes]:
    if not path.has_storage:
        yield DroppedFlushes(FlushDropper.IMAGE, NOTHING_STORED)
    for lossy in _LOSSY_IMAGES:
        if path.image is not None and lossy.matches(path.image):
            yield DroppedFlushes(FlushDropper.TABLES, lossy.reason, lossy.remedy)
    needed = not (disk.keeps_its_cache and writes_in_place(path))
    if path.cache.no_flush and needed:
        yield DroppedFlushes(FlushDropper.CACHE_MODE, f"cache mode {path.cache} drops flushes")
    below = tuple(_dropped_below(path, disk))
    yield from below
    if forgets_fua(path) and needed:
        # Below a layer that drops them, or under cache=unsafe, a flush of each write is lost, too.
        alone = not below and not path.cache.no_flush and path.has_storage
        prevented = "; write_cache=off prevents this" if alone else ""
        yield DroppedFlushes(
            FlushDropper.DEVICE,
            "QEMU's NVMe device acknowledges FUA writes, which journaling file systems use, "
            f"before they are durable{prevented}",
        )


def _dropped_below(path: DiskPath, disk: HostDisk) -> Iterator[DroppedFlushes]:
    """The host layers that drop flushes, from the bottom."""
    if in_memory(path.layers):
        yield DroppedFlushes(FlushDropper.LAYER, f"{path.layers[0].kind} is memory")
    for layer in path.layers:
        if layer.option("barrier") is False and not disk.keeps_its_cache:
            yield DroppedFlushes(FlushDropper.LAYER, f"{layer} sends no flushes to the disk")
        if layer.option("sync") == "disabled":
            yield DroppedFlushes(
                FlushDropper.LAYER, f"{layer} acknowledges flushes without writing"
            )


class _LossyImage(Value):
    """An image format, or one of its switches, with which power cuts lost flushed data."""

    format: ImageFormat
    option: str | None
    reason: str
    remedy: str

    def matches(self, image: Image) -> bool:
        """True for an image of this format that has the switch on."""
        switched = self.option is None or bool(image.option(self.option))
        return image.format is self.format and switched


_LOSSY_IMAGES = (
    _LossyImage(ImageFormat.VMDK, None, _TWICE.format("vmdk"), _CONVERT),
    _LossyImage(ImageFormat.VDI, None, _TWICE.format("vdi"), _CONVERT),
    _LossyImage(
        ImageFormat.QCOW2,
        "lazy_refcounts",
        "QEMU's repair of a qcow2 image with lazy_refcounts=on may lose data after a power cut",
        "Turn it off while the guest is stopped: `qemu-img amend -o lazy_refcounts=off FILE`.",
    ),
)
"""What power cuts with QEMU 7.2.22 and 10.0.2 have shown to lose flushed data above every disk and
in every cache mode; docs/powercut.md, "Measured", has the commands that show it without a cut. All
verbs read these rows: what is proved lossy once is added here."""


def needs_no_flush(path: DiskPath, disk: HostDisk) -> bool:
    """True if an acknowledged write is durable before any flush."""
    return not path.offers_write_cache or (disk.keeps_its_cache and writes_in_place(path))


def writes_in_place(path: DiskPath) -> bool:
    """True if an acknowledged write is on the disk, and nothing else is needed to find it again.

    O_DIRECT bypasses the page cache. All blocks were written before, so neither QEMU nor the host
    has to note a new place: not on copy-on-write layers, below snapshots, or where a discard frees
    blocks. ext4 with data=journal has no O_DIRECT (ext4(5)).
    """
    attachment = path.attachment
    return (
        path.cache.direct
        and bool(path.layers)
        and all(layer.kind.facts.in_place for layer in path.layers)
        and all(layer.option("data") != "journal" for layer in path.layers)
        and "unmap" not in (attachment.option("discard"), attachment.option("detect_zeroes"))
        and (path.image is None or _has_fixed_blocks(path.image))
    )


def _has_fixed_blocks(image: Image) -> bool:
    is_judged = image.format in (ImageFormat.RAW, ImageFormat.QCOW2) and not image.has_data_file
    return is_judged and not image.is_made_anew


def forgets_fua(path: DiskPath) -> bool:
    """True when fsync(2) in the guest may return too early: NVMe with a write cache.

    The device announces FUA to Linux and does not pass the flag on. Observed in power cuts with
    QEMU 7.2.22 (docs/powercut.md); later versions have the same code (hw/nvme/ctrl.c, with the
    fixes of 9.2).
    """
    return path.attachment.bus is Bus.NVME and path.offers_write_cache


def is_cut_short(path: DiskPath) -> bool:
    """True if zfs-fuse 0.7.0 may shorten the image's file after a crash.

    In the file's last record (128 KiB), it takes the end of a logged write of more than 32 KiB for
    the end of the file (docs/powercut.md; fixed in 0.7.1). A raw image is never cut short, because
    it ends where a record ends.
    """
    image = path.image
    return (
        image is not None
        and image.format is not ImageFormat.RAW
        and image.is_made_anew
        and any(layer.kind is LayerKind.ZFS for layer in path.layers)
    )
