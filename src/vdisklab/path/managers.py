"""The programs that manage guests, and the disk that each gives a new guest.

A manager's name stands for that disk wherever a path is taken: `vdisklab run proxmox raw/none`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from vdisklab.errors import PlanError
from vdisklab.path.segments import Aio, CacheMode


class Manager(StrEnum):
    """What creates and starts guests; `qemu` is a QEMU that somebody started by hand."""

    PROXMOX = "proxmox"
    LIBVIRT = "libvirt"
    VIRT_MANAGER = "virt-manager"
    KUBEVIRT = "kubevirt"
    INCUS = "incus"
    OPENSTACK = "openstack"
    QEMU = "qemu"

    @property
    def full_name(self) -> str:
        """The name as its project writes it."""
        return _FULL_NAMES.get(self, self.value)

    @property
    def cache_modes(self) -> tuple[CacheMode, ...]:
        """The cache modes that it can give a disk."""
        return _CACHE_MODES.get(self, _LIBVIRT_CACHE_MODES)


_FULL_NAMES = {
    Manager.PROXMOX: "Proxmox VE",
    Manager.KUBEVIRT: "KubeVirt",
    Manager.INCUS: "Incus",
    Manager.OPENSTACK: "OpenStack",
    Manager.QEMU: "QEMU",
}


_LIBVIRT_CACHE_MODES = tuple(mode for mode in CacheMode if mode is not CacheMode.DIRECTUNSAFE)
_CACHE_MODES = {
    Manager.KUBEVIRT: (CacheMode.NONE, CacheMode.WRITEBACK, CacheMode.WRITETHROUGH),
    Manager.INCUS: (CacheMode.NONE, CacheMode.WRITEBACK, CacheMode.UNSAFE),
    Manager.QEMU: tuple(CacheMode),
}


def incus_aio(cache: CacheMode) -> Aio:
    """The aio mode that Incus chooses for a cache mode (driver_qemu.go, addDriveConfig)."""
    return Aio.IO_URING if cache.direct else Aio.THREADS


@dataclass(frozen=True, slots=True)
class NewGuestDisk:
    """The disk of a new guest if nobody changes a setting, as a path without host layers.

    `version` is the one that was read; `source` says where the default is decided; `note` is what
    a path cannot say.
    """

    path: str
    version: str
    source: str
    note: str


NEW_GUEST_DISKS: Mapping[Manager, NewGuestDisk] = {
    Manager.PROXMOX: NewGuestDisk(
        "raw/none/scsi:aio=io_uring:detect_zeroes=on:iothread=on",
        "9.2 (qemu-server 9.2.6)",
        "src/PVE/QemuServer/Drive.pm: drive_uses_cache_direct, aio_cmdline_option, "
        "detect_zeroes_cmdline_option; pve-manager, www/manager6/qemu/HDEdit.js (iothread)",
        "made by the wizard, which chooses VirtIO SCSI single; on a storage of directories it "
        "makes qcow2, on LVM and CIFS it uses aio=native",
    ),
    Manager.LIBVIRT: NewGuestDisk(
        "qcow2:preallocation=off/default",
        "9.0",
        "formatdomain.html, `driver`: cache and io are left to the hypervisor; "
        "src/qemu/qemu_block.c",
        "a `<disk>` with nothing but `<driver type='qcow2'/>`, and an image of "
        "`virsh vol-create-as`",
    ),
    Manager.VIRT_MANAGER: NewGuestDisk(
        "qcow2:preallocation=metadata/default/virtio:discard=unmap",
        "5.1.0",
        "virtinst/devices/disk.py: set_defaults; virtinst/storage.py: "
        "VIR_STORAGE_VOL_CREATE_PREALLOC_METADATA",
        "the same for virt-install; on a block device cache=none and io=native",
    ),
    Manager.KUBEVIRT: NewGuestDisk(
        "raw:preallocation=off/none/sata:discard=unmap",
        "1.9.0-beta.0",
        "pkg/defaults/amd64.go; pkg/virt-launcher/virtwrap/converter/converter.go: "
        "SetDriverCacheMode, SetOptimalIOMode; converter/storage/volume.go",
        "for a claim of volumeMode Filesystem; with volumeMode Block or a fully allocated image "
        "io=native. Nearly every published manifest names bus: virtio",
    ),
    Manager.INCUS: NewGuestDisk(
        "raw/none/scsi:aio=io_uring:discard=unmap",
        "7.3",
        "internal/server/instance/drivers/driver_qemu.go: addDriveConfig",
        "image files on ZFS and btrfs get cache=writeback and aio=threads",
    ),
    Manager.OPENSTACK: NewGuestDisk(
        "qcow2:backing=1:preallocation=off/none",
        "master of August 2026",
        "nova/virt/libvirt/driver.py: disk_cachemode; nova/virt/libvirt/imagebackend.py: Qcow2",
        "images_type=default and use_cow_images: an overlay on the cached base image",
    ),
}
"""The defaults by manager; a QEMU started by hand has none but `raw/default`."""

PLATFORMS = ", ".join(NEW_GUEST_DISKS)
"""The names of all managers with a disk for new guests, for help texts and hints."""


def parse_platform(text: str) -> Manager:
    """The manager of that name, if it has a disk for new guests. Raises PlanError."""
    if text not in list(NEW_GUEST_DISKS):
        raise PlanError(f"unknown platform {text!r}", hint=f"possible: {PLATFORMS}")
    return Manager(text)


def spell_out(text: str) -> str:
    """A path whose last segment is a manager's name, with that manager's path in its place.

    Any other text is returned unchanged.
    """
    stack, slash, name = text.rpartition("/")
    disk = NEW_GUEST_DISKS.get(Manager(name)) if name in set(Manager) else None
    return text if disk is None else f"{stack}{slash}{disk.path}"
