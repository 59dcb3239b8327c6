"""Real guests, each the machine of the campaign, in which clients write to the path's disk."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass

from vdisklab.errors import GuestError, PlanError
from vdisklab.guest.factory import GuestContext, prepare_guests
from vdisklab.guest.machine import Machine
from vdisklab.guest.pool import GuestPool
from vdisklab.guest.qemu.blockdev import Disk
from vdisklab.guest.qemu.observe import check_state
from vdisklab.path.segments import Bus
from vdisklab.plan.guest import Accelerator, GuestPlan
from vdisklab.powercut.clients.database import database_in_guest
from vdisklab.powercut.clients.driver import DriverSetting, apply_setting
from vdisklab.powercut.clients.guestdisk import guest_client_disk
from vdisklab.powercut.recording.record import Load, PromisingDisk
from vdisklab.storage.site import Site


@dataclass(frozen=True, slots=True)
class Guests:
    """Guests that boot when they are needed; `accelerator` runs them."""

    pool: GuestPool
    accelerator: Accelerator
    run: str

    @contextmanager
    def open(self, disk: Disk, load: Load, setting: DriverSetting) -> Iterator[PromisingDisk]:
        """A client of the load's kind in a guest with the disk, its driver set and read back.

        Raises GuestError, PlanError for a setting that the bus does not have.
        """
        bus = disk.attachment.bus
        if bus not in setting.buses:
            raise PlanError(f"a guest's {bus} disk has no setting `{setting}`")
        with self.pool.plugged(disk) as (pooled, found):
            machine = pooled.machine
            checks = check_state(machine, disk, found, pooled.at_start)
            wrong = [f"{c.name} is {c.seen}, not {c.asked}" for c in checks if not c.confirmed]
            if wrong:
                raise GuestError("the disk is not as it was asked for: " + "; ".join(wrong))
            seen = {check.name: check.seen for check in checks}
            seen |= apply_setting(machine, disk.serial, found.device, setting)
            seen |= {"guest.accelerator": self.accelerator.value}
            name = f"vdisklab-{self.run}-{disk.serial}"
            with _client(machine, found.device, seen, name, load) as client:
                yield client


def _client(
    machine: Machine, device: str, seen: Mapping[str, str], name: str, load: Load
) -> AbstractContextManager[PromisingDisk]:
    if load.kind.is_database:
        return database_in_guest(machine, device, seen, name, load.kind)
    return guest_client_disk(machine, device, seen, name, load.depth)


@contextmanager
def open_guests(
    around: GuestContext, guest: GuestPlan, buses: frozenset[Bus], site: Site
) -> Iterator[Guests]:
    """Guests with drivers for these buses, all ended with the block."""
    accelerator, start = prepare_guests(around, guest, buses, site.directory)
    with GuestPool(start, around.progress) as pool:
        yield Guests(pool, accelerator, around.ledger.run_id)
