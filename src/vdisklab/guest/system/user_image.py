"""The disk image of a guest of the user's own: looked at, stood upon, never written to."""

from __future__ import annotations

import json
from pathlib import Path

from vdisklab.errors import HostError
from vdisklab.host.command import Host
from vdisklab.plan.guest import UserGuest

_SECTOR = 512
_FIRMWARE = (
    ("/usr/share/OVMF/OVMF_CODE_4M.fd", "/usr/share/OVMF/OVMF_VARS_4M.fd"),  # Debian 12
    ("/usr/share/OVMF/OVMF_CODE.fd", "/usr/share/OVMF/OVMF_VARS.fd"),  # Debian 11, Ubuntu
    ("/usr/share/edk2/ovmf/OVMF_CODE.fd", "/usr/share/edk2/ovmf/OVMF_VARS.fd"),  # Fedora
)
"""Where distributions put UEFI without Secure Boot: code, and variables to copy."""


def look_at(host: Host, image: Path) -> UserGuest:
    """What an image is. Raises HostError when it cannot be read or cannot be a disk."""
    try:
        with image.open("rb") as opened:
            first = opened.read(_SECTOR)
    except OSError as error:
        raise HostError(
            f"the guest's image {image} cannot be read: {error.strerror}",
            hint="name an image that exists and that you may read",
        ) from error
    known = json.loads(host.run("qemu-img", "info", "-U", "--output=json", image).stdout)
    form = str(known["format"])
    if form == "raw" and first[-2:] != b"\x55\xaa":
        raise HostError(
            f"{image} is no disk image: qemu-img knows no format in it, and it has no boot sector",
            hint="name the image of an installed system, such as guest.qcow2",
        )
    return UserGuest(image.absolute(), form, state_of(image))


def state_of(image: Path) -> str:
    """What changes when an image is written to: its size and the moment of its last change."""
    found = image.stat()
    return f"{found.st_size} bytes of {found.st_mtime_ns}"


def require_unchanged(own: UserGuest) -> None:
    """Raises HostError when the image is not as it was found, whoever wrote to it."""
    if state_of(own.image) != own.state:
        raise HostError(
            f"the guest's image {own.image} changed while it was measured with",
            hint="end whatever else uses it, and begin again",
        )


def overlay_command(own: UserGuest, overlay: Path) -> tuple[str, ...]:
    """What makes the overlay that takes the guest's writes."""
    return (
        "qemu-img", "create", "-q", "-f", "qcow2", "-F", own.format, "-b", str(own.image),
        str(overlay),
    )  # fmt: skip


def find_firmware() -> tuple[Path, Path]:
    """UEFI's code and its variables. Raises HostError when it is not installed."""
    for code, variables in _FIRMWARE:
        if Path(code).exists() and Path(variables).exists():
            return Path(code), Path(variables)
    raise HostError("UEFI for virtual machines is not installed", hint="apt-get install ovmf")
