"""Builds the micro guest from files of the host, and rebuilds it only when they change.

It has two parts. The initial RAM file system holds what the agent needs to answer: busybox, the
agent, their libraries and the modules of the agent's port. Everything else (fio, mkfs, sysbench,
drivers, file systems) is in a read-only ext4 image that the guest mounts on /extra while the agent
already answers; links in the RAM file system point there. The cache holds:

    CACHE/guest/FINGERPRINT/kernel       the kernel, unpacked if QEMU can boot it then
                            initrd       the RAM file system
                            root.ext4    the image, for a read-only virtio disk
                            manifest.json

A guest that boots from the measured disk has all its files there. Then the RAM file system holds
only what is needed to find that disk, the drivers of all buses:

    CACHE/boot/FINGERPRINT/initrd        the RAM file system
                           tree/         the files of the disk
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from vdisklab.guest.image.cache import building, keep, kept_or_built
from vdisklab.guest.image.content import (
    PROGRAMS,
    SERVERS,
    FileTree,
    GuestContent,
    InstalledProgram,
    Program,
    find_programs,
    guest_content,
    guest_scripts,
    version,
    write_root,
)
from vdisklab.guest.image.foreign import ForeignSystem, foreign_system
from vdisklab.guest.image.kernel import Kernel
from vdisklab.guest.image.packed import unpack
from vdisklab.host.command import Host
from vdisklab.path.architecture import GUEST, is_foreign
from vdisklab.value import Value

IMAGE_SERIAL = "vdisklab-image"
"""Serial number by which the guest finds the virtio disk with `GuestImage.root`."""

APPEND = f"console={GUEST.console} quiet panic=-1 cryptomgr.notests {GUEST.emulated_clock}".rstrip()
"""The guest's kernel command line: that of an ordinary guest, except for its clock under emulation
and its boot, in which the kernel tests no ciphers.

