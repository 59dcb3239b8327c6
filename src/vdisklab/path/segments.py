"""The four kinds of segments of a disk path, their names, and what each name means to QEMU."""

from __future__ import annotations

from enum import StrEnum


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
    TMPFS = "tmpfs"

    @property
    def is_directory(self) -> bool:
        """True for layers that hold files, False for those that are a block device."""
        return self in _DIRECTORIES

    @property
    def needs_block_below(self) -> bool:
        """False only for tmpfs, which lives in memory."""
        return self is not LayerKind.TMPFS


_DIRECTORIES = frozenset(
    {LayerKind.EXT4, LayerKind.XFS, LayerKind.BTRFS, LayerKind.ZFS, LayerKind.TMPFS}
)


class ImageFormat(StrEnum):
    """Image formats; `null` is QEMU's null-co driver, a disk that does nothing, as a ceiling."""

    RAW = "raw"
    QCOW2 = "qcow2"
    VMDK = "vmdk"
    VDI = "vdi"
    VHDX = "vhdx"
    QED = "qed"
    NULL = "null"

    @property
    def is_file(self) -> bool:
        """True when an image file is made for it."""
        return self is not ImageFormat.NULL


class CacheMode(StrEnum):
    """QEMU's cache modes, and `default`: QEMU is told nothing.

    The table is that of qemu(1), `-drive cache=`: each mode stands for cache.writeback,
    cache.direct and cache.no-flush. With -blockdev, writeback is the device's `write-cache`.
    """

    DEFAULT = "default"
    NONE = "none"
    WRITEBACK = "writeback"
    WRITETHROUGH = "writethrough"
    DIRECTSYNC = "directsync"
    UNSAFE = "unsafe"

    @property
    def direct(self) -> bool:
        """cache.direct: the image is opened with O_DIRECT."""
        return self in (CacheMode.NONE, CacheMode.DIRECTSYNC)

    @property
    def no_flush(self) -> bool:
        """cache.no-flush: flushes of the guest are thrown away."""
        return self is CacheMode.UNSAFE

    @property
    def write_cache(self) -> bool:
        """cache.writeback: a write is durable only after the guest's next flush."""
        return self not in (CacheMode.WRITETHROUGH, CacheMode.DIRECTSYNC)

    @property
    def spelled_out(self) -> CacheMode:
        """The mode itself, or the one that QEMU uses when it is told nothing."""
        return CacheMode.WRITEBACK if self is CacheMode.DEFAULT else self


class Bus(StrEnum):
    """How the guest sees the disk."""

    VIRTIO = "virtio"
    SCSI = "scsi"
    IDE = "ide"
    SATA = "sata"
    NVME = "nvme"
    USB = "usb"

    @property
    def hot_pluggable(self) -> bool:
        """False where QEMU wants a fresh boot for each disk."""
        return self not in (Bus.IDE, Bus.SATA)

    @property
    def machine(self) -> str:
        """QEMU's machine type: PIIX IDE exists on `pc` only."""
        return "pc" if self is Bus.IDE else "q35"


class Aio(StrEnum):
    """How QEMU asks the host for I/O (`aio=` of the file driver)."""

    THREADS = "threads"
    NATIVE = "native"
    IO_URING = "io_uring"


class WriteCache(StrEnum):
    """The option `write_cache` of a bus; `mode` follows the cache mode, as -drive does."""

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


class PageCache(StrEnum):
    """The host's page cache for the image just before each measurement."""

    COLD = "cold"
    WARM = "warm"
    BYPASSED = "bypassed"


HOST = "host"
"""The terminal segment that means: no guest, the same workload on the host."""
