"""Finds out what this host can build and use, by trying each requested stack."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from vdisklab.campaign.qemu_limits import limits_of_installed
from vdisklab.errors import DirtyHostError, HostError, VdisklabError
from vdisklab.guest.qemu.probe import image_formats
from vdisklab.host.command import Host
from vdisklab.host.facts import missing_right
from vdisklab.host.ledger import Ledger
from vdisklab.host.pagecache import try_io_uring
from vdisklab.path.backing import BackingDevices
from vdisklab.path.disk_path import DiskPath, Layer
from vdisklab.path.named_target import COPIES, NamedTarget, as_typed, name_in_messages
from vdisklab.path.rules import impossible
from vdisklab.path.segments import Aio, ImageFormat
from vdisklab.plan.build import Draft
from vdisklab.plan.capabilities import Capabilities, Missing, QemuLimits
from vdisklab.progress import Progress, Step
from vdisklab.storage.device import require_usable
from vdisklab.storage.given import given_device
from vdisklab.storage.remote import require_answer
from vdisklab.storage.site import Site, open_site
from vdisklab.storage.stack import build_stack
from vdisklab.storage.targets import WRITABLE, Device, Directory
from vdisklab.units import MIB

_TRIAL_CAPACITY = 32 * MIB


def survey(
    host: Host, ledger: Ledger, draft: Draft, paths: Iterable[DiskPath], progress: Progress
) -> Capabilities:
    """The features that these paths of a draft need and this host lacks.

    Each stack is built once, small and thin, on image files in the work directory; devices below
    the draft's stacks are only inspected. Without root, only the work directory itself is tried.
    Raises HostError when the work directory cannot be used at all, and DirtyHostError when a trial
    cannot be removed.
    """
    wanted, backing = tuple(paths), draft.backing
    direct: dict[str, bool | None] = {}
    stacks: dict[str, Missing] = {}
    with open_site(host, ledger, draft.directory) as site:
        stored = [path for path in wanted if path.has_storage and not impossible(path, backing)]
        if backing.devices:
            require_usable(host, backing)
        for number, stack in enumerate(dict.fromkeys(path.layers for path in stored)):
            spelled = "/".join(map(str, stack))
            bottom = "the device as it is" if backing.devices else "the work directory"
            place = as_typed(f"{spelled}/")[:-1]
            place = name_in_messages(place) if place == COPIES else place
            progress(Step(f"trying {place or bottom}"))
            direct[spelled] = _try_stack(site, stack, f"trial{number}", stacks, backing)
    guests = tuple(path for path in wanted if not path.on_host)
    installed = tuple(path for path in guests if path.attachment.qemu is None)
    return Capabilities(
        formats=_missing_formats(host, guests),
        aio=_missing_aio(guests),
        installed=limits_of_installed(host) if installed else QemuLimits(),
        direct_io=direct,
        stacks=stacks,
        qemus=draft.named.limits,
        on_tmpfs=draft.named.on_tmpfs,
    )


def _try_stack(
    site: Site,
    layers: tuple[Layer, ...],
    name: str,
    missing: dict[str, Missing],
    backing: BackingDevices,
) -> bool | None:
    spelled = "/".join(map(str, layers))
    named = backing.target_of(layers)
    if named is not None and not _answers(site, named, spelled, missing, backing):
        return None
    above = layers if named is None else layers[1:]
    if named is not None and not above:
        return _takes_direct_io(named)
    if above and (lacking := missing_right()) is not None:
        right, way = lacking
        instead = f", or leave out {spelled}/: images in --dir are on the file system that is there"
        missing[spelled] = Missing(f"building it needs {right}", f"{way}{'' if named else instead}")
        return None
    if not layers and backing.devices:
        return Device(backing.devices[0]).usable()
    # On image files: the user's devices are not touched.
    trial = BackingDevices(disks=backing.disks_for(above), arc_bytes=backing.arc_bytes)
    try:
        with build_stack(
            site, above, _TRIAL_CAPACITY, name, backing=trial, allocate=False
        ) as target:
            return target.usable()
    except DirtyHostError:
        raise  # not a missing feature: parts of the stack still exist
    except VdisklabError as error:
        if not layers:
            raise
        missing[spelled] = Missing(str(error), error.hint or "leave it out")
        return None


def _answers(
    site: Site,
    named: NamedTarget,
    spelled: str,
    missing: dict[str, Missing],
    backing: BackingDevices,
) -> bool:
    """True if a target that the user named can be used now; else the reason is in `missing`.

    Only its kind of access is tried: what a disk holds is looked at when the campaign begins.
    """
    try:
        if named.opened_by_qemu:
            require_answer(site, named, backing)
        elif not named.holds_files:
            require_usable(site.host, given_device(named, backing))
        elif not os.access(named.place, os.W_OK):
            raise HostError(f"nothing can be created in {named.place}", hint=WRITABLE)
    except VdisklabError as error:
        missing[spelled] = Missing(error.message, error.hint or "leave it out")
        return False
    return True


def _takes_direct_io(named: NamedTarget) -> bool:
    """True when O_DIRECT works on a target, or is of no importance: QEMU's driver opens no file."""
    if named.opened_by_qemu:
        return True
    place = Path(named.place)
    return (Directory(place) if place.is_dir() else Device(place)).usable()


def _missing_formats(host: Host, paths: tuple[DiskPath, ...]) -> dict[ImageFormat, Missing]:
    formats = {path.image.format for path in paths if path.image is not None}
    formats.discard(ImageFormat.NULL)
    if not formats or host.which("qemu-img") is None:
        return {}
    supported = image_formats(host)
    return {
        form: Missing(f"qemu-img does not make {form}", "choose raw or qcow2")
        for form in formats
        if supported and form.value not in supported
    }


def _missing_aio(paths: tuple[DiskPath, ...]) -> dict[Aio, Missing]:
    if all(path.attachment.aio is not Aio.IO_URING for path in paths):
        return {}
    reason = try_io_uring()
    if reason is None:
        return {}
    return {Aio.IO_URING: Missing(reason, "choose aio=threads or aio=native")}
