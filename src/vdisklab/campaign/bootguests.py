"""Guests whose system lies on a measured disk: the system, and what starts them."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from vdisklab.campaign.cell import BootFromDisk
from vdisklab.guest.factory import GuestContext, binary_of, files_of
from vdisklab.guest.image.boot_disk import DiskSystem, disk_system, write_disk
from vdisklab.guest.image.guest_image import build_guest_image
from vdisklab.guest.image.kernel import find_kernel
from vdisklab.guest.machine import Machine, start_machine
from vdisklab.guest.qemu.block_nodes import Disk
from vdisklab.guest.qemu.command_line import BootFiles, GuestConfig
from vdisklab.guest.qemu.qmp import Channel
from vdisklab.host.command import Host
from vdisklab.path.segments import Bus
from vdisklab.plan.campaign import CampaignPlan
from vdisklab.plan.guest import Accelerator


@dataclass(frozen=True, slots=True)
class DiskBoots:
    """`write` makes a file a disk with the system, `start` boots a guest from such a disk."""

    write: Callable[[Path], None]
    start: BootFromDisk


def disk_boots(
    around: GuestContext,
    plan: CampaignPlan,
    accelerator: Accelerator | None,
    buses: frozenset[Bus],
    directory: Path,
) -> DiskBoots | None:
    """For a plan that boots from its disks, else None. QEMU's errors go below `directory`."""
    if not plan.profile.boots or accelerator is None:
        return None
    system, boot = system_to_boot(around.host, around.cache, buses, plan.guest.kernel)
    names = (f"vdisklab-{around.ledger.run_id}-boot{number}" for number in itertools.count(1))

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
            (disk,),  # there from the start on every bus
            version=None if qemu is None else qemu.version,
        )
        return start_machine(config, around.ledger, directory, watch=watch)

    return DiskBoots(partial(write_disk, around.host, system), start)


def boot_from(boot: BootFiles, system: DiskSystem, serial: str) -> BootFiles:
    """Kernel and RAM file system for a boot from the disk with that serial number."""
    return BootFiles(boot.kernel, system.initrd, None, f"{boot.append} vdisklab.root={serial}")


def system_to_boot(
    host: Host, cache: Path, buses: frozenset[Bus], kernel_asked: str | None
) -> tuple[DiskSystem, BootFiles]:
    """The system for disks that guests boot from, and what starts it; made if not cached."""
    kernel = find_kernel(host, cache, buses, wanted=kernel_asked)
    image = build_guest_image(host, cache, kernel)
    return disk_system(host, cache, kernel, image), files_of(image)
