"""The segments of a disk path: their names, what each means to QEMU, and their options."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any, Self

from vdisklab.path.architecture import GUEST
from vdisklab.path.options import (
    Choice,
    MountOptions,
    Name,
    Number,
    OptionValue,
    Order,
    Percent,
    Schema,
    Size,
    Switch,
)
from vdisklab.units import MIB
from vdisklab.value import Value, field

_RAIDZ_PADDING = 2.0
"""RAID-Z rounds every small block up to a whole number of parity groups: with 8 KiB on sectors of
4 KiB it stores one byte for two (vdev_raidz_asize)."""

_ZFS_OPTIONS: Schema = {
    "compression": Choice(("off", "on", "lz4", "lzjb", "zstd", "gzip"), default="off"),
    "sync": Choice(("standard", "always", "disabled"), default="standard"),
    "logbias": Choice(("latency", "throughput"), default="latency"),
    "primarycache": Choice(("all", "metadata", "none"), default="all"),
    "ashift": Number(9, 16, default=12),
    "raid": Choice(("single", "mirror", "raidz1", "raidz2"), default="single"),
}

_AT: Schema = {"at": Name()}
_AT_ONCE = "at once, if the server exports it with `sync`"
_LOOK_AT_EXPORTS = (
    "`exportfs -v` there shows it; with `async`, not even what was flushed is on its disk"
)
"""Of an NFS server (exports(5))."""
_LOOK_AT_POOLS = (
    "`ceph osd pool ls detail` there shows it; with `min_size 1`, a write may be on one disk alone"
)
"""Of a Ceph cluster: the number of replicas without which the pool refuses requests."""
_LOOK_AT_SAMBA = "`testparm -sv` there shows it; with `strict sync = No`, Samba ignores flushes"
"""Of a Samba server (smb.conf(5)); Windows flushes."""
_LOOK_AT_BRICKS = "`gluster volume info` there names the bricks, whose file systems keep the data"
_LOOK_AT_NBD = (
    "`pgrep -af nbd` there shows it; qemu-nbd with --cache=unsafe and nbdkit's memory plugin lose "
    "what was flushed"
)
_LOOK_AT_ISCSI = (
    "`targetcli ls /backstores` there shows it (of tgt `tgt-admin --show`); a ramdisk, or a file "
    "in memory, loses everything"
)
_LOOK_AT_SFTP = "if QEMU's log says `does not support fsync`, QEMU ignores flushes"
"""Of an SFTP server (QEMU, block/ssh.c: unsafe_flush_warning)."""
SHARED_MEMORY = "memory-backend=shared"
"""The machine's option that makes the object `shared` the guest's memory."""

HOST = "host"
"""The last segment of a path without a guest: the workload runs on the host."""

_ENCRYPT: Schema = {"encrypt": Choice(("off", "luks"), default="off")}
MOST_GUESTS = 999
_ERRORS: Schema = {
    "werror": Choice(("enospc", "report", "stop", "ignore")),
    # for reads QEMU has no `enospc` (block/block-backend.c, blk_get_error_action)
    "rerror": Choice(("report", "stop", "ignore"), default="report"),
}
"""What QEMU does when a request of the guest fails. NVMe and vhost-user devices have no such
properties: they report every error (hw/nvme/ctrl.c, block/export/vhost-user-blk-server.c)."""

ERROR_POLICY = tuple(_ERRORS)
"""The options that say what happens when a request fails."""

_BLOCK_SIZES: Schema = {"block_size": Choice(("512", "4096"))}
_VIRTIO: Schema = {
    "iothread": Switch(),
    "iothreads": Number(1, 64),
    "poll": Number(0, 999_999_999, zero="off"),
    "aio_max_batch": Number(1, 1024),
    "queues": Number(1, 64),
    "queue_size": Number(2, 1024, power_of_two=True),
    "packed": Switch(),
    "discard_granularity": Size(512, 32 << 20),
    **_BLOCK_SIZES,
}

_SERVED = ("iothread", "poll", "aio_max_batch", "queues", "queue_size")
"""The virtio options that a disk served by qemu-storage-daemon also has.

