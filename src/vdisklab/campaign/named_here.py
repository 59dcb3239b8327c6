"""What a request names on this host: profile, guest, QEMUs, targets, and the disks' place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from vdisklab.campaign.guests import requested_guest
from vdisklab.campaign.qemu_limits import find_qemus
from vdisklab.campaign.template import GivenImage, inspect_template, require_fits, require_whole
from vdisklab.host.blockdevice import open_device
from vdisklab.host.command import Host
from vdisklab.host.mounts import Mount, mount_of, require_copy_directory, require_work_directory
from vdisklab.path.named_target import NamedTarget
from vdisklab.plan.capabilities import QemuLimits
from vdisklab.plan.destination import named_directory
from vdisklab.plan.guest import Qemu, UserGuest
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
    if given is not None:
        require_whole(host, given)
        require_fits(given, given.size if request.size_bytes is None else request.size_bytes)
    targets = with_kinds(host, request.target)
    for device in request.devices:
        open_device(device)  # before a path is judged by it
    directory = (request.directory or Path()).absolute()
    require_work_directory(directory)
    copies = named_directory(request.to)
    if copies is not None:
        require_copy_directory(Path(copies.place))
    mount = None if request.devices else mount_of(directory)
    return NamedHere(profile, guest, qemus, limits, targets, mount, given)
