"""Real guests in which clients write to the path's disk, with a setting of the guest's driver.

The guest that never flushes: 512 bytes of real mode that write through the BIOS (INT 13h).

DOS, boot loaders and old systems never flush, and the BIOS has no call for it. SeaBIOS is the
disk's driver, so the features that it negotiates (a write cache or none) decide what is lost.
"""

from __future__ import annotations

import select
import socket
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np

from vdisklab.errors import GuestError, PlanError
from vdisklab.guest.factory import GuestPool, prepare_guests
from vdisklab.guest.guest_context import GuestContext
from vdisklab.guest.hotplug import served
from vdisklab.guest.machine import Machine
from vdisklab.guest.qemu.block_nodes import Disk, cold_arguments, mount_command
from vdisklab.guest.qemu.command_line import CarriedDisk
from vdisklab.guest.qemu.daemons import shared
from vdisklab.guest.qemu.qmp import qemu_process, socket_pair
from vdisklab.guest.qemu.read_back import check_share, check_state, inserted_node
from vdisklab.host import command, machine, syscalls, waiting
from vdisklab.host.ledger import Kind, Ledger
from vdisklab.path.architecture import GUEST, X86_64, is_foreign
from vdisklab.path.power_cut_words import ClientKind, DriverSetting
from vdisklab.path.segments import Bus
from vdisklab.plan.accelerator import Accelerator
from vdisklab.plan.guest import GuestPlan
from vdisklab.powercut.client import ClientDisk, Load
from vdisklab.powercut.file_sequences import files_in_guest
from vdisklab.powercut.guest_clients import (
    MOUNTPOINT,
    PERL,
    database_in_guest,
    database_on,
    guest_client_disk,
    guest_script,
)
from vdisklab.powercut.postgresql import postgresql_in_guest
from vdisklab.powercut.resets import ResettableDisk
from vdisklab.powercut.sectors import make_records
from vdisklab.results.model import GUEST_ARCHITECTURE, Check, RanUnder
from vdisklab.storage.site import Site
from vdisklab.value import Value

_SETTING_SECONDS = 30.0


_EXPECTED = {
    DriverSetting.QUEUE: ("guest.queue.write_cache", "write through"),
    DriverSetting.CACHE_TYPE: ("guest.cache_type", "write through"),
    DriverSetting.HDPARM: ("guest.ata.write_cache", "off"),
}
"""The property and value that show that a setting took effect."""


_BUSES = (Bus.IDE, Bus.VIRTIO)
"""Buses with a SeaBIOS driver on the machine of `boot_argv`."""

_BOOT_SECONDS = 30.0
_ANSWER_SECONDS = 30.0
# Loaded at 0x7c00. Protocol on the first serial port: 'R' once booted; then it takes 40 bytes (the
# sector's number, and the record of 32 bytes that fills it), writes, answers 'K' or 'E'.
_CODE = (
    "fa 31c0 8ed8 8ec0 8ed0 bc007c fb fc"  # ds = es = ss = 0; sp = 0x7c00
    "bafb03 b003 ee"  # line control: 8 bits, no parity
    "b052 e84c00"  # put 'R'
    # next (0x7c19):
    "bf0080 b92800"  # 40 bytes to 0x8000
    "e85200 aa e2fa"  # get, store, loop
    "bf0090 bb1000"  # the sector is built at 0x9000: 16 times
    "be0880 b91000 f3a5 4b 75f5"  # the 32 bytes from 0x8008
    "bf0081"  # the disk address packet at 0x8100:
    "b81000 ab b80100 ab"  # its size 16; one sector
    "b80090 ab 31c0 ab"  # from 0000:9000
    "be0080 b90400 f3a5"  # the sector's number, 64 bits
    "be0081 b280 b80043 cd13"  # INT 13h, AH = 43h (extended write), DL = 80h
    "b04b 7302 b045"  # 'K', or 'E' when the carry flag is set
    "e80200 ebb4"  # put; next
    # put (0x7c65): waits for the transmitter, sends al
    "50 bafd03 ec a820 74fb 58 baf803 ee c3"
    # get (0x7c74): waits for a byte, returns it in al
    "bafd03 ec a801 74fb baf803 ec c3"
)


def observed_accelerator(accelerator: Accelerator) -> dict[str, str]:
    """What runs the guest, as a property of a recorded run."""
    under = {"guest.accelerator": str(RanUnder.of(accelerator, emulated=machine.is_emulated()))}
    return under | observed_architecture()


def observed_architecture() -> dict[str, str]:
    """The guest's architecture, if it is not this host's, as a property of a recorded run."""
    return {GUEST_ARCHITECTURE: GUEST.name} if is_foreign() else {}


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


