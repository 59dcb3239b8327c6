"""What a request names on this host: profile, guest, QEMUs, targets, and the disks' place."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path

from vdisklab.campaign.guests import requested_guest
from vdisklab.campaign.qemu_limits import find_qemus
from vdisklab.campaign.template import (
    disk_size_for,
    inspect_template,
    require_fits,
    require_whole,
)
from vdisklab.errors import PlanError
from vdisklab.host.blockdevice import open_device
from vdisklab.host.command import Host
from vdisklab.host.extents import can_share_blocks
from vdisklab.host.mounts import mount_of, require_copy_directory, require_work_directory
from vdisklab.path.disk_path import has_known_names
from vdisklab.path.named_target import NamedTarget
from vdisklab.path.rules import Impossible
from vdisklab.plan.destination import named_directory
from vdisklab.plan.making_here import NOTHING_KNOWN, MakingHere
from vdisklab.plan.named_here import NamedHere
from vdisklab.plan.settings import Request
from vdisklab.storage.given import with_kinds
from vdisklab.workload.requested_profile import requested_profile


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
    if copies is None and request.to is not None:
        _require_no_directory(request.to, targets)
    if copies is not None:
        require_copy_directory(Path(copies.place))
    mount = None if request.devices else mount_of(directory)
    on_tmpfs = mount is not None and mount.filesystem == "tmpfs"
    making = NOTHING_KNOWN
    if profile.makes_disks:
        state = "" if given is None else given.state
        making = MakingHere(state, _unshared(request, targets, directory))
    found = replace(request, target=targets)
    if given is not None and request.size_bytes is None:
        found = replace(found, size_bytes=disk_size_for(given))
    return NamedHere(found, profile, guest, qemus, limits, on_tmpfs, making)


def _unshared(
    request: Request, targets: Collection[NamedTarget], directory: Path
) -> Mapping[str, Impossible]:
    """Which of the user's directories hold files that cannot share blocks: each is tried."""
    unshared = {}
    if not request.devices and can_share_blocks(directory) is False:
        unshared[""] = Impossible(
            f"the work directory is on {_filesystem(directory)}, which shares no blocks between "
            "files here",
            "write xfs or btrfs before it, or choose a --dir on one of them",
        )
    for target in targets:
        place = Path(target.place)
        if target.opened_by_qemu or not target.holds_files or can_share_blocks(place) is not False:
            continue
        unshared[target.layer] = Impossible(
            f"{target.called} is on {_filesystem(place)}, which shares no blocks between files "
            "here",
            "name a target on xfs or btrfs",
        )
    return unshared


def _filesystem(directory: Path) -> str:
    mount = mount_of(directory)
    return "a file system" if mount is None else mount.filesystem


def _require_no_directory(to: str, targets: Collection[NamedTarget]) -> None:
    """Raises PlanError for a `--to` that is a directory here, and reads as no disk path."""
    named = to.partition("/")[0] in {target.name for target in targets}
    if not named and not has_known_names(to) and Path(to).is_dir():
        raise PlanError(
            f"--to {to} is read as a disk path, and {to.partition('/')[0]!r} is no segment of one",
            hint=f"for the directory write --to ./{to}",
        )
