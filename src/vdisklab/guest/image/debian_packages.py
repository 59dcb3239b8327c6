"""Distribution packages: unpacks a single one, or downloads all of a system for a guest offline.

Nothing is installed on the host. The packages of a system are kept in the cache:

    CACHE/packages/FINGERPRINT/debs/          the packages, and two lists of them: first, rest
                               disk.ext4      the same as an image for a read-only disk
                               manifest.json

They are reused without asking apt, so a campaign continues with the same packages. Remove the
directory to get the distribution's newest ones.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from vdisklab.errors import CommandError, HostError
from vdisklab.guest.image.cache import building, keep, kept_or_built
from vdisklab.host.command import Completed, Host
from vdisklab.host.mounts import free_bytes
from vdisklab.path.architecture import GUEST, is_foreign
from vdisklab.plan.guest import System
from vdisklab.value import Value

_DOWNLOAD_SECONDS = 900.0

_CAUSES = (
    ("No space left", "the disk is full", "free some space, or set another cache directory"),
    ("Hash Sum mismatch", "the download is damaged", "run `apt-get update` and try again"),
    ("Unable to locate package", "apt cannot find it", "run `apt-get update` as root"),
    ("No candidate version", "apt cannot find it", "run `apt-get update` as root"),
    ("Can't find a source", "apt cannot find it", "run `apt-get update` as root"),
    ("404", "apt's lists are out of date", "run `apt-get update` as root"),
    ("resolv", "there is no network", "connect this machine, or name another kernel"),
    ("connect", "there is no network", "connect this machine, or name another kernel"),
    ("Failed to fetch", "the download failed", "run `apt-get update` and try again"),
)


# Increase it when the same packages give a different directory than before.
_RECIPE = 1


class Apt(Value):
    """apt's options for packages of another architecture; none for this host's own."""

    options: tuple[str, ...] = ()


def depends_on(host: Host, package: str, apt: Apt = Apt()) -> list[str]:
    """The packages that the newest candidate of `package` depends on, by name.

    Raises HostError when apt is missing or does not know the package.
    """
    if host.which("apt-cache") is None:
        raise HostError(
            f"the package {package} cannot be looked up: this is not a Debian-like system",
            hint="install a kernel so that /boot/vmlinuz-* and /lib/modules exist",
        )
    shown = host.run(
        "apt-cache", *apt.options, "show", "--no-all-versions", package, allowed=(0, 100)
    ).stdout
    for line in shown.splitlines():
        if line.startswith("Depends:"):
            wanted = line.removeprefix("Depends:").split(",")
            return [entry.split()[0] for entry in wanted if entry.split()]
    raise HostError(f"apt cannot find the package {package}", hint="run `apt-get update` as root")


def unpack_package(host: Host, package: str, into: Path, apt: Apt = Apt()) -> None:
    """Downloads the newest candidate of `package` and unpacks it into the directory `into`.

    Raises HostError with the cause: no network, no room, a damaged download. Files unpacked before
    the error stay in `into`, which the caller removes.
    """
    with tempfile.TemporaryDirectory(dir=into.parent, prefix=".download-") as name:
        directory = Path(name)
        try:
            # `apt-get download` writes to the current directory. As root it would drop to the
            # user _apt, who cannot write there, and warn of it on every run.
            host.run(
                "env", "-C", directory, "apt-get", *apt.options, "download", "-q",
                "-o", "APT::Sandbox::User=root", package,
                timeout=_DOWNLOAD_SECONDS,
            )  # fmt: skip
            (archive,) = sorted(directory.glob("*.deb"))
            host.run("dpkg-deb", "-x", archive, into, timeout=300)
        except CommandError as error:
            raise _explain(package, error) from error
        except ValueError as error:
            raise HostError(f"apt-get did not download exactly one file for {package}") from error


def _explain(package: str, error: CommandError) -> HostError:
    for sign, cause, hint in _CAUSES:
        if sign in error.stderr:
            return HostError(
                f"the package {package} cannot be downloaded: {cause} ({error})", hint=hint
            )
    if error.argv[0] == "dpkg-deb":
        return HostError(
            f"the package {package} cannot be unpacked: the download is damaged ({error})",
            hint="try again",
        )
    return HostError(
        f"the package {package} cannot be downloaded: {error}", hint="run `apt-get update`"
    )


def closure(host: Host, wanted: Sequence[str], status: Path, apt: Apt = Apt()) -> list[str]:
    """The names of all package files that are needed to install `wanted` on an empty system.

    `status` is an empty file that replaces dpkg's list of installed packages. Raises the same
    errors as `download_packages`.
    """
    output = _apt_get(host, ("--print-uris", "install", *wanted), status, wanted, apt).stdout
    files = re.findall(r"^'[^']*' (\S+\.deb) ", output, re.MULTILINE)
    if not files:
        raise HostError(f"apt names no package for {', '.join(wanted)}")
    return sorted(files)


def download_packages(
    host: Host, wanted: Sequence[str], status: Path, into: Path, apt: Apt = Apt()
) -> list[str]:
    """Downloads `wanted` with its dependencies into `into`; returns the names of the files.

    apt checks each file against its signed lists. Raises HostError with the cause.
    """
    (into / "partial").mkdir(parents=True)
    arguments = ("-o", f"Dir::Cache::archives={into}", "--download-only", "install", *wanted)
    _apt_get(host, arguments, status, wanted, apt)
    (into / "partial").rmdir()
    (into / "lock").unlink(missing_ok=True)
    files = sorted(file.name for file in into.glob("*.deb"))
    if not files:
        raise HostError(f"apt-get downloaded nothing for {', '.join(wanted)}")
    return files


def _apt_get(
    host: Host, arguments: Sequence[str], status: Path, wanted: Sequence[str], apt: Apt
) -> Completed:
    if host.which("apt-get") is None:
        raise HostError(
            "apt-get is not installed: packages can be downloaded on Debian-like systems only",
            hint="choose another profile",
        )
    try:
        # The system's package state is replaced by an empty one and not locked.
        return host.run(
            "apt-get", *apt.options, "-y", "-q", "--no-install-recommends",
            "-o", f"Dir::State::status={status}", "-o", "Debug::NoLocking=1",
            "-o", "APT::Sandbox::User=root", "-o", "Dir::Cache::pkgcache=",
            "-o", "Dir::Cache::srcpkgcache=", *arguments,
            timeout=_DOWNLOAD_SECONDS,
        )  # fmt: skip
    except CommandError as error:
        raise _explain(" ".join(wanted), error) from error


class PackageSet(Value):
    """Downloaded packages: `directory` for the host, `disk` (ext4) for a guest."""

    directory: Path
    disk: Path
    fingerprint: str
    count: int

    def __str__(self) -> str:
        return f"{self.count} packages, {self.fingerprint}"


def package_set(
    host: Host, cache: Path, system: System, apt: Callable[[], Apt] = Apt
) -> PackageSet:
    """The packages of a system, downloaded by `apt` if they are not in the cache.

    Raises HostError without apt, network, current lists or room.
    """
    directory = cache / "packages"
    request = _request(host, system)
    return kept_or_built(
        directory,
        lambda: _kept(directory, request),
        lambda: _build(host, directory, system, request, apt()),
        "the package directory",
    )


def planned_packages(host: Host, cache: Path, system: System) -> PackageSet:
    """The packages in the cache; without them their places, with a placeholder."""
    directory = cache / "packages"
    kept = _kept(directory, _request(host, system))
    return kept or _package_set(directory / "FINGERPRINT", 0)


def _request(host: Host, system: System) -> dict[str, Any]:
    """The input of the package set: the packages' names, and the distribution."""
    try:
        release = platform.freedesktop_os_release()
    except OSError:
        release = {}
    if is_foreign():
        architecture = GUEST.packages.architecture
    else:
        architecture = host.run("dpkg", "--print-architecture", allowed=range(256)).stdout.strip()
    return {
        "recipe": _RECIPE,
        "system": system.name,
        "packages": [list(system.first), list(system.rest)],
        "distribution": [release.get("ID", ""), release.get("VERSION_ID", "")],
        "architecture": architecture,
    }