class Guests(Value):
    """Guests that boot when they are needed; `accelerator` runs them.

    Daemons that serve disks to them write their errors into `directory`.
    """

    host: command.Host
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
            properties |= observed_accelerator(self.accelerator)
            mounting = mount_command(
                disk.serial, attachment.bus.value, attachment.guest_mount, MOUNTPOINT
            )
            name = f"vdisklab-{self.ledger.run_id}-{disk.serial}"
            with database_on(guest.machine, mounting, properties, name, load.kind) as client:
                # A sync in the guest does not reach the host's file system through 9p.
                syscalls.sync_filesystem(Path(disk.directory))
                yield client

    @contextmanager
    def open_resettable(
        self, disk: Disk, load: Load, setting: DriverSetting
    ) -> Iterator[ResettableDisk]:
        """The same client in a guest that can be reset (QMP's `system_reset`); not a database."""
        with (
            self._attached(disk, setting) as place,
            guest_client_disk(*place, load.depth) as client,
        ):

            def reset() -> None:
                place.machine.reset()
                device = place.machine.find_disk(disk.guest_serial).device
                apply_setting(place.machine, disk, device, setting)
                client.start_again(device, load.depth)

            yield ResettableDisk(client, reset)

    @contextmanager
    def with_disk(self, disk: Disk) -> Iterator[tuple[Machine, str, Mapping[str, str]]]:
        """A guest with the disk, the disk's name there, and the properties read back."""
        with self._attached(disk, DriverSetting.AS_FOUND) as place:
            yield place.machine, place.device, place.observed

    @contextmanager
    def _attached(self, disk: Disk, setting: DriverSetting) -> Iterator[_GuestWithDisk]:
        if (refusal := setting.refusal(disk.attachment.bus)) is not None:
            raise refusal
        with (
            served(self.ledger, self.directory, disk) as serving,
            self.pool.plugged(disk) as (guest, attached),
        ):
            machine = guest.machine
            properties = _confirmed(check_state(machine, disk, attached, guest.at_start, serving))
            properties |= apply_setting(machine, disk, attached.device, setting)
            properties |= observed_accelerator(self.accelerator)
            name = f"vdisklab-{self.ledger.run_id}-{disk.serial}"
            yield _GuestWithDisk(machine, attached.device, properties, name)


class _GuestWithDisk(NamedTuple):
    """A guest, its name of the disk, the properties read back, and a name for the client's port."""

    machine: Machine
    device: str
    observed: Mapping[str, str]
    name: str


def _confirmed(checks: Iterable[Check]) -> dict[str, str]:
    """The properties that were read back. Raises GuestError unless they are as requested."""
    checks = tuple(checks)
    wrong = [f"{c.name} is {c.observed}, not {c.requested}" for c in checks if not c.confirmed]
    if wrong:
        raise GuestError("the disk is not as requested: " + "; ".join(wrong))
    return {check.name: check.observed for check in checks}


def _client(place: _GuestWithDisk, load: Load) -> AbstractContextManager[ClientDisk]:
    if load.kind is ClientKind.FILES:
        return files_in_guest(*place, synced=load.synced)
    if load.kind is ClientKind.POSTGRESQL:
        return postgresql_in_guest(*place, synced=load.synced)
    if load.kind.is_database:
        return database_in_guest(*place, load.kind)
    return guest_client_disk(*place, load.depth)


@contextmanager
def open_guests(
    context: GuestContext,
    guest: GuestPlan,
    buses: frozenset[Bus],
    site: Site,
    carried: tuple[CarriedDisk, ...] = (),
    *,
    stops_are_errors: bool = True,
) -> Iterator[Guests]:
    """Guests with drivers for these buses and with the disks of `carried`; all guests end with the
    context.

    Unless `stops_are_errors`, QEMU may stop them when their storage fails.
    """
    accelerator, start = prepare_guests(
        context, guest, buses, site.directory, carried=carried, stops_are_errors=stops_are_errors,
        fio=False,
    )  # fmt: skip
    with GuestPool(start, context.progress) as pool:
        yield Guests(context.host, pool, accelerator, context.ledger, site.directory)


_BOOTED, _WRITTEN = b"R", b"K"


def boot_sector() -> bytes:
    """The 512 bytes that the BIOS loads and starts."""
    return bytes.fromhex(_CODE).ljust(510, b"\0") + b"\x55\xaa"