The daemon offers no packed rings (vu_blk_get_features in block/export/vhost-user-blk-server.c).
"""

_SHARE: Schema = {"qemu": Name(), "guest_mount": MountOptions()}


class Members(Value):
    """How a layer uses several disks: the `fewest` that it accepts, and how many hold data."""

    fewest: int
    data: Callable[[int], float] = float


class KernelPart(Value):
    """The part of the kernel that a layer needs: a file system, or a driver (name and module).

    `mend` tells how to get it if a different kernel is not the answer.
    """

    filesystem: str | None = None
    driver: tuple[str, str] | None = None
    mend: str | None = None


class TargetFacts(Value):
    """Storage that the user has and names with --target, in place of what vdisklab builds.

    `example` is a place of this kind. `promise` says when a write of a guest with cache=none is
    stable, as a sentence's end; None if the device itself decides, as for a local disk. With
    `by_qemu` one of QEMU's own drivers opens it, so that the host's kernel never sees it; QEMU's
    driver is then `driver`, in the package `package` of Debian. `takes_format`: it is a disk on
    which an image format may be, and a path says which, even raw. `schemes` begin the URLs of its
    kind; `filesystems` are those of mountinfo by which a mounted directory is known to be of it.
    `look` says where on the server to see what it keeps, as a clause with a command or a setting.
    """

    example: str
    promise: str | None = None
    driver: str | None = None
    takes_format: bool = False
    schemes: tuple[str, ...] = ()
    filesystems: tuple[str, ...] = ()
    look: str = ""

    @property
    def by_qemu(self) -> bool:
        """True if one of QEMU's drivers opens it, so the host's kernel never sees it."""
        return self.driver is not None


class RecoveryFacts(Value):
    """How a file system is judged after a power cut: its kernel's mount replays its journal."""

    repairs: tuple[tuple[tuple[str, ...], tuple[int, ...]], ...] = ()
    """Commands that repair it, with the exit codes of a repaired one; the device comes last."""
    alone: bool = False
    """True if the kernel identifies it by its UUID, which all states share: one state at a time."""


class LayerFacts(Value, kw_only=True):
    """The facts of a host layer that are known without building it; `storage.stack` has its
    builder.
    """

    options: Schema = field(default_factory=dict)
    holds_files: bool = False
    divides: bool = False
    """True if it can give each guest a block device."""
    in_memory: bool = False
    """True if no disk is below it."""
    members: Mapping[OptionValue | None, Members] = field(default_factory=dict)
    """Its arrangements on several disks, by the value of the option `arranged_by`; empty if it uses
    one disk.
    """
    arranged_by: str | None = None
    room: int = 16 * MIB
    """Bytes of its logs and metadata on an empty device."""
    share: float = 1.0
    """The factor for what grows with the device."""
    in_place: bool = False
    """True if it overwrites blocks where they are."""
    has_fallocate: bool = False
    makes_snapshots: bool = False
    passes_discards: bool = False
    hides_disk: bool = False
    """True if the disk below cannot be found from the device that it makes."""
    own_cache: str | None = None
    """For users: the cache that it has for files instead of the host's page cache."""
    twice: str | None = None
    """Why the layer is never put on itself."""
    kernel: KernelPart | None = None
    """What a kernel needs for it."""
    device: str = "/dev/vg/{}"
    """For users: where the layer's device usually is."""
    owner: str | None = None
    """The prefix of its devices' names in the kernel."""
    recovery: RecoveryFacts | None = None
    """Set for a file system whose recovery after a power cut vdisklab knows."""
    packages: tuple[str, ...] = ()
    """The Debian packages with its programs, for the lab."""
    target: TargetFacts | None = None
    """Set for storage that the user names (`--target`): it is the lowest layer, and nothing is
    built for it.
    """

    def owns(self, device: str) -> bool:
        """True for a device of this layer, by device-mapper's uuid (dm-uevent), else its name."""
        return self.owner is not None and device.startswith(self.owner)


_ZFS_MEMBERS: Mapping[OptionValue | None, Members] = {
    "single": Members(1),
    "mirror": Members(2, lambda _disks: 1.0),
    "raidz1": Members(3, lambda disks: (disks - 1) / _RAIDZ_PADDING),
    "raidz2": Members(4, lambda disks: (disks - 2) / _RAIDZ_PADDING),
}
"""zpoolconcepts(7)."""


def _target(
    *target: Any,  # noqa: ANN401
    holds_files: bool = False,
    makes_snapshots: bool = False,
    **more: Any,  # noqa: ANN401
) -> LayerFacts:
    """The facts of a kind of target: `target` and `more` are its `TargetFacts`."""
    facts = TargetFacts(*target, **more)
    return LayerFacts(
        options=_AT,
        holds_files=holds_files,
        makes_snapshots=makes_snapshots,
        room=0,
        hides_disk=facts.promise is not None,
        target=facts,
    )


