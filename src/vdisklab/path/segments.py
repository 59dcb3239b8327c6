"""The segments of a disk path: their names, what each means to QEMU, and their options."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from vdisklab.errors import PlanError
from vdisklab.units import format_size, parse_size


class LayerKind(StrEnum):
    """Host layers, as users name them."""

    EXT4 = "ext4"
    XFS = "xfs"
    BTRFS = "btrfs"
    ZFS = "zfs"
    ZVOL = "zvol"
    LVM = "lvm"
    LVMTHIN = "lvmthin"
    MD = "md"
    LUKS = "luks"
    TMPFS = "tmpfs"
    ZRAM = "zram"

    @property
    def holds_files(self) -> bool:
        """True for a layer that holds files, False for a block device."""
        return self in _DIRECTORIES

    @property
    def divides(self) -> bool:
        """True for a layer that can give each guest a block device of its own."""
        return self in (LayerKind.LVM, LayerKind.LVMTHIN, LayerKind.ZVOL)

    @property
    def is_memory(self) -> bool:
        """True for a layer in memory, which no disk is below."""
        return self in (LayerKind.TMPFS, LayerKind.ZRAM)


_DIRECTORIES = frozenset(
    {LayerKind.EXT4, LayerKind.XFS, LayerKind.BTRFS, LayerKind.ZFS, LayerKind.TMPFS}
)


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


SHARED_MEMORY = "memory-backend=shared"
"""The machine's option that makes the object `shared` the guest's memory."""


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
        """QEMU's machine type: PIIX IDE exists on `pc` only."""
        if self.opened_outside_qemu:
            return f"q35,{SHARED_MEMORY}"
        return "pc" if self is Bus.IDE else "q35"


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


HOST = "host"
"""The last segment of a path without a guest: the workload runs on the host."""


OptionValue = str | int | bool


@dataclass(frozen=True, slots=True)
class OptionType(ABC):
    """Parses and formats the values of one option; `expected` describes the valid values.

    `default` is the value of an omitted option; None means that the program below chooses.
    """

    default: OptionValue | None = field(default=None, kw_only=True)

    @property
    @abstractmethod
    def expected(self) -> str:
        """The valid values, for messages."""

    @abstractmethod
    def _read(self, text: str) -> OptionValue | None:
        """The typed value; None if the text is not valid."""

    def parse(self, text: str) -> OptionValue:
        """The typed value; raises ValueError, which describes the valid values."""
        value = self._read(text)
        if value is None:
            raise ValueError(self.expected)
        return value

    def format(self, value: OptionValue) -> str:
        """The canonical spelling of a value, which `parse` accepts."""
        return str(value)


@dataclass(frozen=True, slots=True)
class Choice(OptionType):
    """One of a few words."""

    choices: tuple[str, ...]

    @property
    def expected(self) -> str:
        """The words."""
        return "one of " + ", ".join(self.choices)

    def _read(self, text: str) -> OptionValue | None:
        return text if text in self.choices else None


@dataclass(frozen=True, slots=True)
class Switch(OptionType):
    """`on` (True) or `off` (False)."""

    default: OptionValue | None = field(default=False, kw_only=True)
    expected = "on or off"

    def _read(self, text: str) -> OptionValue | None:
        return {"on": True, "off": False}.get(text)

    def format(self, value: OptionValue) -> str:
        """`on` or `off`."""
        return "on" if value else "off"


@dataclass(frozen=True, slots=True)
class Number(OptionType):
    """A whole number within bounds, and a power of two if `power_of_two`; `zero` is a word for
    0."""

    low: int
    high: int
    power_of_two: bool = field(default=False, kw_only=True)
    zero: str | None = field(default=None, kw_only=True)

    @property
    def expected(self) -> str:
        """The bounds."""
        kind = "power of two" if self.power_of_two else "whole number"
        word = "" if self.zero is None else f", where 0 is {self.zero}"
        return f"a {kind} from {self.low} to {self.high}{word}"

    def _read(self, text: str) -> OptionValue | None:
        if text == self.zero:
            return 0
        if not re.fullmatch(r"[0-9]{1,9}", text):
            return None
        number = int(text)
        if not self.low <= number <= self.high or (self.power_of_two and number & (number - 1)):
            return None
        return number


@dataclass(frozen=True, slots=True)
class Size(OptionType):
    """A number of bytes within bounds, and a power of two unless `power_of_two` is False."""

    low: int
    high: int
    power_of_two: bool = field(default=True, kw_only=True)

    @property
    def expected(self) -> str:
        """The bounds."""
        kind = "power of two" if self.power_of_two else "size"
        return f"a {kind} from {format_size(self.low)} to {format_size(self.high)}"

    def _read(self, text: str) -> OptionValue | None:
        if any(character.isspace() for character in text):
            return None
        try:
            size = parse_size(text)
        except PlanError:
            return None
        if not self.low <= size <= self.high or (self.power_of_two and size & (size - 1)):
            return None
        return size

    def format(self, value: OptionValue) -> str:
        """The shortest exact spelling."""
        return format_size(int(value))


