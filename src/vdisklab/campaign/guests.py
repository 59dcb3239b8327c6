"""Guests that boot from a measured disk, and the system that is written to it."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import cache, partial
from pathlib import Path

from vdisklab.guest.factory import binary_of, files_of
from vdisklab.guest.guest_context import GuestContext
from vdisklab.guest.image.guest_image import DiskSystem, build_guest_image, disk_system, write_disk
from vdisklab.guest.image.kernel import kernel_for
from vdisklab.guest.machine import Machine, start_machine
from vdisklab.guest.qemu.block_nodes import Disk
from vdisklab.guest.qemu.command_line import BootFiles, GuestConfig
from vdisklab.guest.qemu.probe import has_sandbox
from vdisklab.guest.qemu.qmp import Channel
from vdisklab.host.command import Host
from vdisklab.path.segments import Bus
from vdisklab.plan.accelerator import Accelerator
from vdisklab.plan.campaign import CampaignPlan
from vdisklab.plan.guest import GuestPlan
from vdisklab.value import Value

BootFromDisk = Callable[[Disk, Callable[[Channel], None]], AbstractContextManager[Machine]]
"""(disk that holds the system, callback with the monitor during the boot) -> a running guest."""


class DiskBoots(Value):
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