class LayerKind(StrEnum):
    """Host layers, as users name them, each with its row of facts.

    Room for logs and metadata was read from empty file systems, made by mkfs programs of 2022 to
    2025, and rounded up. mkfs.xfs refuses less than 300 MiB and writes a 64 MiB log; ext4's journal
    grows with the device to 1 GiB; btrfs keeps two copies of its metadata and a reserve. A thin
    pool of LVM has metadata and a spare copy. ZFS keeps 1/32 of a pool to itself, 128 MiB at least
    (spa_get_slop_space), and a volume reserves room for its own metadata. All others get 16 MiB,
    the size of a header of LUKS2 (cryptsetup's luks2_json_format.c).
    """

    facts: LayerFacts

    EXT4 = (
        "ext4",
        LayerFacts(
            options={
                "barrier": Switch(default=True),
                "data": Choice(("ordered", "writeback", "journal"), default="ordered"),
            },
            holds_files=True,
            room=96 * MIB,
            share=1.06,
            in_place=True,
            has_fallocate=True,
            kernel=KernelPart("ext4"),
            recovery=RecoveryFacts(((("e2fsck", "-f", "-y"), (0, 1, 2, 3)),)),
            packages=("e2fsprogs",),
        ),
    )
    XFS = (
        "xfs",
        LayerFacts(
            options={"reflink": Switch(default=True)},
            holds_files=True,
            room=320 * MIB,
            share=1.02,
            in_place=True,
            has_fallocate=True,
            kernel=KernelPart("xfs"),
            recovery=RecoveryFacts(((("xfs_repair",), (0,)), (("xfs_repair", "-L"), (0,)))),
            packages=("xfsprogs",),
        ),
    )
    BTRFS = (
        "btrfs",
        LayerFacts(
            options={
                "barrier": Switch(default=True),
                "datacow": Switch(default=True),
                "compress": Choice(("no", "lzo", "zlib", "zstd"), default="no"),
            },
            holds_files=True,
            room=512 * MIB,
            share=1.08,
            has_fallocate=True,
            makes_snapshots=True,
            hides_disk=True,
            kernel=KernelPart("btrfs"),
            recovery=RecoveryFacts(
                ((("btrfs", "check", "--repair", "--force"), (0,)),), alone=True
            ),
            packages=("btrfs-progs",),
        ),
    )
    ZFS = (
        "zfs",
        LayerFacts(
            options={
                "recordsize": Size(512, 16 << 20),
                # since OpenZFS 2.3 (zfsprops(7)); not of volumes
                "direct": Choice(("standard", "always", "disabled")),
                **_ZFS_OPTIONS,
            },
            holds_files=True,
            own_cache="the ARC",
            members=_ZFS_MEMBERS,
            arranged_by="raid",
            room=192 * MIB,
            share=1.10,
            makes_snapshots=True,
            hides_disk=True,
            kernel=KernelPart(
                "zfs", mend="install ZFS's kernel module (on Debian: zfs-dkms, from contrib)"
            ),
            recovery=RecoveryFacts(alone=True),
            packages=("zfs-dkms", "zfsutils-linux"),
        ),
    )
    ZVOL = (
        "zvol",
        LayerFacts(
            options={"volblocksize": Size(512, 128 << 10), **_ZFS_OPTIONS},
            divides=True,
            members=_ZFS_MEMBERS,
            arranged_by="raid",
            room=192 * MIB,
            share=1.10,
            makes_snapshots=True,
            device="/dev/zvol/pool/{}",
        ),
    )
    LVM = (
        "lvm",
        LayerFacts(
            divides=True,
            members={None: Members(1)},
            in_place=True,
            makes_snapshots=True,
            passes_discards=True,
            kernel=KernelPart(driver=("device-mapper", "dm_mod")),
            owner="LVM-",
            packages=("lvm2", "thin-provisioning-tools"),
        ),
    )
    LVMTHIN = (
        "lvmthin",
        LayerFacts(
            divides=True,
            members={None: Members(1)},
            room=48 * MIB,
            share=1.02,
            makes_snapshots=True,
        ),
    )
    MD = (
        "md",
        LayerFacts(
            options={"level": Choice(("0", "1", "5", "10"), default="1")},
            members={  # md(4)
                "0": Members(2),
                "1": Members(2, lambda _disks: 1.0),
                "5": Members(3, lambda disks: disks - 1),
                "10": Members(4, lambda disks: disks / 2),
            },
            arranged_by="level",
            kernel=KernelPart(driver=("md", "md_mod")),
            device="/dev/md/{}",
            owner="md",
            packages=("mdadm",),
        ),
    )
    LUKS = (
        "luks",
        LayerFacts(
            options={
                "sector": Choice(("512", "4096")),
                "discard": Switch(),
                "workqueues": Switch(default=True),
            },
            in_place=True,
            twice="encrypts everything twice",
            kernel=KernelPart(driver=("dm_crypt", "dm_crypt")),
            device="/dev/mapper/{}",
            owner="CRYPT-LUKS",
            packages=("cryptsetup-bin",),
        ),
    )
    TMPFS = (
        "tmpfs",
        LayerFacts(
            options={"huge": Choice(("never", "always", "within_size", "advise"), default="never")},
            holds_files=True,
            in_memory=True,
            hides_disk=True,
            kernel=KernelPart("tmpfs"),
        ),
    )
    ZRAM = (
        "zram",
        LayerFacts(
            options={
                "algorithm": Choice(("lzo", "lzo-rle", "lz4", "lz4hc", "zstd", "deflate", "842"))
            },
            in_memory=True,
            kernel=KernelPart(driver=("zram", "zram"), mend="modprobe zram num_devices=0"),
            device="/dev/zram0",
        ),
    )

    DIR = "dir", _target("/srv/images", holds_files=True)
    NFS = (
        "nfs",
        _target(
            "/mnt/nas/images",
            _AT_ONCE,
            holds_files=True,
            filesystems=("nfs", "nfs4"),
            look=_LOOK_AT_EXPORTS,
        ),
    )
    CEPHFS = (
        "cephfs",
        _target(
            "/mnt/cephfs", "after a flush", holds_files=True, makes_snapshots=True,
            filesystems=("ceph", "fuse.ceph"), look=_LOOK_AT_POOLS,
        ),
    )  # fmt: skip
    SMB = (
        "smb",
        _target(
            "/mnt/share", "when the server says so after a flush", holds_files=True,
            filesystems=("cifs", "smb3"), look=_LOOK_AT_SAMBA,
        ),
    )  # fmt: skip
    GLUSTERFS = (
        "glusterfs",
        _target(
            "/mnt/gluster",
            "after a flush",
            holds_files=True,
            filesystems=("fuse.glusterfs",),
            look=_LOOK_AT_BRICKS,
        ),
    )
    DEVICE = "device", _target("/dev/sdb")
    KRBD = (
        "krbd",
        _target("/dev/rbd0", "when the OSDs have it", makes_snapshots=True, look=_LOOK_AT_POOLS),
    )
    NBD = (
        "nbd",
        _target(
            "nbd://10.0.0.5/export", "when the server says so after a flush", "nbd",
            takes_format=True, schemes=("nbd", "nbd+unix", "nbds", "nbds+unix"), look=_LOOK_AT_NBD,
        ),
    )  # fmt: skip
    ISCSI = (
        "iscsi",
        _target(
            "iscsi://10.0.0.5/iqn.2001-04.com.example:disk/1",
            "when the server says so after a flush, or at once if it claims no cache", "iscsi",
            takes_format=True, schemes=("iscsi",), look=_LOOK_AT_ISCSI,
        ),
    )  # fmt: skip
    LIBNFS = (
        "libnfs",
        _target(
            "nfs://nas/export/images", "after a flush, which is a COMMIT", "nfs",
            holds_files=True, schemes=("nfs",), look=_LOOK_AT_EXPORTS,
        ),
    )  # fmt: skip
    RBD = (
        "rbd",
        _target(
            "rbd:POOL/IMAGE", "when the OSDs have it", "rbd",
            makes_snapshots=True, schemes=("rbd",), look=_LOOK_AT_POOLS,
        ),
    )  # fmt: skip
    SSH = (
        "ssh",
        _target(
            "ssh://user@nas/srv/images", "after a flush, which is an fsync on the server", "ssh",
            holds_files=True, schemes=("ssh",), look=_LOOK_AT_SFTP,
        ),
    )  # fmt: skip

    def __new__(cls, name: str, facts: LayerFacts = LayerFacts()) -> Self:
        """The member of a row of facts, found by its name alone."""
        member = str.__new__(cls, name)
        member._value_ = name
        member.facts = facts
        return member


