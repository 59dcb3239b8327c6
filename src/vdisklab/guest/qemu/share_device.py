"""A directory of the host's in a guest: the arguments of QEMU, of virtiofsd and of mount. Pure.

QEMU itself serves 9p. For virtiofs it passes requests on to virtiofsd (vhost-user), which is QEMU's
own, in C, up to QEMU 7.2, and a separate program in Rust since; both take these options.
"""

from __future__ import annotations

from pathlib import Path

from vdisklab.guest.qemu.block_nodes import AttachedNames, Disk
from vdisklab.path.disk_path import Attachment
from vdisklab.path.segments import Bus

VIRTIOFSD = "virtiofsd"


def share_arguments(disk: Disk) -> tuple[str, ...]:
    """QEMU's arguments for the directory `disk.filename`; the guest mounts it by the serial."""
    names, directory = AttachedNames(disk.serial), (disk.filename or "").replace(",", ",,")
    if disk.attachment.bus is Bus.P9:
        return (
            "-fsdev", f"local,id={names.node},path={directory},security_model=none",
            "-device",
            f"virtio-9p-pci,id={names.device},fsdev={names.node},mount_tag={disk.serial}",
        )  # fmt: skip
    return (
        "-chardev", f"socket,id={names.served},path={names.served},abstract=on",
        "-device", f"vhost-user-fs-pci,id={names.device},chardev={names.served},tag={disk.serial}",
    )  # fmt: skip


def virtiofsd_arguments(
    program: Path | str, directory: str, attachment: Attachment, at: str
) -> tuple[str, ...]:
    """The daemon's command line; `at` is its option for the socket.

    Its sandbox is a chroot, because one of namespaces needs a second process, which is not there in
    every container. The guest reaches no other directory in either.
    """
    options = (f"source={directory}", f"cache={attachment.option('cache')}", "sandbox=chroot")
    return (str(program), at, *(word for option in options for word in ("-o", option)))


def mount_command(device: str, kind: str, options: tuple[str, ...], at: str) -> tuple[str, ...]:
    """The guest's command that mounts a device, or a directory by its tag."""
    flags = ("-o", ",".join(options)) if options else ()
    return ("mount", "-t", kind, *flags, device, at)
