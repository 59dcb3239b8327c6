"""The packages that a profile's installations need: where they are, and that it was these."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from vdisklab.guest.image.debian_packages import PackageSet, package_set
from vdisklab.guest.qemu.command_line import CarriedDisk
from vdisklab.host.command import Host
from vdisklab.plan.guest import SYSTEMS
from vdisklab.plan.profile import Profile
from vdisklab.progress import Progress, Step
from vdisklab.results.model import Check
from vdisklab.workload.install import systems_of

Packages = Mapping[str, PackageSet]
"""The packages of each system that is installed, by the system's name."""


def gather_packages(host: Host, cache: Path, profile: Profile, progress: Progress) -> Packages:
    """The packages of all that the profile installs, downloaded if they are not in the cache."""
    found = {}
    for system in systems_of(profile):
        progress(Step(f"getting the packages of the {system.name} system"))
        found[system.name] = package_set(host, cache, system)
    return found


def carried_disks(packages: Packages) -> tuple[CarriedDisk, ...]:
    """The disks that guests find the packages on."""
    return tuple(CarriedDisk(SYSTEMS[name].serial, found.disk) for name, found in packages.items())


def host_places(packages: Packages) -> dict[str, str]:
    """The directories that programs on the host find them in."""
    return {name: str(found.directory) for name, found in packages.items()}


def package_checks(packages: Packages) -> tuple[Check, ...]:
    """Which packages they are: numbers of other ones are of another measurement."""
    return tuple(
        Check(f"packages.{name}", None, f"{found.count} packages, {found.fingerprint}")
        for name, found in packages.items()
    )