class ImageFormat(StrEnum):
    """Image formats; `null` is QEMU's null-co driver, which stores nothing and shows the maximum
    speed."""

    RAW = "raw"
    QCOW2 = "qcow2"
    VMDK = "vmdk"
    VDI = "vdi"
    VHDX = "vhdx"
    QED = "qed"
    NULL = "null"

    @property
    def is_file(self) -> bool:
        """True when an image file has to be created."""
        return self is not ImageFormat.NULL


class CacheMode(StrEnum):
    """QEMU's cache modes, and `default`, which passes none, so QEMU chooses.

    According to qemu(1), `-drive cache=`, each mode sets cache.writeback, cache.direct and
    cache.no-flush. With -blockdev, cache.writeback is the device's `write-cache`. `directunsafe`
    has no word in QEMU: it is `unsafe` with O_DIRECT, so it does not fill the host's page cache.
    """

    DEFAULT = "default"
    NONE = "none"
    WRITEBACK = "writeback"
    WRITETHROUGH = "writethrough"
    DIRECTSYNC = "directsync"
    UNSAFE = "unsafe"
    DIRECTUNSAFE = "directunsafe"

    @property
    def direct(self) -> bool:
        """cache.direct: the image is opened with O_DIRECT."""
        return self in (CacheMode.NONE, CacheMode.DIRECTSYNC, CacheMode.DIRECTUNSAFE)

    @classmethod
    def choices(cls, admits: Callable[[CacheMode], bool], last: str = "or") -> str:
        """The modes that `admits` accepts, for messages; QEMU's own choice is not one of them."""
        modes = [mode for mode in cls if admits(mode) and mode is not cls.DEFAULT]
        return f"{', '.join(modes[:-1])} {last} {modes[-1]}"

    @property
    def no_flush(self) -> bool:
        """cache.no-flush: QEMU ignores the guest's flushes."""
        return self in (CacheMode.UNSAFE, CacheMode.DIRECTUNSAFE)

    @property
    def write_cache(self) -> bool:
        """cache.writeback: a write is durable only after the guest's next flush."""
        return self not in (CacheMode.WRITETHROUGH, CacheMode.DIRECTSYNC)

    @property
    def spelled_out(self) -> CacheMode:
        """The mode itself; for `default` the mode that QEMU uses without one."""
        return CacheMode.WRITEBACK if self is CacheMode.DEFAULT else self


