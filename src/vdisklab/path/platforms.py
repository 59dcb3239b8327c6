"""The platforms that run guests: a row each, with the disk that each gives a new guest.

A platform's name stands for that disk wherever a path is taken: `vdisklab run libvirt raw/none`.
How each writes and reads a disk is in the room `platforms`, in the file that its row names.
"""

from __future__ import annotations

from enum import StrEnum

from vdisklab.errors import PlanError
from vdisklab.value import Value

_OTHER_FORMS = (
    "a shell script, `ps` output or systemd unit that starts guests, `qm set`, virt-install, "
    "`info block`, Terraform, Packer, Ansible's proxmox_kvm, a compose file of qemus/qemu"
)
"""Other ways to write guests down: the rows of `platforms.text_form.FORMS`."""


class NewGuestDisk(Value):
    """The disk of a new guest if nobody changes a setting, as a path without host layers.

    `version` is the platform's version whose source was read; `source` names the place that sets
    the default; `note` holds settings that a path cannot express.
    """

    path: str
    version: str
    source: str
    note: str


class OnHost(Value):
    """What a host with a platform's guests has: a directory with their files, or its program."""

    directory: str = ""
    program: str = ""


class Platform(StrEnum):
    """A program that creates and starts guests.

    `full_name` is the name as its project writes it. `printed` names the command or file that shows
    a guest's configuration, for help texts; empty if another platform's text covers it. `new_guest`
    is None for a platform without defaults. `module` is its file in the room `platforms`. `on_host`
    is empty for a platform whose guests no host shows.
    """

    full_name: str
    printed: str
    new_guest: NewGuestDisk | None
    on_host: OnHost
    module: str

    def __new__(  # noqa: PLR0917 - an enum's row has no keywords
        cls,
        name: str,
        full_name: str = "",
        printed: str = "",
        new_guest: NewGuestDisk | None = None,
        on_host: OnHost = OnHost(),
        module: str = "",
    ) -> Platform:
        """The member of a row. `module` defaults to the name; another one means that this
        platform's configurations are read and written by that module.
        """
        member = str.__new__(cls, name)
        member._value_ = name
        member.full_name = full_name or name
        member.printed = printed
        member.new_guest = new_guest
        member.module = module or name
        member.on_host = on_host
        return member

    PROXMOX = (
        "proxmox",
        "Proxmox VE",
        "VMID.conf of Proxmox VE (with its storage.cfg)",
        NewGuestDisk(
            "raw/none/scsi:aio=io_uring:detect_zeroes=on:iothread=on",
            "9.2 (qemu-server 9.2.6)",
            "src/PVE/QemuServer/Drive.pm: drive_uses_cache_direct, aio_cmdline_option, "
            "detect_zeroes_cmdline_option; pve-manager, www/manager6/qemu/HDEdit.js (iothread)",
            "made by the wizard, which chooses VirtIO SCSI single; on a storage of directories it "
            "makes qcow2, on LVM and CIFS it uses aio=native",
        ),
        OnHost("/etc/pve/qemu-server"),
    )
    LIBVIRT = (
        "libvirt",
        "",
        "`virsh dumpxml`",
        NewGuestDisk(
            "qcow2:preallocation=off/default",
            "9.0",
            "formatdomain.html, `driver`: cache and io are left to the hypervisor; "
            "src/qemu/qemu_block.c",
            "a `<disk>` with nothing but `<driver type='qcow2'/>`, and an image of "
            "`virsh vol-create-as`",
        ),
        OnHost("/etc/libvirt/qemu", "virsh"),
    )
    VIRT_MANAGER = (
        "virt-manager",
        "",
        "",
        NewGuestDisk(
            "qcow2:preallocation=metadata/default/virtio:discard=unmap",
            "5.1.0",
            "virtinst/devices/disk.py: set_defaults; virtinst/storage.py: "
            "VIR_STORAGE_VOL_CREATE_PREALLOC_METADATA",
            "the same for virt-install; on a block device cache=none and io=native",
        ),
        OnHost(),
        "libvirt",
    )
    KUBEVIRT = (
        "kubevirt",
        "KubeVirt",
        "`kubectl get vm,pvc,dv,pv -o yaml`",
        NewGuestDisk(
            "raw:preallocation=off/none/sata:discard=unmap",
            "1.9.0-beta.0",
            "pkg/defaults/amd64.go; pkg/virt-launcher/virtwrap/converter/converter.go: "
            "SetDriverCacheMode, SetOptimalIOMode; converter/storage/volume.go",
            "for a claim of volumeMode Filesystem; with volumeMode Block or a fully allocated "
            "image io=native. Nearly every published manifest names bus: virtio",
        ),
    )
    INCUS = (
        "incus",
        "Incus",
        "`incus list --format yaml`",
        NewGuestDisk(
            "raw/none/scsi:aio=io_uring:discard=unmap",
            "7.3",
            "internal/server/instance/drivers/driver_qemu.go: addDriveConfig",
            "in a pool of type dir or lvm. ZFS gets aio=native, btrfs writeback and threads, Ceph "
            "librbd with writeback; a block device of the host and truenas get cache=unsafe unless "
            "io.cache is set. 7.3 puts the metadata of a qcow2 before a root disk's raw data",
        ),
        OnHost(program="incus"),
    )
    OPENSTACK = (
        "openstack",
        "OpenStack",
        "`openstack server show -f json` (with `image show`, `flavor show`, and nova.conf)",
        NewGuestDisk(
            "qcow2:backing=1:preallocation=off/none",
            "master of August 2026",
            "nova/virt/libvirt/driver.py: disk_cachemode; nova/virt/libvirt/imagebackend.py: Qcow2",
            "images_type=default and use_cow_images: an overlay on the cached base image",
        ),
    )
    QEMU = ("qemu", "QEMU", "a QEMU command line")


PRINTED = ", ".join(
    (*(platform.printed for platform in Platform if platform.printed), _OTHER_FORMS)
)
"""The commands and files that show guests' configurations, for help texts and hints."""

NEW_GUEST_DISKS = {
    platform: platform.new_guest for platform in Platform if platform.new_guest is not None
}
"""The disks of new guests; a QEMU started by hand has none but `raw/default`."""

PLATFORMS = ", ".join(NEW_GUEST_DISKS)
"""The names of all platforms with a disk for new guests, for help texts and hints."""


def parse_platform(text: str) -> Platform:
    """The platform of that name, if it has a disk for new guests. Raises PlanError."""
    if text not in list(NEW_GUEST_DISKS):
        raise PlanError(f"unknown platform {text!r}", hint=f"possible: {PLATFORMS}")
    return Platform(text)


def spell_out(text: str) -> str:
    """A path whose last segment is a platform's name, with that platform's path in its place.

    Any other text is returned unchanged.
    """
    stack, slash, name = text.rpartition("/")
    disk = Platform(name).new_guest if name in set(Platform) else None
    return text if disk is None else f"{stack}{slash}{disk.path}"
