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
        """The device offers a volatile write cache, so a write is not durable before a flush."""
        return self not in (CacheMode.WRITETHROUGH, CacheMode.DIRECTSYNC)

    @property
    def uses_page_cache(self) -> bool:
        """Reads and writes go through the host's page cache, so its state is part of the cell."""
        return not self.direct


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
    """The device's `write-cache` property; `mode` follows the cache mode, as -drive does."""

    MODE = "mode"
    ON = "on"
    OFF = "off"
    AUTO = "auto"


class PageCache(StrEnum):
    """The host's page cache for the image just before each measurement."""

    COLD = "cold"
    WARM = "warm"
    BYPASSED = "bypassed"


HOST = "host"
"""The terminal segment that means: no guest, the same workload on the host."""
