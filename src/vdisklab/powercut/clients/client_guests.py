"""Real guests in which clients write to the path's disk, with a setting of the guest's driver."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from vdisklab.errors import GuestError
from vdisklab.guest.factory import GuestContext, GuestPool, prepare_guests
from vdisklab.guest.hotplug import served, shared
from vdisklab.guest.machine import Machine
from vdisklab.guest.qemu.block_nodes import Disk, mount_command
from vdisklab.guest.qemu.probe import inserted_node
from vdisklab.guest.qemu.read_back import check_share, check_state
from vdisklab.host.command import Host
from vdisklab.host.facts import is_emulated
from vdisklab.host.ledger import Ledger
from vdisklab.host.syscalls import sync_filesystem
from vdisklab.path.segments import Bus
from vdisklab.plan.guest import Accelerator, GuestPlan
from vdisklab.powercut.clients.guest_programs import PERL, guest_client_disk, guest_script
from vdisklab.powercut.clients.reset_disk import ResettableDisk
from vdisklab.powercut.clients.sqlite_client import (
    MOUNTPOINT,
    database_in_guest,
    database_on,
)
from vdisklab.powercut.recording.promises import ClientDisk, Load
from vdisklab.powercut.vocabulary import DriverSetting
from vdisklab.results.model import Check, RanUnder
from vdisklab.storage.site import Site

_SETTING_SECONDS = 30.0


_EXPECTED = {
    DriverSetting.QUEUE: ("guest.queue.write_cache", "write through"),
    DriverSetting.CACHE_TYPE: ("guest.cache_type", "write through"),
    DriverSetting.HDPARM: ("guest.ata.write_cache", "off"),
}
"""The property and value that show that a setting took effect."""


def accelerator_seen(accelerator: Accelerator) -> dict[str, str]:
    """What runs the guest, as a property of a recorded run."""
    ran_under = RanUnder.of(accelerator, emulated=is_emulated())
    return {"guest.accelerator": ran_under.value}


def apply_setting(
    machine: Machine, disk: Disk, device: str, setting: DriverSetting
) -> Mapping[str, str]:
    """Applies the setting; returns the write cache's state according to the guest and to QEMU.

    QEMU has no state of a disk that a daemon serves. Raises WorkloadError when the guest's kernel
    refuses the setting, GuestError when it took no effect.
    """
    argv = (PERL, "-e", guest_script("driver.pl"), device, setting.value)
    ended = machine.agent.run(argv, timeout=_SETTING_SECONDS)
    properties = dict(line.split("=", 1) for line in ended.stdout.splitlines())
    if not disk.attachment.bus.is_served:
        cache = inserted_node(machine, disk.names.device).cache
        properties["qemu.write_cache"] = "on" if cache.writeback else "off"
    if setting is not DriverSetting.AS_FOUND:
        key, value = _EXPECTED[setting]
        if properties.get(key) != value:
            raise GuestError(
                f"after `{setting.command}` in the guest, {key} is "
                f"{properties.get(key, 'missing')}",
                hint="this kernel's driver has no such setting: leave out --driver, or use "
                "another bus",
            )
    return properties


@dataclass(frozen=True, slots=True)
class Guests:
    """Guests that boot when they are needed; `accelerator` runs them.

    Daemons that serve disks to them write their errors into `directory`.
    """

    host: Host
    pool: GuestPool
    accelerator: Accelerator
    ledger: Ledger
    directory: Path

    @contextmanager
    def open(self, disk: Disk, load: Load, setting: DriverSetting) -> Iterator[ClientDisk]:
        """The load's client in a guest with the disk, whose driver setting is applied and read
        back.

        Raises GuestError, and PlanError for a setting that the bus does not have.
        """
        if disk.attachment.bus.shares_directory:
            with self._on_share(disk, load, setting) as client:
                yield client
            return
        with self._attached(disk, setting) as place, _client(place, load) as client:
            yield client

    @contextmanager
    def _on_share(self, disk: Disk, load: Load, setting: DriverSetting) -> Iterator[ClientDisk]:
        """A database in a host directory, used by a guest that is booted for it."""
        attachment = disk.attachment
        if (refusal := setting.refusal(attachment.bus)) is not None:
            raise refusal
        with (
            shared(self.host, self.ledger, self.directory, disk) as daemon,
            self.pool.dedicated_guest(attachment.bus, disk) as guest,
        ):
            properties = _confirmed(check_share(guest.machine, disk, daemon))
            properties |= accelerator_seen(self.accelerator)
            mounting = mount_command(
                disk.serial, attachment.bus.value, attachment.guest_mount, MOUNTPOINT
            )
            name = f"vdisklab-{self.ledger.run_id}-{disk.serial}"
            with database_on(guest.machine, mounting, properties, name, load.kind) as client:
                # A sync in the guest does not reach the host's file system through 9p.
                sync_filesystem(Path(disk.directory))
                yield client

    @contextmanager
    def open_resettable(
        self, disk: Disk, load: Load, setting: DriverSetting
    ) -> Iterator[ResettableDisk]:
        """The same client in a guest that can be reset (QMP's `system_reset`); not a database."""
        with self._attached(disk, setting) as place:
            machine = place.machine
            with guest_client_disk(
                machine, place.device, place.seen, place.name, load.depth
            ) as client:

                def reset() -> None:
                    machine.reset()
                    device = machine.find_disk(disk.guest_serial).device
                    apply_setting(machine, disk, device, setting)
                    client.start_again(device, load.depth)

                yield ResettableDisk(client, reset)

    @contextmanager
    def _attached(self, disk: Disk, setting: DriverSetting) -> Iterator[_GuestWithDisk]:
        refusal = setting.refusal(disk.attachment.bus)
        if refusal is not None:
            raise refusal
        with (
            served(self.ledger, self.directory, disk) as serving,
            self.pool.plugged(disk) as (guest, attached),
        ):
            machine = guest.machine
            properties = _confirmed(check_state(machine, disk, attached, guest.at_start, serving))
            properties |= apply_setting(machine, disk, attached.device, setting)
            properties |= accelerator_seen(self.accelerator)
            name = f"vdisklab-{self.ledger.run_id}-{disk.serial}"
            yield _GuestWithDisk(machine, attached.device, properties, name)


@dataclass(frozen=True, slots=True)
class _GuestWithDisk:
    """A guest, its name of the disk, the properties read back, and a name for the client's port."""

    machine: Machine
    device: str
    seen: Mapping[str, str]
    name: str


def _confirmed(checks: Iterable[Check]) -> dict[str, str]:
    """The properties that were read back. Raises GuestError unless they are as requested."""
    checks = tuple(checks)
    wrong = [f"{c.name} is {c.observed}, not {c.requested}" for c in checks if not c.confirmed]
    if wrong:
        raise GuestError("the disk is not as requested: " + "; ".join(wrong))
    return {check.name: check.observed for check in checks}


def _client(place: _GuestWithDisk, load: Load) -> AbstractContextManager[ClientDisk]:
    if load.kind.is_database:
        return database_in_guest(place.machine, place.device, place.seen, place.name, load.kind)
    return guest_client_disk(place.machine, place.device, place.seen, place.name, load.depth)


@contextmanager
def open_guests(
    context: GuestContext, guest: GuestPlan, buses: frozenset[Bus], site: Site
) -> Iterator[Guests]:
    """Guests with drivers for these buses, which end with the context."""
    accelerator, start = prepare_guests(context, guest, buses, site.directory)
    with GuestPool(start, context.progress) as pool:
        yield Guests(context.host, pool, accelerator, context.ledger, site.directory)
