"""Debian's packages of another architecture than this host's: unpacked, never installed.

apt works with lists and a state of its own, so dpkg of this host learns of no foreign architecture:

    CACHE/apt-ARCHITECTURE/              apt's lists and empty state
    CACHE/system-ARCHITECTURE/root/      the unpacked packages of the micro guest's programs
                              manifest.json

The unpacked packages are kept, so that campaigns stay comparable; remove the directory to get the
distribution's newest ones.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from vdisklab.errors import CommandError, HostError
from vdisklab.guest.image.cache import building, keep, kept_or_built
from vdisklab.guest.image.debian_packages import Apt, download_packages
from vdisklab.guest.image.elf import needed_libraries
from vdisklab.host.command import PROGRAMS, Host
from vdisklab.path.architecture import GUEST, is_foreign
from vdisklab.value import Value

_UPDATE_SECONDS = 600.0
_MANIFEST = "manifest.json"
# Increase it when the same packages give another system than before.
_RECIPE = 1
_PLACES = ("usr/bin", "usr/sbin", "bin", "sbin", "usr/lib/postgresql/*/bin")
_LIBRARIES = (
    "lib/*-linux-gnu", "usr/lib/*-linux-gnu", "lib", "usr/lib", "lib64", "usr/lib64",
)  # fmt: skip
_FORM = "$(ORIGIN)|$(REPO_URI)|$(CODENAME)|$(COMPONENT)|$(SIGNED_BY)"


class ForeignSystem(Value):
    """Programs of another architecture below `root`; `versions` has those of their packages."""

    root: Path
    versions: Mapping[str, str]

    def which(self, name: str) -> Path | None:
        """The place of a program; None if no package has it."""
        found = (path for place in _PLACES for path in sorted(self.root.glob(f"{place}/{name}")))
        return next((path for path in found if self.real(path) is not None), None)

    def real(self, path: Path) -> Path | None:
        """The file behind links, which begin at `root` if they are absolute; None without one."""
        for _ in range(20):
            if not path.is_symlink():
                return path if path.is_file() else None
            target = path.readlink()
            path = self.root / target.relative_to("/") if target.is_absolute() else (
                path.parent / target
            )  # fmt: skip
        return None

    def version(self, program: str) -> str:
        """The version of a program's package."""
        return self.versions.get(_package_of(program), "unknown")

    def libraries(self, files: Iterable[Path]) -> list[Path]:
        """All shared libraries that these programs load, and the dynamic loader.

        Raises HostError if no package has one of them.
        """
        found: dict[str, Path] = {}
        queue = [*files]
        while queue:
            file = queue.pop()
            for name in needed_libraries(file):
                if name in found:
                    continue
                path = self._library(name, file)
                if path is None:
                    raise HostError(f"no package has the library {name}, which {file.name} loads")
                found[name] = path
                real = self.real(path)
                queue += [] if real is None else [real]
        return sorted(found.values())

    def _library(self, name: str, user: Path) -> Path | None:
        """The library's path; a private one lies below the program's or library's directory."""
        name = name.lstrip("/")
        if "/" in name:
            return self.root / name if self.real(self.root / name) else None
        places = [self.root / place for place in _LIBRARIES]
        forms = [*(str(place.relative_to(self.root)) for place in places)]
        for form in (*forms, "usr/lib/*-linux-gnu/*"):
            for path in sorted(self.root.glob(f"{form}/{name}")):
                if self.real(path) is not None:
                    return path
        beside = user.with_name(name)
        return beside if beside.exists() else None


def _package_of(program: str) -> str:
    """Debian's package that has the program, by the table of packages."""
    return PROGRAMS[program].packages[0]


