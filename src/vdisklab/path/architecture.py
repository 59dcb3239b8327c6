"""An architecture is one row: what its machines, kernels and programs are called.

`GUEST` is the architecture of the guests that are measured, whatever else QEMU could emulate. Code
that reads what other programs write compares with `X86_64`, because the defaults of these programs
do not depend on the guests measured here.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SystemCalls:
    """Numbers of seccomp, and of system calls that Python, its threads or a guest's perl lack.

    `audit` is the architecture's AUDIT_ARCH_… in linux/audit.h.
    """

    audit: int
    seccomp: int
    fsync: int
    fdatasync: int
    perf_event_open: int
    fallocate: int
    setgroups: int


@dataclass(frozen=True, slots=True)
class BootFile:
    """The format of a kernel that QEMU boots with `-kernel`.

    `described` names it with its article, for messages. `release` returns the kernel's release, as
    `uname -r` prints it, from the first 64 KiB of a file; None for a file of another format.
    """

    name: str
    described: str
    release: Callable[[bytes], str | None]


@dataclass(frozen=True, slots=True)
class Packages:
    """Debian's packages. `kernel` and `cloud_kernel` depend on the newest kernel of their kind."""

    kernel: str
    cloud_kernel: str
    kernel_headers: str
    emulator: str
    firmware: str


@dataclass(frozen=True, slots=True)
class UefiFiles:
    """UEFI without Secure Boot. `program` is its row in host/packages.txt.

    `files` are places of its code, and of its variables, which each guest copies.
    """

    program: str
    files: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Architecture:
    """Facts about one architecture of guests. The name is what uname(2) and QEMU call it."""

    name: str
    title: str
    """The name in text."""
    aliases: tuple[str, ...]
    """Other names of it, such as those of Debian, Go and Kubernetes."""
    runs: tuple[str, ...]
    """Older architectures, by the names of uname(2), whose guests its hosts run natively."""
    emulator: str
    emulator_targets: Mapping[str, str]
    """Of each `qemu-system-NAME` with these machines: NAME, and the guest's name of uname(2)."""
    default_machine: str
    """The machine of a QEMU that was started without `-machine`; empty if QEMU demands one."""
    default_interface: str
    """`if=` of a -drive that names none (QEMU, MachineClass.block_default_type)."""
    machines: Mapping[str, str]
    """QEMU's machine by bus. A bus without a machine does not exist on this architecture."""
    console: str
    """The kernel's name of the serial port."""
    emulated_clock: str
    """Kernel parameters that give an emulated guest the fast clock of a KVM guest."""
    slow_cpu_features: tuple[str, ...]
    """Features of the CPU that cost most under emulation."""
    kvm_modules: Mapping[str, str]
    """KVM's kernel module by the CPU's flag in /proc/cpuinfo."""
    boot_file: BootFile
    firmware: UefiFiles
    packages: Packages
    diskspd: str
    """The program's place in Microsoft's archive of DISKSPD."""
    system_calls: SystemCalls

    def runs_guests_of(self, name: str) -> bool:
        """True if its hosts run guests of that architecture natively."""
        return name in (self.name, *self.aliases, *self.runs)


def _release_of_bzimage(image: bytes) -> str | None:
    """The header's fields are those of Documentation/arch/x86/boot.rst."""
    if image[0x202:0x206] != b"HdrS":
        return None
    (pointer,) = struct.unpack_from("<H", image, 0x20E)
    start = pointer + 0x200
    version = image[start : image.find(b"\0", start)].split() if pointer else []
    return version[0].decode(errors="replace") if version else None


X86_64 = Architecture(
    name="x86_64",
    title="x86-64",
    aliases=("amd64",),
    runs=("i686",),
    emulator="qemu-system-x86_64",
    emulator_targets={"x86_64": "x86_64", "i386": "i686"},
    default_machine="pc",
    default_interface="ide",
    # PIIX IDE exists on `pc` only.
    machines={
        "ide": "pc",
        **dict.fromkeys(
            ("virtio", "scsi", "sata", "nvme", "usb", "vhostuser", "virtiofs", "9p"), "q35"
        ),
    },
    console="ttyS0",
    # Under KVM guests read the clock without leaving the CPU. Under emulation the kernel does not
    # trust the CPU's counter and reads an emulated timer, which costs more than a small read from a
    # disk; `tsc=reliable` prevents it (docs/guest.md has the measurements). A kernel that finds
    # neither KVM nor `no_timer_check` panics ("IO-APIC + timer doesn't work") if a busy host delays
    # the emulated timer's ticks while it tests them (check_timer in
    # arch/x86/kernel/apic/io_apic.c); a KVM guest does not test.
    emulated_clock="tsc=reliable no_timer_check",
    slow_cpu_features=("la57", "erms", "fsrm"),
    kvm_modules={"vmx": "kvm_intel", "svm": "kvm_amd"},
    boot_file=BootFile("bzImage", "an x86 kernel image (bzImage)", _release_of_bzimage),
    firmware=UefiFiles(
        "OVMF",
        (
            ("/usr/share/OVMF/OVMF_CODE_4M.fd", "/usr/share/OVMF/OVMF_VARS_4M.fd"),  # Debian 12
            ("/usr/share/OVMF/OVMF_CODE.fd", "/usr/share/OVMF/OVMF_VARS.fd"),  # Debian 11, Ubuntu
            ("/usr/share/edk2/ovmf/OVMF_CODE.fd", "/usr/share/edk2/ovmf/OVMF_VARS.fd"),  # Fedora
        ),
    ),
    packages=Packages(
        kernel="linux-image-amd64",
        cloud_kernel="linux-image-cloud-amd64",
        kernel_headers="linux-headers-amd64",
        emulator="qemu-system-x86",
        firmware="seabios",
    ),
    diskspd="amd64/diskspd.exe",
    system_calls=SystemCalls(
        audit=0xC000003E,
        seccomp=317,
        fsync=74,
        fdatasync=75,
        perf_event_open=298,
        fallocate=285,
        setgroups=116,
    ),
)

ARCHITECTURES = (X86_64,)

GUEST = X86_64
"""The architecture of the guests that are measured."""

SYSTEM_CALLS: Mapping[str, SystemCalls] = {
    **{row.name: row.system_calls for row in ARCHITECTURES},
    "aarch64": SystemCalls(
        audit=0xC00000B7,
        seccomp=277,
        fsync=82,
        fdatasync=83,
        perf_event_open=241,
        fallocate=47,
        setgroups=159,
    ),
}
"""The numbers of each architecture that a host may have, by the name of uname(2)."""


def host_of(name: str) -> str:
    """The architecture, as uname(2) names it, of the hosts that run guests of `name` natively."""
    return next((row.name for row in ARCHITECTURES if row.runs_guests_of(name)), name)
