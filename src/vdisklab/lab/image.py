"""The lab's system: built once from the distribution's packages, kept by what it is made of."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
import time
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from vdisklab.errors import CommandError, HostError
from vdisklab.guest.image.cache import building, keep, locked
from vdisklab.host.command import Host
from vdisklab.lab.recipe import (
    FINISH,
    Source,
    bootstrap_command,
    key_of,
    parse_sources,
)
from vdisklab.progress import Note, Progress, Step
from vdisklab.units import GIB, MIB, format_bytes, format_duration

_BUILD_SECONDS = 7200.0
_BUILD_ROOM = 6 * GIB
_SPARE = 512 * MIB
_MANIFEST = "manifest.json"
_FILES = ("root.ext4", "vmlinuz", "initrd")
# The packages whose version decides what the lab can do; zfs-dkms may not be in apt's lists here.
_TELLING = ("linux-image-amd64", "lvm2", "mdadm", "qemu-system-x86", "fio", "python3")


@dataclass(frozen=True, slots=True)
class LabImage:
    """A system that boots: its root file system, kernel and initial file system."""

    directory: Path
    kernel_release: str
    python: str

    @property
    def root(self) -> Path:
        """The root file system, ext4, never written to: guests get a layer over it."""
        return self.directory / "root.ext4"

    @property
    def kernel(self) -> Path:
        """The kernel."""
        return self.directory / "vmlinuz"

    @property
    def initrd(self) -> Path:
        """Its initial file system."""
        return self.directory / "initrd"


def lab_cache(cache: Path) -> Path:
    """Where lab images are kept."""
    return cache / "lab"


def find_image(host: Host, cache: Path) -> LabImage | None:
    """The image for this host's sources of packages as they are now, or None when there is none.

    Raises HostError when it is there and damaged.
    """
    place = lab_cache(cache) / _key(host)
    return _read(place) if place.is_dir() else None


def build_image(host: Host, cache: Path, progress: Progress, *, again: bool = False) -> LabImage:
    """The image, made if it is not there (or `again`); takes minutes.

    Raises HostError: no root, no room, no network, a package that fails. Then nothing is kept.
    """
    key = _key(host)
    with locked(lab_cache(cache)) as parent:
        place = parent / key
        if place.is_dir() and not again:
            return _read(place)
        _require_means(host, parent)
        with building(parent) as fresh:
            started = time.monotonic()
            _bootstrap(host, fresh, progress)
            _pack(host, fresh, progress)
            _write_manifest(fresh, time.monotonic() - started)
            image = _read(keep(fresh, place))
    progress(Note(f"built in {format_duration(time.monotonic() - started)}: {image.directory}"))
    return image


def _key(host: Host) -> str:
    shown = host.run("apt-cache", "show", "--no-all-versions", *_TELLING, allowed=(0, 100)).stdout
    versions = [line for line in shown.splitlines() if line.startswith(("Package:", "Version:"))]
    return key_of(_sources(host), versions, _init())


def _sources(host: Host) -> tuple[Source, ...]:
    if host.which("apt-get") is None:
        raise HostError(
            "the lab is made of Debian's packages, and there is no apt-get here",
            hint="build it on a Debian host",
        )
    form = "$(ORIGIN)|$(REPO_URI)|$(CODENAME)|$(COMPONENT)"
    listing = host.run("apt-get", "indextargets", "--format", form, "Created-By: Packages").stdout
    return parse_sources(listing)


def _init() -> str:
    return resources.files("vdisklab.lab").joinpath("init.sh").read_text()


def _require_means(host: Host, parent: Path) -> None:
    if os.geteuid() != 0:
        raise HostError("it takes root to build the lab", hint="run it with sudo")
    for program, package in (("mmdebstrap", "mmdebstrap"), ("mke2fs", "e2fsprogs")):
        if host.which(program) is None:
            raise HostError(f"{program} is not installed", hint=f"apt-get install {package}")
    free = shutil.disk_usage(parent).free
    if free < _BUILD_ROOM:
        raise HostError(
            f"building the lab takes {format_bytes(_BUILD_ROOM)}, "
            f"and {parent} has {format_bytes(free)} free",
            hint="make room, or set VDISKLAB_STATE to a directory that has it",
        )


def _bootstrap(host: Host, fresh: Path, progress: Progress) -> None:
    progress(Step("installing the lab's packages and compiling ZFS; this takes some ten minutes"))
    finish, init, root = fresh / "finish.sh", fresh / "init.sh", fresh / "root"
    finish.write_text(FINISH)
    init.write_text(_init())
    command = bootstrap_command(_sources(host), str(root), str(finish), str(init))
    try:
        done = host.run(*command, timeout=_BUILD_SECONDS)
    except CommandError as error:
        said = [line for line in error.stderr.splitlines() if line.startswith(("E:", "W: E"))]
        raise HostError(
            f"the lab's packages cannot be installed: {' | '.join(said[-3:]) or error}",
            hint="without a network, or with lists out of date, run `apt-get update` and try again",
        ) from error
    (fresh / "build.log").write_text(done.stderr)
    finish.unlink()
    init.unlink()


def _pack(host: Host, fresh: Path, progress: Progress) -> None:
    progress(Step("writing the lab's root file system"))
    root = fresh / "root"
    for source, name in (("vmlinuz-*", "vmlinuz"), ("initrd.img-*", "initrd")):
        found = sorted((root / "boot").glob(source))
        if not found:
            raise HostError(f"the lab's system has no /boot/{source}", hint="build it again")
        shutil.copyfile(found[-1], fresh / name)
    used = sum(path.lstat().st_size for path in root.rglob("*") if path.is_file())
    size = int(used * 1.25) + _SPARE
    host.run("mke2fs", "-q", "-t", "ext4", "-d", root, fresh / "root.ext4", f"{size // 1024}k",
             timeout=900)  # fmt: skip


def _write_manifest(fresh: Path, seconds: float) -> None:
    root = fresh / "root"
    (modules,) = (root / "lib/modules").iterdir()
    python = (root / "usr/bin/python3").readlink().name.removeprefix("python")
    manifest = {
        "kernel": modules.name,
        "python": python,
        "seconds": round(seconds, 1),
        "files": {name: _digest(fresh / name) for name in _FILES},
    }
    shutil.rmtree(root)
    (fresh / _MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n")


def _digest(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "blake2b").hexdigest()[:32]


def _read(place: Path) -> LabImage:
    """An image whose files are what its manifest says; HostError when they are not."""
    again = "run `vdisklab lab build --again`"
    try:
        manifest = json.loads((place / _MANIFEST).read_text())
        for name in _FILES:
            if _digest(place / name) != manifest["files"][name]:
                raise HostError(f"the lab image is damaged: {place / name}", hint=again)
        return LabImage(place, manifest["kernel"], manifest["python"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise HostError(f"the lab image in {place} is damaged: {error}", hint=again) from error


def require_same_python(image: LabImage) -> None:
    """Raises HostError when our compiled packages cannot run in the lab."""
    ours = f"{sys.version_info.major}.{sys.version_info.minor}"
    if image.python != ours:
        raise HostError(
            f"vdisklab runs under Python {ours} here, and the lab has {image.python}",
            hint=f"make its environment with python{image.python}",
        )