class Bus(StrEnum):
    """How the guest sees the disk."""

    VIRTIO = "virtio"
    SCSI = "scsi"
    IDE = "ide"
    SATA = "sata"
    NVME = "nvme"
    USB = "usb"
    VHOSTUSER = "vhostuser"
    VIRTIOFS = "virtiofs"
    P9 = "9p"

    @property
    def shares_directory(self) -> bool:
        """True if the guest sees a host directory instead of a disk."""
        return self in (Bus.VIRTIOFS, Bus.P9)

    @property
    def is_served(self) -> bool:
        """True if qemu-storage-daemon opens the image and serves it to QEMU's device."""
        return self is Bus.VHOSTUSER

    @property
    def opened_outside_qemu(self) -> bool:
        """True if another process opens the image or directory, and maps the guest's memory."""
        return self in (Bus.VHOSTUSER, Bus.VIRTIOFS)

    @property
    def hot_pluggable(self) -> bool:
        """False if QEMU must be restarted for each disk or directory.

        QEMU takes the directory of 9p on its command line only (-fsdev); virtiofs is treated alike.
        """
        return self not in (Bus.IDE, Bus.SATA) and not self.shares_directory

    @property
    def machine(self) -> str:
        """QEMU's machine type for guests with this bus, and its options."""
        machine = GUEST.machines[self]
        return f"{machine},{SHARED_MEMORY}" if self.opened_outside_qemu else machine


class Aio(StrEnum):
    """QEMU's interface to the host's kernel for I/O (`aio=` of the file driver)."""

    THREADS = "threads"
    NATIVE = "native"
    IO_URING = "io_uring"


