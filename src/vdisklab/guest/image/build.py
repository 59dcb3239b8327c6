"""Builds the micro guest from the host's own files, once for as long as these stay the same.

Two parts. The initial RAM file system holds what the first answers need: busybox, the agent,
fio, their libraries and the modules of the agent's port. Everything else (mkfs, sysbench, the
drivers and file systems) lies in a read-only ext4 image that the guest mounts on /extra behind
the agent's back; links in the RAM file system make it one tree. Kept in the cache:

    CACHE/guest/FINGERPRINT/kernel       the kernel, unpacked if QEMU can boot it so
                            initrd       the RAM file system
                            root.ext4    the image, for a read-only virtio disk
                            manifest.json
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vdisklab.errors import HostError
from vdisklab.guest.image.bootpayload import payload
from vdisklab.guest.image.cachedir import building, keep, locked
from vdisklab.guest.image.content import GuestContent, guest_content, guest_scripts
from vdisklab.guest.image.elf import has_pvh_entry
from vdisklab.guest.image.kernel import Kernel
from vdisklab.guest.image.programs import PROGRAMS, Found, Program, find_programs, version
from vdisklab.guest.image.rootdisk import write_root
from vdisklab.host.command import Host

IMAGE_SERIAL = "vdisklab-image"
"""Serial number that QEMU must give to the virtio disk with `GuestImage.root`."""

APPEND = " ".join(
    (
        "console=ttyS0",
        # Warnings and worse; each character printed is an exit to QEMU.
        "loglevel=4",
        # A guest that is lost ends, and QEMU with it (-no-reboot).
        "panic=-1",
        # Self-tests of ciphers that nobody uses here: 0.4 s under emulation.
        "cryptomgr.notests",
        # The clock of an emulated or KVM guest is the host's: no watchdog, no test of the timer.
        "tsc=reliable",
        "no_timer_check",
        # Without it each further processor measures its delay loop for a tenth of a second. It is
        # that of 2 GHz at 250 Hz; udelay() of drivers is right there and shorter or longer
        # elsewhere, which virtual hardware does not mind. KVM guests overwrite it (kvm-clock).
        "lpj=8000000",
        # No network in this guest, so none of its tables.
        "ipv6.disable=1",
        "initcall_blacklist="
        + ",".join(
            (
                "init_kprobe_trace",
                "load_system_certificate_list",
                "crypto_kdf108_init",
                # Parses the types of the whole kernel for BPF: an eighth of a second.
                "cubictcp_register",
                "slab_sysfs_init",
                "init_encrypted",
                "init_ima",
                "blake2s_mod_init",
            )
        ),
    )
)
"""The guest's command line: what it leaves out is tracing, keys and network.