def _kept(directory: Path, request: Mapping[str, Any]) -> PackageSet | None:
    for manifest in sorted(directory.glob("[!.]*/manifest.json")):
        try:
            stored = json.loads(manifest.read_text())
            packages = _package_set(manifest.parent, int(stored["count"]))
        except (OSError, ValueError, KeyError, TypeError):
            continue  # incomplete after a crash of the machine
        if stored.get("request") == request and packages.disk.exists():
            return packages
    return None


def _package_set(root: Path, count: int) -> PackageSet:
    return PackageSet(root / "debs", root / "disk.ext4", root.name, count)


def _build(
    host: Host, directory: Path, system: System, request: Mapping[str, Any], apt: Apt
) -> PackageSet:
    with building(directory) as work:
        status, debs = work / "status", work / "debs"
        status.touch()
        every = download_packages(host, (*system.first, *system.rest), status, debs, apt)
        first = set(closure(host, system.first, status, apt)) if system.rest else set(every)
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
    return _package_set(final, len(every))


def _fingerprint(debs: Path, files: list[str]) -> str:
    total = hashlib.sha256()
    for name in files:
        with (debs / name).open("rb") as file:
            content = hashlib.file_digest(file, "sha256").hexdigest()
        total.update(f"{name} {content}\n".encode())
    return total.hexdigest()[:16]


def _write_disk(host: Host, debs: Path, image: Path) -> None:
    """Writes a read-only ext4 image, without a journal."""
    size = sum(os.stat(file).st_size + 4096 for file in debs.iterdir())  # noqa: PTH116
    room = free_bytes(image.parent)
    if size > room:
        raise HostError(
            f"{image.parent.parent} has no space left for the packages",
            hint="free some space there, or set another cache directory",
        )
    kib = size * 21 // 20 // 1024 + 4096
    host.run(
        "mke2fs", "-q", "-t", "ext4", "-b", "4096", "-m", "0", "-O", "^has_journal",
        "-E", "root_owner=0:0", "-d", debs, image, f"{kib}k",
        timeout=300,
    )  # fmt: skip
