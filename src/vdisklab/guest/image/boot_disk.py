"""The micro guest's system on a disk that it boots from, instead of in memory.

All files of the micro guest are on the measured disk. The RAM file system holds only what is needed
to find that disk: the drivers of all buses. Kept in the cache:

    CACHE/boot/FINGERPRINT/initrd   the RAM file system
                           tree/    the files of the disk
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from vdisklab.guest.image.cache import building, keep, kept_or_built
from vdisklab.guest.image.content import GuestContent, guest_content, guest_scripts
from vdisklab.guest.image.filetree import FileTree
from vdisklab.guest.image.guest_image import GuestImage
from vdisklab.guest.image.host_programs import PROGRAMS, find_programs
from vdisklab.guest.image.kernel import Kernel
from vdisklab.host.command import Host

# /dev, /proc, /sys and /run come mounted from the RAM file system.
_FSTAB = b"tmp /tmp tmpfs mode=1777 0 0\n"

# An arbitrary fixed number, so that equal files make equal disks.
_UUID = "0f4a7a9e-7c55-4a8b-8f0d-2f7a3a1f6b52"

_SCRIPTS = ("init-disk.sh", "prepare-disk.sh", "shutdown.sh")


@dataclass(frozen=True, slots=True)
class DiskSystem:
    """The files to boot from a disk: the RAM file system, and the directory of the disk's files."""

    initrd: Path
    tree: Path


def disk_system(host: Host, cache: Path, kernel: Kernel, image: GuestImage) -> DiskSystem:
    """The system in `image` in a form for a disk, from the cache or newly built.

    Raises HostError.
    """
    directory = cache / "boot"
    final = directory / _fingerprint(image)
    system = DiskSystem(final / "initrd", final / "tree")

    def build() -> DiskSystem:
        with building(directory) as work:
            _build(host, kernel, image, work)
            keep(work, final)
        return system

    return kept_or_built(
        directory, lambda: system if final.exists() else None, build, "the system on the boot disk"
    )


def _fingerprint(image: GuestImage) -> str:
    scripts = guest_scripts()
    parts = [image.fingerprint, *(scripts[name].decode() for name in _SCRIPTS)]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def _build(host: Host, kernel: Kernel, image: GuestImage, work: Path) -> None:
    content = guest_content(host, kernel, find_programs(host, PROGRAMS))
    more = work / "more"
    _drivers(content).write_archive(more)
    # The kernel unpacks one archive after the other; later files replace earlier ones.
    (work / "initrd").write_bytes(image.initrd.read_bytes() + more.read_bytes())
    more.unlink()
    tree = work / "tree"
    tree.mkdir()
    _on_disk(content).write_directory(tree)


def _drivers(content: GuestContent) -> FileTree:
    """The additions to the RAM file system: the drivers, and another first process."""
    drivers = FileTree()
    drivers.file("init", guest_scripts()["init-disk.sh"], executable=True)
    for path, node in content.late.files():
        if path.endswith(".ko"):
            drivers.file(path, node.read())
    return drivers


def _on_disk(content: GuestContent) -> FileTree:
    scripts = guest_scripts()
    tree = FileTree()
    tree.graft("", content.early)
    tree.graft("extra", content.late)
    tree.file("usr/sbin/init", scripts["init.sh"], executable=True)
    tree.file("usr/lib/vdisklab/prepare", scripts["prepare-disk.sh"], executable=True)
    tree.file("usr/lib/vdisklab/shutdown", scripts["shutdown.sh"], executable=True)
    tree.file("etc/fstab", _FSTAB)
    return tree


def write_disk(host: Host, system: DiskSystem, file: Path) -> None:
    """Writes the system to the file as ext4 over its whole size, without a partition table.

    Blocks that the file system does not use stay unchanged. Raises HostError when it is too small.
    """
    host.run(
        "mke2fs", "-q", "-F", "-t", "ext4", "-m", "0", "-U", _UUID,
        "-E", f"nodiscard,lazy_itable_init=0,lazy_journal_init=0,hash_seed={_UUID},root_owner=0:0",
        "-d", system.tree, file,
        timeout=600,
    )  # fmt: skip