def foreign_apt(host: Host, cache: Path) -> Apt:
    """apt for the guests' architecture: this host's own, or one with lists of its own.

    Raises HostError if this host's apt knows no sources of Debian, or cannot reach them.
    """
    if not is_foreign():
        return Apt()
    name = GUEST.packages.architecture
    directory = cache / f"apt-{GUEST.name}"
    for part in ("lists/partial", "cache/archives/partial"):
        (directory / part).mkdir(parents=True, exist_ok=True)
    (directory / "status").touch()
    (directory / "sources.list").write_text("".join(_sources(host, name)))
    options = (
        "-o", f"APT::Architecture={name}", "-o", f"APT::Architectures={name}",
        "-o", f"Dir::State={directory}", "-o", f"Dir::State::lists={directory}/lists",
        "-o", f"Dir::State::status={directory}/status", "-o", f"Dir::Cache={directory}/cache",
        "-o", f"Dir::Etc::sourcelist={directory}/sources.list", "-o", "Dir::Etc::sourceparts=-",
        "-o", "APT::Sandbox::User=root", "-o", "Acquire::Languages=none",
    )  # fmt: skip
    try:
        host.run("apt-get", *options, "-q", "update", timeout=_UPDATE_SECONDS)
    except CommandError as error:
        raise HostError(
            f"apt cannot get the lists of {name}'s packages: {error}",
            hint="connect this machine to the network; `apt-get update` must work here",
        ) from error
    return Apt(options)


def _sources(host: Host, name: str) -> list[str]:
    """Lines for sources.list: this host's own sources of Debian, for that architecture."""
    if host.which("apt-get") is None:
        raise HostError(
            f"guests of {GUEST.name} are made from Debian's packages, and apt-get is not installed",
            hint=f"measure on a Debian host, or on a host of {GUEST.name}",
        )
    listing = host.run("apt-get", "indextargets", "--format", _FORM, "Created-By: Packages").stdout
    lines: dict[str, None] = {}
    for line in listing.splitlines():
        origin, uri, codename, component, key = line.split("|")
        if origin == "Debian" and component == "main":
            signed = f" signed-by={key}" if key.startswith("/") else ""
            lines[f"deb [arch={name}{signed}] {uri.rstrip('/')} {codename} {component}\n"] = None
    if not lines:
        raise HostError(
            f"guests of {GUEST.name} are made from Debian's packages, and apt has no sources of "
            "Debian here",
            hint="run `apt-get update`; other distributions cannot make them yet",
        )
    return list(lines)


def foreign_system(host: Host, cache: Path, programs: Sequence[str]) -> ForeignSystem:
    """The guests' programs, from the cache, or downloaded and unpacked.

    Raises HostError without apt, network or room.
    """
    wanted = sorted({_package_of(name) for name in programs})
    request = {"recipe": _RECIPE, "packages": wanted}
    final = cache / f"system-{GUEST.name}"
    return kept_or_built(
        cache,
        lambda: _kept(final, request),
        lambda: _build(host, cache, final, request),
        "the guest's system",
    )


def _kept(final: Path, request: Mapping[str, Any]) -> ForeignSystem | None:
    try:
        stored = json.loads((final / _MANIFEST).read_text())
        if stored["request"] == request:
            return ForeignSystem(final / "root", stored["versions"])
    except (OSError, ValueError, KeyError, TypeError):
        pass  # none yet, or incomplete after a crash of the machine
    return None


def _build(host: Host, cache: Path, final: Path, request: Mapping[str, Any]) -> ForeignSystem:
    with building(cache) as work:
        status, debs, root = work / "status", work / "debs", work / "root"
        status.touch()
        root.mkdir()
        apt = foreign_apt(host, cache)
        files = download_packages(host, request["packages"], status, debs, apt)
        for file in files:
            host.run("dpkg-deb", "-x", debs / file, root, timeout=300)
            (debs / file).unlink()
        versions = dict(map(_name_and_version, files))
        (work / _MANIFEST).write_text(
            json.dumps({"request": dict(request), "versions": versions}, indent=1)
        )
        keep(work, final)
    return ForeignSystem(final / "root", versions)


def _name_and_version(file: str) -> tuple[str, str]:
    """Of a package's file, such as fio_3.33-3_arm64.deb; apt writes an epoch's colon as %3a."""
    name, version, *_ = file.split("_")
    return name, re.sub(r"^\d+%3a", "", version)