class WriteCache(StrEnum):
    """The option `write_cache` of a bus; `mode` derives it from the cache mode, as -drive does."""

    MODE = "mode"
    ON = "on"
    OFF = "off"
    AUTO = "auto"

    def qemu_property(self, mode: CacheMode) -> WriteCache | None:
        """The value of the device's `write-cache`; None leaves it out, which means `auto`."""
        if self is not WriteCache.MODE:
            return self
        if mode is CacheMode.DEFAULT:
            return None
        return WriteCache.ON if mode.write_cache else WriteCache.OFF

    def is_offered(self, mode: CacheMode) -> bool:
        """True when writes wait for a flush; without a write cache QEMU flushes after each write.

        `auto` takes the block node's own setting, which is on for every node of -blockdev.
        """
        return self.qemu_property(mode) is not WriteCache.OFF


class GuestFsKind(StrEnum):
    """File systems that a guest can make on the measured disk, for programs that use files."""

    EXT2 = "ext2"
    EXT3 = "ext3"
    EXT4 = "ext4"
    XFS = "xfs"
    BTRFS = "btrfs"


class PageCache(StrEnum):
    """The page cache before each measurement: `warm` holds the whole image, `cold` none of it."""

    COLD = "cold"
    WARM = "warm"
    BYPASSED = "bypassed"


FORMAT_OPTIONS: Mapping[ImageFormat, Schema] = {
    ImageFormat.RAW: {
        "preallocation": Choice(("off", "falloc", "full"), default="full"),
        **_ENCRYPT,
    },
    ImageFormat.QCOW2: {
        "preallocation": Choice(("off", "metadata", "falloc", "full"), default="full"),
        "cluster_size": Size(512, 2 << 20, default=64 << 10),
        "lazy_refcounts": Switch(),
        "compat": Choice(("0.10", "1.1"), default="1.1"),
        "extended_l2": Switch(),
        "data_file": Choice(("off", "on", "raw"), default="off"),
        "backing": Number(0, 200, default=0),
        "overlay": Percent(default=10),
        "compression": Choice(("off", "zlib", "zstd"), default="off"),
        "snapshots": Number(0, 100, default=0),
        "bitmaps": Number(0, 100, default=0),
        "l2_cache": Size(512, 1 << 40, power_of_two=False),
        "refcount_cache": Size(512, 1 << 40, power_of_two=False),
        # since QEMU 8.1 (qapi/block-core.json, BlockdevOptionsQcow2)
        "discard_no_unref": Switch(),
        **_ENCRYPT,
    },
    **{form: {} for form in ImageFormat if form not in ("raw", "qcow2")},
}


_ANY_BUS: Schema = {
    "aio": Choice(tuple(Aio), default=Aio.THREADS.value),
    "write_cache": Choice(tuple(WriteCache), default=WriteCache.MODE.value),
    "discard": Choice(("ignore", "unmap"), default="ignore"),
    "detect_zeroes": Choice(("off", "on", "unmap"), default="off"),
    "throttle_iops": Number(1, 999_999_999),
    "throttle_bps": Size(1, 1 << 50, power_of_two=False),
    "cgroup_iops": Number(1, 999_999_999),
    "cgroup_bps": Size(1, 1 << 50, power_of_two=False),
    "qemu": Name(),
    "guest_scheduler": Choice(("none", "mq-deadline", "kyber", "bfq")),
    "guest_fs": Choice(tuple(GuestFsKind)),
    "guest_mount": MountOptions(),
    "guests": Number(1, MOST_GUESTS),
    "during": Order(),
    "made": Order(),
}


BUS_OPTIONS: Mapping[Bus, Schema] = {
    Bus.VIRTIOFS: {"cache": Choice(("auto", "always", "none"), default="auto"), **_SHARE},
    Bus.P9: {
        "cache": Choice(("none", "loose", "mmap"), default="none"),
        # The transport's largest is 125 pages (net/9p/trans_virtio.c); 128 KiB is the kernel's
        # default since 5.15 (net/9p/client.c).
        "msize": Size(4096, 500 << 10, default=128 << 10, power_of_two=False),
        **_SHARE,
    },
    Bus.VIRTIO: {**_ANY_BUS, **_ERRORS, **_VIRTIO},
    Bus.SCSI: {**_ANY_BUS, **_ERRORS, **_VIRTIO},
    Bus.NVME: {**_ANY_BUS, "queues": Number(1, 64), **_BLOCK_SIZES},
    **{bus: {**_ANY_BUS, **_ERRORS} for bus in (Bus.IDE, Bus.SATA, Bus.USB)},
    Bus.VHOSTUSER: {**_ANY_BUS, **{name: _VIRTIO[name] for name in _SERVED}},
}