A guest that panics reboots at once, which ends QEMU (-no-reboot).
"""

WITHOUT_FIO = "vdisklab_without_fio=1"
"""On the command line of a guest that measures nothing: its prepare.sh does not start fio."""

# Increase it when the same sources give a different image than before.
_RECIPE = 5
_KEPT_IMAGES = 4
_KEPT_SECONDS = 24 * 3600.0


# /dev, /proc, /sys and /run come mounted from the RAM file system.
_FSTAB = b"tmp /tmp tmpfs mode=1777 0 0\n"

# An arbitrary fixed number, so that equal files make equal disks.
_UUID = "0f4a7a9e-7c55-4a8b-8f0d-2f7a3a1f6b52"

_SCRIPTS = ("init-disk.sh", "prepare-disk.sh", "shutdown.sh")


class GuestImage(Value):
    """The files that QEMU boots: `-kernel`, `-initrd`, `-append`, and `root` as a read-only virtio
    disk.

    The disk has the serial number IMAGE_SERIAL. `fingerprint` identifies all contents; `programs`
    gives the version of each program in it.
    """

    kernel: Path
    initrd: Path
    root: Path
    append: str
    fingerprint: str
    programs: Mapping[str, str]


def build_guest_image(
    host: Host, cache: Path, kernel: Kernel, programs: Sequence[Program] = (*PROGRAMS, *SERVERS)
) -> GuestImage:
    """The image with `kernel` and the host's `programs`, from the cache if nothing changed.

    Raises HostError for a missing program or library, a damaged kernel, a full disk.
    """
    foreign = _foreign(host, cache)
    installed = find_programs(host, programs, foreign)
    request = _request(kernel, installed)
    directory = cache / "guest"
    return kept_or_built(
        directory,
        lambda: _kept(directory, request),
        lambda: _build(host, directory, kernel, installed, request, foreign),
        "the guest image",
    )


def _foreign(host: Host, cache: Path) -> ForeignSystem | None:
    """The programs of guests that this host cannot run; None if it runs them.

    As in other guests, databases are those that this host has, too: it makes their first files.
    """
    if not is_foreign():
        return None
    servers = (program.name for program in SERVERS)
    installed = [name for name in servers if host.which(name) is not None]
    return foreign_system(host, cache, [*(program.name for program in PROGRAMS), *installed])


def _request(kernel: Kernel, programs: Sequence[InstalledProgram]) -> dict[str, Any]:
    """The input of the image, as far as it is known before the build."""
    return {
        "recipe": _RECIPE,
        "append": APPEND,
        "scripts": {
            name: hashlib.sha256(text).hexdigest() for name, text in guest_scripts().items()
        },
        "kernel": [os.fspath(kernel.image), kernel.release],
        "programs": {item.program.name: os.fspath(item.real) for item in programs},
        "data": [form for item in programs for form in item.program.data],
    }


def _kept(directory: Path, request: Mapping[str, Any]) -> GuestImage | None:
    """The image in the cache with this request and with unchanged sources."""
    for manifest in sorted(directory.glob("[!.]*/manifest.json")):
        try:
            stored = json.loads(manifest.read_text())
            if stored["request"] != request or stored["sources"] != _stamps(stored["sources"]):
                continue
            image = _image(manifest.parent, stored["image"])
            if image.kernel.exists() and image.initrd.exists() and image.root.exists():
                manifest.touch()
                return image
        except (OSError, ValueError, KeyError, TypeError):
            continue  # incomplete after a crash of the machine, or of another version: rebuild it
    return None


def _stamps(paths: Iterable[str]) -> dict[str, list[int]]:
    """Numbers that change when a file is replaced, by a package or by hand."""
    found = {path: Path(path).stat() for path in paths}
    return {path: [status.st_size, status.st_mtime_ns] for path, status in found.items()}


def _image(directory: Path, manifest: Mapping[str, Any]) -> GuestImage:
    return GuestImage(
        kernel=directory / "kernel",
        initrd=directory / "initrd",
        root=directory / "root.ext4",
        **manifest,
    )


def _build(  # noqa: PLR0917
    host: Host,
    directory: Path,
    kernel: Kernel,
    programs: list[InstalledProgram],
    request: Mapping[str, Any],
    foreign: ForeignSystem | None,
) -> GuestImage:
    with building(directory) as work:
        content = guest_content(host, kernel, programs, foreign)
        (work / "kernel").write_bytes(GUEST.boot_file.booted(kernel.image.read_bytes(), unpack))
        content.early.write_archive(work / "initrd")
        write_root(host, content.late, work)
        stored = {
            "append": APPEND,
            "fingerprint": _fingerprint(work / "kernel", content),
            "programs": {item.program.name: version(host, item, foreign) for item in programs},
        }
        sources = sorted({os.fspath(path) for path in content.sources})
        manifest = {"request": request, "sources": _stamps(sources), "image": stored}
        (work / "manifest.json").write_text(json.dumps(manifest, indent=1))
        image = _place(work, directory / str(stored["fingerprint"]), stored)
    _prune(directory)
    return image


def _place(work: Path, final: Path, manifest: Mapping[str, Any]) -> GuestImage:
    """Moves the image to its place.

    An image with the same content is kept: a guest may be using it.
    """
    image = _image(final, manifest)
    if all(path.exists() for path in (image.kernel, image.initrd, image.root)):
        (work / "manifest.json").replace(final / "manifest.json")
    else:
        keep(work, final)
    return image


def _fingerprint(kernel: Path, content: GuestContent) -> str:
    """Identifies the contents, not the image's bytes, which depend on mke2fs's version."""
    with kernel.open("rb") as file:
        parts = [hashlib.file_digest(file, "sha256").hexdigest()]
    parts += [content.early.digest(), content.late.digest(), APPEND]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def _prune(directory: Path) -> None:
    """Removes old images except those used within a day: another process's guest may need them."""
    manifests = list(directory.glob("[!.]*/manifest.json"))
    manifests.sort(key=lambda path: path.stat().st_mtime, reverse=True)
    for manifest in manifests[_KEPT_IMAGES:]:
        if time.time() - manifest.stat().st_mtime > _KEPT_SECONDS:
            shutil.rmtree(manifest.parent, ignore_errors=True)


class DiskSystem(Value):
    """The files to boot from a disk: the RAM file system, and the directory of the disk's files."""

    initrd: Path
    tree: Path


def disk_system(host: Host, cache: Path, kernel: Kernel, image: GuestImage) -> DiskSystem:
    """The system in `image` in a form for a disk, from the cache or newly built.

    Raises HostError.
    """
    directory = cache / "boot"
    scripts = guest_scripts()
    parts = [image.fingerprint, *(scripts[name].decode() for name in _SCRIPTS)]
    final = directory / hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]
    system = DiskSystem(final / "initrd", final / "tree")

    def build() -> DiskSystem:
        with building(directory) as work:
            _build_disk(host, kernel, image, work, _foreign(host, cache))
            keep(work, final)
        return system

    return kept_or_built(
        directory, lambda: system if final.exists() else None, build, "the system on the boot disk"
    )


def _build_disk(
    host: Host, kernel: Kernel, image: GuestImage, work: Path, foreign: ForeignSystem | None
) -> None:
    content = guest_content(host, kernel, find_programs(host, PROGRAMS, foreign), foreign)
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
