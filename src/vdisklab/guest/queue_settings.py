"""The queue of the measured disk in the guest: its scheduler is set, the rest is recorded."""

from __future__ import annotations

from vdisklab.errors import GuestError, WorkloadError
from vdisklab.guest.machine import Machine
from vdisklab.guest.qemu.block_nodes import Disk
from vdisklab.guest.system.guest_system import Family, GuestDisk
from vdisklab.results.model import Check

_RECORDED = ("nr_requests", "read_ahead_kb", "wbt_lat_usec")
_SECONDS = 60.0


def with_scheduler(machine: Machine, disk: Disk, guest_disk: GuestDisk) -> GuestDisk:
    """The disk's facts after its I/O scheduler was set, if the path names one.

    Raises GuestError if the guest's kernel does not have it.
    """
    wanted = disk.attachment.guest_scheduler
    if wanted is None:
        return guest_disk
    if machine.system.family is Family.WINDOWS:
        raise GuestError("a Windows guest has no I/O schedulers", hint="leave out guest_scheduler")
    setting = f"/sys/block/{guest_disk.device.removeprefix('/dev/')}/queue/scheduler"
    try:
        machine.agent.run(("sh", "-c", f"echo {wanted} > {setting}"), timeout=_SECONDS)
    except WorkloadError as error:
        available = machine.agent.run(("cat", setting), timeout=_SECONDS).stdout.strip()
        raise GuestError(
            f"the guest's kernel does not have the I/O scheduler {wanted}: it has {available}",
            hint="choose one of these; an older vdisklab may have unpacked a kernel with fewer: "
            "then remove the directory `kernel` from its cache",
        ) from error
    return machine.find_disk(disk.guest_serial)


def guest_queue_checks(disk: Disk, guest_disk: GuestDisk) -> tuple[Check, ...]:
    """The scheduler as requested, and the queue's other settings; those that the guest shows."""
    facts = {"scheduler": disk.attachment.guest_scheduler, **dict.fromkeys(_RECORDED)}
    return tuple(
        Check(f"guest.{name}", requested, guest_disk.facts.get(name, "unknown"))
        for name, requested in facts.items()
        if requested is not None or name in guest_disk.facts
    )
