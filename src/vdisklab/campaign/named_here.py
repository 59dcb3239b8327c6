"""Finds what a request names on this host: profile, guest, QEMUs, image, targets, directory."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from vdisklab.campaign.given_image import disk_size_for, requested_template
from vdisklab.campaign.qemu_limits import find_qemus
from vdisklab.campaign.user_guest import requested_guest
from vdisklab.errors import PlanError
from vdisklab.host.blockdevice import open_device
from vdisklab.host.command import Host
from vdisklab.host.extents import can_share_blocks
from vdisklab.host.mounts import mount_of, require_copy_directory, require_work_directory
from vdisklab.path.disk_path import has_known_names
from vdisklab.path.rules import Impossible
from vdisklab.plan.destination import named_directory
from vdisklab.plan.making_here import NOTHING_KNOWN, MakingHere
from vdisklab.plan.named_here import NamedHere
from vdisklab.plan.settings import Request
from vdisklab.storage.given import with_kinds
from vdisklab.value import replace
from vdisklab.workload.profile_files import requested_profile


def named_here(host: Host, request: Request) -> NamedHere:
    """A request with what it names on this host: its profile, guest, QEMUs, image and storage.

    Raises PlanError for a profile that cannot be, HostError if a file or QEMU is not usable here.
    """
    profile = requested_profile(request)
    guest = requested_guest(host, request)
    qemus, limits = find_qemus(host, request.qemu)
    template = requested_template(host, request)
    targets = with_kinds(host, request.target)
    copies = named_directory(request.to)
    for device in request.devices:
        open_device(device)  # before a path is judged by it
    directory = (request.directory or Path()).absolute()
    require_work_directory(directory)
    mount = None if request.devices else mount_of(directory)
    if copies is not None:
        require_copy_directory(Path(copies.place))
    elif request.to is not None:
        # A directory of this name may be here, and the text may read as no disk path.
        first = request.to.partition("/")[0]
        is_path = first in {target.name for target in targets} or has_known_names(request.to)
        if not is_path and Path(request.to).is_dir():
            raise PlanError(
                f"--to {request.to} looks like a disk path, but a path cannot have {first!r}",
                hint=f"for the directory write --to ./{request.to}",
            )
    making = NOTHING_KNOWN
    if profile.makes_disks:
        places = {}
        if not request.devices:
            way = "write xfs or btrfs before it, or choose a --dir on one of them"
            places[""] = ("the work directory", directory, way)
        for target in targets:
            if target.holds_files and not target.opened_by_qemu:
                way = "name a target on xfs or btrfs"
                places[target.layer] = (target.called, Path(target.place), way)
        making = MakingHere("" if template is None else template.state, _sharing_none(places))
    size = request.size_bytes
    if size is None and template is not None:
        size = disk_size_for(template)
    return NamedHere(
        request=replace(request, target=targets, size_bytes=size),
        profile=profile,
        guest=guest,
        qemus=qemus,
        limits=limits,
        on_tmpfs=mount is not None and mount.filesystem == "tmpfs",
        making=making,
    )


def _sharing_none(places: Mapping[str, tuple[str, Path, str]]) -> dict[str, Impossible]:
    """Which of the places hold files that cannot share blocks: each is tried. A place has what it
    is called, its directory, and the way out."""
    found = {}
    for layer, (called, directory, way) in places.items():
        if can_share_blocks(directory) is False:
            mount = mount_of(directory)
            system = "a file system" if mount is None else mount.filesystem
            why = f"{called} is on {system}, which shares no blocks between files here"
            found[layer] = Impossible(why, way)
    return found