Nothing here is on a disk's way: mitigations, memory, block layer and schedulers are the kernel's
own defaults, so that a measurement means what it would mean in an ordinary guest. Initcalls that
a kernel does not have are ignored.
"""

# Counts up when the same sources would make another image.
_RECIPE = 1
_KEPT_IMAGES = 4
_KEPT_SECONDS = 24 * 3600.0


@dataclass(frozen=True, slots=True)
class GuestImage:
    """A guest that can be booted: `-kernel`, `-initrd`, `-append`, and `root` as a virtio disk.

    The disk is read-only, in `root_format`, with the serial number IMAGE_SERIAL. `fingerprint`
    is the identity of all contents; `programs` names the version of each program inside.
    """

    kernel: Path
    initrd: Path
    root: Path
    root_format: str
    append: str
    fingerprint: str
    release: str
    programs: Mapping[str, str]


def build_guest_image(
    host: Host, cache: Path, kernel: Kernel, programs: Sequence[Program] = PROGRAMS
) -> GuestImage:
    """The guest made of `kernel` and the host's `programs`; from the cache if nothing changed.

    Raises HostError for a missing program or library, a damaged kernel, a full disk.
    """
    found = find_programs(host, programs)
    request = _request(kernel, found)
    directory = cache / "guest"
    kept = _kept(directory, request)
    if kept is not None:
        return kept
    with locked(directory):
        # Another builder may have been faster while we waited.
        kept = _kept(directory, request)
        if kept is not None:
            return kept
        try:
            image = _build(host, directory, kernel, found, request)
        except OSError as error:
            raise HostError(
                f"the guest image cannot be built in {directory}: {error.strerror or error}",
                hint="make room there, or set another cache directory",
            ) from error
        _prune(directory)
        return image


def _request(kernel: Kernel, found: Iterable[Found]) -> dict[str, Any]:
    """What was asked for, as far as it can be told without building."""
    return {
        "recipe": _RECIPE,
        "append": APPEND,
        "scripts": {
            name: hashlib.sha256(text).hexdigest() for name, text in guest_scripts().items()
        },
        "kernel": [os.fspath(kernel.image), kernel.release],
        "programs": {item.program.name: os.fspath(item.real) for item in found},
    }


def _stamp(path: Path) -> list[int]:
    """Changes whenever a package or a person replaces the file."""
    status = path.stat()
    return [status.st_size, status.st_mtime_ns]


def _kept(directory: Path, request: Mapping[str, Any]) -> GuestImage | None:
    """The image in the cache that was asked for so and whose sources are as they were."""
    for manifest in sorted(directory.glob("[!.]*/manifest.json")):
        try:
            known = json.loads(manifest.read_text())
            if known["request"] != request or known["sources"] != _stamps(known["sources"]):
                continue
            image = _image(manifest.parent, known["image"])
            if image.kernel.exists() and image.initrd.exists() and image.root.exists():
                manifest.touch()
                return image
        except (OSError, ValueError, KeyError, TypeError):
            continue  # half-written by a crash of the machine, or of another version: build anew
    return None


def _stamps(paths: Iterable[str]) -> dict[str, list[int]]:
    return {path: _stamp(Path(path)) for path in paths}


def _image(directory: Path, known: Mapping[str, Any]) -> GuestImage:
    return GuestImage(
        kernel=directory / "kernel",
        initrd=directory / "initrd",
        root=directory / "root.ext4",
        **known,
    )


def _build(
    host: Host, directory: Path, kernel: Kernel, found: list[Found], request: Mapping[str, Any]
) -> GuestImage:
    with building(directory) as work:
        content = guest_content(host, kernel, found, work)
        _write_kernel(kernel, work / "kernel")
        content.early.write_archive(work / "initrd")
        write_root(host, content.late, work)
        known = {
            "root_format": "ext4",
            "append": APPEND,
            "fingerprint": _fingerprint(work / "kernel", content),
            "release": kernel.release,
            "programs": {item.program.name: version(host, item) for item in found},
        }
        sources = sorted({os.fspath(path) for path in content.sources})
        manifest = {"request": request, "sources": _stamps(sources), "image": known}
        (work / "manifest.json").write_text(json.dumps(manifest, indent=1))
        (work / "fio").unlink(missing_ok=True)
        return _place(work, directory / str(known["fingerprint"]), known)


def _place(work: Path, final: Path, known: Mapping[str, Any]) -> GuestImage:
    """Moves the image into its place; one of the same content stays, as a guest may run from it."""
    image = _image(final, known)
    if all(path.exists() for path in (image.kernel, image.initrd, image.root)):
        (work / "manifest.json").replace(final / "manifest.json")
    else:
        keep(work, final)
    return image


def _fingerprint(kernel: Path, content: GuestContent) -> str:
    """Identity of what the guest is made of; not of the image's bytes, which mke2fs decides."""
    with kernel.open("rb") as file:
        parts = [hashlib.file_digest(file, "sha256").hexdigest()]
    parts += [content.early.digest(), content.late.digest(), APPEND]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def _write_kernel(kernel: Kernel, target: Path) -> None:
    """The kernel unpacked, when QEMU can enter it so (PVH); else as it is."""
    packed = kernel.image.read_bytes()
    try:
        unpacked = payload(packed)
        boots = has_pvh_entry(unpacked)
    except HostError:
        boots, unpacked = False, b""
    target.write_bytes(unpacked if boots else packed)


def _prune(directory: Path) -> None:
    """Removes old images, but never one used today: a guest of another process may need it."""
    manifests = list(directory.glob("[!.]*/manifest.json"))
    manifests.sort(key=lambda path: path.stat().st_mtime, reverse=True)
    for manifest in manifests[_KEPT_IMAGES:]:
        if time.time() - manifest.stat().st_mtime > _KEPT_SECONDS:
            shutil.rmtree(manifest.parent, ignore_errors=True)
