"""The programs that vdisklab runs: the Debian package that contains each, and what it is for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from vdisklab.errors import HostError

QEMU = "qemu-system-x86_64"
"""The QEMU that is installed. Guests are x86-64, whatever else QEMU could emulate."""


@dataclass(frozen=True, slots=True)
class HostProgram:
    """Where a program comes from, and what cannot be done without it."""

    package: str
    purpose: str


def _table(*rows: tuple[str, str, str]) -> Mapping[str, HostProgram]:
    """Rows of programs (separated by spaces), package and purpose."""
    return {
        program: HostProgram(package, purpose)
        for programs, package, purpose in rows
        for program in programs.split()
    }


_EVERY_GUEST = "the micro guest"

PROGRAMS = _table(
    (QEMU, "qemu-system-x86", "any guest"),
    ("qemu-img", "qemu-utils", "disk images"),
    ("qemu-storage-daemon", "qemu-system-common", "power cuts (`vdisklab powercut`)"),
    ("fio", "fio", "fio workloads, which most profiles have"),
    ("bonnie++", "bonnie++", "bonnie++ workloads"),
    ("sysbench", "sysbench", "sysbench workloads"),
    ("sqlite3", "sqlite3", "database workloads"),
    ("dd", "coreutils", "dd workloads"),
    ("busybox", "busybox-static", _EVERY_GUEST),
    ("qemu-ga", "qemu-guest-agent", _EVERY_GUEST),
    ("mke2fs", "e2fsprogs", _EVERY_GUEST),
    ("blkid", "util-linux", _EVERY_GUEST),
    ("tar", "tar", _EVERY_GUEST),
    ("perl", "perl-base", _EVERY_GUEST),
    ("hdparm", "hdparm", _EVERY_GUEST),
    ("ldd", "libc-bin", _EVERY_GUEST),
    ("dpkg dpkg-deb", "dpkg", "packages in the micro guest"),
    ("apt-get apt-cache", "apt", "packages in the micro guest"),
    ("mkfs.ext2 mkfs.ext3", "e2fsprogs", "ext2 and ext3 in guests"),
    ("mkfs.ext4", "e2fsprogs", "layer ext4"),
    ("mkfs.xfs xfs_info", "xfsprogs", "layer xfs"),
    ("mkfs.btrfs btrfs", "btrfs-progs", "layer btrfs"),
    ("mount umount", "mount", "layer tmpfs"),
    ("losetup", "mount", "every file-system layer"),
    ("wipefs unshare", "util-linux", "every file-system layer"),
    (
        "lvm vgs lvs pvs vgcreate lvcreate lvremove vgremove pvremove vgchange",
        "lvm2",
        "layer lvm",
    ),
    ("dmsetup", "dmsetup", "layer lvm"),
    ("mdadm", "mdadm", "layer md"),
    ("zpool zfs", "zfsutils-linux", "layer zfs"),
    ("modprobe", "kmod", "loading kernel modules"),
    ("mmdebstrap", "mmdebstrap", "building the lab"),
    ("virsh", "libvirt-clients", "reading domains from libvirt"),
)


def package_of(program: str) -> str:
    """The Debian package of a program; for one outside the table, its own name."""
    return PROGRAMS[program].package if program in PROGRAMS else program


def install_command(*packages: str) -> str:
    """The command that installs Debian packages."""
    return f"apt-get install --no-install-recommends {' '.join(dict.fromkeys(packages))}"


def install_hint(programs: Iterable[str]) -> str:
    """How to get programs; those outside the table are only named."""
    wanted = tuple(programs)
    unknown = [program for program in wanted if program not in PROGRAMS]
    if unknown:
        return f"install the package that contains {', '.join(unknown)}"
    return install_command(*(PROGRAMS[program].package for program in wanted))


def not_installed(program: str) -> HostError:
    """The error for a missing program."""
    return HostError(f"{program} is not installed", hint=install_hint([program]))
