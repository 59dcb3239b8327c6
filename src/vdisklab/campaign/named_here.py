"""What a request names on this host: profile, guest, QEMUs, targets, and the disks' place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from vdisklab.campaign.guests import find_firmware, inspect_image
from vdisklab.campaign.qemu_limits import limits_of, missing_program, with_daemon
from vdisklab.campaign.template import GivenImage, inspect_template, require_fits
from vdisklab.errors import PlanError
from vdisklab.guest.qemu.probe import probe_qemu
from vdisklab.guest.systems import read_diskspd
from vdisklab.host.blockdevice import open_device
from vdisklab.host.command import Host
from vdisklab.host.mounts import Mount, mount_of, require_work_directory
from vdisklab.path.architecture import GUEST
from vdisklab.path.named_target import NamedTarget
from vdisklab.plan.capabilities import QemuLimits
from vdisklab.plan.guest import (
    Firmware,
    Qemu,
    RequestedQemu,
    SystemBus,
    UserGuest,
    require_distinct,
)
from vdisklab.plan.profile import Profile
from vdisklab.plan.settings import Request
from vdisklab.storage.given import with_kinds
from vdisklab.workload.requested_profile import requested_profile


@dataclass(frozen=True, slots=True)
class NamedHere:
    """What a request names on this host, as it was found here before anything was decided.

    `limits` are the features that each of the QEMUs lacks. `mount` is the one that the images lie
    on, None if they lie on devices.
    """

    profile: Profile
    guest: UserGuest | None
    qemus: tuple[Qemu, ...]
    limits: Mapping[str, QemuLimits]
    targets: tuple[NamedTarget, ...]
    mount: Mount | None
    template: GivenImage | None = None

    @property
    def on_tmpfs(self) -> bool:
        """True if the images lie in the page cache alone."""
        return self.mount is not None and self.mount.filesystem == "tmpfs"


def named_here(host: Host, request: Request) -> NamedHere:
    """What a request names on this host, from the profile down to the place of its disks.

    Raises PlanError for a profile that cannot be, HostError if a file or QEMU is not usable here.
    """
    guest = requested_guest(host, request)
    qemus, limits = find_qemus(host, request.qemu)
    profile = requested_profile(request)
    given = None if request.template is None else inspect_template(host, request.template)
    if given is not None and request.size_bytes is not None:
        require_fits(given, request.size_bytes)
    targets = with_kinds(host, request.target)
    for device in request.devices:
        open_device(device)  # before a path is judged by it
    directory = (request.directory or Path()).absolute()
    require_work_directory(directory)
    mount = None if request.devices else mount_of(directory)
    return NamedHere(profile, guest, qemus, limits, targets, mount, given)


def requested_guest(host: Host, request: Request) -> UserGuest | None:
    """The user guest whose image a request names; None for the micro guest.

    Raises HostError if the image, the firmware or DISKSPD is missing or unusable.
    """
    if request.guest_image is None:
        return None
    usual = inspect_image(host, request.guest_image)
    firmware = request.guest_firmware or (usual.firmware if GUEST.has_bios else Firmware.UEFI)
    _require_possible(firmware, request.guest_bus or usual.bus)
    if firmware is Firmware.UEFI:
        find_firmware()
    if request.diskspd is not None:
        read_diskspd(request.diskspd)
    return replace(
        usual,
        firmware=firmware,
        bus=request.guest_bus or usual.bus,
        boot_seconds=request.guest_boot,
        diskspd=request.diskspd,
    )


def _require_possible(firmware: Firmware, bus: SystemBus) -> None:
    """Raises PlanError for what no machine of the guests' architecture has."""
    if firmware is Firmware.BIOS and not GUEST.has_bios:
        raise PlanError(
            f"guests of {GUEST.title} have no BIOS", hint="leave out --guest-firmware: uefi"
        )
    if bus not in GUEST.machines:
        raise PlanError(
            f"--guest-bus {bus}: {GUEST.missing_buses[bus]}",
            hint=f"choose {' or '.join(name for name in SystemBus if name in GUEST.machines)}",
        )


def find_qemus(
    host: Host, requested: Sequence[RequestedQemu]
) -> tuple[tuple[Qemu, ...], Mapping[str, QemuLimits]]:
    """The requested QEMUs with their names, and the features that each lacks.

    Raises HostError for a program that is not QEMU or too old, PlanError for two with one name.
    """
    qemus: list[Qemu] = []
    capabilities: dict[str, QemuLimits] = {}
    for request in requested:
        features = probe_qemu(host, request.binary)
        binary = host.which(str(request.binary)) or request.binary
        qemu = Qemu(request.name or features.number, binary.absolute(), features.version)
        qemus.append(qemu)
        limits = limits_of(features, f"QEMU {qemu.name}", "choose another bus")
        limits = with_daemon(host, limits)
        capabilities[qemu.name] = replace(limits, guest=missing_program(host, "qemu-img"))
    require_distinct(qemus)
    return tuple(qemus), capabilities
