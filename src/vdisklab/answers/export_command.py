"""The command that prints a measured path as a configuration, below the answer that names it.

`rank` ends with it, so what reads and writes configurations is not imported: the row of what a
platform can have tells which one the command is for.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path

from vdisklab.errors import HostError, PlanError
from vdisklab.host.command import LocalHost
from vdisklab.path.disk_path import parse_path
from vdisklab.path.named_target import options_of, parse_target
from vdisklab.path.platforms import Platform
from vdisklab.platforms.guest_disks import can_have
from vdisklab.platforms.request import ExportRequest
from vdisklab.results.model import Campaign
from vdisklab.value import Value


def libvirt_version(text: str | None) -> tuple[int, ...] | None:
    """A version such as 11.5 or 9.0.0. Without a text: the installed libvirt's version, if any.

    Raises PlanError for a text that is not a version.
    """
    if text is None:
        try:
            text = LocalHost().run("virsh", "--version", timeout=20).stdout.strip()
        except (HostError, PlanError):
            return None
    if not re.fullmatch(r"\d{1,4}(\.\d{1,4}){1,3}", text):
        raise PlanError(f"{text!r} is not a version of libvirt", hint="--libvirt 11.5")
    return tuple(map(int, text.split(".")))


class DiskPlace(Value):
    """Where a disk is: a device, or the user's storage with the file that has its password or key.

    `option` is what names it to `export`.
    """

    source: str | None = None
    storage: str | None = None
    secret: Path | None = None
    option: tuple[str, ...] = ()


def measured_place(
    path: str, campaign: Campaign, secrets: Sequence[tuple[str, Path]] = ()
) -> DiskPlace:
    """Where a path was measured: on the user's target, or without host layers on the device that
    `--on` named. Empty for other paths and for several devices: the guest's disk is elsewhere.
    """
    parsed, devices = parse_path(path), list(campaign.plan.get("devices") or [])
    name = parsed.layers[0].option("at") if parsed.layers else None
    for target in map(parse_target, campaign.plan.get("target") or ()):
        if target.name == name:
            return DiskPlace(storage=target.place, option=sum(options_of(target, secrets), ()))
    if len(devices) != 1 or parsed.layers:
        return DiskPlace()
    return DiskPlace(str(devices[0]), option=("--source", str(devices[0])))


class ExportCommand(Value):
    """The command that prints a path as a configuration; `cannot` are the platforms of the host
    that have no such disk."""

    arguments: tuple[str, ...]
    cannot: tuple[Platform, ...] = ()

    @property
    def text(self) -> str:
        """The command, quoted for a shell."""
        return shlex.join(("vdisklab", "export", *self.arguments))


def export_command(
    path: str,
    campaign: Campaign,
    platforms: Iterable[Platform] = (),
    secrets: Sequence[tuple[str, Path]] = (),
) -> ExportCommand | None:
    """The command that prints a measured path for the first of these platforms that can give a
    guest such a disk. Where none can it is for QEMU, and without a platform for libvirt. None if
    the path is not a guest's disk, such as one on the host.
    """
    try:
        parsed, place = parse_path(path), measured_place(path, campaign, secrets)
    except PlanError:  # the name of imported results
        return None
    wanted = dict.fromkeys((*platforms,) or (Platform.LIBVIRT,))
    disk = ExportRequest(parsed, place.source, storage=place.storage, secret=place.secret)
    for platform in (*wanted, Platform.QEMU):
        if can_have(platform, disk):
            cannot = tuple(wanted) if platform not in wanted else ()
            return ExportCommand((path, *place.option, "--to", platform.module), cannot)
    return None
