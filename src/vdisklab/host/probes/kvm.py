"""KVM, tried rather than believed: does it run instructions, in every mode that a kernel needs?

/dev/kvm can be opened on machines where no guest ever gets on. So a boot sector is run that
goes the way of every 64-bit kernel (real mode, protected mode, paging, long mode), prints a
letter at each station and ends QEMU with a status of its own. That is necessary, not enough:
some virtual machines run these few instructions and stall in a real kernel's first thousands,
so `try_kvm` takes a second trial that boots one.
"""

from __future__ import annotations

import os
import platform
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from vdisklab.errors import CommandError, HostError, VdisklabError
from vdisklab.host.command import Host

# How long the boot sector may take. Working KVM needs some 0.1 s; where every exit is itself
# emulated it was seen to take 8 s, which no measurement should be built on.
DEADLINE_SECONDS = 5.0

DEVICE = Path("/dev/kvm")

KernelTrial = Callable[[float], None]
"""Boots a real kernel under KVM within so many seconds, or raises VdisklabError."""

_QEMU = "qemu-system-x86_64"

# isa-debug-exit ends QEMU with (value << 1) | 1; the boot sector writes 42.
_EXIT_STATUS = 42 << 1 | 1

_STATIONS = {"": "the firmware", "R": "real mode", "RP": "protected mode", "RPL": "long mode"}

# Loaded at 0x7c00. Each line is one instruction (or few); port 0xe9 takes the letters.
_CODE = (
    # .code16
    "fa 31c0 8ed8 8ec0 8ed0 bc007c"  # cli; ds = es = ss = 0; sp = 0x7c00
    "b052 e6e9"  # 'R'
    "fc bf0010 6631c0 b9000c 66f3ab"  # zero three pages of page tables from 0x1000
    "c70600100320"  # PML4[0] = 0x2000 | present | writable
    "c70600200330"  # PDPT[0] = 0x3000 | present | writable
    "c70600308300"  # PD[0] = 0 | present | writable | 2 MiB page
    "660f0116b07c"  # lgdt [0x7cb0]
    "0f20c0 0c01 0f22c0"  # cr0.PE = 1
    "ea427c0800"  # jump to 0x08:0x7c42
    # .code32
    "66b81000 8ed8 8ec0 8ed0"  # ds = es = ss = 0x10
    "b050 e6e9"  # 'P'
    "0f20e0 0c20 0f22e0"  # cr4.PAE = 1
    "b800100000 0f22d8"  # cr3 = 0x1000
    "b9800000c0 0f32 80cc01 0f30"  # EFER.LME = 1
    "0f20c0 0d00000080 0f22c0"  # cr0.PG = 1
    "ea7e7c00001800"  # jump to 0x18:0x7c7e
    # .code64
    "b04c e6e9"  # 'L'
    "b02a e6f4"  # 42 to isa-debug-exit
    "f4 ebfd"  # hlt, for ever
    "0f1f8000000000"  # padding to 0x7c90
    "0000000000000000"  # GDT: null
    "ffff0000009acf00"  # 0x08: 32-bit code
    "ffff00000092cf00"  # 0x10: data
    "ffff0000009aaf00"  # 0x18: 64-bit code
    "1f00 907c0000"  # 0x7cb0: limit and base of the GDT
)


@dataclass(frozen=True, slots=True)
class KvmTrial:
    """What came of trying KVM: whether guests run, what was tried, and what may mend it."""

    works: bool
    tried: str
    mend: str | None = None


def boot_sector() -> bytes:
    """The 512 bytes that a BIOS loads and starts."""
    return bytes.fromhex(_CODE).ljust(510, b"\0") + b"\x55\xaa"


def boot_sector_argv(disk: Path, console: Path, accelerator: str) -> tuple[str, ...]:
    """QEMU's command line that boots `disk`, with its letters going to `console`."""
    # fmt: off
    return (
        _QEMU, "-accel", accelerator, "-machine", "pc", "-m", "16",
        "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
        "-drive", f"if=floppy,format=raw,readonly=on,file={disk}",
        "-device", "isa-debug-exit,iobase=0xf4,iosize=4",
        "-chardev", f"file,id=console,path={console}",
        "-device", "isa-debugcon,iobase=0xe9,chardev=console",
    )
    # fmt: on


def try_kvm(
    host: Host,
    *,
    deadline: float = DEADLINE_SECONDS,
    kernel_trial: KernelTrial | None = None,
    kernel_deadline: float = 20.0,
    device: Path = DEVICE,
) -> KvmTrial:
    """Tries KVM in three steps: the device, the boot sector, and a real kernel if one is given."""
    refused = _device_refused(device)
    if refused is not None:
        return refused
    if platform.machine() not in ("x86_64", "i686"):
        return KvmTrial(True, f"{device} opens; no boot sector for {platform.machine()} was tried")
    booted = kvm_runs_a_guest(host, deadline)
    if not booted.works or kernel_trial is None:
        return booted
    begun = time.monotonic()
    try:
        kernel_trial(kernel_deadline)
    except VdisklabError as error:
        return KvmTrial(False, f"{booted.tried}; but a real kernel did not boot: {error}")
    return KvmTrial(True, f"{booted.tried}; a kernel booted in {time.monotonic() - begun:.1f} s")


def kvm_runs_a_guest(
    host: Host, deadline: float = DEADLINE_SECONDS, accelerator: str = "kvm"
) -> KvmTrial:
    """Boots the boot sector; says how far it came when it did not end as told in `deadline` s."""
    if host.which(_QEMU) is None:
        return KvmTrial(False, f"{_QEMU} is not installed, so nothing was tried")
    with tempfile.TemporaryDirectory(prefix="vdisklab-kvm-") as directory:
        disk, console = Path(directory, "sector"), Path(directory, "console")
        disk.write_bytes(boot_sector())
        begun = time.monotonic()
        try:
            host.run(
                *boot_sector_argv(disk, console, accelerator),
                timeout=deadline,
                allowed=(_EXIT_STATUS,),
            )
        except CommandError as error:
            return KvmTrial(False, f"QEMU refused {accelerator}: {error}")
        except HostError:
            return KvmTrial(False, f"a boot sector under {accelerator} {_how_far(console, begun)}")
    seconds = time.monotonic() - begun
    return KvmTrial(True, f"a boot sector reached long mode in {seconds:.1f} s")


def _device_refused(device: Path) -> KvmTrial | None:
    if not device.exists():
        return KvmTrial(False, f"{device} does not exist")
    try:
        os.close(os.open(device, os.O_RDWR | os.O_CLOEXEC))
    except PermissionError as error:
        seen = f"{device} cannot be opened: {error.strerror}"
        return KvmTrial(False, seen, "become root, or join its group: usermod --append -G kvm USER")
    except OSError as error:
        return KvmTrial(False, f"{device} cannot be opened: {error.strerror}")
    return None


def _how_far(console: Path, begun: float) -> str:
    letters = console.read_text(errors="replace") if console.exists() else ""
    station = _STATIONS.get(letters, "an unknown place")
    return f"was still in {station} after {time.monotonic() - begun:.1f} s"