def boot_argv(
    boot: Path, serial: int, disk: Disk, accelerator: Accelerator = Accelerator.TCG
) -> tuple[str, ...]:
    """QEMU's command line to boot the floppy `boot`, with `disk` as the first hard disk."""
    return (
        X86_64.emulator, "-name", f"guest={disk.serial}-boot",
        "-machine", X86_64.default_machine, "-accel", accelerator.value, "-m", "32",
        "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
        "-drive", f"if=floppy,format=raw,readonly=on,file={boot}", "-boot", "a",
        "-chardev", f"socket,id=line,fd={serial}", "-serial", "chardev:line",
        *cold_arguments(disk),
    )  # fmt: skip


def bus_refusal(bus: Bus) -> PlanError | None:
    """Why the boot sector cannot use a bus; None when it can."""
    if not GUEST.has_bios:
        return PlanError(
            f"the boot sector is started by a BIOS, and guests of {GUEST.title} have none",
            hint="choose another client",
        )
    if bus in _BUSES:
        return None
    return PlanError(
        f"the boot sector supports the buses {' and '.join(_BUSES)}, not {bus}",
        hint="write one of them as the bus",
    )


@dataclass(slots=True)
class BootSectorDisk:
    """A `ClientDisk` that writes one sector at a time and never flushes."""

    line: socket.socket
    observed: Mapping[str, str] = field(default_factory=dict)
    """What runs the guest. The boot sector itself cannot read properties back."""
    _requests: int = 0

    def write(self, first: int, count: int, version: int, *, fua: bool) -> int:
        """Sends a write; the BIOS has no FUA, and `count` must be 1."""
        if fua or count != 1:
            raise PlanError("a boot sector writes one sector at a time, without FUA")
        record = make_records(np.array([first], dtype=np.int64), version).tobytes()
        try:
            self.line.sendall(first.to_bytes(8, "little") + record)
        except OSError as error:
            raise _line_lost("the BIOS", error) from error
        self._requests += 1
        return self._requests

    def flush(self) -> int:
        """Raises PlanError: the BIOS has no such call."""
        raise PlanError("a boot sector never flushes", hint="choose --client never")

    def await_one(self) -> int:
        """Waits for an answer. Raises GuestError when the write failed."""
        answer = _receive_byte(self.line, _ANSWER_SECONDS, "the BIOS")
        if answer != _WRITTEN:
            raise GuestError(f"the BIOS could not write (status {answer!r})")
        return self._requests


def _receive_byte(line: socket.socket, seconds: float, sender: str) -> bytes:
    seconds *= waiting.patience()
    readable, _, _ = select.select([line], [], [], seconds)
    if not readable:
        raise GuestError(f"{sender} did not answer within {seconds:.0f} s")
    try:
        byte = line.recv(1)
    except OSError as error:
        raise _line_lost(sender, error) from error
    if not byte:
        raise _line_lost(sender)
    return byte


def _line_lost(sender: str, cause: OSError | None = None) -> GuestError:
    reason = "" if cause is None else f": {cause.strerror}"
    return GuestError(
        f"the connection to {sender} was lost{reason}",
        hint="QEMU ended: `dmesg` shows whether it was killed for lack of memory",
    )


@contextmanager
def boot_sector_disk(
    site: Site, disk: Disk, accelerator: Accelerator = Accelerator.TCG
) -> Iterator[BootSectorDisk]:
    """The disk in a booted guest. Raises PlanError for a bus that SeaBIOS does not drive."""
    refusal = bus_refusal(disk.attachment.bus)
    if refusal is not None:
        raise refusal
    boot = site.directory / f"{disk.serial}.boot"
    with ExitStack() as stack:
        stack.enter_context(site.tracked(Kind.FILE, boot))
        site.new_file(boot)
        boot.write_bytes(boot_sector())
        stack.enter_context(site.tracked(Kind.PROCESS, f"guest={disk.serial}-boot"))
        near, far = stack.enter_context(socket_pair())
        errors = site.directory / f"{disk.serial}.stderr"
        stack.enter_context(site.tracked(Kind.FILE, errors))
        argv = boot_argv(boot, far.fileno(), disk, accelerator)
        stack.enter_context(qemu_process(argv, (far,), errors))
        far.close()
        try:
            greeting = _receive_byte(near, _BOOT_SECONDS, "the boot sector")
        except GuestError as error:
            said = [
                line
                for line in errors.read_text(errors="replace").splitlines()
                if line.strip() and "warning:" not in line
            ]
            hint = error.hint
            if accelerator is Accelerator.KVM:
                hint = "`vdisklab doctor` says whether KVM works here"
            raise GuestError(": ".join([str(error), *said[-1:]]), hint=hint) from error
        if greeting != _BOOTED:
            raise GuestError(f"the boot sector sent {greeting!r} instead of {_BOOTED!r}")
        yield BootSectorDisk(near, observed_accelerator(accelerator))
