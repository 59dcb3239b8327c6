"""A guest of the user's own: its image, and the files that it boots from."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from vdisklab.errors import HostError, PlanError
from vdisklab.guest.qemu.command_line import FirmwareFiles, UserBoot
from vdisklab.guest.systems import read_diskspd
from vdisklab.host.command import Host, install_hint
from vdisklab.host.image_file import state_of
from vdisklab.host.ledger import Kind
from vdisklab.path.architecture import GUEST
from vdisklab.plan.guest import Firmware, SystemBus, UserGuest
from vdisklab.plan.settings import Request
from vdisklab.storage.site import Site

_SECTOR = 512


def requested_guest(host: Host, request: Request) -> UserGuest | None:
    """The user guest whose image a request names; None for the micro guest.

    Raises PlanError for a machine that cannot be, before anything is read, and HostError if the
    image, the firmware or DISKSPD is missing or unusable.
    """
    image = request.guest_image
    if image is None:
        return None
    firmware = request.guest_firmware or (Firmware.BIOS if GUEST.has_bios else Firmware.UEFI)
    bus = request.guest_bus or SystemBus.VIRTIO
    if firmware is Firmware.BIOS and not GUEST.has_bios:
        raise PlanError(
            f"guests of {GUEST.title} have no BIOS", hint="leave out --guest-firmware: uefi"
        )
    if bus not in GUEST.machines:
        raise PlanError(
            f"--guest-bus {bus}: {GUEST.missing_buses[bus]}",
            hint=f"choose {' or '.join(name for name in SystemBus if name in GUEST.machines)}",
        )
    if firmware is Firmware.UEFI:
        find_firmware()
    if request.diskspd is not None:
        read_diskspd(request.diskspd)
    try:
        with image.open("rb") as opened:
            first = opened.read(_SECTOR)
    except OSError as error:
        raise HostError(
            f"the guest's image {image} cannot be read: {error.strerror}",
            hint="name an existing image that you may read",
        ) from error
    state = state_of(image)
    described = json.loads(host.run("qemu-img", "info", "-U", "--output=json", image).stdout)
    form = str(described["format"])
    if form == "raw" and first[-2:] != b"\x55\xaa":
        raise HostError(
            f"{image} is not a disk image: it has no format that qemu-img knows, and no boot "
            "sector",
            hint="name the image of an installed system, such as guest.qcow2",
        )
    return UserGuest(
        image.absolute(), form, state, firmware, bus, request.guest_boot, request.diskspd
    )


@contextmanager
def user_boot(site: Site, guest: UserGuest, name: str) -> Iterator[UserBoot]:
    """The files for one user guest: a new overlay on its image, and a copy of UEFI's variables.

    Both are removed at the end. Raises HostError if the image changed meanwhile.
    """
    site.check(lambda: require_unchanged(guest))
    overlay = site.directory / f"{name}.system.qcow2"
    firmware = None
    with ExitStack() as files:
        files.enter_context(site.tracked(Kind.FILE, overlay))
        site.new_file(overlay)
        site.run(*overlay_command(guest, overlay))
        if guest.firmware is Firmware.UEFI:
            code, variables = find_firmware()
            firmware = FirmwareFiles(code, site.directory / f"{name}.variables.fd")
            files.enter_context(site.tracked(Kind.FILE, firmware.variables))
            site.new_file(firmware.variables)
            site.run("cp", variables, firmware.variables)
        yield UserBoot(overlay, guest.bus, firmware, guest.boot_seconds, guest.diskspd)
    site.check(lambda: require_unchanged(guest))


def require_unchanged(user_guest: UserGuest) -> None:
    """Raises HostError when the image was changed since it was inspected."""
    if state_of(user_guest.image) != user_guest.state:
        raise HostError(
            f"the guest's image {user_guest.image} changed during the campaign",
            hint="stop the program that writes to it, and run the same command again",
        )


def overlay_command(user_guest: UserGuest, overlay: Path) -> tuple[str, ...]:
    """The command that makes the overlay for the guest's writes."""
    return (
        "qemu-img", "create", "-q", "-f", "qcow2", "-F", user_guest.format,
        "-b", str(user_guest.image), str(overlay),
    )  # fmt: skip


def find_firmware() -> tuple[Path, Path]:
    """UEFI's code and its variables. Raises HostError when it is not installed."""
    for code, variables in GUEST.firmware.files:
        if Path(code).exists() and Path(variables).exists():
            return Path(code), Path(variables)
    raise HostError(
        f"UEFI for virtual machines of {GUEST.title} is not installed",
        hint=install_hint([GUEST.firmware.program]),
    )
