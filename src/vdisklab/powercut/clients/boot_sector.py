"""The guest that never flushes: 512 bytes of real mode that write through the BIOS (INT 13h).

DOS, boot loaders and old systems never flush, and the BIOS has no call for it. SeaBIOS is the
disk's driver, so the features that it negotiates (a write cache or none) decide what is lost.
"""

from __future__ import annotations

import select
import socket
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from vdisklab.errors import GuestError, PlanError
from vdisklab.guest.qemu.block_nodes import Disk, cold_arguments
from vdisklab.guest.qemu.qmp import qemu_process, socket_pair
from vdisklab.host.ledger import Kind
from vdisklab.host.waiting import patience
from vdisklab.path.segments import Bus
from vdisklab.plan.guest import Accelerator
from vdisklab.powercut.clients.client_guests import accelerator_seen
from vdisklab.powercut.sectors import make_records
from vdisklab.storage.site import Site

PROGRAM = "qemu-system-x86_64"

_BUSES = (Bus.IDE, Bus.VIRTIO)
"""Buses with a SeaBIOS driver on the machine `pc`."""

_BOOT_SECONDS = 30.0
_ANSWER_SECONDS = 30.0
_BOOTED, _WRITTEN = b"R", b"K"

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


def boot_sector() -> bytes:
    """The 512 bytes that the BIOS loads and starts."""
    return bytes.fromhex(_CODE).ljust(510, b"\0") + b"\x55\xaa"


def boot_argv(
    boot: Path, serial: int, disk: Disk, accelerator: Accelerator = Accelerator.TCG
) -> tuple[str, ...]:
    """QEMU's command line to boot the floppy `boot`, with `disk` as the first hard disk."""
    return (
        PROGRAM, "-name", f"guest={disk.serial}-boot",
        "-machine", "pc", "-accel", accelerator.value, "-m", "32",
        "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
        "-drive", f"if=floppy,format=raw,readonly=on,file={boot}", "-boot", "a",
        "-chardev", f"socket,id=line,fd={serial}", "-serial", "chardev:line",
        *cold_arguments(disk),
    )  # fmt: skip


def bus_refusal(bus: Bus) -> PlanError | None:
    """Why the boot sector cannot use a bus; None when it can."""
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
    seen: Mapping[str, str] = field(default_factory=dict)
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
    seconds *= patience()
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
        yield BootSectorDisk(near, accelerator_seen(accelerator))
