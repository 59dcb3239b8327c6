"""The disk image of a user guest: guests write to an overlay on it, never to the image itself."""

from __future__ import annotations

import json
from pathlib import Path

from vdisklab.errors import HostError
from vdisklab.host.command import Host
from vdisklab.host.programs import install_hint
from vdisklab.plan.guest import UserGuest

_SECTOR = 512
_FIRMWARE = (
    ("/usr/share/OVMF/OVMF_CODE_4M.fd", "/usr/share/OVMF/OVMF_VARS_4M.fd"),  # Debian 12
    ("/usr/share/OVMF/OVMF_CODE.fd", "/usr/share/OVMF/OVMF_VARS.fd"),  # Debian 11, Ubuntu
    ("/usr/share/edk2/ovmf/OVMF_CODE.fd", "/usr/share/edk2/ovmf/OVMF_VARS.fd"),  # Fedora
)
"""Paths of UEFI without Secure Boot: code, and variables to copy."""


def inspect_image(host: Host, image: Path) -> UserGuest:
    """The user guest in an image. Raises HostError if it cannot be read or is not a disk image."""
    try:
        with image.open("rb") as opened:
            first = opened.read(_SECTOR)
    except OSError as error:
        raise HostError(
            f"the guest's image {image} cannot be read: {error.strerror}",
            hint="name an existing image that you may read",
        ) from error
    known = json.loads(host.run("qemu-img", "info", "-U", "--output=json", image).stdout)
    form = str(known["format"])
    if form == "raw" and first[-2:] != b"\x55\xaa":
        raise HostError(
            f"{image} is not a disk image: it has no format that qemu-img knows, and no boot "
            "sector",
            hint="name the image of an installed system, such as guest.qcow2",
        )
    return UserGuest(image.absolute(), form, state_of(image))


def state_of(image: Path) -> str:
    """The image's size and modification time, which change when it is written to."""
    status = image.stat()
    return f"{status.st_size} bytes of {status.st_mtime_ns}"


def require_unchanged(own: UserGuest) -> None:
    """Raises HostError when the image was changed since it was inspected."""
    if state_of(own.image) != own.state:
        raise HostError(
            f"the guest's image {own.image} changed during the campaign",
            hint="stop the program that writes to it, and run the same command again",
        )


def overlay_command(own: UserGuest, overlay: Path) -> tuple[str, ...]:
    """The command that makes the overlay for the guest's writes."""
    return (
        "qemu-img", "create", "-q", "-f", "qcow2", "-F", own.format, "-b", str(own.image),
        str(overlay),
    )  # fmt: skip


def find_firmware() -> tuple[Path, Path]:
    """UEFI's code and its variables. Raises HostError when it is not installed."""
    for code, variables in _FIRMWARE:
        if Path(code).exists() and Path(variables).exists():
            return Path(code), Path(variables)
    raise HostError("UEFI for virtual machines is not installed", hint=install_hint(["OVMF"]))