@dataclass(frozen=True, slots=True)
class Percent(OptionType):
    """A whole number of percent, from 1 to 100, stored without its sign."""

    expected = "a share from 1% to 100%"

    def _read(self, text: str) -> OptionValue | None:
        match = re.fullmatch(r"([0-9]{1,3})%?", text)
        return int(match[1]) if match and 1 <= int(match[1]) <= 100 else None

    def format(self, value: OptionValue) -> str:
        """With the sign: `10%`."""
        return f"{value}%"


@dataclass(frozen=True, slots=True)
class MountOptions(OptionType):
    """Options of mount(8), joined by `+`: a comma would end an alternative in braces."""

    expected = "options of mount joined by +, such as noatime+commit=60"

    def _read(self, text: str) -> OptionValue | None:
        return text if re.fullmatch(r"[a-z0-9_=.-]+(\+[a-z0-9_=.-]+)*", text) else None


NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+_-]{0,39}")
"""A name without characters that are special in disk paths or shells."""


@dataclass(frozen=True, slots=True)
class Name(OptionType):
    """A name that the user gives to something."""

    expected = "a name of letters, digits and . + _ -, of at most 40 characters"

    def _read(self, text: str) -> OptionValue | None:
        return text if NAME.fullmatch(text) else None


Schema = Mapping[str, OptionType]
"""The options of one segment by name."""

_NONE: Schema = {}

_ZFS: Schema = {
    "compression": Choice(("off", "on", "lz4", "lzjb", "zstd", "gzip"), default="off"),
    "sync": Choice(("standard", "always", "disabled"), default="standard"),
    "primarycache": Choice(("all", "metadata", "none"), default="all"),
    "ashift": Number(9, 16, default=12),
    "raid": Choice(("single", "mirror", "raidz1", "raidz2"), default="single"),
}

LAYER_OPTIONS: Mapping[LayerKind, Schema] = {
    LayerKind.EXT4: {
        "barrier": Switch(default=True),
        "data": Choice(("ordered", "writeback", "journal"), default="ordered"),
    },
    LayerKind.XFS: {"reflink": Switch(default=True)},
    LayerKind.BTRFS: {
        "barrier": Switch(default=True),
        "datacow": Switch(default=True),
        "compress": Choice(("no", "lzo", "zlib", "zstd"), default="no"),
    },
    LayerKind.TMPFS: {
        "huge": Choice(("never", "always", "within_size", "advise"), default="never"),
    },
    LayerKind.ZRAM: {
        "algorithm": Choice(("lzo", "lzo-rle", "lz4", "lz4hc", "zstd", "deflate", "842")),
    },
    LayerKind.LVM: _NONE,
    LayerKind.LVMTHIN: _NONE,
    LayerKind.MD: {"level": Choice(("0", "1", "5", "10"), default="1")},
    LayerKind.LUKS: {
        "sector": Choice(("512", "4096")),
        "discard": Switch(),
        "workqueues": Switch(default=True),
    },
    LayerKind.ZFS: {"recordsize": Size(512, 16 << 20), **_ZFS},
    LayerKind.ZVOL: {"volblocksize": Size(512, 128 << 10), **_ZFS},
}

_ENCRYPT: Schema = {"encrypt": Choice(("off", "luks"), default="off")}

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
        **_ENCRYPT,
    },
    ImageFormat.VMDK: _NONE,
    ImageFormat.VDI: _NONE,
    ImageFormat.VHDX: _NONE,
    ImageFormat.QED: _NONE,
    ImageFormat.NULL: _NONE,
}

MOST_GUESTS = 999

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
}
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
"""The options of virtio that a disk served by qemu-storage-daemon has, too.

The daemon offers no packed rings (vu_blk_get_features in block/export/vhost-user-blk-server.c).
"""

_SHARE: Schema = {"qemu": Name(), "guest_mount": MountOptions()}

BUS_OPTIONS: Mapping[Bus, Schema] = {
    Bus.VIRTIOFS: {"cache": Choice(("auto", "always", "none"), default="auto"), **_SHARE},
    Bus.P9: {
        "cache": Choice(("none", "loose", "mmap"), default="none"),
        # The transport's largest is 125 pages (net/9p/trans_virtio.c); 128 KiB is the kernel's
        # default since 5.15 (net/9p/client.c).
        "msize": Size(4096, 500 << 10, default=128 << 10, power_of_two=False),
        **_SHARE,
    },
    Bus.VIRTIO: {**_ANY_BUS, **_VIRTIO},
    Bus.SCSI: {**_ANY_BUS, **_VIRTIO},
    Bus.NVME: {**_ANY_BUS, "queues": Number(1, 64), **_BLOCK_SIZES},
    Bus.IDE: _ANY_BUS,
    Bus.SATA: _ANY_BUS,
    Bus.USB: _ANY_BUS,
    Bus.VHOSTUSER: {**_ANY_BUS, **{name: _VIRTIO[name] for name in _SERVED}},
}
