"""A guest of the user's own: asked for, stood upon by an overlay, and left as it was found."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from vdisklab.errors import HostError
from vdisklab.guest.qemu.command_line import FirmwareFiles, OwnBoot
from vdisklab.guest.system.user_image import (
    find_firmware,
    look_at,
    overlay_command,
    require_unchanged,
)
from vdisklab.guest.system.windows import read_diskspd
from vdisklab.host.command import Host
from vdisklab.host.ledger import Kind
from vdisklab.plan.guest import Firmware, UserGuest
from vdisklab.plan.settings import Request
from vdisklab.storage.site import Site


def requested_guest(host: Host, request: Request) -> UserGuest | None:
    """The user guest whose image a request names; None for the micro guest.

    Raises HostError for an image, a firmware or a DISKSPD that is missing or is something else.
    """
    if request.guest_image is None:
        return None
    usual = look_at(host, request.guest_image)
    firmware = request.guest_firmware or usual.firmware
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


@contextmanager
def own_boot(site: Site, own: UserGuest, name: str) -> Iterator[OwnBoot]:
    """What one guest boots: a new overlay, and with UEFI a copy of its variables.

    Both are noted before they exist and removed at the end. Raises HostError when the image was
    changed meanwhile.
    """
    require_unchanged(own)
    with ExitStack() as made:
        boot = planned_boot(own, site.directory, name)
        made.enter_context(site.tracked(Kind.FILE, boot.overlay))
        site.host.run(*overlay_command(own, boot.overlay))
        if boot.firmware is not None:
            made.enter_context(site.tracked(Kind.FILE, boot.firmware.variables))
            try:
                shutil.copyfile(find_firmware()[1], boot.firmware.variables)
            except OSError as error:
                raise HostError(
                    f"UEFI's variables cannot be copied: {error.strerror}",
                    hint="free some room in the work directory, or name another with --dir",
                ) from error
        yield boot
    require_unchanged(own)


def planned_boot(own: UserGuest, directory: Path, name: str) -> OwnBoot:
    """The same, before anything is made."""
    firmware = None
    if own.firmware is Firmware.UEFI:
        firmware = FirmwareFiles(find_firmware()[0], directory / f"{name}.variables.fd")
    overlay = directory / f"{name}.system.qcow2"
    return OwnBoot(overlay, own.bus, firmware, own.boot_seconds, own.diskspd)
