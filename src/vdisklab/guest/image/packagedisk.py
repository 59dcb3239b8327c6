"""The packages of a system, for a guest without a network: a directory, and a disk with the same.

Kept in the cache, named by their content:

    CACHE/packages/FINGERPRINT/debs/          the packages, and two lists of them: first, rest
                               disk.ext4      the same as an image for a read-only disk
                               manifest.json

What is there is used as it is, without asking apt, so that a campaign goes on with the packages
that it began with. Remove the directory to get the distribution's newest.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vdisklab.errors import HostError
from vdisklab.guest.image.cachedir import building, keep, locked
from vdisklab.guest.image.packages import closure, download_packages
from vdisklab.host.command import Host
from vdisklab.plan.guest import System

# Counts up when the same packages would make another directory.
_RECIPE = 1


@dataclass(frozen=True, slots=True)
class PackageSet:
    """Packages at hand: `directory` for the host, `disk` (ext4) for a guest."""

    directory: Path
    disk: Path
    fingerprint: str
    count: int


def package_set(host: Host, cache: Path, system: System) -> PackageSet:
    """The packages of a system, downloaded by the host's apt if they are not in the cache.

    Raises HostError: no apt, no network, lists out of date, no room.
    """
    directory = cache / "packages"
    request = _request(host, system)
    kept = _kept(directory, request)
    if kept is not None:
        return kept
    with locked(directory):
        kept = _kept(directory, request)
        if kept is not None:
            return kept
        try:
            return _build(host, directory, system, request)
        except OSError as error:
            raise HostError(
                f"the packages cannot be kept in {directory}: {error.strerror or error}",
                hint="make room there, or set another cache directory",
            ) from error


def _request(host: Host, system: System) -> dict[str, Any]:
    """What was asked for, of which distribution."""
    try:
        release = platform.freedesktop_os_release()
    except OSError:
        release = {}
    told = host.run("dpkg", "--print-architecture", allowed=range(256)).stdout.strip()
    return {
        "recipe": _RECIPE,
        "system": system.name,
        "packages": [list(system.first), list(system.rest)],
        "distribution": [release.get("ID", ""), release.get("VERSION_ID", "")],
        "architecture": told,
    }


def _kept(directory: Path, request: Mapping[str, Any]) -> PackageSet | None:
    for manifest in sorted(directory.glob("[!.]*/manifest.json")):
        try:
            known = json.loads(manifest.read_text())
            found = _found(manifest.parent, int(known["count"]))
        except (OSError, ValueError, KeyError, TypeError):
            continue  # half-written by a crash of the machine
        if known.get("request") == request and found.disk.exists():
            return found
    return None


def _found(place: Path, count: int) -> PackageSet:
    return PackageSet(place / "debs", place / "disk.ext4", place.name, count)


def _build(host: Host, directory: Path, system: System, request: Mapping[str, Any]) -> PackageSet:
    with building(directory) as work:
        status, debs = work / "status", work / "debs"
        status.touch()
        every = download_packages(host, (*system.first, *system.rest), status, debs)
        first = set(closure(host, system.first, status)) if system.rest else set(every)
        lists = {
            "first": [name for name in every if name in first],
            "rest": [name for name in every if name not in first],
        }
        for name, files in lists.items():
            (debs / name).write_text("".join(f"{file}\n" for file in files))
        status.unlink()
        _write_disk(host, debs, work / "disk.ext4")
        manifest = {"request": request, "count": len(every)}
        (work / "manifest.json").write_text(json.dumps(manifest, indent=1))
        final = keep(work, directory / _fingerprint(debs, every))
    return _found(final, len(every))


def _fingerprint(debs: Path, files: list[str]) -> str:
    total = hashlib.sha256()
    for name in files:
        with (debs / name).open("rb") as file:
            content = hashlib.file_digest(file, "sha256").hexdigest()
        total.update(f"{name} {content}\n".encode())
    return total.hexdigest()[:16]


def _write_disk(host: Host, debs: Path, image: Path) -> None:
    """An ext4 image without a journal: it is never written to again."""
    size = sum(os.stat(file).st_size + 4096 for file in debs.iterdir())  # noqa: PTH116
    room = shutil.disk_usage(image.parent).free
    if size > room:
        raise HostError(
            f"{image.parent.parent} has no room for the packages",
            hint="make room there, or set another cache directory",
        )
    kib = size * 21 // 20 // 1024 + 4096
    host.run(
        "mke2fs", "-q", "-t", "ext4", "-b", "4096", "-m", "0", "-O", "^has_journal",
        "-E", "root_owner=0:0", "-d", debs, image, f"{kib}k",
        timeout=300,
    )  # fmt: skip
