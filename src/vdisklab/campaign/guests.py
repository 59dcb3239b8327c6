"""Boot disks of a campaign's guests: an overlay on the user's image, or the measured disk."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path

from vdisklab.errors import HostError, PlanError
from vdisklab.guest.factory import GuestContext, binary_of, files_of
from vdisklab.guest.image.guest_image import DiskSystem, build_guest_image, disk_system, write_disk
from vdisklab.guest.image.kernel import kernel_for
from vdisklab.guest.machine import Machine, start_machine
from vdisklab.guest.qemu.block_nodes import Disk
from vdisklab.guest.qemu.command_line import BootFiles, FirmwareFiles, GuestConfig, UserBoot
from vdisklab.guest.qemu.probe import has_sandbox
from vdisklab.guest.qemu.qmp import Channel
from vdisklab.guest.systems import read_diskspd
from vdisklab.host.command import Host, install_hint
from vdisklab.host.image_file import state_of
from vdisklab.host.ledger import Kind
from vdisklab.path.architecture import GUEST
from vdisklab.path.segments import Bus
from vdisklab.plan.campaign import CampaignPlan
from vdisklab.plan.guest import Accelerator, Firmware, GuestPlan, SystemBus, UserGuest
from vdisklab.plan.settings import Request
from vdisklab.storage.site import Site

BootFromDisk = Callable[[Disk, Callable[[Channel], None]], AbstractContextManager[Machine]]
"""(disk that holds the system, callback with the monitor during the boot) -> a running guest."""


_SECTOR = 512


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


@dataclass(frozen=True, slots=True)
class DiskBoots:
    """`write` puts the bootable system into a file, `start` boots a guest from such a disk."""

    write: Callable[[Path], None]
    start: BootFromDisk


def disk_boots(
    guest_context: GuestContext,
    plan: CampaignPlan,
    accelerator: Accelerator | None,
    buses: frozenset[Bus],
    directory: Path,
) -> DiskBoots | None:
    """The functions for a plan that boots from its disks, else None. QEMU's errors go to
    `directory`.
    """
    if not plan.profile.boots or accelerator is None:
        return None
    system, boot = system_to_boot(guest_context.host, guest_context.cache, buses, plan.guest)
    names = (
        f"vdisklab-{guest_context.ledger.run_id}-boot{number}" for number in itertools.count(1)
    )

    sandboxed = cache(partial(has_sandbox, guest_context.host))

    def start(disk: Disk, watch: Callable[[Channel], None]) -> AbstractContextManager[Machine]:
        bus = disk.attachment.bus
        qemu = plan.qemu(disk.attachment.qemu)
        config = GuestConfig(
            binary_of(qemu),
            next(names),
            bus.machine,
            accelerator,
            plan.guest,
            boot_from(boot, system, disk.serial),
            bus is Bus.USB,
            (disk,),  # attached from the start on every bus
            version=None if qemu is None else qemu.version,
            sandbox=sandboxed(binary_of(qemu)),
        )
        return start_machine(config, guest_context.ledger, directory, watch=watch)

    return DiskBoots(partial(write_disk, guest_context.host, system), start)


def boot_from(boot: BootFiles, system: DiskSystem, serial: str) -> BootFiles:
    """Kernel and RAM file system for a boot from the disk with that serial number."""
    return BootFiles(boot.kernel, system.initrd, None, f"{boot.append} vdisklab.root={serial}")


def system_to_boot(
    host: Host, cache: Path, buses: frozenset[Bus], guest: GuestPlan
) -> tuple[DiskSystem, BootFiles]:
    """The system for disks that guests boot from, and its boot files; built unless cached."""
    kernel = kernel_for(host, cache, buses, guest)
    image = build_guest_image(host, cache, kernel)
    return disk_system(host, cache, kernel, image), files_of(image)


def requested_guest(host: Host, request: Request) -> UserGuest | None:
    """The user guest whose image a request names; None for the micro guest.

    Raises PlanError for a machine that cannot be, before anything is read, and HostError if the
    image, the firmware or DISKSPD is missing or unusable.
    """
    if request.guest_image is None:
        return None
    firmware = request.guest_firmware or (Firmware.BIOS if GUEST.has_bios else Firmware.UEFI)
    bus = request.guest_bus or SystemBus.VIRTIO
    _require_possible(firmware, bus)
    if firmware is Firmware.UEFI:
        find_firmware()
    if request.diskspd is not None:
        read_diskspd(request.diskspd)
    return replace(
        inspect_image(host, request.guest_image),
        firmware=firmware,
        bus=bus,
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
    state = state_of(image)
    described = json.loads(host.run("qemu-img", "info", "-U", "--output=json", image).stdout)
    form = str(described["format"])
    if form == "raw" and first[-2:] != b"\x55\xaa":
        raise HostError(
            f"{image} is not a disk image: it has no format that qemu-img knows, and no boot "
            "sector",
            hint="name the image of an installed system, such as guest.qcow2",
        )
    return UserGuest(image.absolute(), form, state)


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
